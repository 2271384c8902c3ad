"""Personalised PageRank against a linear solve in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import refactorgnn
from refactorgnn import UserError
from refactorgnn.models.rivals.ppr import PersonalisedPageRank
from tests.models.rivals.brute_force import NUM_RELATIONS, random_graph


def solved(restart: float) -> torch.Tensor:
    """``p = restart (I − (1 − restart) W)⁻¹ e``, for every subject in a row."""
    graph = random_graph(3)
    counts = torch.zeros(graph.num_entities, graph.num_entities, dtype=torch.float64)
    for head, _, tail in graph.triples("train").tolist():
        counts[head, tail] += 1
        counts[tail, head] += 1
    alone = counts.sum(0) == 0
    counts[alone, alone] = 1
    walk = counts / counts.sum(0)
    eye = torch.eye(graph.num_entities, dtype=torch.float64)
    return torch.linalg.solve(eye - (1 - restart) * walk, restart * eye).T


@pytest.mark.parametrize("restart", [0.05, 0.15, 0.9])
def test_probabilities_are_those_of_a_linear_solve(restart: float) -> None:
    graph = random_graph(3)
    bound = PersonalisedPageRank(graph.relations, restart=restart, tolerance=1e-9).bind(graph)
    ours = bound.probabilities(torch.arange(graph.num_entities))
    torch.testing.assert_close(ours, solved(restart), rtol=0, atol=1e-8)
    torch.testing.assert_close(ours.sum(1), torch.ones(graph.num_entities).double(), rtol=0, atol=1e-12)
    assert ours[-1, -1] == 1  # an entity without facts


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
def test_the_tolerance_is_kept(tolerance: float) -> None:
    graph = random_graph(3)
    bound = PersonalisedPageRank(graph.relations, tolerance=tolerance).bind(graph)
    errors = (bound.probabilities(torch.arange(graph.num_entities)) - solved(0.15)).abs().sum(1)
    assert 0 < float(errors.max()) <= tolerance


def test_scores_are_blind_to_the_relation_unless_its_range_comes_first() -> None:
    graph = random_graph(3)
    subjects = torch.tensor([2, 5, 2]).repeat(2)
    relations = torch.arange(2 * NUM_RELATIONS)
    expected = solved(0.15)[subjects]
    expected[torch.arange(6), subjects] = 0
    blind = PersonalisedPageRank(graph.relations, tolerance=1e-10).bind(graph).scores(subjects, relations)
    torch.testing.assert_close(blind, expected, rtol=0, atol=1e-9)
    ranged = PersonalisedPageRank(graph.relations, tolerance=1e-10, relation_range="first").bind(graph)
    for _, relation, tail in graph.with_reciprocals(graph.triples("train")).tolist():
        expected[relation, tail] = expected[relation, tail] % 1 + 1
    torch.testing.assert_close(ranged.scores(subjects, relations), expected, rtol=0, atol=1e-9)


def test_a_run_answers_about_its_graph_and_has_nothing_learned(tiny: Path, tmp_path: Path) -> None:
    run = refactorgnn.train(tiny, model="ppr", out=tmp_path / "run", progress=False)
    assert run.sidecar["num_parameters"] == 0
    model = run.load_model()
    assert isinstance(model, PersonalisedPageRank)
    assert not model.state_dict()
    bound = PersonalisedPageRank(run.graph.relations).bind(run.graph)
    question = torch.tensor([0, 3]), torch.tensor([1, 2])
    assert torch.equal(model.bind(run.graph).scores(*question), bound.scores(*question))
    with pytest.raises(UserError, match="setting epochs=3 does nothing for ppr"):
        refactorgnn.train(tiny, model="ppr", epochs=3)
