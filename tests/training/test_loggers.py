"""Logs beside metrics.jsonl hold the same numbers, also after a resume."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import refactorgnn
from refactorgnn import Run, UserError
from refactorgnn.training import loggers, loop
from tests.conftest import QUICK, Cli

SETTINGS = {**QUICK, "epochs": 5, "validate_every": 2, "progress": False}


def csv_records(run: Run) -> list[dict[str, float]]:
    """The rows of the CSV file, in the form of ``metrics.jsonl``."""
    with (run.path / "logs" / "csv" / "metrics.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["epoch"] = row.pop("step")
    return [{name: float(value) for name, value in row.items() if value} for row in rows]


def tensorboard_records(run: Run) -> list[dict[str, float]]:
    """What TensorBoard shows, in the form of ``metrics.jsonl``."""
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = events.EventAccumulator(str(run.path / "logs" / "tensorboard"), size_guidance={events.SCALARS: 0})
    accumulator.Reload()
    found: dict[int, dict[str, float]] = {}
    for name in accumulator.Tags()["scalars"]:
        for event in accumulator.Scalars(name):
            assert name not in found.setdefault(event.step, {"epoch": event.step}), "one value a step"
            found[event.step][name] = event.value
    return [found[step] for step in sorted(found)]


READERS = {"csv": csv_records, "tensorboard": tensorboard_records}


def assert_all_alike(run: Run) -> None:
    expected = run.records()
    assert [record["epoch"] for record in expected] == [1, 2, 3, 4, 5]
    assert [("valid_mrr" in record) for record in expected] == [False, True, False, True, True]
    for read in READERS.values():
        got = read(run)
        assert len(got) == len(expected)
        for ours, theirs in zip(got, expected, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-6)  # TensorBoard keeps float32


def test_logs_hold_the_numbers_of_the_records(tiny: Path, tmp_path: Path) -> None:
    assert_all_alike(refactorgnn.train(tiny, out=tmp_path / "run", log="csv+tensorboard", **SETTINGS))


def test_a_resumed_run_has_each_epoch_once(tiny: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Killed when epoch 3 is in all logs but not in the checkpoint: it is done, and logged, once more."""
    original, calls = loop.optimizer_tensors, []

    def failing(optimizer: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(optimizer)

    settings = {**SETTINGS, "out": tmp_path / "run", "log": "csv+tensorboard"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "optimizer_tensors", failing)
        with pytest.raises(KeyboardInterrupt):
            refactorgnn.train(tiny, **settings)
    interrupted = Run.open(tmp_path / "run")
    for records in (interrupted.records(), csv_records(interrupted), tensorboard_records(interrupted)):
        assert [record["epoch"] for record in records] == [1, 2, 3]
    assert_all_alike(refactorgnn.train(tiny, resume=True, **settings))
    assert not [warning for warning in recwarn if issubclass(warning.category, UserWarning)]


def test_logs_can_begin_with_a_resume(tiny: Path, tmp_path: Path) -> None:
    """Where and how to compute and log is no part of what is computed: a resumed run may change it."""
    original = loop._Training._seeded_batches

    def failing(self: loop._Training, epoch: int) -> Iterator[Any]:
        if epoch == 3:
            raise KeyboardInterrupt
        return original(self, epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop._Training, "_seeded_batches", failing)
        with pytest.raises(KeyboardInterrupt):
            refactorgnn.train(tiny, out=tmp_path / "run", **SETTINGS)
    run = refactorgnn.train(tiny, out=tmp_path / "run", log="csv", resume=True, **SETTINGS)
    assert run.train_config.log == "csv"
    assert [record["epoch"] for record in csv_records(run)] == [1, 2, 3, 4, 5]


def test_without_a_log_there_is_none(tiny_run: Run) -> None:
    assert not (tiny_run.path / "logs").exists()


def test_an_unknown_log_is_refused(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    cli("train", tiny, "--log", "csv+wandb", "--out", tmp_path / "run").refused("unknown log 'wandb'")
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_named_before_anything_is_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = loggers.find_spec
    monkeypatch.setattr(loggers, "find_spec", lambda name: None if name.startswith("tensorboard") else find(name))
    with pytest.raises(UserError, match=r"pip install 'refactorgnn\[tensorboard\]'") as caught:
        refactorgnn.train(tiny, out=tmp_path / "run", log="tensorboard", **SETTINGS)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
