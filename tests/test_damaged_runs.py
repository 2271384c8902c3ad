"""Runs that were damaged, mixed up or tampered with: exit code 2 and one sentence, never a traceback."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import save_file

import refactorgnn
from refactorgnn import Run
from tests.conftest import (
    ODD_NAME,
    QUICK,
    QUICK_OPTIONS,
    Cli,
    rows,
    tiny_triples,
    write_folder,
)

GOOD = {split: rows(triples) for split, triples in tiny_triples().items()}


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def _foreign(path: Path) -> None:
    save_file({"states": torch.zeros(24, 8), "relations": torch.zeros(6, 8)}, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "fragments"),
    [
        (_truncate, ["the file is damaged or cut short", "restore it or train again"]),
        (lambda path: path.write_bytes(b""), ["the file is damaged or cut short"]),
        (lambda path: path.write_bytes(b"PK\3\4 a pickle in a zip"), ["the file is damaged or cut short"]),
        (_foreign, ["these weights were not written by refactorgnn", "train again"]),
    ],
    ids=["truncated", "empty", "pickle", "foreign"],
)
def test_damaged_weights(
    damage: Callable[[Path], None], fragments: list[str], cli: Cli, tiny: Path, run_copy: Path
) -> None:
    damage(run_copy / "model.safetensors")
    cli("evaluate", run_copy).refused("model.safetensors", *fragments)
    cli("predict", run_copy, "--head", "person 1", "--relation", "across").refused("model.safetensors", *fragments)
    damage(run_copy / "last.safetensors")
    cli("train", tiny, "--out", run_copy, "--resume", *QUICK_OPTIONS).refused("last.safetensors", *fragments)


def test_missing_weights(cli: Cli, run_copy: Path) -> None:
    (run_copy / "model.safetensors").unlink()
    cli("evaluate", run_copy).refused("model.safetensors", "the weights are missing", "train again")


@pytest.mark.parametrize(
    "other",
    [{"dim": 4}, {"seed": 1}, {"scorer": "complex"}, {"learning_rate": 0.2}],
    ids=str,
)
def test_weights_of_another_run(other: dict[str, object], cli: Cli, tiny: Path, run_copy: Path, tmp_path: Path) -> None:
    """Even where every tensor has the same shape: the answers would be silently wrong."""
    foreign = refactorgnn.train(tiny, out=tmp_path / "other", progress=False, **QUICK | {"epochs": 1} | other)
    for name in ("model.safetensors", "last.safetensors"):
        shutil.copy(foreign.path / name, run_copy / name)
    fragments = "do not belong to this run's settings and graph", "restore the file or train again"
    cli("evaluate", run_copy).refused("model.safetensors", *fragments)
    cli("train", tiny, "--out", run_copy, "--resume", *QUICK_OPTIONS).refused("last.safetensors", *fragments)


def test_weights_of_the_same_settings_on_a_graph_of_the_same_size(
    cli: Cli, tiny_run: Run, run_copy: Path, tmp_path: Path
) -> None:
    renamed = write_folder(tmp_path / "renamed", **{k: v.replace("person", "people") for k, v in GOOD.items()})
    other = refactorgnn.train(renamed, out=tmp_path / "other", progress=False, **QUICK)
    shutil.copy(other.weights_path, run_copy)
    cli("evaluate", run_copy).refused("model.safetensors", "do not belong to this run's settings and graph")
    shutil.copy(tiny_run.weights_path, run_copy)
    shutil.rmtree(run_copy / "graph")
    shutil.copytree(other.path / "graph", run_copy / "graph")
    cli("evaluate", run_copy).refused("graph", "its entities are not those the run was trained on")


def test_weights_that_are_not_numbers(cli: Cli, run_copy: Path) -> None:
    run = Run.open(run_copy)
    tensors = run.load_model().state_dict()
    run.save_tensors(run.weights_path, {name: tensor * torch.nan for name, tensor in tensors.items()})
    for command in (["evaluate"], ["predict", "--head", "person 1", "--relation", "across"]):
        cli(*command, run_copy).refused("not finite", "smaller learning rate")


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        (b"dim: [1, 2", ["this is not a YAML file"]),
        (b"\xff\xfe\0", ["this is not a YAML file"]),
        (b"", ["holds no settings"]),
        (b"just words", ["holds no settings"]),
        (b"1: 2", ["correct it"]),
        (b"dim: 8\n", ["setting 'dataset' is missing"]),
        (b"dataset: tiny\ndimm: 8\n", ["unknown setting 'dimm'", "did you mean 'dim'"]),
        (b"dataset: tiny\ndim: many\n", ["setting dim cannot be 'many'", "integer"]),
        (b"dataset: tiny\nscorer: dismult\n", ["unknown scorer 'dismult'", "distmult"]),
        (b"dataset: tiny\nscorer: complex\ndim: 7\n", ["cannot use dim=7"]),
        (b"dataset: tiny\nscorer: complex\ndim: 8\n", ["scorer is 'complex'", "with 'distmult'", "put it back"]),
        (b"dataset: tiny\ndim: 16\n", ["dim is 16", "trained with 8"]),
        (yaml.safe_dump({"dataset": ODD_NAME, "model": "[/b]"}).encode(), ["unknown model '[/b]'"]),
    ],
)  # fmt: skip
def test_damaged_settings(content: bytes, fragments: list[str], cli: Cli, run_copy: Path) -> None:
    (run_copy / "config.yaml").write_bytes(content)
    cli("evaluate", run_copy).refused(run_copy / "config.yaml", *fragments)


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        (b'{"format": ', ["not readable JSON"]),
        (b"\xff\xfe\0", ["not readable JSON"]),
        (None, ["not readable JSON"]),
        (b"[]", ["was not written by refactorgnn"]),
        (b'{"format": "other"}', ["was not written by refactorgnn", "refactorgnn-run-1"]),
        (b'{"format": "refactorgnn-run-1"}', ["the entry 'model' is missing"]),
    ],
)
def test_a_damaged_sidecar(content: bytes | None, fragments: list[str], cli: Cli, run_copy: Path) -> None:
    if content is None:
        (run_copy / "model.json").unlink()
    else:
        (run_copy / "model.json").write_bytes(content)
    cli("evaluate", run_copy).refused(run_copy / "model.json", *fragments)


def test_a_damaged_graph(cli: Cli, run_copy: Path) -> None:
    _truncate(run_copy / "graph" / "train.parquet")
    cli("evaluate", run_copy).refused("train.parquet", "cannot be read as Parquet")
    (run_copy / "graph" / "train.parquet").unlink()
    cli("evaluate", run_copy).refused(run_copy / "graph", "there is no train file")


def test_a_damaged_log_is_named_when_resuming(cli: Cli, tiny: Path, run_copy: Path) -> None:
    (run_copy / "metrics.jsonl").write_text('{"epoch": 1}\n{epoch: 2}\n')
    resumed = cli("train", tiny, "--out", run_copy, "--resume", *QUICK_OPTIONS)
    resumed.refused("metrics.jsonl", "not readable JSON", "mend or delete")
