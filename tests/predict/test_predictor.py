from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import refactorgnn
from refactorgnn import Predictor, Run, UserError
from tests.conftest import NUM_PEOPLE, ODD_NAME, QUICK, rows, tiny_triples, write_folder


@pytest.fixture(scope="module")
def predictor(tiny_run: Run) -> Predictor:
    return Predictor.load(tiny_run)


def expected_scores(run: Run, subject: str, relation: str, *, inverse: bool) -> dict[str, float]:
    """DistMult by hand: ``Σ_k h_s ψ_r h_o``, a head question by way of the reciprocal relation."""
    weights = run.load_model().state_dict()
    states, relations = weights["states"], weights["relations"]
    row = run.graph.relations.id(relation) + (run.graph.num_relations if inverse else 0)
    scores = (states[run.graph.entities.id(subject)] * relations[row]) @ states.T
    return dict(zip(run.graph.entities, scores.tolist(), strict=True))


def known(subject: str, relation: str, *, inverse: bool) -> set[str]:
    triples = [triple for split in tiny_triples().values() for triple in split]
    if inverse:
        return {head for head, name, tail in triples if (name, tail) == (relation, subject)}
    return {tail for head, name, tail in triples if (head, name) == (subject, relation)}


@pytest.mark.parametrize("inverse", [False, True], ids=["tails", "heads"])
@pytest.mark.parametrize("subject", ["person 3", "person 0", ODD_NAME])
@pytest.mark.parametrize("relation", ["next to", "twin of"])
def test_the_best_new_answers_in_order(
    predictor: Predictor, tiny_run: Run, subject: str, relation: str, inverse: bool
) -> None:
    scores = expected_scores(tiny_run, subject, relation, inverse=inverse)
    facts = known(subject, relation, inverse=inverse)
    assert facts  # of whichever split: what is to be found in test is known too
    answers = predictor.heads(relation, subject, 5) if inverse else predictor.tails(subject, relation, 5)
    expected = sorted(set(scores) - facts, key=lambda name: -scores[name])[:5]
    assert [answer.entity for answer in answers] == expected
    assert [answer.score for answer in answers] == pytest.approx([scores[name] for name in expected], rel=1e-5)
    assert not any(answer.known for answer in answers)


def test_known_answers_are_marked_when_they_are_asked_for(predictor: Predictor) -> None:
    answers = predictor.tails("person 3", "next to", NUM_PEOPLE, include_known=True)
    assert len(answers) == NUM_PEOPLE - 1  # all but itself
    assert {answer.entity for answer in answers if answer.known} == {"person 4"}
    scores = [answer.score for answer in answers]
    assert scores == sorted(scores, reverse=True)


def test_more_answers_than_there_are(predictor: Predictor) -> None:
    assert len(predictor.tails("person 3", "next to", 1000)) == NUM_PEOPLE - 2
    assert len(predictor.tails("person 3", "next to", 1000, include_known=True)) == NUM_PEOPLE - 1


def test_an_entity_is_no_answer_about_itself_unless_a_training_fact_of_the_relation_is_such(tiny_run: Run) -> None:
    graph = tiny_run.graph
    near, across = graph.relations.id("next to"), graph.relations.id("across")
    loop = torch.tensor([[4, near, 4]])
    looped = replace(graph, splits={**graph.splits, "train": torch.cat([graph.triples("train"), loop])}, _indices={})
    predictor = Predictor(tiny_run.load_model(), looped)
    for relation in (near, across):
        for answers in (predictor.tails(7, relation, 1000), predictor.heads(relation, 7, 1000)):
            assert (graph.entities[7] in [answer.entity for answer in answers]) == (relation == near)
    assert predictor.score([(7, across, 7)])[0].entity == graph.entities[7]  # it can be scored all the same


def test_asking_changes_nothing(predictor: Predictor) -> None:
    first = predictor.tails("person 3", "next to")
    predictor.heads("across", "person 9")
    assert predictor.tails("person 3", "next to") == first


def test_the_function_and_the_predictor_agree(predictor: Predictor, tiny_run: Run) -> None:
    for run in (tiny_run, tiny_run.path, str(tiny_run.path), predictor):
        assert refactorgnn.predict(run, head="person 3", relation="across", k=3) == predictor.tails(
            "person 3", "across", 3
        )
        assert refactorgnn.predict(run, tail="person 3", relation="across", k=3) == predictor.heads(
            "across", "person 3", 3
        )


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"head": "person 3", "tail": "person 4"}, "either head or tail"),
        ({}, "either head or tail"),
        ({"head": "person 99"}, "unknown entity 'person 99': did you mean 'person 9'"),
        ({"head": "person 3", "k": 0}, "k=0 answers"),
    ],
)
def test_a_question_that_cannot_be_answered(predictor: Predictor, question: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        refactorgnn.predict(predictor, relation="across", **question)  # type: ignore[arg-type]


def test_labels_can_be_asked_for_and_are_shown(tmp_path: Path) -> None:
    texts = "entity\tlabel\tdescription\nperson 1\tAda\t\nperson 2\tAda\t\nperson 3\tGrace\tan admiral\n"
    files = {split: rows(triples) for split, triples in tiny_triples().items()}
    folder = write_folder(tmp_path / "labelled", **files, entities=texts)
    run = refactorgnn.train(folder, out=tmp_path / "run", progress=False, **QUICK | {"epochs": 1})
    by_label = refactorgnn.predict(run, head="Grace", relation="next to", k=24, include_known=True)
    assert by_label == refactorgnn.predict(run, head="person 3", relation="next to", k=24, include_known=True)
    labels = {answer.entity: answer.label for answer in by_label}
    assert (labels["person 1"], labels["person 2"], labels["person 4"]) == ("Ada", "Ada", "person 4")
    with pytest.raises(UserError, match="'Ada'"):  # two entities are called that
        refactorgnn.predict(run, head="Ada", relation="next to")


def test_a_constant_model_still_answers(tiny_run: Run) -> None:
    model = tiny_run.load_model()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    answers = Predictor(model, tiny_run.graph).tails("person 3", "next to", 4)
    assert [answer.score for answer in answers] == [0.0] * 4
    assert "person 4" not in [answer.entity for answer in answers]
