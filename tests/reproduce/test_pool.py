"""The processes: what one of them does cannot harm the others."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from refactorgnn.reproduce.pool import _Pool, do_all


def task(name: str) -> None:
    if name == "killed":
        os._exit(3)
    if name == "wrong":
        raise RuntimeError("line one\nline two")
    Path(name).write_text(str(os.getpid()), encoding="utf-8")


@pytest.mark.slow
def test_a_process_that_dies_takes_its_own_task_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    begun: list[str] = []
    names = ["a", "killed", "b", "wrong", "c"]
    outcomes = dict(do_all(task, names, 2, begun.append))
    assert outcomes.pop("killed") == "its process ended unexpectedly (exit code 3)"
    assert outcomes.pop("wrong") == "RuntimeError: line one"
    assert outcomes == dict.fromkeys("abc")
    assert begun == names
    workers = {Path(name).read_text(encoding="utf-8") for name in "abc"}
    assert str(os.getpid()) not in workers
    assert len(workers) <= 3  # processes are used again, but for the one that died


def test_one_job_is_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcomes = dict(do_all(task, ["a", "wrong", "b"], 1, lambda _: None))
    assert outcomes == {"a": None, "wrong": "RuntimeError: line one", "b": None}
    assert (tmp_path / "a").read_text(encoding="utf-8") == str(os.getpid())


def test_a_process_that_died_with_nothing_to_do_is_noticed_where_its_answer_is_read() -> None:
    ours, theirs = multiprocessing.Pipe()
    theirs.close()
    pool = _Pool(task, ["a"], 1, lambda _: None)
    pool._give(multiprocessing.Process(), ours)
    assert ours in pool.busy
    with pytest.raises((EOFError, OSError)):
        ours.recv()
