"""What a model says of an entity before anybody asks: the best answer of each relation, in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from refactorgnn.page.address import Asked
from refactorgnn.predict.predictor import Answer, Predictor

_MOST_ANSWERS = 10
# Asking about an entity costs a product with all others for each relation and direction.
_MOST_RELATIONS = 100


@dataclass(frozen=True)
class FirstAnswer:
    """One answer.

    Args:
        about: The label of the entity.
        text: The triple for people.
        asked: The question, with this answer chosen.
        probability: How likely it is to be true, if that can be told.
    """

    about: str
    text: str
    asked: Asked
    probability: float | None


def first_answers(
    predictor: Predictor, entity: str, told: Sequence[tuple[str, str, str]]
) -> list[FirstAnswer]:
    """The most probable answers about an entity, one of each question; what facts were told about comes last.

    The commonest relations are asked, at most a hundred of them.

    Args:
        predictor: What answers.
        entity: The entity's name.
        told: The facts that were just told.
    """
    graph = predictor.graph
    counts = torch.bincount(graph.triples("train")[:, 1], minlength=graph.num_relations)
    common = torch.argsort(counts, descending=True, stable=True)[:_MOST_RELATIONS].tolist()
    asked = [
        question
        for relation in (graph.relations[number] for number in common)
        for question in (Asked(entity, relation, None), Asked(None, relation, entity))
    ]
    found = predictor.answer([one.question for one in asked], 1, typed=True)
    best = [(one, answers[0]) for one, answers in zip(asked, found, strict=True) if answers]

    def order(pair: tuple[Asked, Answer]) -> tuple[bool, float]:
        one, answer = pair
        is_told = any((one.head or one.tail) in (head, tail) and one.relation == name for head, name, tail in told)
        return is_told, -(answer.score if answer.probability is None else answer.probability)

    label = graph.label(graph.entities.id(entity))
    return [_first_answer(label, one, answer) for one, answer in sorted(best, key=order)[:_MOST_ANSWERS]]


def _first_answer(label: str, asked: Asked, answer: Answer) -> FirstAnswer:
    parts = (label, asked.relation, answer.label) if asked.head is not None else (answer.label, asked.relation, label)
    return FirstAnswer(label, " — ".join(map(str, parts)), replace(asked, why=answer.entity), answer.probability)
