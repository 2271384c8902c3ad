"""Each row really runs, leaves a record, and is not measured twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from refactorgnn.bench import running
from refactorgnn.bench.cases import ROWS, Case, Choice
from refactorgnn.bench.records import BenchRecord
from refactorgnn.bench.running import measure_here, run_bench
from refactorgnn.errors import UserError
from tests.bench.planted import planted_record
from tests.conftest import Cli

TINY = "synthetic-40-3-160"


@pytest.mark.parametrize("row", [row for row in ROWS if not row.startswith("training")])
def test_a_row_is_measured(row: str) -> None:
    figures = measure_here(Case(row, TINY, 8, layers=ROWS[row].layers), repeats=2)
    assert all(len(figures["seconds"][name]) == 2 for name in ("subject", "floor"))
    assert min(figures["seconds"]["subject"] + figures["seconds"]["floor"]) > 0
    assert figures["sizes"]["num_entities"] == 40
    assert figures["floor"]["num_products"] == {"layer-backward": 10, "step": 6 * 11, "evaluation": 1}.get(row, 3)
    expected = {"evaluation": ["PyG DistMult.test", "PyKEEN DistMult"], "step": [], "sampled-layer": []}
    assert [rival["name"] for rival in figures["rivals"]] == expected.get(row, ["published formulation"])
    json.dumps(figures)


@pytest.mark.slow
def test_a_whole_training_is_measured() -> None:
    figures = measure_here(Case("training", TINY, 8, layers=2), repeats=1)
    assert figures["sizes"]["steps"] == 120
    assert figures["floor"]["num_products"] == 120 * 11
    assert figures["seconds"]["subject"][0] > figures["seconds"]["floor"][0]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    """The cases that a command measures, with figures made up."""
    found: list[Case] = []

    def measure(case: Case, repeats: int, data_root: Path | None) -> BenchRecord:
        if case.dim == 13:
            raise UserError("no luck with that: choose another.")
        found.append(case)
        record = planted_record(case)
        record.provenance["hardware"] = running.hardware()
        return record

    monkeypatch.setattr(running, "measure", measure)
    return found


def test_what_has_a_record_is_not_measured_again(measured: list[Case], tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    choice = Choice(["layer"], ["UMLS"], [8, 16])
    run_bench(choice, tmp_path, progress=False)
    run_bench(choice, tmp_path, progress=False)
    assert [case.dim for case in measured] == [8, 16]
    run_bench(Choice(["layer"], ["UMLS"], [16, 32]), tmp_path, progress=False)
    assert [case.dim for case in measured[2:]] == [32]
    run_bench(choice, tmp_path, again=True, progress=False)
    assert [case.dim for case in measured[3:]] == [8, 16]
    torch.set_num_threads(threads)


def test_a_failure_does_not_stop_the_others(measured: list[Case], tmp_path: Path, cli: Cli) -> None:
    outcome = cli("bench", "layer", "--datasets", "UMLS", "--dims", "13,16", "--out", tmp_path)
    assert outcome.code == 1
    assert "layer of UMLS, d=13, 32 on cpu: no luck with that: choose another" in outcome.err
    assert [case.dim for case in measured] == [16]
    assert "1.5000" in outcome.out


def test_show_writes_the_page_and_measures_nothing(measured: list[Case], tmp_path: Path, cli: Cli) -> None:
    planted_record(Case("layer", "UMLS", 8)).write(tmp_path)
    outcome = cli("bench", "--show", "--out", tmp_path, "--json")
    assert outcome.code == 0
    (row,) = json.loads(outcome.out)
    assert (row["dataset"], row["seconds"], row["floor_seconds"], row["ratio"]) == ("UMLS", 0.003, 0.002, 1.5)
    assert "| UMLS | 480 |" in (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert measured == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("layers",), "did you mean 'layer'"),
        (("layer", "--dims", "wide"), "--dims wide cannot be read"),
        (("layer", "--precision", "16"), "precision '16'"),
        (("layer", "--device", "abacus"), "device 'abacus' cannot be used"),
        (("scaling", "--dims", "8"), "scaling has sizes of its own"),
        (("layer", "--repeats", "0"), "repeats"),
        (("layer", "--show"), "ROWS says how to measure"),
        (("--show", "--memory-budget-mb", "64"), "--memory-budget-mb says how to measure"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], words: str, tmp_path: Path, cli: Cli) -> None:
    cli("bench", *arguments, "--out", tmp_path).refused(words)


@pytest.mark.slow
def test_a_row_of_the_command_line(tmp_path: Path, cli: Cli) -> None:
    command = ("bench", "layer", "--datasets", TINY, "--dims", "8", "--repeats", "2", "--out", tmp_path, "--json")
    outcome = cli(*command)
    assert outcome.code == 0, outcome.err
    (row,) = json.loads(outcome.out)
    assert row["ratio"] > 0
    assert row["rivals"]["published formulation"] > 0
    (path,) = (tmp_path / "benchmarks").glob("*.json")
    before = path.read_bytes()
    assert cli(*command).code == 0
    assert path.read_bytes() == before
