"""The page says what the records say, and the one in the repository what its records say."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from refactorgnn.bench.cases import Case, sweeps
from refactorgnn.bench.goals import GOALS, Goal
from refactorgnn.bench.page import bench_page, duration, write_page
from refactorgnn.bench.records import BenchRecord, load_bench_records
from tests.bench.planted import planted_record, planted_rival

DOCS = Path(__file__).parents[2] / "docs"
LAYER = Case("layer", "CoDEx-S", 256)
GPU = Case("layer", "FB15k-237", 768, "cuda", "bf16")


def test_the_committed_page_is_made_of_the_committed_records() -> None:
    records = load_bench_records(DOCS)
    assert records
    assert (DOCS / "benchmarks.md").read_text(encoding="utf-8") == bench_page(records)
    text = bench_page(records)
    for path in (DOCS / "benchmarks").glob("*.svg"):
        assert f"(benchmarks/{path.name})" in text
        assert path.with_suffix(".png").is_file()


def test_rows_rivals_and_notes() -> None:
    records = [
        planted_record(LAYER, rivals=[planted_rival(0.012)]),
        planted_record(replace(LAYER, dim=768), rivals=[planted_rival(None, "needs 63 GB; 23 GB are free")]),
        planted_record(Case("step", "CoDEx-S", 256, layers=6), 0.5, floor=0.25),
        planted_record(replace(LAYER, threads=2), 0.002),
        planted_record(GPU, 0.012, floor=0.01),
    ]
    lines = bench_page(records).splitlines()
    titles = [line for line in lines if line.startswith("##")]
    assert titles[2:] == [
        "## NVIDIA H200, bf16, 1 thread(s)",
        "### A layer, forward (`layer`)",
        "## abacus, 32, 1 thread(s)",
        "### A layer, forward (`layer`)",
        "### A cycle of layer-wise training: L steps, one through each layer (`step`)",
        "## abacus, 32, 2 thread(s)",
        "### A layer, forward (`layer`)",
    ]
    ours = "| CoDEx-S | 480 | 246 | 60 | 256 | 3 ms | 2 ms | 1.50 | 5 MB |"
    assert f"{ours} 12 ms (4.0 × ours), 20 MB |" in lines
    assert "| CoDEx-S | 480 | 246 | 60 | 768 | 3 ms | 2 ms | 1.50 | 5 MB | – |" in lines
    assert "- published formulation (CoDEx-S, d = 768): needs 63 GB; 23 GB are free." in lines
    assert "| CoDEx-S | 480 | 246 | 60 | 256 | 500 ms | 250 ms | 2.00 | 5 MB |" in lines
    assert "3 record(s) of then to then, torch 2, commit(s) `c0ffee`; load average 0.5 to 1.5." in lines


def test_goals_are_judged() -> None:
    fast = planted_record(LAYER, 0.0025, rivals=[planted_rival(0.012)])
    slow = planted_record(replace(LAYER, precision="bf16"), 0.001)  # another precision: not what is meant
    gpu = planted_record(GPU, 0.016, floor=0.01, peak_bytes=700_000_000)
    lines = bench_page([fast, slow, gpu]).splitlines()
    assert "| layer, CoDEx-S, d = 256 | CPU, 1 thread, 32 | time / floor ≤ 1.3 | 1.25 | yes |" in lines
    assert "| layer, CoDEx-S, d = 256 | CPU, 1 thread, 32 | published formulation / ours ≥ 4 | 4.80 | yes |" in lines
    assert "| layer, FB15k-237, d = 768 | H200, bf16 | time / floor ≤ 1.5 | 1.60 | no |" in lines
    assert "| layer, FB15k-237, d = 768 | H200, bf16 | GB above inputs and outputs ≤ 1 | 0.70 | yes |" in lines
    assert sum(line.endswith("| not measured |") for line in lines) == len(GOALS) - 4


def test_a_goal_without_a_precision_takes_the_best() -> None:
    goal = Goal("training", "fb237_v1", 384, "H200", "", "seconds", 1.0)
    cases = [Case("training", "fb237_v1", 384, "cuda", precision, layers=6) for precision in ("32", "bf16")]
    records = [planted_record(case, seconds) for case, seconds in zip(cases, (1.4, 0.9), strict=True)]
    assert goal.value(records) == pytest.approx(0.9)
    assert goal.is_met(0.9)
    assert goal.value([planted_record(replace(cases[0], device="cpu"))]) is None


def swept_records() -> list[BenchRecord]:
    """Costs in proportion to |T|, |V|, d and L."""
    records = []
    for case in dict.fromkeys(case for sweep in sweeps("cpu") for case in sweep.cases):
        num_entities, _, num_triples = map(int, case.dataset.split("-")[1:])
        cost = 1e-12 * num_entities * num_triples * case.dim * case.layers
        rivals = [] if case.row == "step" else [planted_rival(4 * cost)]
        sizes = {"num_entities": num_entities, "num_triples": num_triples, "dim": case.dim}
        records.append(planted_record(case, 2 * cost, floor=cost, rivals=rivals, **sizes))
    return records


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_curves_are_drawn_where_there_are_points(tmp_path: Path) -> None:
    records = swept_records()
    paths = write_page(tmp_path, records)
    names = [f"scaling-{quantity}-abacus-32-1" for quantity in ("time", "memory")]
    assert {path.name for path in paths} == {
        "benchmarks.md",
        *(f"{n}.{kind}" for n in names for kind in ("svg", "png")),
    }
    time, memory = ((tmp_path / "benchmarks" / f"{name}.svg").read_text(encoding="utf-8") for name in names)
    for word in ("triples |T|", "entities |V|", "width d", "layers L", "forward, published"):
        assert word in time
        assert word in memory
    assert "forward and backward, floor" in time
    assert "floor" not in memory
    text = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert all(f"(benchmarks/{name}.svg)" in text for name in names)
    assert "| layer | 1 | 32,000 | 246 | 1,000 | 256 | 16.4 ms | 8.19 ms | 2.00 | 5 MB |" in text


def test_there_are_no_curves_of_single_points(tmp_path: Path) -> None:
    (path,) = write_page(tmp_path, swept_records()[:1])
    assert "Cost against" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("seconds", "words"), [(123.4, "123 s"), (9.876, "9.88 s"), (0.5, "500 ms"), (0.0123, "12.3 ms"), (2e-5, "20 µs")]
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words
