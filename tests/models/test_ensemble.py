"""Ensembles: the concatenation of states is the weighted sum of scores, for members of any kind."""

from __future__ import annotations

import pytest
import torch

from refactorgnn import load_graph, load_pair
from refactorgnn.data import KnowledgeGraph, graph_from_tables
from refactorgnn.errors import UserError
from refactorgnn.models import ConcatenatedScorer, EmbeddingScorer, Ensemble, LinkPredictor, Lookup, ReFactorGNN
from refactorgnn.models.features import RandomFeatures
from refactorgnn.models.rivals.ppr import PersonalisedPageRank
from refactorgnn.ops import chunked
from tests.data.test_graph import table
from tests.models.test_refactor import FixedFeatures

QUESTIONS = torch.tensor([0, 3, 7, 7]), torch.tensor([1, 20, 0, 13])
WEIGHTS = [0.5, 2.0, 0.125, 3.0]


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return load_graph("countries_part")


def members(graph: KnowledgeGraph, dtype: torch.dtype = torch.float32) -> list[LinkPredictor]:
    """Two dot products of different widths, one of three draws, and one that is no dot product."""
    names = graph.entities, graph.relations
    features = (FixedFeatures if dtype == torch.float64 else RandomFeatures)(4, scale=1.0)
    return [
        Lookup(*names, "distmult", 6, init_scale=1.0, seed=1),
        Lookup(*names, "complex", 10, init_scale=1.0, seed=2),
        ReFactorGNN(graph.relations, features, dim=4, num_layers=1, num_draws=3, init_scale=1.0),
        Lookup(*names, "rotate", 4, init_scale=1.0, seed=3),
    ]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_its_scores_are_the_weighted_sum(graph: KnowledgeGraph, dtype: torch.dtype, tolerance: float) -> None:
    models = [member.to(dtype) for member in members(graph, dtype)]
    expected = sum(weight * model.bind(graph).scores(*QUESTIONS) for weight, model in zip(WEIGHTS, models, strict=True))
    got = Ensemble(models, WEIGHTS).bind(graph).scores(*QUESTIONS)
    assert got.dtype == dtype
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def test_probabilities_are_added_by_their_logarithms(graph: KnowledgeGraph) -> None:
    lookup = Lookup(graph.entities, graph.relations, "distmult", 6, init_scale=1.0)
    walk = PersonalisedPageRank(graph.relations)
    probabilities = walk.bind(graph).scores(*QUESTIONS)
    assert (probabilities == 0).any(), "what is never reached must stay in the sum"
    expected = 3 * lookup.bind(graph).scores(*QUESTIONS) + 2 * (probabilities + 1e-6).log()
    got = Ensemble([lookup, walk], [3, 2]).bind(graph).scores(*QUESTIONS)
    torch.testing.assert_close(got, expected.float(), rtol=1e-5, atol=1e-5)
    # One that does not give probabilities is added as it is.
    ranged = PersonalisedPageRank(graph.relations, relation_range="first")
    expected = lookup.bind(graph).scores(*QUESTIONS) + ranged.bind(graph).scores(*QUESTIONS)
    got = Ensemble([lookup, ranged], [1, 1]).bind(graph).scores(*QUESTIONS)
    torch.testing.assert_close(got, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scorer", ["transe", "simple", "cp", "rescal"])
def test_scorers_whose_vectors_are_not_the_states(graph: KnowledgeGraph, scorer: str) -> None:
    models = [Lookup(graph.entities, graph.relations, name, 4, init_scale=1.0).double() for name in (scorer, "complex")]
    expected = 3 * models[0].bind(graph).scores(*QUESTIONS) + models[1].bind(graph).scores(*QUESTIONS)
    torch.testing.assert_close(Ensemble(models, [3, 1]).bind(graph).scores(*QUESTIONS), expected, rtol=1e-12, atol=1e-9)


def test_dot_products_are_one_product(graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of several draws, which are a concatenation themselves."""
    bound = Ensemble(members(graph), WEIGHTS).bind(graph)
    assert [weight for weight, _ in bound.parts] == [0.5, 2.0, *[0.125 / 3] * 3, 3.0]
    assert bound.candidates is not None
    assert bound.candidates.shape == (graph.num_entities, 6 + 10 + 3 * 4)
    products = []
    real = chunked.matmul
    monkeypatch.setattr("refactorgnn.models.concatenated.matmul", lambda *pair: products.append(pair) or real(*pair))
    bound.scores(*QUESTIONS)
    assert len(products) == 1


def test_members_without_any_dot_product(graph: KnowledgeGraph) -> None:
    models = [Lookup(graph.entities, graph.relations, "rotate", 4, init_scale=1.0, seed=seed) for seed in (1, 2)]
    one, other = (model.bind(graph).scores(*QUESTIONS) for model in models)
    bound = Ensemble(models, [1, 2]).bind(graph)
    assert bound.candidates is None
    torch.testing.assert_close(bound.scores(*QUESTIONS), one + 2 * other)


def test_the_mean_over_draws_is_what_it_was(graph: KnowledgeGraph) -> None:
    model = ReFactorGNN(graph.relations, RandomFeatures(8), "complex", 8, num_layers=3, alpha=0.1, num_draws=4)
    queries = graph.queries("train")
    with torch.no_grad():
        each = [
            EmbeddingScorer(model.scorer, model.encode(graph, queries, draw), model.layer.relations).scores(*QUESTIONS)
            for draw in range(4)
        ]
    bound = model.bind(graph)
    assert isinstance(bound, ConcatenatedScorer)
    torch.testing.assert_close(bound.scores(*QUESTIONS), torch.stack(each).mean(0), rtol=1e-5, atol=1e-7)


def test_it_answers_about_unseen_entities_if_all_members_do() -> None:
    pair = load_pair("countries_part")
    inductive = [
        ReFactorGNN(pair.train.relations, FixedFeatures(dim), scorer, dim, num_layers=2, alpha=0.1).double()
        for scorer, dim in (("distmult", 6), ("complex", 4))
    ]
    expected = sum(model.bind(pair.unseen).scores(*QUESTIONS) for model in inductive)
    got = Ensemble(inductive, [1, 1]).bind(pair.unseen).scores(*QUESTIONS)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    lookup = Lookup(pair.train.entities, pair.train.relations, dim=4)
    with pytest.raises(UserError, match="knows only the entities it was trained on"):
        Ensemble([*inductive, lookup], [1, 1, 1]).bind(pair.unseen)


def test_messages_pass_over_the_named_facts_in_every_member() -> None:
    facts = table(("a", "r", "b"), ("b", "r", "c"))
    graph = graph_from_tables("toy", {"train": facts, "valid": table(("c", "r", "a"))})
    model = ReFactorGNN(graph.relations, RandomFeatures(4, scale=1.0), dim=4, num_layers=1, init_scale=1.0)
    question = torch.tensor([0]), torch.tensor([0])
    ensemble = Ensemble([model], [1])
    for splits in (("train",), ("train", "valid")):
        expected = model.bind(graph, splits).scores(*question)
        torch.testing.assert_close(ensemble.bind(graph, splits).scores(*question), expected)


def test_other_relations_are_refused_by_name(graph: KnowledgeGraph) -> None:
    other = graph_from_tables("toy", {"train": table(("a", "likes", "b"))})
    models = [Lookup(g.entities, g.relations, dim=4) for g in (graph, other)]
    with pytest.raises(UserError, match=r"members 0 and 1 .* different relations, such as 'borders'"):
        Ensemble(models, [1, 1])


@pytest.mark.parametrize(
    ("weights", "message"),
    [([1.0], "1 weights cannot be given to 2"), ([1, 0], "weight 0 "), ([1, -2], "-2"), ([1, float("nan")], "nan")],
)
def test_weights_must_be_positive_numbers_one_for_each(
    graph: KnowledgeGraph, weights: list[float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        Ensemble([Lookup(graph.entities, graph.relations, dim=4) for _ in range(2)], weights)
