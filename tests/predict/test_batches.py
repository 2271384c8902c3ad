"""Many questions at once, of every kind, by name or id; the right kind of candidate on request."""

from __future__ import annotations

from itertools import chain

import pytest
import torch

from refactorgnn import Predictor, Run, UserError
from refactorgnn.predict import Question, candidates
from tests.conftest import NUM_PEOPLE, ODD_NAME, tiny_triples


@pytest.fixture(scope="module")
def predictor(tiny_run: Run) -> Predictor:
    return Predictor.load(tiny_run)


QUESTIONS = [
    Question("person 3", "next to", None),
    Question(None, "across", ODD_NAME),
    Question("person 1", None, "person 2"),
    Question("person 0", "twin of", None),
]


def test_a_batch_answers_what_single_questions_do(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    singly = [
        predictor.tails("person 3", "next to", 4),
        predictor.heads("across", ODD_NAME, 4),
        predictor.relations("person 1", "person 2", 4),
        predictor.tails("person 0", "twin of", 4),
    ]
    in_one = predictor.answer(QUESTIONS, 4)
    assert [[a.entity for a in answers] for answers in in_one] == [[a.entity for a in answers] for answers in singly]
    for ours, theirs in zip(chain(*in_one), chain(*singly), strict=True):
        assert ours.score == pytest.approx(theirs.score, rel=1e-5, abs=1e-6)
    monkeypatch.setattr(candidates, "rows_within", lambda *_, **__: 1)  # a chunk for each question
    in_chunks = predictor.answer(QUESTIONS, 4)
    assert [[answer.entity for answer in answers] for answers in in_chunks] == [
        [answer.entity for answer in answers] for answers in singly
    ]
    assert predictor.answer([], 4) == []


def test_ids_stand_for_names(predictor: Predictor) -> None:
    entity, relation = predictor.graph.entities.id("person 3"), predictor.graph.relations.id("across")
    assert predictor.tails(entity, relation) == predictor.tails("person 3", "across")
    assert predictor.heads(relation, entity) == predictor.heads("across", "person 3")
    with pytest.raises(UserError, match="no entity of id 24"):
        predictor.tails(NUM_PEOPLE, "across")
    with pytest.raises(UserError, match="no relation of id -1"):
        predictor.tails("person 3", -1)


def test_triples_are_scored_as_tails(predictor: Predictor) -> None:
    triples = [
        ("person 3", "next to", "person 4"),
        ("person 3", "next to", "person 9"),
        (ODD_NAME, "across", "person 9"),
    ]
    for (head, relation, tail), scored in zip(triples, predictor.score(triples), strict=True):
        answers = predictor.tails(head, relation, NUM_PEOPLE, include_known=True)
        expected = next(answer for answer in answers if answer.entity == tail)
        assert scored.score == pytest.approx(expected.score, rel=1e-5, abs=1e-6)
        assert (scored.entity, scored.known, scored.split) == (expected.entity, expected.known, expected.split)
    assert [answer.known for answer in predictor.score(triples)] == [True, False, False]


def test_relations_are_ordered_by_log_odds(predictor: Predictor) -> None:
    answers = predictor.relations("person 1", "person 0", 9, include_known=True)
    assert {answer.entity: answer.known for answer in answers} == {"twin of": True, "next to": False, "across": False}
    head, tail = (predictor.graph.entities.id(name) for name in ("person 1", "person 0"))
    odds = {}
    for relation, name in enumerate(predictor.graph.relations):
        subject = torch.tensor([head]), torch.tensor([relation])
        scores = predictor.bound.scores(*subject)[0].detach().double()
        known = predictor.graph.queries().objects_of(*subject).columns
        others = [u for u in range(NUM_PEOPLE) if u != tail and u not in known.tolist()]
        odds[name] = float(scores[tail] - torch.logsumexp(scores[others], 0))
    assert [answer.entity for answer in answers] == sorted(odds, key=lambda name: -odds[name])
    assert "twin of" not in [answer.entity for answer in predictor.relations("person 1", "person 0", 9)]


def test_typed_candidates_are_those_seen_in_that_place(predictor: Predictor) -> None:
    train = tiny_triples()["train"]
    tails = {tail for _, relation, tail in train if relation == "across"}
    heads = {head for head, relation, _ in train if relation == "across"}
    assert len(tails) < NUM_PEOPLE
    everyone = NUM_PEOPLE + 1
    found = predictor.tails("person 3", "across", everyone, include_known=True, typed=True)
    assert {answer.entity for answer in found} == tails - {"person 3"}
    found = predictor.heads("across", "person 3", everyone, include_known=True, typed=True)
    assert {answer.entity for answer in found} == heads - {"person 3"}
    never = next(name for name in predictor.graph.entities if name not in tails)
    other = next(name for name in heads if name != never)
    assert "across" in [answer.entity for answer in predictor.relations(other, never, 9, include_known=True)]
    typed = predictor.relations(other, never, 9, include_known=True, typed=True)
    assert "across" not in [answer.entity for answer in typed]


def test_a_question_has_one_unknown() -> None:
    for parts in ((None, None, "x"), ("x", "y", "z")):
        with pytest.raises(UserError, match="one unknown"):
            Question(*parts)
