"""Personalised PageRank against a linear solve in float64."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import refactorgnn
from refactorgnn import UserError
from refactorgnn.models.rivals.linked_pairs import excluding
from refactorgnn.models.rivals.ppr import PageRankScorer, PersonalisedPageRank
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
    assert float(ours[-1, -1]) == pytest.approx(1, abs=1e-12)  # an entity without facts
    assert bool((ours >= 0).all())


@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
def test_the_tolerance_is_kept(tolerance: float) -> None:
    graph = random_graph(3)
    bound = PersonalisedPageRank(graph.relations, tolerance=tolerance).bind(graph)
    errors = (bound.probabilities(torch.arange(graph.num_entities)) - solved(0.15)).abs().sum(1)
    assert 0 < float(errors.max()) <= tolerance


def test_fewer_steps_than_a_walker_makes_are_enough() -> None:
    """A path of 40 entities."""
    steps = torch.column_stack([torch.arange(39), torch.arange(1, 40)])
    edges = torch.cat([steps, steps.flip(1)])
    bound, exact = (PageRankScorer(edges, 40, 0.15, tolerance) for tolerance in (1e-6, 1e-14))
    everyone = torch.arange(40)
    errors = (bound.probabilities(everyone) - exact.probabilities(everyone)).abs().sum(1)
    assert 1e-9 < float(errors.max()) <= 1e-6
    assert bound.num_steps < 35  # steps of the walk itself: log(2e6) / -log(0.85) = 90
    one_by_one = torch.cat([bound.probabilities(everyone[[number]]) for number in range(40)])
    torch.testing.assert_close(one_by_one, bound.probabilities(everyone), rtol=0, atol=1e-15)


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


def test_neighbours_linked_by_what_excludes_the_relation_are_no_answers() -> None:
    graph = random_graph(3)
    facts = graph.with_reciprocals(graph.triples("train")).tolist()
    links: dict[tuple[int, int], set[int]] = {}
    for head, relation, tail in facts:
        links.setdefault((head, tail), set()).add(relation)
    shared = torch.zeros(2 * NUM_RELATIONS, 2 * NUM_RELATIONS)
    for between in links.values():
        for one in between:
            for other in between:
                shared[one, other] += 1
    excludes = shared == 0  # with so few facts no share is small but 0
    assert 0 < int(excludes.sum()) < excludes.numel()

    subjects, relations = torch.arange(graph.num_entities).repeat_interleave(6), torch.arange(6).repeat(12)
    expected = PersonalisedPageRank(graph.relations).bind(graph).scores(subjects, relations)
    for row, (subject, relation) in enumerate(zip(subjects.tolist(), relations.tolist(), strict=True)):
        for (head, tail), between in links.items():
            if head == subject and all(excludes[link, relation] for link in between):
                expected[row, tail] = 0
    consistent = PersonalisedPageRank(graph.relations, neighbours="consistent").bind(graph)
    assert torch.equal(consistent.scores(subjects, relations), expected)


def test_next_to_none_of_many_pairs_is_none() -> None:
    """Of 400 pairs that relation 0 links, one is linked by relation 1 and three by relation 2; 3 has no facts."""
    pairs = torch.arange(400)
    facts = [(int(i), 0, int(i)) for i in pairs] + [(7, 1, 7)] + [(i, 2, i) for i in range(3)]
    found = excluding(torch.tensor(facts), 400, 4)
    assert found[0].tolist() == [False, True, False, True]
    assert not found[1, 0]  # all pairs of relation 1 are linked by relation 0
    assert not found[3].any()


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
