"""The examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
from pathlib import Path

import pytest

import refactorgnn

MODULES = [name for _, name, _ in pkgutil.walk_packages(refactorgnn.__path__, "refactorgnn.") if "__main__" not in name]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    if importlib.util.find_spec("optuna") is None:  # the extra `tune`, which developers have
        examples = [test for test in examples if test.name != "refactorgnn.api.training.tune"]
    runner = doctest.DocTestRunner()
    for example in examples:
        runner.run(example)
    assert runner.summarize().failed == 0


def test_every_function_of_the_api_has_an_example() -> None:
    for function in (
        refactorgnn.train,
        refactorgnn.tune,
        refactorgnn.ensemble,
        refactorgnn.evaluate,
        refactorgnn.predict,
        refactorgnn.reproduce,
        refactorgnn.load_predictor,
        refactorgnn.explain,
        refactorgnn.export_embeddings,
        refactorgnn.save_pretrained,
        refactorgnn.load_graph,
    ):
        assert ">>> " in (function.__doc__ or ""), function.__name__
