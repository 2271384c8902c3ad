"""Reasons: terms that sum to the score, messages that are Theorem 1's, facts whose absence is computed, not guessed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from refactorgnn import KnowledgeGraph, Predictor, Run, UserError
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.layers import log_likelihood_gradient
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.models.rivals.drum import DRUM
from refactorgnn.models.rivals.nbfnet import NBFNet
from refactorgnn.predict.explaining import Term
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig
from tests.oracles import theorem_1

NUM_ENTITIES, NUM_RELATIONS = 14, 3
BILINEAR = ["distmult", "complex", "cp", "simple", "rescal"]


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    generator = torch.Generator().manual_seed(5)
    columns = [torch.randint(n, (40,), generator=generator) for n in (NUM_ENTITIES, NUM_RELATIONS, NUM_ENTITIES)]
    triples = torch.unique(torch.stack(columns, dim=1), dim=0)
    triples = torch.cat([triples, torch.tensor([[2, 1, 2]])]).unique(dim=0)  # a loop as well
    names = [f"e{i:02}" for i in range(NUM_ENTITIES)], [f"r{i}" for i in range(NUM_RELATIONS)]
    return KnowledgeGraph("g", Vocabulary(names[0], "entity"), Vocabulary(names[1], "relation"), {"train": triples})


def model_of(graph: KnowledgeGraph, **settings: Any) -> Any:
    options: dict[str, Any] = {"dataset": "x", "dim": 4}
    if "model" not in settings:
        options |= {"model": "refactor", "layers": 3, "alpha": 0.1, "features": "signature+random"}
    torch.manual_seed(0)
    model = build_model(TrainConfig.from_dict(options | settings), graph).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.7)
    return model.requires_grad_(False)


def total(terms: Iterable[Term]) -> float:
    return sum(term.contribution for term in terms)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"layer_optimizer": "sgd"},
    {"n3": 0.05, "n3_weighting": "triple"},
    {"n_term": "paper"},
    {"n_term": "none", "layer_optimizer": "sgd"},
    {"learned_steps": True, "draws": 3},
]


@pytest.mark.parametrize("depth", [1, 2, 9])
@pytest.mark.parametrize("settings", [*SETTINGS, *({"scorer": name} for name in BILINEAR)], ids=str)
def test_both_views_sum_to_the_score(graph: KnowledgeGraph, settings: dict[str, Any], depth: int) -> None:
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-9)):
        predictor = Predictor(model_of(graph, **settings).to(dtype), graph)
        if dtype == torch.float64:
            pass_in_float64(predictor)
        for triple in (("e02", "r1", "e02"), ("e00", "r2", "e07"), ("e05", "r0", "e01")):
            reasons = predictor.explain(*triple, depth=depth)
            size = max(1.0, max(abs(term.contribution) for term in (*reasons.by_tail, *reasons.by_head)))
            assert reasons.score == pytest.approx(predictor.score([triple])[0].score, abs=tolerance * size)
            assert total(reasons.by_tail) == pytest.approx(reasons.score, abs=tolerance * size)
            assert total(reasons.by_head) == pytest.approx(reasons.score, abs=tolerance * size)
            assert len({term.layers_back for term in reasons.by_tail} - {0}) == min(depth, 3)
            kinds = {term.kind for term in reasons.by_tail}
            assert ("features" in kinds) == (depth >= 3)


def pass_in_float64(predictor: Predictor) -> None:
    """Features are drawn in float32; let everything that follows be float64."""
    features = predictor.model.features
    forward = features.forward
    features.forward = lambda *arguments: forward(*arguments).double()  # type: ignore[union-attr, operator, method-assign]
    predictor.bound = predictor.model.bind(predictor.graph)


def test_the_parts_are_those_of_theorem_1(graph: KnowledgeGraph) -> None:
    """One SGD layer of DistMult: messages against ``n_term="none"``, ``n[v]`` against the theorem as printed."""
    model = model_of(graph, layers=1, layer_optimizer="sgd", n_term="paper", features="signature").double()
    train = graph.triples("train")
    no_loops = replace(graph, splits={"train": train[train[:, 0] != train[:, 2]]}, _indices={})
    predictor = Predictor(model, no_loops)
    pass_in_float64(predictor)
    queries = no_loops.queries("train")
    X, psi = model.features(no_loops, queries), model.relation_embeddings
    messages = log_likelihood_gradient(model.scorer, X, psi, queries, n_term="none")
    triples = no_loops.with_reciprocals(no_loops.triples("train"))
    z, n = theorem_1(X, psi, triples)
    head, relation, tail = 0, 2, 7
    final = predictor.bound.states  # type: ignore[attr-defined]
    reasons = predictor.explain(head, relation, tail)
    for terms, entity, wanted in (
        (reasons.by_tail, tail, final[head] * psi[relation]),
        (reasons.by_head, head, final[tail] * psi[relation]),
    ):
        facts = total(term for term in terms if term.kind == "fact")
        assert facts == pytest.approx(float(0.1 * messages[entity] @ wanted), abs=1e-10)
        assert facts == pytest.approx(float(0.1 * z[entity] @ wanted), abs=1e-10)
        rest = total(term for term in terms if term.kind == "n[v]")
        assert rest == pytest.approx(float(-0.1 * len(triples) * n[entity] @ wanted), abs=1e-10)
        around = no_loops.triples("train")
        assert sum(term.kind == "fact" for term in terms) == int((around[:, [0, 2]] == entity).any(1).sum())


def test_one_message_by_hand(graph: KnowledgeGraph) -> None:
    model = model_of(graph, layers=1, layer_optimizer="sgd", features="signature").double()
    predictor = Predictor(model, graph)
    h, r, t = next(triple for triple in graph.triples("train").tolist() if triple[0] != triple[2])
    reasons = predictor.explain(3, 1, t)
    X, psi = model.features(graph, graph.queries("train")), model.relation_embeddings
    # To t come: the candidate h of its own query (t, r⁻¹, ?), and the query (h, r, ?) by how little it expects t.
    query = X[h] * psi[r]
    message = X[h] * psi[r + NUM_RELATIONS] + (1 - torch.softmax(query @ X.T, 0)[t]) * query
    wanted = predictor.bound.states[3] * psi[1]  # type: ignore[attr-defined]
    name = graph.entities[h], graph.relations[r], graph.entities[t]
    found = next(term.contribution for term in reasons.by_tail if term.fact == name)
    assert found == pytest.approx(float(0.1 * message @ wanted), abs=1e-10)


def test_a_counterfactual_is_a_graph_without_the_fact(graph: KnowledgeGraph) -> None:
    model = model_of(graph)
    reasons = Predictor(model, graph).explain("e00", "r2", "e07", num_counterfactuals=3)
    assert len(reasons.counterfactuals) == 3
    strongest = {term.fact for term in (*reasons.by_tail, *reasons.by_head) if term.fact}
    for taken in reasons.counterfactuals:
        assert taken.fact in strongest
        ids = [graph.entities.id(taken.fact[0]), graph.relations.id(taken.fact[1]), graph.entities.id(taken.fact[2])]
        left = [triple for triple in graph.triples("train").tolist() if triple != ids]
        poorer = replace(graph, splits={"train": torch.tensor(left)}, _indices={})
        scores = model.bind(poorer).scores(torch.tensor([0]), torch.tensor([2]))[0]
        assert taken.score == pytest.approx(float(scores[7]), abs=1e-6)
        known = graph.queries().objects_of(torch.tensor([0]), torch.tensor([2])).columns.tolist()
        better = sum(float(scores[u]) > float(scores[7]) for u in range(NUM_ENTITIES) if u not in {*known, 7})
        assert taken.tail_rank == 1 + better
    assert [one.score for one in reasons.counterfactuals] == sorted(one.score for one in reasons.counterfactuals)


def test_an_ensemble_is_explained_by_all_its_members(graph: KnowledgeGraph) -> None:
    members = [model_of(graph), model_of(graph, scorer="complex", layers=2)]
    predictor = Predictor(Ensemble(members, [0.3, 0.7]), graph)
    reasons = predictor.explain("e00", "r2", "e07", depth=2)
    assert total(reasons.by_head) == pytest.approx(reasons.score, abs=1e-4)
    parts = [Predictor(member, graph).explain("e00", "r2", "e07", depth=2) for member in members]
    fact = next(term for term in parts[0].by_tail if term.kind == "fact" and term.layers_back == 1)
    both = [next(t.contribution for t in part.by_tail if (t.fact, t.layers_back) == (fact.fact, 1)) for part in parts]
    found = next(t.contribution for t in reasons.by_tail if (t.fact, t.layers_back) == (fact.fact, 1))
    assert found == pytest.approx(0.3 * both[0] + 0.7 * both[1], abs=1e-5)


def test_other_models_say_what_they_can_do(graph: KnowledgeGraph, tiny_run: Run) -> None:
    with pytest.raises(UserError, match=r"Lookup has no ReFactor layers .* explain a run of refactor"):
        Predictor.load(tiny_run).explain("person 3", "across", "person 9")
    gat = Predictor(model_of(graph, model="gat", heads=2, layers=2, features="random"), graph)
    reasons = gat.explain("e00", "r2", "e07", num_counterfactuals=2)
    assert (reasons.by_tail, reasons.by_head, len(reasons.counterfactuals)) == ((), (), 2)
    assert "facts can be taken away only" in reasons.note
    between = graph.triples("train").tolist()[0]
    h, r, t = graph.entities[between[0]], graph.relations[between[1]], graph.entities[between[2]]
    assert {h, t} == {*gat.explain(h, r, t, num_counterfactuals=1).counterfactuals[0].fact[::2]}
    for rival in (NBFNet(graph.relations, 8, num_layers=2), DRUM(graph.relations, 8, 2, 2)):
        reasons = Predictor(rival, graph).explain("e00", "r2", "e07", num_counterfactuals=2)
        assert len(reasons.counterfactuals) == 2
        assert all(one.score != reasons.score for one in reasons.counterfactuals)
        assert ("refactorgnn rules" in reasons.note) == isinstance(rival, DRUM)
    transe = Predictor(model_of(graph, scorer="transe"), graph).explain("e00", "r2", "e07")
    assert "'transe' is not linear" in transe.note
    with pytest.raises(UserError, match="depth=0"):
        gat.explain("e00", "r2", "e07", depth=0)
    grown = Predictor(model_of(graph), graph)
    grown.add([("new", "r0", "e01")], mode="local")
    with pytest.raises(UserError, match="add with mode 'exact'"):
        grown.explain("new", "r0", "e01")
