"""Ranking on a GPU: the same counts as on a CPU, in passes that never wait for the host.

A GPU compares faster than it looks things up, so that every question has its own row of scores, however often it is
asked, and a question is ranked in a fixed sequence of kernels. What depends on the questions alone is prepared once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.models.base import QueryScorer
from refactorgnn.ops.chunked import rows_within
from refactorgnn.ops.sparse import SparsePattern

# Score matrices alive at once: the scores, and the outcomes of two comparisons.
_BUFFERS = 3


@dataclass(frozen=True)
class QuestionBatch:
    """Questions with the answers asked for, and with what is known about them.

    Args:
        subjects: Shape ``(num_questions,)``.
        relations: Shape ``(num_questions,)``.
        truth: The answer of each question, shape ``(num_questions, 1)``.
        known: The known answers of each question, which are no mistakes.
        is_known: Whether the truth is one of them.
        candidates: How many candidates each question has, the truth included.
    """

    subjects: Tensor
    relations: Tensor
    truth: Tensor
    known: SparsePattern
    is_known: Tensor
    candidates: Tensor

    def count(self, predictor: QueryScorer) -> Tensor:
        """``(better, equal, candidates)`` of each question, shape ``(3, num_questions)``; better is −1 for a NaN."""
        return self.count_in(predictor.scores(self.subjects, self.relations))

    def count_in(self, scores: Tensor) -> Tensor:
        """As :meth:`count`, in scores of all entities for each question, which are spoilt."""
        target = scores.gather(1, self.truth)
        # NaN is neither greater than nor equal to anything.
        scores.index_put_((self.known.rows, self.known.columns), scores.new_full((), torch.nan))
        better = (scores > target).sum(1)
        better = torch.where(target[:, 0].isnan(), -1, better)
        # A truth that is not itself a known answer is still in its row, and equal to itself.
        equal = (scores == target).sum(1) - (~self.is_known).long()
        return torch.stack([better, equal, self.candidates])


def question_batches(
    questions: Tensor, known: QueryIndex, device: torch.device, rows: int | None = None
) -> Iterator[QuestionBatch]:
    """Batches of questions on ``device``.

    Args:
        questions: ``(subject, relation, answer)``, shape ``(num_questions, 3)``.
        known: The facts whose objects are not counted as mistakes.
        device: Where to rank.
        rows: The most questions of a batch; None: as many as the device's memory budget allows.
    """
    known = known.to(device)
    if rows is None:
        rows = rows_within(None, known.num_entities, _BUFFERS, device=device)
    for part in questions.to(device).split(rows):
        subjects, relations, truth = part.unbind(1)
        found = known.find(subjects, relations)
        answers = known.distinct_answers.take_rows(found)
        hits = (answers.columns == truth[answers.rows]).long()
        is_known = torch.zeros_like(truth).index_add_(0, answers.rows, hits) > 0
        candidates = known.num_entities - answers.counts + is_known.long()
        yield QuestionBatch(subjects, relations, truth[:, None], answers, is_known, candidates)


def count_all(predictor: QueryScorer, batches: Iterable[QuestionBatch]) -> Tensor:
    """``(better, equal, candidates)`` of all questions, on the device; shape ``(3, num_questions)``."""
    return torch.cat([batch.count(predictor) for batch in batches], dim=1)
