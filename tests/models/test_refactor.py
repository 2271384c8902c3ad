"""The ReFactor GNN: L layers are L optimiser steps from the features, on any graph."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from refactorgnn import load_graph, load_pair
from refactorgnn.data import graph_from_tables
from refactorgnn.evaluation import evaluate_ranking
from refactorgnn.models import ReFactorGNN
from refactorgnn.models.features import RandomFeatures, SignatureFeatures, make_features
from tests.data.test_graph import table
from tests.oracles import log_likelihood


class FixedFeatures(RandomFeatures):
    """Random features in double precision."""

    def forward(self, *arguments):
        return super().forward(*arguments).double()


@pytest.fixture
def graph():
    facts = [("a", "r", "b"), ("a", "r", "c"), ("b", "q", "a"), ("c", "q", "c"), ("d", "r", "a")]
    return graph_from_tables("toy", {"train": table(*facts), "valid": table(("b", "r", "d"))})


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_encoding_equals_optimiser_steps_from_the_features(graph, optimizer: str) -> None:
    features = FixedFeatures(4, scale=0.5, seed=1)
    model = ReFactorGNN(
        graph.relations, features, dim=4, num_layers=4, alpha=0.1, layer_optimizer=optimizer, init_scale=1.0
    ).double()
    queries = graph.queries("train")
    table_of_states = nn.Parameter(features(graph, queries))
    steps = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[optimizer]([table_of_states], lr=0.1)
    triples = graph.with_reciprocals(graph.triples("train"))
    for _ in range(4):
        steps.zero_grad()
        (-log_likelihood(model.scorer, table_of_states, model.layer.relations.detach(), triples)).backward()
        steps.step()
    with torch.no_grad():
        encoded = model.encode(graph, queries)
    torch.testing.assert_close(encoded, table_of_states.detach(), rtol=1e-9, atol=1e-9)


def test_parameters_depend_on_neither_depth_nor_entities() -> None:
    pair = load_pair("countries_part")
    counts = {
        ReFactorGNN(pair.train.relations, RandomFeatures(16), dim=16, num_layers=depth).num_parameters
        for depth in (1, 6, 12)
    }
    assert counts == {2 * pair.train.num_relations * 16}


def test_it_answers_about_entities_it_has_never_seen() -> None:
    pair = load_pair("countries_part")
    model = ReFactorGNN(pair.train.relations, RandomFeatures(16), dim=16, num_layers=3, alpha=0.1)
    metrics = evaluate_ranking(model.bind(pair.unseen), pair.unseen, confidence=False).metrics
    assert 0 < metrics["mrr"] < 1


def test_only_the_named_facts_carry_messages(graph) -> None:
    model = ReFactorGNN(graph.relations, RandomFeatures(4), dim=4, num_layers=2, init_scale=1.0)
    with_train, with_all = (model.bind(graph, splits).states for splits in (("train",), ("train", "valid")))
    assert not torch.equal(with_train, with_all)
    torch.testing.assert_close(model.bind(graph).states, with_train)


def test_draws_are_averaged(graph) -> None:
    several = ReFactorGNN(graph.relations, RandomFeatures(4, seed=2), dim=4, num_layers=2, num_draws=3, init_scale=1.0)
    question = torch.tensor([0, 2]), torch.tensor([1, 3])
    queries = graph.queries("train")
    with torch.no_grad():
        states = [several.encode(graph, queries, draw) for draw in range(3)]
    relations = several.layer.relations.detach()
    each = [several.scorer.score_all(h[question[0]], relations[question[1]], h) for h in states]
    torch.testing.assert_close(several.bind(graph).scores(*question), torch.stack(each).mean(0))


def test_random_features_depend_on_seed_and_draw(graph) -> None:
    queries = graph.queries("train")
    features = RandomFeatures(8, scale=1e-3, seed=5)
    torch.testing.assert_close(features(graph, queries, 1), RandomFeatures(8, 1e-3, 5)(graph, queries, 1))
    assert not torch.equal(features(graph, queries, 1), features(graph, queries, 2))
    assert features(graph, queries).std() < 2e-3


def test_signature_counts_relations_of_the_given_facts_only(graph) -> None:
    features = SignatureFeatures(4, 3, seed=0)
    features.weight.data = torch.eye(4)[:, :3]
    got = features(graph, graph.queries("train"))
    a = graph.entity_id("a")
    # Columns: q, r, q⁻¹; a has no outgoing q, two outgoing r, one incoming q.
    torch.testing.assert_close(got[a], torch.tensor([0.0, 2.0, 1.0]).log1p())
    assert not torch.equal(got, features(graph, graph.queries("train", "valid")))


def test_sums_of_features_add_up_and_say_what_they_are(graph) -> None:
    both = make_features("signature+random", 6, graph, seed=3)
    queries = graph.queries("train")
    parts = [make_features(name, 6, graph, seed=3)(graph, queries) for name in ("signature", "random")]
    torch.testing.assert_close(both(graph, queries), parts[0] + parts[1])
    assert set(both.provenance()) == {"signature", "random"}


def test_every_country_graph_has_the_features() -> None:
    graph = load_graph("countries_part_ind")
    assert make_features("signature+random", 8, graph)(graph, graph.queries("train")).shape == (graph.num_entities, 8)
