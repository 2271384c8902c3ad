"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import refactorgnn

MODULES = [name for _, name, _ in pkgutil.walk_packages(refactorgnn.__path__, "refactorgnn.") if "__main__" not in name]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_function_of_the_api_has_an_example() -> None:
    for function in (
        refactorgnn.train,
        refactorgnn.ensemble,
        refactorgnn.evaluate,
        refactorgnn.predict,
        refactorgnn.load_predictor,
        refactorgnn.explain,
        refactorgnn.load_graph,
    ):
        assert ">>> " in (function.__doc__ or ""), function.__name__
