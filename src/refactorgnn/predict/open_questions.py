"""How likely a fact is that nobody asked for: a curve over all questions, most of which have no answer left.

The curves of :mod:`refactorgnn.predict.calibration` are about questions that have an answer still to be found. Most
pairs of a head and a relation have none, a country whose capital is known has no other, and softmax's log-odds cannot
tell: the best of wrong answers stands as high as a right one. Whoever goes through all pairs must count the candidates
of all of them: those of the validation split, which says what is true, and a random sample of the others, weighted so
that they stand for all. What is true is what validation says, so that probabilities are those of as many missing facts
as it holds; where more are missing, they err on the low side.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.predict.calibration import FEWEST_TRIPLES, MOST_QUESTIONS, NUM_BINS, Counts, Curve, binned, fit_curve
from refactorgnn.predict.candidates import dense, scored_questions

if TYPE_CHECKING:
    from refactorgnn.predict.predictor import Predictor


def curve_over_all_questions(predictor: Predictor, *, typed: bool) -> Curve | None:
    """The probability of a tail by its log-odds, whatever the question; None where validation is too small to tell.

    Args:
        predictor: What answers.
        typed: Whether only heads and tails are looked at that the train split shows in that place of the relation.
    """
    graph = predictor.graph
    if "valid" not in graph.splits or len(graph.triples("valid")) < FEWEST_TRIPLES:
        return None
    counts = np.zeros((2, NUM_BINS))
    for questions, weight in _questions(graph, heads_to_ask(predictor, typed=typed)):
        for found in _counts(predictor, *questions.unbind(1), typed=typed):
            counts += weight * found
    return fit_curve(*counts)


def heads_to_ask(predictor: Predictor, *, typed: bool) -> list[Tensor]:
    """The heads that each relation is asked about with."""
    count = predictor.graph.num_relations
    if typed:
        return [predictor.kinds.of(relation + count) for relation in range(count)]
    return [torch.arange(predictor.graph.num_entities)] * count


def _questions(graph: KnowledgeGraph, heads: list[Tensor]) -> Iterator[tuple[Tensor, float]]:
    """Pairs of head and relation, and how many each of them stands for: those of validation, and some of the others."""
    generator = torch.Generator().manual_seed(0)
    asked = graph.queries("valid")
    valid = torch.cat(
        [_paired(mine[torch.isin(mine, heads[r])], r) for r in range(len(heads)) if len(mine := _asked_by(asked, r))]
    )
    if len(valid):
        some = valid[torch.randperm(len(valid), generator=generator)[:MOST_QUESTIONS]]
        yield some, len(valid) / len(some)
    sizes = torch.tensor([len(mine) for mine in heads])
    total = int(sizes.sum())
    few = total <= MOST_QUESTIONS
    places = torch.arange(total) if few else torch.randint(total, (MOST_QUESTIONS,), generator=generator)
    ends = sizes.cumsum(0)
    relations = torch.searchsorted(ends, places, right=True)
    offsets = places - (ends - sizes)[relations]
    others = torch.cat([_paired(heads[r][offsets[relations == r]], r) for r in range(len(heads))])
    keys = [pairs[:, 0] * len(heads) + pairs[:, 1] for pairs in (others, valid)]
    others = others[~torch.isin(*keys)]
    if len(others):
        yield others, (total - len(valid)) / len(others)


def _asked_by(asked: QueryIndex, relation: int) -> Tensor:
    return asked.subjects[asked.relations == relation]


def _paired(heads: Tensor, relation: int) -> Tensor:
    return torch.stack([heads, torch.full_like(heads, relation)], dim=1)


def _counts(predictor: Predictor, subjects: Tensor, relations: Tensor, *, typed: bool) -> Iterator[Counts]:
    """How many false and true candidates have which log-odds, part by part."""
    graph = predictor.graph
    known = graph.queries(*(name for name in graph.splits if name != "valid"))
    for rows in scored_questions(predictor.bound, known, subjects, relations, predictor.irreflexive):
        asked = subjects[rows.places], relations[rows.places]
        counted = ~(rows.known | rows.itself).cpu()
        if typed:
            counted &= predictor.kinds.masks(asked[1])
        true = dense(graph.queries("valid").objects_of(*asked))
        yield binned(rows.log_odds.cpu()[counted], true[counted])
