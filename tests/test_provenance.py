"""Records say where a figure comes from, and nothing about the folders of one machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from refactorgnn.provenance import command, commit, provenance


def test_command_keeps_no_absolute_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["/usr/bin/refactorgnn", "train", "UMLS", "--out", "/home/me/runs/a", "--data-root=/data", "--n3", "0.1"]
    monkeypatch.setattr(sys, "argv", [*words, "runs/b", "--x=1"])
    assert command() == "refactorgnn train UMLS --out …/a --data-root=…/data --n3 0.1 runs/b --x=1"


def test_command_of_a_module_is_named_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/lib/refactorgnn/__main__.py", "data", "list"])
    assert command() == "refactorgnn data list"


def test_provenance_names_what_another_person_needs() -> None:
    found = provenance()
    assert set(found) == {"version", "commit", "command", "time", "python", "torch", "hardware"}
    assert found["hardware"]["threads"] >= 1


def test_the_commit_is_that_of_the_code_that_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of a checkout that was moved on while a run lasted."""
    before = commit()

    def moved(*_: object, **__: object) -> None:
        raise AssertionError("asked again")

    monkeypatch.setattr(subprocess, "run", moved)
    assert provenance()["commit"] == before
