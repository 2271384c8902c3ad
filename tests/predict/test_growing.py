"""New entities: exact means bound anew, local exact but for the others standing still, failure that nothing changed."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
import torch
from torch import Tensor

import refactorgnn
from refactorgnn import KnowledgeGraph, Predictor, Run, UserError
from refactorgnn.data.loading import load_graph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.text_features import TextFeatures as TextVectors
from refactorgnn.data.text_features import entity_texts
from refactorgnn.layers import ReFactorConv
from refactorgnn.models.base import EmbeddingScorer
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.models.features import make_features
from refactorgnn.predict.local_layer import gradient_at, grown_normalisers, normalisers
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig

DOT_SCORERS = ["distmult", "complex", "cp", "simple", "rescal", "transe"]


def index(num_triples: int, num_entities: int, seed: int = 0) -> QueryIndex:
    generator = torch.Generator().manual_seed(seed)
    columns = [torch.randint(high, (num_triples,), generator=generator) for high in (num_entities, 3, num_entities)]
    return QueryIndex.from_triples(torch.stack(columns, dim=1), num_entities, 3)  # loops and repeats among them


@pytest.mark.parametrize("n_term", ["exact", "paper", "none"])
@pytest.mark.parametrize("scorer", DOT_SCORERS)
def test_the_gradient_at_a_few_entities_is_that_of_the_layer(scorer: str, n_term: Any) -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"n_term": n_term, "n3": 0.1, "n3_weighting": "triple", "memory_budget": 4096}
    layer = ReFactorConv(6, 3, scorer, **options).double().eval()
    queries, states = index(60, 15), torch.randn(15, 6, dtype=torch.float64)
    entities = torch.tensor([0, 4, 5, 14])
    with torch.no_grad():
        found = gradient_at(layer, states, queries, normalisers(layer, states, queries), entities)
        assert torch.allclose(found, layer.gradient(states, queries)[entities], rtol=0, atol=1e-10)


def test_normalisers_grow_with_the_graph() -> None:
    torch.manual_seed(1)
    layer = ReFactorConv(6, 3, "complex").double().eval()
    states = torch.randn(15, 6, dtype=torch.float64)
    old = index(40, 12)
    rows = old.answers.rows
    triples = torch.stack([old.subjects[rows], old.relations[rows], old.answers.columns], dim=1)
    new = torch.tensor([[12, 0, 3], [3, 1, 13], [14, 2, 14], [2, 2, 12]])
    grown = QueryIndex.from_triples(torch.cat([triples, new]), 15, 3)
    with torch.no_grad():
        found = grown_normalisers(layer, states, grown, old, normalisers(layer, states[:12], old))
        assert torch.allclose(found, normalisers(layer, states, grown), rtol=0, atol=1e-12)


SETTINGS: dict[str, dict[str, Any]] = {
    "refactor": {"model": "refactor", "layers": 3, "features": "signature+random", "alpha": 0.1, "draws": 2},
    "sgd": {"model": "refactor", "layers": 2, "features": "random", "layer_optimizer": "sgd", "alpha": 0.01},
    "rgcn": {"model": "rgcn", "features": "signature"},
    "gat": {"model": "gat", "features": "signature+random", "heads": 2},
}


def model_of(name: str, graph: KnowledgeGraph) -> Any:
    config = TrainConfig.from_dict({"dataset": "x", "dim": 16, **SETTINGS[name]})
    return build_model(config, graph).eval()


@pytest.fixture(scope="module")
def graph() -> KnowledgeGraph:
    return load_graph("countries_part")


FACTS = [
    ("Atlantis", "borders", "France"),
    ("Atlantis", "speaks", "French"),
    ("Poseidonis", "city_in", "Atlantis"),
    ("France", "borders", "Atlantis"),
]
TEXTS = {"Atlantis": ("Atlantis, the isle", "A country under the sea."), "Lemuria": "Lemuria"}


def states_of(bound: Any) -> list[Tensor]:
    parts = [part for _, part in bound.parts] if hasattr(bound, "parts") else [bound]
    assert all(isinstance(part, EmbeddingScorer) for part in parts)
    return [part.states for part in parts]


@pytest.mark.parametrize("name", SETTINGS)
def test_exact_is_the_model_bound_to_the_grown_graph(name: str, graph: KnowledgeGraph) -> None:
    model = model_of(name, graph)
    predictor = Predictor(model, graph)
    added = predictor.add(FACTS, TEXTS)
    assert added.entities == ("Atlantis", "Lemuria", "Poseidonis")
    assert (added.num_facts, added.num_known) == (4, 0)
    assert list(predictor.graph.entities)[: graph.num_entities] == list(graph.entities)  # old ids stay
    assert predictor.graph.label(predictor.graph.entities.id("Atlantis")) == "Atlantis, the isle"
    for ours, theirs in zip(states_of(predictor.bound), states_of(model.bind(predictor.graph)), strict=True):
        assert torch.equal(ours, theirs)
    assert predictor.tails("Atlantis, the isle", "borders", 1, include_known=True)[0].entity in predictor.graph.entities
    assert [a.known for a in predictor.score([FACTS[0], ("Atlantis", "borders", "Spain")])] == [True, False]
    assert predictor.add([*FACTS, ("Lemuria", "borders", "Atlantis")]).num_known == 4


@pytest.mark.parametrize("name", ["refactor", "sgd"])
def test_local_leaves_the_others_and_is_exact_for_an_entity_that_moves_nobody(name: str, graph: KnowledgeGraph) -> None:
    """One of facts with itself only touches the others through the normaliser alone."""
    model = model_of(name, graph)
    exact, local = Predictor(model, graph), Predictor(model, graph)
    before = [states.clone() for states in states_of(local.bound)]
    facts = [("Alone", "near", "Alone")]
    exact.add(facts)
    local.add(facts, mode="local")
    for old, ours, theirs in zip(before, states_of(local.bound), states_of(exact.bound), strict=True):
        assert torch.equal(ours[: graph.num_entities], old)
        assert torch.allclose(ours[-1], theirs[-1], atol=2e-2 * float(theirs[-1].abs().max()))


def test_two_local_additions_are_one(graph: KnowledgeGraph) -> None:
    """The second finds the first where it was: with nothing between them but normalisers, nearly the same."""
    model = model_of("refactor", graph)
    at_once, in_turn = Predictor(model, graph), Predictor(model, graph)
    first, second = [("A1", "borders", "France")], [("A2", "borders", "Spain"), ("A2", "speaks", "Spanish")]
    at_once.add(first + second, mode="local")
    in_turn.add(first, mode="local")
    in_turn.add(second, mode="local")
    assert list(at_once.graph.entities) == list(in_turn.graph.entities)
    for ours, theirs in zip(states_of(in_turn.bound), states_of(at_once.bound), strict=True):
        assert torch.allclose(ours, theirs, atol=5e-2 * float(theirs.abs().max()))


@pytest.fixture(scope="module")
def part_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    settings = {"dim": 32, "epochs": 10, "validate_every": 5, "threads": 1, **SETTINGS["refactor"], "draws": 1}
    return refactorgnn.train("countries_part", out=tmp_path_factory.mktemp("runs") / "part", progress=False, **settings)


def newcomers_mrr(predictor: Predictor, questions: list[tuple[str, str, str]]) -> float:
    total = 0.0
    for head, relation, tail in questions:
        answers = predictor.tails(head, relation, predictor.graph.num_entities)
        total += 1 / (1 + next(place for place, answer in enumerate(answers) if answer.entity == tail))
    return total / len(questions)


def test_local_answers_nearly_as_well_as_exact_when_a_twentieth_comes_back(part_run: Run) -> None:
    graph = part_run.graph
    generator = torch.Generator().manual_seed(0)
    gone = torch.randperm(graph.num_entities, generator=generator)[: graph.num_entities // 20]
    is_gone = torch.zeros(graph.num_entities, dtype=torch.bool).index_fill(0, gone, True)
    facts, touches = graph.triples("train"), is_gone[graph.triples("train")[:, [0, 2]]].any(1)
    names, relations = list(graph.entities), list(graph.relations)
    named = [(names[h], relations[r], names[t]) for h, r, t in facts.tolist()]
    kept = [triple for triple, gone_too in zip(named, touches.tolist(), strict=True) if not gone_too]
    back = [triple for triple, gone_too in zip(named, touches.tolist(), strict=True) if gone_too]
    small = refactorgnn.data.graph_from_tables("small", {"train": _table(kept)}).with_relations(graph.relations)
    model = part_run.load_model()
    exact, local = Predictor(model, small), Predictor(model, small)
    exact.add(back)
    local.add(back, mode="local")
    asked = [
        (names[h], relations[r], names[t])
        for h, r, t in graph.triples("valid", "test").tolist()
        if is_gone[h] and names[h] in exact.graph.entities and names[t] in exact.graph.entities
    ]
    assert len(asked) > 30
    good, near = newcomers_mrr(exact, asked), newcomers_mrr(local, asked)
    assert good > 0.1
    assert abs(good - near) < 0.05
    ours, theirs = states_of(local.bound)[0], states_of(exact.bound)[0]
    new = slice(small.num_entities, None)
    cosine = torch.cosine_similarity(ours[new], theirs[new])
    assert float(cosine.median()) > 0.9


def _table(triples: list[tuple[str, str, str]]) -> Any:
    import pyarrow as pa

    return pa.table(dict(zip(("head", "relation", "tail"), map(list, zip(*triples, strict=True)), strict=True)))


BROKEN: list[tuple[Any, Any, str, str]] = [
    ([("Atlantis", "border", "France")], None, "exact", "relation 'border' was not seen .* did you mean 'borders'"),
    ([*FACTS, ("x", "borders")], None, "exact", r"fact 5 is \('x', 'borders'\)"),
    ([*FACTS, ("x", "borders", "")], None, "local", "fact 5 is .* none of them empty"),
    ([*FACTS, ("x", "borders", 3)], None, "exact", "fact 5"),
    (FACTS, {"France": "la France"}, "exact", "'France' is in the graph already"),
    (FACTS, {"Atlantis": ("a", "b", "c")}, "exact", "text of entity 'Atlantis'"),
    ([("France", "borders", "Spain")], None, "local", "nothing new"),
    (FACTS, None, "quick", "unknown mode 'quick'"),
]


@pytest.mark.parametrize(("facts", "texts", "mode", "message"), BROKEN)
def test_a_failed_addition_leaves_everything_as_it_was(
    facts: Any, texts: Any, mode: Any, message: str, graph: KnowledgeGraph
) -> None:
    predictor = Predictor(model_of("refactor", graph), graph)
    predictor.add([("Mu", "borders", "Spain")], mode="local")
    before = dict(vars(predictor))
    states = [one.clone() for one in states_of(predictor.bound)]
    with pytest.raises(UserError, match=message):
        predictor.add(facts, texts, mode=mode)
    assert vars(predictor) == before or all(vars(predictor)[key] is before[key] for key in before)
    assert all(torch.equal(a, b) for a, b in zip(states, states_of(predictor.bound), strict=True))


def test_a_failure_while_computing_leaves_everything_as_it_was(
    graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = Predictor(model_of("refactor", graph), graph)
    _ = predictor.calibration
    before = dict(vars(predictor))
    monkeypatch.setattr(type(predictor.model), "bind", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        predictor.add(FACTS)
    assert all(vars(predictor)[key] is before[key] for key in before)


def test_models_that_cannot_say_which_can(graph: KnowledgeGraph, tiny_run: Run) -> None:
    with pytest.raises(UserError, match=r"a lookup model knows only .*\(refactor with finitely many layers, rgcn, gat"):
        Predictor.load(tiny_run).add([("x", "across", "person 3")])
    infinite = TrainConfig.from_dict({"dataset": "x", "model": "refactor", "layers": "inf", "dim": 8})
    with pytest.raises(UserError, match="a ReFactor GNN of infinite depth knows only"):
        Predictor(build_model(infinite, graph), graph).add(FACTS)
    with pytest.raises(UserError, match=r"mode 'local' cannot be used, for GAT .*: use mode 'exact'"):
        Predictor(model_of("gat", graph), graph).add(FACTS, mode="local")


def test_an_ensemble_grows_like_its_members(graph: KnowledgeGraph) -> None:
    members = [model_of("refactor", graph), model_of("sgd", graph)]
    both = Predictor(Ensemble(members, [0.25, 0.75]), graph)
    both.add(FACTS, mode="local")
    subject, relation = both.graph.entities.id("Atlantis"), both.graph.relations.id("borders")
    question = torch.tensor([subject]), torch.tensor([relation])
    expected = torch.zeros(1, both.graph.num_entities)
    for weight, member in zip((0.25, 0.75), members, strict=True):
        alone = Predictor(member, graph)
        alone.add(FACTS, mode="local")
        expected += weight * alone.bound.scores(*question)
    assert torch.allclose(both.bound.scores(*question), expected, atol=1e-5)


def test_a_whole_new_graph_comes_in(part_run: Run) -> None:
    other = load_graph("countries_part_ind")
    predictor = Predictor.load(part_run)
    added = predictor.add(other)
    mentioned = {name for column in ("head", "tail") for name in other.named_triples("train")[column].to_pylist()}
    assert set(added.entities) == mentioned - set(part_run.graph.entities)
    city = other.entities.id("Abidjan")
    assert predictor.graph.texts is not None
    texts = dict(zip(*(predictor.graph.texts[column].to_pylist() for column in ("entity", "description")), strict=True))
    assert other.texts is not None
    assert texts["Abidjan"] == other.texts["description"][city].as_py() != ""
    assert predictor.calibration == Predictor.load(part_run).calibration


def _fake_encoding(graph: KnowledgeGraph, *_: Any, **__: Any) -> TextVectors:
    """A vector for each text that depends on that text alone."""
    rows = [
        torch.randn(6, generator=torch.Generator().manual_seed(zlib.crc32(text.encode())))
        for text in entity_texts(graph)[0]
    ]
    return TextVectors(torch.stack(rows), 0, {})


def test_features_of_a_few_are_those_rows_of_all(graph: KnowledgeGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("refactorgnn.data.text_features.encode_texts", _fake_encoding)
    features = make_features("text+signature+random", 8, graph)  # a projection from 6 to 8
    grown = graph.grown(["Mu"], torch.tensor([[graph.num_entities, 0, 3]]), [("Mu", "A country.")])
    queries, some = grown.queries("train"), torch.tensor([0, 7, graph.num_entities])
    with torch.no_grad():
        whole = features(grown, queries, 1)
        assert torch.allclose(features.rows(grown, queries, some, 1), whole[some], atol=1e-6)
        other = graph.grown(["Mu"], torch.tensor([[graph.num_entities, 0, 3]]), [("Mu", "A fish.")])
        changed = features(other, queries, 1)  # the same names, another text: nothing old may be found again
    assert torch.equal(changed[:-1], whole[:-1])
    assert not torch.allclose(changed[-1], whole[-1], atol=1e-3)
