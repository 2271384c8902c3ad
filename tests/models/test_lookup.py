"""The factorisation model: its loss, its binding, and that it learns."""

from __future__ import annotations

import pytest
import torch

from refactorgnn import load_graph
from refactorgnn.data import graph_from_tables
from refactorgnn.errors import UserError
from refactorgnn.models import Lookup
from refactorgnn.scorers import SCORERS
from tests.data.test_graph import table


@pytest.mark.parametrize("scorer", sorted(SCORERS))
def test_loss_is_the_mean_over_triples(scorer: str) -> None:
    graph = graph_from_tables("toy", {"train": table(("a", "r", "b"), ("a", "r", "c"), ("b", "q", "a"))})
    model = Lookup(graph.entities, graph.relations, scorer, 4, init_scale=1.0, n3=0.1).double()
    triples = graph.with_reciprocals(graph.triples("train"))
    s, r, o = (model.states[triples[:, 0]], model.relations[triples[:, 1]], model.states[triples[:, 2]])
    scores = model.scorer.score_all(s, r, model.states)
    likelihood = torch.log_softmax(scores, dim=1)[torch.arange(len(triples)), triples[:, 2]]
    cubes = sum(model.scorer.n3_norm(factor) for factor in (s, r, o))
    expected = (-likelihood + 0.1 * cubes).mean()
    got = model.loss(graph.queries("train"), memory_budget=64)
    torch.testing.assert_close(got, expected)
    for parameter in (model.states, model.relations):
        ours = torch.autograd.grad(got, parameter, retain_graph=True)[0]
        theirs = torch.autograd.grad(expected, parameter, retain_graph=True)[0]
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("scorer", ["complex", "cp", "distmult", "rescal", "simple"])
def test_relations_are_predicted_among_all_of_them(scorer: str) -> None:
    """By scoring each triple with every relation in its place."""
    graph = graph_from_tables("toy", {"train": table(("a", "r", "b"), ("a", "r", "c"), ("b", "q", "a"))})
    shared = {"init_scale": 1.0, "n3": 0.1}
    plain = Lookup(graph.entities, graph.relations, scorer, 4, **shared).double()
    model = Lookup(graph.entities, graph.relations, scorer, 4, relation_loss=0.3, **shared).double()
    triples = graph.with_reciprocals(graph.triples("train"))
    s, o = (model.states[triples[:, place], None] for place in (0, 2))
    likelihood = torch.log_softmax(model.scorer.score(s, model.relations[None], o), dim=1)
    expected = plain.loss(graph.queries("train")) - 0.3 * likelihood[torch.arange(len(triples)), triples[:, 1]].mean()
    got = model.loss(graph.queries("train"), memory_budget=64)
    torch.testing.assert_close(got, expected)


def test_bound_to_a_part_of_its_graph() -> None:
    """Entities are found by name, whatever their number in the other graph."""
    graph = load_graph("countries")
    model = Lookup(graph.entities, graph.relations, dim=8, init_scale=1.0)
    part = load_graph("countries_part_ind").with_relations(graph.relations)
    bound = model.bind(part)
    i = part.entity_id(part.entities[5])
    j = graph.entity_id(part.entities[5])
    torch.testing.assert_close(bound.states[i], model.states[j].detach())


def test_new_entities_are_refused_by_name() -> None:
    graph = load_graph("countries_part")
    model = Lookup(graph.entities, graph.relations, dim=4)
    with pytest.raises(UserError, match="knows only the entities it was trained on"):
        model.bind(load_graph("countries_part_ind").with_relations(graph.relations))


def test_weights_that_are_no_numbers_are_refused() -> None:
    graph = load_graph("countries")
    model = Lookup(graph.entities, graph.relations, dim=4)
    model.states.data[3, 1] = torch.nan
    with pytest.raises(UserError, match="not finite"):
        model.bind(graph)


def test_seed_decides_the_start() -> None:
    graph = load_graph("countries")
    start = [Lookup(graph.entities, graph.relations, dim=4, seed=seed).states for seed in (1, 1, 2)]
    assert torch.equal(start[0], start[1])
    assert not torch.equal(start[0], start[2])
