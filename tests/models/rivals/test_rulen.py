"""Applying rules: brute-force groundings, both aggregations by the book, graphs never seen, tensors that come back."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import refactorgnn
from refactorgnn import KnowledgeGraph, UserError
from refactorgnn.models.ensemble import Ensemble, bind_for_logits
from refactorgnn.models.rivals.facts import FactIndex
from refactorgnn.models.rivals.ppr import PersonalisedPageRank
from refactorgnn.models.rivals.rule_mining import MiningOptions, mine_constants, mine_paths
from refactorgnn.models.rivals.rule_scorer import ANY, RuleScorer
from refactorgnn.models.rivals.rulen import RuleN
from refactorgnn.predict.rules import rule_reasons
from tests.models.rivals.brute_force import NUM_RELATIONS, facts_of, pairs, random_graph
from tests.training.settings import assert_same_tensors

LAPLACE = 3.0


def mined(graph: KnowledgeGraph, **options: Any) -> RuleN:
    model = RuleN(graph.entities, graph.relations, laplace=LAPLACE, **options)
    facts = FactIndex(graph.with_reciprocals(graph.triples("train")), graph.num_entities, 2 * NUM_RELATIONS)
    paths, _ = mine_paths(facts, MiningOptions(paths_per_fact=500), torch.Generator().manual_seed(0))
    model.keep(paths, mine_constants(facts, 2))
    return model


def every_question(graph: KnowledgeGraph) -> tuple[torch.Tensor, torch.Tensor]:
    questions = torch.cartesian_prod(torch.arange(graph.num_entities), torch.arange(2 * NUM_RELATIONS))
    return questions[:, 0].contiguous(), questions[:, 1].contiguous()


def fired_by_brute_force(model: RuleN, graph: KnowledgeGraph) -> dict[tuple[int, int, int], list[float]]:
    """For every triple, the confidences of the rules that say it, from the tensors that are saved."""
    facts, found = facts_of(graph), {}
    ids = {name: place for place, name in enumerate(graph.entities)}
    names = list(model.entity_names)
    for head in range(NUM_RELATIONS):
        for place, body in enumerate(model.path_bodies[head].tolist()):
            support, groundings = int(model.path_support[head, place]), int(model.path_groundings[head, place])
            for x, y in pairs(facts, tuple(r for r in body if r >= 0)) if body[0] >= 0 else ():
                for triple in ((x, head, y), (y, head + NUM_RELATIONS, x)):
                    found.setdefault(triple, []).append(support / (groundings + LAPLACE))
    for head in range(2 * NUM_RELATIONS):
        for place, (c, relation, other) in enumerate(model.constant_terms[head].tolist()):
            if c < 0 or names[c] not in ids or (other != ANY and names[other] not in ids):
                continue
            constant = ids[names[c]]
            support, groundings = int(model.constant_support[head, place]), int(model.constant_groundings[head, place])
            for x in range(graph.num_entities):
                objects = {o for s, r, o in facts if (s, r) == (x, relation)}
                if other == ANY:
                    fires = bool(objects - {constant} if relation == head else objects)
                else:
                    fires = ids[names[other]] in objects
                if fires and x != constant:
                    found.setdefault((x, head, constant), []).append(support / (groundings + LAPLACE))
    return found


GRAPHS = {"the training graph": random_graph(0), "one never seen": random_graph(7, prefix="new ")}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("most", [97, 2**20], ids=lambda most: f"{most} at a time")
def test_noisy_or_is_that_of_brute_force(name: str, most: int) -> None:
    graph = GRAPHS[name]
    model = mined(random_graph(0), aggregation="noisy-or", memory_budget=most * 240)
    bound = model.bind(graph)
    assert isinstance(bound, RuleScorer)
    assert bound.facts.most_paths == most
    expected = torch.zeros(graph.num_entities, 2 * NUM_RELATIONS, graph.num_entities, dtype=torch.float64)
    for (x, r, y), confidences in fired_by_brute_force(model, graph).items():
        expected[x, r, y] = -math.log(math.prod(1 - confidence for confidence in confidences))
    scores = model.bind(graph).scores(*every_question(graph))
    torch.testing.assert_close(scores, expected.view_as(scores), rtol=0, atol=1e-12)
    assert int((scores > 0).sum()) > 100


@pytest.mark.parametrize("name", GRAPHS)
def test_max_plus_orders_as_sorted_confidences_do(name: str) -> None:
    """Of every two answers to a question: the order of their sorted confidences, compared one after another."""
    graph = GRAPHS[name]
    model = mined(random_graph(0), aggregation="max")
    fired = fired_by_brute_force(model, graph)
    subjects, relations = every_question(graph)
    scores = model.bind(graph).scores(subjects, relations)
    num_by_later_rules = 0
    for row, (x, r) in enumerate(zip(subjects.tolist(), relations.tolist(), strict=True)):
        lists = [sorted(fired.get((x, r, y), []), reverse=True) for y in range(graph.num_entities)]
        for y, ours in enumerate(lists):
            best = ours[0] if ours else 0.0
            assert best <= float(scores[row, y]) < best + 1e-3
            for z, theirs in enumerate(lists):
                assert (scores[row, y] > scores[row, z]).item() == (ours > theirs), (ours, theirs)
                num_by_later_rules += ours > theirs and theirs[:1] == ours[:1]
    assert num_by_later_rules > 10


def test_more_rules_than_a_word_has_bits_are_compared_to_the_last() -> None:
    """200 rules of different confidences: the last one alone decides between two answers that share the others."""
    from refactorgnn.models.rivals.rule_aggregation import Fired, MaxPlus

    confidences = torch.arange(200, 0, -1, dtype=torch.float64) / 256
    aggregate = MaxPlus(torch.zeros(200, dtype=torch.int64), confidences)
    assert aggregate.num_words == 4
    shared = torch.arange(199)
    rules = torch.cat([shared, shared, torch.tensor([199])])
    answers = torch.cat([torch.zeros(199), torch.ones(199), torch.ones(1)]).long()
    scores = aggregate(Fired(torch.zeros_like(rules), rules, answers), 1, 3)
    assert scores[0, 1] > scores[0, 0] > scores[0, 2] == 0
    assert float(scores[0, 0]) == 200 / 256


def test_several_rules_of_one_confidence_are_counted() -> None:
    from refactorgnn.models.rivals.rule_aggregation import Fired, MaxPlus

    aggregate = MaxPlus(torch.zeros(4, dtype=torch.int64), torch.tensor([0.5, 0.5, 0.5, 0.4], dtype=torch.float64))
    rules, answers = torch.tensor([0, 1, 2, 3, 1, 2]), torch.tensor([0, 0, 1, 1, 2, 2])
    scores = aggregate(Fired(torch.zeros_like(rules), rules, answers), 1, 3)[0]
    assert scores[0] == scores[2] > scores[1] == 0.5  # two of the best are more than one and a lesser


def test_only_rules_without_constants_speak_about_new_entities() -> None:
    model, unseen = mined(random_graph(0)), GRAPHS["one never seen"]
    assert int((model.constant_terms[..., 0] >= 0).sum()) > 0
    bound = model.bind(unseen)
    assert len(bound._constant_keys) == 0
    assert len(model.bind(random_graph(0))._constant_keys) > 0


def test_the_best_rules_are_kept() -> None:
    every, few = (
        mined(random_graph(0), rules_per_relation=number, constant_rules_per_relation=5) for number in (400, 7)
    )
    confidence = every.path_support / (every.path_groundings + LAPLACE)
    assert bool((confidence[:, :-1] >= confidence[:, 1:]).all())
    assert torch.equal(few.path_bodies, every.path_bodies[:, :7])
    assert few.num_parameters == int((few.path_bodies[..., 0] >= 0).sum()) + int(
        (every.constant_terms[..., 0] >= 0).sum()
    )


def test_groundings_are_paths_of_the_graph() -> None:
    graph = random_graph(0)
    bound, facts, num_paths = mined(graph).bind(graph), facts_of(graph), 0
    assert isinstance(bound, RuleScorer)
    for x, r, y in graph.triples("train").tolist():
        for rule, entities in bound.groundings(x, r, y).items():
            if rule < bound.table.num_paths:
                body = [relation for relation in bound.table.bodies[rule].tolist() if relation >= 0]
                assert (entities[0], entities[-1]) == (x, y)
                assert all(step in facts for step in zip(entities, body, entities[1:], strict=False))
                num_paths += 1
    assert num_paths > 50


def test_a_run_comes_back_bit_for_bit_and_answers_about_a_graph_never_seen(tiny: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": "rulen", "paths_per_fact": 50, "facts_per_relation": 9, "progress": False}
    first, second = (refactorgnn.train(tiny, out=tmp_path / name, **settings) for name in ("one", "two"))
    assert_same_tensors(first.weights_path, second.weights_path)
    unseen = GRAPHS["one never seen"]
    unseen = KnowledgeGraph("u", unseen.entities, first.graph.relations, unseen.splits)
    ours, theirs = (run.load_model().bind(unseen).scores(*every_question(unseen)) for run in (first, second))
    assert torch.equal(ours, theirs)
    assert bool((ours > 0).any())
    assert first.sidecar["num_parameters"] == first.load_model().num_parameters > 0
    mirrored = refactorgnn.rules(first, relation="twin of", k=1)[0]
    assert (mirrored.text, mirrored.has_constants) == ("twin of(X, Y) ← twin of(Y, X)", False)
    assert mirrored.confidence == pytest.approx(mirrored.support / (mirrored.groundings + 5))
    assert (mirrored.support, mirrored.groundings) == (20, 22)  # of 24 twins two are held out


def test_rules_are_reasons(tiny: Path, tmp_path: Path) -> None:
    run = refactorgnn.train(tiny, model="rulen", out=tmp_path / "run", progress=False)
    found = refactorgnn.explain(run, head="person 0", relation="twin of", tail="person 1", num_counterfactuals=1)
    assert found.rules[0].rule == "twin of(X, Y) ← twin of(Y, X)"
    assert found.rules[0].path == (("person 1", "twin of", "person 0"),)
    assert 0 <= found.score - found.rules[0].confidence < 1e-3
    assert found.counterfactuals[0].fact == ("person 1", "twin of", "person 0")  # the best reason, taken away
    assert found.counterfactuals[0].score < found.score - 0.1


def test_no_fact_is_a_reason_for_itself() -> None:
    """``r(x, c) ← r(x, ·)`` holds by another object of ``x`` than ``c``, and the path shows that one."""
    graph = random_graph(0)
    bound = mined(graph).bind(graph)
    num_shown = 0
    for head, relation, tail in graph.triples("train").tolist():
        fact = graph.entities[head], graph.relations[relation], graph.entities[tail]
        for reason in rule_reasons(bound, graph, (head, relation, tail)):
            assert fact not in reason.path, reason
            num_shown += reason.rule.endswith(f"← {fact[1]}(X, A)")
    assert num_shown > 0


def test_an_ensemble_shows_the_rules_of_its_members() -> None:
    graph = random_graph(0)
    rules, other = mined(graph), PersonalisedPageRank(graph.relations)
    together = Ensemble([other, rules], [0.3, 0.7]).bind(graph)
    triple = tuple(graph.triples("train")[0].tolist())
    assert rule_reasons(together, graph, triple) == rule_reasons(rules.bind(graph), graph, triple) != ()
    assert rule_reasons(other.bind(graph), graph, triple) == ()


def test_members_of_an_ensemble_take_logarithms_of_confidences_and_not_of_what_noisy_or_adds_up() -> None:
    graph = random_graph(0)
    best = bind_for_logits(mined(graph, aggregation="max"), graph).scores(*every_question(graph))
    assert float(best.max()) < 0
    added = mined(graph, aggregation="noisy-or")
    assert torch.equal(
        bind_for_logits(added, graph).scores(*every_question(graph)), added.bind(graph).scores(*every_question(graph))
    )


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"dim": 8}, "setting dim=8 does nothing for rulen"),
        ({"learning_rate": 0.5}, "setting learning_rate=0.5 does nothing for rulen"),
        ({"rule_length": 4}, "rule_length cannot be 4"),
        ({"aggregation": "mean"}, "aggregation cannot be 'mean'"),
        ({"laplace": 0}, "laplace cannot be 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, Any], problem: str, tiny: Path) -> None:
    with pytest.raises(UserError, match=problem):
        refactorgnn.train(tiny, model="rulen", **settings)


def test_a_run_without_rules_says_so(tiny_run: refactorgnn.Run) -> None:
    with pytest.raises(UserError, match=r"has no rules: choose a run of rulen or neural-lp or drum\.$"):
        refactorgnn.rules(tiny_run)
