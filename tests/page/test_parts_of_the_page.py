"""What the page is made of, without a browser: addresses, pasted facts, parts of scores, first answers."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
import torch

from refactorgnn import Predictor, Run
from refactorgnn.errors import UserError
from refactorgnn.page.address import Asked, asked_by
from refactorgnn.page.examples import example_questions
from refactorgnn.page.explanation_chart import chart_options
from refactorgnn.page.explanation_parts import MOST_FACTS, View, view_of
from refactorgnn.page.first_answers import first_answers
from refactorgnn.page.pasted_facts import MOST_LINES, read_pasted
from refactorgnn.predict.growing import grow, preview_growth


@pytest.mark.parametrize(
    "asked",
    [
        Asked("France", "borders", None),
        Asked(None, "a relation & more?", "Île [/b] :smile:", k=3, with_known=False, why="100%"),
        Asked("a+b", None, "c=d", typed=False),
    ],
)
def test_an_address_says_what_is_asked(asked: Asked) -> None:
    assert asked_by(dict(parse_qsl(asked.address()[1:]))) == asked
    assert asked.triple("X").count("X") == 1


def test_an_address_that_asks_nothing_or_too_much() -> None:
    assert asked_by({}) is None
    assert asked_by({"utm_source": "x"}) is None
    for parameters in ({"head": "France"}, {"head": "France", "relation": "borders", "tail": "Spain"}):
        with pytest.raises(UserError, match="one thing"):
            asked_by(parameters)
    for number in ("0", "101", "-1", "1e2", "²", ""):
        with pytest.raises(UserError, match="from 1 to 100"):
            asked_by({"head": "France", "relation": "borders", "k": number})


def test_pasted_facts_by_tabs_commas_and_quotes(predictor: Predictor) -> None:
    lines = ["Head, Relation, Tail", "Atlantis\tborders\tPortugal", "", "  Atlantis , speaks, Portuguese "]
    pasted = read_pasted("\n".join([*lines, '"Bay, the", city_in, Atlantis']), predictor.graph)
    assert pasted.mistakes == ()
    assert pasted.triples == (
        ("Atlantis", "borders", "Portugal"),
        ("Atlantis", "speaks", "Portuguese"),
        ("Bay, the", "city_in", "Atlantis"),
    )


def test_mistakes_in_pasted_facts_have_their_line(predictor: Predictor) -> None:
    text = "Atlantis, borders, Portugal\n\nAtlantis borders Spain\nAtlantis, border, Spain\nAtlantis, , Spain\na,b,c,d"
    pasted = read_pasted(text, predictor.graph)
    assert len(pasted.triples) == 1
    assert [(mistake.line, mistake.problem.split(";")[0]) for mistake in pasted.mistakes] == [
        (3, "1 field where 3 are needed"),
        (4, "relation 'border' was not seen in training"),
        (5, "the relation is empty"),
        (6, "4 fields where 3 are needed"),
    ]
    assert "'borders'" in pasted.mistakes[1].problem


def test_too_many_facts_are_not_read(predictor: Predictor) -> None:
    pasted = read_pasted("a, borders, b\n" * (MOST_LINES + 1), predictor.graph)
    assert pasted.triples == ()
    assert "1,000 lines" in str(pasted.mistakes[0])


def test_a_preview_counts_what_growing_adds(predictor: Predictor) -> None:
    facts = [("Atlantis", "borders", "Portugal"), ("Atlantis", "borders", "Portugal")]
    known = predictor.graph.named_triples("train").slice(0, 1).to_pylist()[0]
    facts.append((known["head"], known["relation"], known["tail"]))
    preview = preview_growth(predictor.model, predictor.graph, facts)
    added = grow(predictor.model, predictor.graph, facts).added
    assert (preview.entities, preview.num_facts, preview.num_known) == (("Atlantis",), 1, 2)
    assert (preview.entities, preview.num_facts, preview.num_known) == (
        added.entities,
        added.num_facts,
        added.num_known,
    )
    with pytest.raises(UserError, match="nothing new"):
        preview_growth(predictor.model, predictor.graph, facts[2:])


@pytest.mark.parametrize("view", ["head", "tail"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("tail", ["Europe", "Euro"])  # Europe has more facts than are shown one by one
def test_parts_and_chart_add_up_to_the_score(predictor: Predictor, view: View, depth: int, tail: str) -> None:
    relation = "in_continent" if tail == "Europe" else "uses_currency"
    found = predictor.explain("Portugal", relation, tail, depth=depth)
    layers = view_of(found, view, predictor.graph)
    assert [layer.back for layer in layers] == [*range(1, depth + 1), 0]
    assert sum(layer.contribution for layer in layers) == pytest.approx(found.score, abs=1e-4)
    terms = found.by_head if view == "head" else found.by_tail
    for layer in layers[:-1]:
        facts = [term for term in terms if term.layers_back == layer.back and term.fact is not None]
        shown = [part for part in layer.parts if part.role == "fact"]
        assert [part.fact for part in shown] == [term.fact for term in facts[: len(shown)]]
        assert len(shown) == (MOST_FACTS if len(facts) > MOST_FACTS + 1 else len(facts))
    nodes = chart_options(layers, "entity", "other", relation, found.score)["series"][0]["data"]
    roles = ("fact", "others", "rest", "state", "features")
    assert sum(n["contribution"] for n in nodes if n["role"] in roles) == pytest.approx(found.score, abs=1e-4)
    assert sum(n["role"] == "split" for n in nodes) == depth - 1
    assert len({node["name"] for node in nodes}) == len(nodes)


def test_what_flows_into_a_node_of_the_chart_is_what_it_contributes(predictor: Predictor) -> None:
    found = predictor.explain("Portugal", "uses_currency", "Euro", depth=2)
    series = chart_options(view_of(found, "head", predictor.graph), "a", "b", "r", found.score)["series"][0]
    into: dict[str, float] = {}
    for link in series["links"]:
        if link["target"] != "other":
            into[link["target"]] = into.get(link["target"], 0.0) + link["contribution"]
    (split,) = [node for node in series["data"] if node["role"] == "split"]
    assert into[split["name"]] == pytest.approx(split["contribution"])
    assert into["entity"] == pytest.approx(found.score, abs=1e-4)


def test_first_answers_suit_the_newcomer(run: Run) -> None:
    grown = Predictor.load(run)
    grown.add([("Atlantis", "in_continent", "Europe"), ("Atlantis", "speaks", "Portuguese")])
    answers = first_answers(grown, "Atlantis")
    asked = [(one.asked.head, one.asked.relation) for one in answers]
    # A country keeps a time; it is not in a time zone, no language, and no city.
    assert ("Atlantis", "keeps_time") in asked
    assert not {"in_timezone", "written_in", "near"} & {relation for _, relation in asked}
    told = [one.asked.relation in ("in_continent", "speaks") for one in answers]
    assert told == sorted(told)
    for one in answers:
        (best,) = [a for a in grown.answer([one.asked.question], 2, typed=True)[0] if a.entity == one.asked.why][:1]
        assert one.probability == pytest.approx(best.probability)
        assert best.entity != "Atlantis"
    untold = [one.probability for one, is_told in zip(answers, told, strict=True) if not is_told]
    assert untold == sorted(untold, reverse=True, key=lambda probability: probability or 0.0)


def test_examples_are_questions_that_held_out_facts_answer(predictor: Predictor) -> None:
    graph = predictor.graph
    examples = example_questions(graph)
    assert len(examples) == 5
    held_out = {tuple(pair) for pair in graph.triples("valid")[:, :2].tolist()}
    counts = torch.bincount(graph.triples("valid")[:, 1]).tolist()
    relations = []
    for text, address in examples:
        head, relation, unknown = text.split(" — ")
        assert unknown == "?"
        assert address.startswith("?head=")
        relations.append(graph.relations.id(relation))
        assert (graph.entity_id(head), relations[-1]) in held_out
    assert [counts[relation] for relation in relations] == sorted(counts, reverse=True)[:5]
