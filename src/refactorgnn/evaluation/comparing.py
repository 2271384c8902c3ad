"""What the score of a true answer is compared with: those of all other entities, or of a sample of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.evaluation.counting import ThresholdCounter
from refactorgnn.evaluation.sampling import draw_without
from refactorgnn.ops.sparse import SparsePattern

NO_NUMBERS = "the model's scores are not numbers (NaN): train it again with a smaller learning rate."


@dataclass(frozen=True)
class Group:
    """A batch of distinct questions to score, and the triples that ask them.

    Args:
        questions: ``(subject, relation)``, shape ``(num_questions, 2)``.
        places: The triples that ask them, by their number.
        rows: Which question each of them asks.
        truth: The answer each of them knows.
    """

    questions: Tensor
    places: Tensor
    rows: Tensor
    truth: Tensor


def groups_of(questions: Tensor, rows: int) -> Iterator[Group]:
    """The distinct ones among ``(subject, relation, answer)``, at most ``rows`` at a time.

    They are sorted by their number of truths, most first, so that those with more than ``j`` of them are a prefix.
    """
    pairs, inverse, sizes = torch.unique(questions[:, :2], dim=0, return_inverse=True, return_counts=True)
    by_size = torch.argsort(sizes, descending=True, stable=True)
    position = torch.empty_like(by_size)
    position[by_size] = torch.arange(len(by_size))
    row = position[inverse]
    places_by_row = torch.argsort(row, stable=True)
    ends = sizes[by_size].cumsum(0)
    for start in range(0, len(pairs), rows):
        stop = min(start + rows, len(pairs))
        places = places_by_row[int(ends[start] - sizes[by_size[start]]) : int(ends[stop - 1])]
        yield Group(pairs[by_size[start:stop]], places, row[places] - start, questions[places, 2])


class Comparison(Protocol):
    """A way to compare truths with other candidates."""

    def __call__(self, scores: Tensor, group: Group) -> Tensor:
        """``(better, equal, candidates)`` of each place; shape ``(3, num_places)``."""


class AgainstAll:
    """Compares with all entities but the other known answers; the scores are spoilt.

    The scores of known answers are replaced by NaN, which is neither greater than nor equal to anything, so one pass
    over the row counts for each truth. A question asked by several triples is passed over once for each: in round ``j``
    the ``j``-th truth of every question that has one. These are a prefix of the rows, so nothing is copied.
    """

    def __init__(self, known: QueryIndex) -> None:
        self.known = known
        self.count = ThresholdCounter(known.num_entities)

    def __call__(self, scores: Tensor, group: Group) -> Tensor:
        """``(better, equal, candidates)`` of each place."""
        device = scores.device
        rows, truth = group.rows.to(device), group.truth.to(device)
        target = _finite(scores[rows, truth])
        found = self.known.find(group.questions[:, 0], group.questions[:, 1])
        answers = self.known.answers.take_rows(found)
        scores[answers.rows.to(device), answers.columns.to(device)] = torch.nan
        is_known = scores[rows, truth].isnan()
        better, equal = self._count_in_rounds(scores, rows, target)
        others = self.known.distinct_counts(found).to(device)[rows] - is_known.long()
        # A truth that is not itself a known answer was still in the row, and equal to itself.
        return torch.stack([better, equal - (~is_known).long(), scores.shape[1] - others])

    def _count_in_rounds(self, scores: Tensor, rows: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        sizes = torch.bincount(rows)
        starts = sizes.cumsum(0) - sizes
        better, equal = torch.empty_like(rows), torch.empty_like(rows)
        for turn in range(int(sizes[0])):
            asking = int((sizes > turn).sum())
            places = starts[:asking] + turn
            better[places], equal[places] = self.count(scores[:asking], target[places])
        return better, equal


class AgainstSample:
    """Compares with seeded random negatives, drawn for all questions before any is scored: four bytes for each.

    Args:
        known: What may not be drawn beside the truth.
        questions: ``(subject, relation, answer)`` of each place, in the order of the draws.
        num_negatives: How many are drawn; −1 stands for those of which there are too few.
        seed: What the draws depend on, however many are made at a time.
        rows: The questions of which known answers are looked up together.
    """

    def __init__(self, known: QueryIndex, questions: Tensor, num_negatives: int, seed: int, rows: int) -> None:
        rng = np.random.default_rng(seed)
        drawn = [draw_without(_excluded(known, some), num_negatives, rng).int() for some in questions.split(rows)]
        # Shape (num_places, 1 + num_negatives); the truth comes first.
        self.candidates = torch.cat([questions[:, 2:].int(), torch.cat(drawn)], dim=1)

    def __call__(self, scores: Tensor, group: Group) -> Tensor:
        """``(better, equal, candidates)`` of each place."""
        candidates = self.of(group.places, scores.device)
        rows = group.rows.to(scores.device)
        return self.count(scores[rows[:, None], candidates.clamp(min=0)], candidates)

    def of(self, places: Tensor, device: torch.device) -> Tensor:
        """The candidates of some places; shape ``(num_places, 1 + num_negatives)``."""
        return self.candidates[places].to(device, torch.int64)

    @staticmethod
    def count(scores: Tensor, candidates: Tensor) -> Tensor:
        """The same from the scores of the candidates, and of their shape."""
        usable = candidates[:, 1:] >= 0
        target, against = _finite(scores[:, :1]), scores[:, 1:]
        better = ((against > target) & usable).sum(1)
        equal = ((against == target) & usable).sum(1)
        return torch.stack([better, equal, usable.sum(1) + 1])


def _excluded(known: QueryIndex, questions: Tensor) -> SparsePattern:
    """What may not be drawn: the known answers and the truth, sorted and distinct within each row."""
    subjects, relations, truth = questions.unbind(1)
    answers = known.objects_of(subjects, relations)
    span = answers.num_columns
    keys = torch.cat([answers.rows * span + answers.columns, torch.arange(len(truth)) * span + truth])
    keys = torch.unique(keys)
    return SparsePattern.from_rows(keys // span, keys % span, len(truth), span)


def _finite(scores: Tensor) -> Tensor:
    """The scores of true answers; a NaN among them would otherwise beat every candidate unseen."""
    if bool(scores.isnan().any()):
        raise UserError(NO_NUMBERS)
    return scores
