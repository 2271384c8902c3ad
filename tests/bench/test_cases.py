"""The grid of a command, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from refactorgnn.bench.cases import DATASETS, MILLION, ROWS, Case, Choice, graph_of, sweeps
from refactorgnn.errors import UserError


def test_the_whole_grid() -> None:
    cases = Choice().cases()
    found = {(case.row, case.dataset, case.dim) for case in cases}
    for row in ("layer", "layer-backward", "step", "evaluation"):
        assert {(row, dataset, dim) for dataset in DATASETS for dim in (256, 768)} <= found
    assert {(row, MILLION, 256) for row in ("evaluation", "sampled-layer")} <= found
    assert [case.layers for case in cases if case.row == "training"] == [6]
    swept = [case for sweep in sweeps("cpu") for case in sweep.cases]
    assert set(swept) <= set(cases)
    assert len(cases) == len(set(cases)) == 3 * 12 + 2 + 14 + 2 + len(set(swept))


def test_a_choice_of_rows_datasets_and_widths() -> None:
    choice = Choice(["layer", "step"], ["CoDEx-S"], [8, 16], "cuda", "bf16", 2, 64)
    assert choice.cases() == [
        Case(row, "CoDEx-S", dim, "cuda", "bf16", 2, layers, 64)
        for row, layers in (("layer", 1), ("step", 6))
        for dim in (8, 16)
    ]


def test_sizes_leave_the_scaling_out_and_quick_is_tiny() -> None:
    assert {case.dataset for case in Choice(datasets=["UMLS"]).cases()} == {"UMLS"}
    quick = Choice(quick=True).cases()
    assert [case.row for case in quick] == list(ROWS)
    assert {(case.dataset, case.dim) for case in quick} == {("synthetic-60-3-240", 16)}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_sweep_changes_one_size(device: str) -> None:
    for sweep, changed in zip(sweeps(device), ("dataset", "dataset", "dim", "layers"), strict=True):
        for name in ("dataset", "dim", "layers"):
            assert len({getattr(point, name) for point in sweep.points}) == (5 if name == changed else 1)
    triples, entities = ([point.dataset.split("-") for point in sweep.points] for sweep in sweeps(device)[:2])
    assert len({tuple(words[1:3]) for words in triples}) == 1  # |V| and |R|
    assert len({tuple(words[2:]) for words in entities}) == 1  # |R| and |T|


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rows": ["layers"]}, "did you mean 'layer'"),
        ({"datasets": ["CoDEx-S", "fb237_v9"]}, "unknown dataset 'fb237_v9'"),
        ({"datasets": ["synthetic-60-3"]}, "unknown dataset 'synthetic-60-3'"),
        ({"datasets": ["nowhere/mine.tsv"]}, "mine.tsv: there is no such file or folder"),
        ({"precision": "fp8"}, "precision 'fp8'"),
        ({"threads": 0}, "1 or more"),
        ({"dims": [0]}, "1 or more"),
        ({"memory_budget_mb": 0}, "1 or more"),
        ({"quick": True, "dims": [8]}, "--quick has a dataset and a width of its own"),
        ({"rows": ["scaling"], "dims": [8]}, "scaling has sizes of its own"),
        ({"rows": ["scaling"], "quick": True}, "scaling has sizes of its own"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        Choice(**options).cases()


def test_synthetic_graphs_have_the_sizes_in_their_names() -> None:
    graph = graph_of("synthetic-50-4-2000")
    assert (graph.num_entities, graph.num_relations, len(graph.triples("train"))) == (50, 4, 2000)
    assert len(graph.triples("test")) == len(graph.triples("valid")) == 20
    assert len(graph_of("synthetic-50-4-200").triples("test")) == 8
    assert graph_of("countries").num_entities > 100
