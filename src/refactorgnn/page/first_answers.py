"""What a model says of an entity before anybody asks: the best answer to each question that suits it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from refactorgnn.page.address import Asked
from refactorgnn.predict.candidates import Kinds
from refactorgnn.predict.predictor import Answer, Predictor

_MOST_ANSWERS = 10
# Asking about an entity costs a product with all others for each relation and direction.
_MOST_RELATIONS = 100
# A question suits an entity if this share of its peers, which stand where it stands in its facts, have an answer.
_LEAST_SHARE = 0.2


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


def first_answers(predictor: Predictor, entity: str) -> list[FirstAnswer]:
    """The most probable answers about an entity, one to each question; those to which it has an answer come last.

    Args:
        predictor: What answers.
        entity: The entity's name.
    """
    graph = predictor.graph
    number, told = graph.entities.id(entity), graph.queries("train")
    has = set(told.relations[told.subjects == number].tolist())
    suiting = _suiting(predictor, has)
    questions = [
        Asked(entity, graph.relations[relation], None)
        if relation < graph.num_relations
        else Asked(None, graph.relations[relation - graph.num_relations], entity)
        for relation in suiting
    ]
    found = predictor.answer([one.question for one in questions], 2, typed=True)
    best = []
    for relation, one, answers in zip(suiting, questions, found, strict=True):
        if others := [answer for answer in answers if answer.entity != entity]:
            best.append((relation in has, one, others[0]))

    def order(row: tuple[bool, Asked, Answer]) -> tuple[bool, float]:
        is_told, _, answer = row
        return is_told, -(answer.score if answer.probability is None else answer.probability)

    label = graph.label(number)
    return [_first_answer(label, one, answer) for _, one, answer in sorted(best, key=order)[:_MOST_ANSWERS]]


def _suiting(predictor: Predictor, has: set[int]) -> list[int]:
    """Relations and reciprocals to ask of an entity that is the subject of those in ``has``, the commonest first."""
    graph, kinds = predictor.graph, predictor.kinds
    counts = torch.bincount(graph.triples("train")[:, 1], minlength=graph.num_relations)
    common = torch.argsort(counts, descending=True, stable=True)[:_MOST_RELATIONS]
    peers = torch.zeros(graph.num_entities, dtype=torch.bool)
    for relation in has:
        peers[_subjects(kinds, relation, graph.num_relations)] = True
    return [
        relation
        for relation in torch.stack([common, common + graph.num_relations], dim=1).flatten().tolist()
        if int(peers[_subjects(kinds, relation, graph.num_relations)].sum()) >= _LEAST_SHARE * int(peers.sum())
    ]


def _subjects(kinds: Kinds, relation: int, num_relations: int) -> Tensor:
    """The subjects of a relation are the objects of its reciprocal."""
    return kinds.of((relation + num_relations) % (2 * num_relations))


def _first_answer(label: str, asked: Asked, answer: Answer) -> FirstAnswer:
    parts = (label, asked.relation, answer.label) if asked.head is not None else (answer.label, asked.relation, label)
    return FirstAnswer(label, " — ".join(map(str, parts)), replace(asked, why=answer.entity), answer.probability)
