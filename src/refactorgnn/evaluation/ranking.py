"""Filtered ranking of every test triple in both directions, in bounded memory.

For each triple ``(h, r, t)`` two questions are asked, ``(h, r, ?)`` and ``(t, r⁻¹, ?)``, and the true answer is
compared with all other entities except the other known answers. What is kept for each question is not a rank but three
counts, from which every tie policy and the expectation of partial ranking follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.evaluation.counting import ThresholdCounter
from refactorgnn.evaluation.device_ranking import question_batches
from refactorgnn.evaluation.sampling import draw_without
from refactorgnn.models.base import CandidateScorer, QueryScorer
from refactorgnn.ops.chunked import rows_within
from refactorgnn.ops.sparse import SparsePattern
from refactorgnn.progress import counting

Ties = Literal["realistic", "optimistic", "pessimistic"]
# Half of it, one score matrix, stays below the size from which glibc maps memory anew for each chunk; on FB15k-237
# the page faults of larger ones cost 40 % more time.
_RANKING_BUDGET = 64 * 2**20
# With fewer questions at a time a product is no faster than reading all candidates anew for each of them.
_FEWEST_ROWS = 64
# Score matrices alive at once: the scores, and the byte mask with what NumPy needs to sum it.
_BUFFERS = 2
_NO_NUMBERS = "the model's scores are not numbers (NaN): train it again with a smaller learning rate."


@dataclass(frozen=True)
class Ranks:
    """The outcome of each question, as counts.

    The first half are tail questions ``(h, r, ?)``, the second half head questions ``(?, r, t)``, in the order of the
    triples.

    Args:
        relations: The relation of each question (never a reciprocal).
        is_head: Whether the head was asked for.
        better: How many candidates score higher than the truth.
        equal: How many other candidates score the same as the truth.
        candidates: How many candidates there are, the truth included.
    """

    relations: npt.NDArray[np.int64]
    is_head: npt.NDArray[np.bool_]
    better: npt.NDArray[np.int64]
    equal: npt.NDArray[np.int64]
    candidates: npt.NDArray[np.int64]

    @classmethod
    def from_counts(cls, triples: Tensor, counts: Tensor) -> Ranks:
        """The outcome of both questions of each triple, from ``(better, equal, candidates)`` of each.

        Raises:
            UserError: if some truth was no number, which ``better`` says by −1.
        """
        better, equal, candidates = counts.numpy()
        if (better < 0).any():
            raise UserError(_NO_NUMBERS)
        relations, is_head = np.tile(triples[:, 1].numpy(), 2), np.repeat([False, True], len(triples))
        return cls(relations, is_head, better, equal, candidates)

    @property
    def num_questions(self) -> int:
        """The number of questions: two for each triple."""
        return len(self.better)

    def ranks(self, ties: Ties = "realistic") -> npt.NDArray[np.float64]:
        """The rank of each truth: 1 is best.

        ``optimistic`` puts the truth before its equals, ``pessimistic`` behind them; ``realistic`` is the mean of the
        two, so that a constant score earns the rank of a random guess.
        """
        return self.better + 1.0 + TIE_SHARE[ties] * self.equal


# The share of the candidates that tie with the truth that counts as better.
TIE_SHARE: dict[str, float] = {"optimistic": 0.0, "realistic": 0.5, "pessimistic": 1.0}


def ranking_budget(num_entities: int) -> int:
    """Bytes of temporaries of a ranking unless told otherwise: 64 MiB, or what 64 questions take if that is more."""
    return max(_RANKING_BUDGET, _FEWEST_ROWS * _BUFFERS * num_entities * torch.float32.itemsize)


def rank_triples(
    predictor: QueryScorer,
    graph: KnowledgeGraph,
    triples: Tensor,
    *,
    known: QueryIndex | None = None,
    num_negatives: int | None = None,
    seed: int = 0,
    memory_budget: int | None = None,
    progress: bool = False,
) -> Ranks:
    """Rank the truth of each triple in both directions.

    Args:
        predictor: The model, bound to ``graph``.
        graph: The graph whose entities are the candidates.
        triples: What to rank, shape ``(num_triples, 3)``.
        known: The facts whose objects are not counted as mistakes; all of ``graph`` if not given. Never changed.
        num_negatives: If given, rank against that many seeded random negatives (drawn without replacement from the
            entities that are not known answers; all of them where there are fewer) instead of all.
        seed: The seed of the negatives.
        memory_budget: Bytes of temporaries; None: :func:`ranking_budget`.
        progress: Show a bar.
    """
    if predictor.num_entities != graph.num_entities:
        raise UserError(
            f"the model scores {predictor.num_entities:,} entities but graph {graph.name!r} has "
            f"{graph.num_entities:,}: bind the model to this graph first."
        )
    known = graph.queries() if known is None else known
    questions = graph.with_reciprocals(triples)
    if predictor.device.type == "cuda" and num_negatives is None:
        return _ranked_on_gpu(predictor, triples, questions, known, progress)
    budget = ranking_budget(graph.num_entities) if memory_budget is None else memory_budget
    rows = rows_within(budget, graph.num_entities, _BUFFERS, device=predictor.device)
    compare: _Compare = (
        _AgainstAll(known)
        if num_negatives is None
        else _AgainstSample(known, num_negatives, np.random.default_rng(seed))
    )
    counts = torch.zeros(3, len(questions), dtype=torch.int64)
    with counting("ranking", len(questions), enabled=progress) as bar, torch.no_grad():
        for group in compare.plan(questions, rows):
            counts[:, group.places] = compare(predictor, group).cpu()
            bar.advance(len(group.places))
    return Ranks.from_counts(triples, counts)


@torch.no_grad()
def _ranked_on_gpu(
    predictor: QueryScorer, triples: Tensor, questions: Tensor, known: QueryIndex, progress: bool
) -> Ranks:
    counts = []
    with counting("ranking", len(questions), enabled=progress) as bar:
        for batch in question_batches(questions, known, predictor.device):
            counts.append(batch.count(predictor))
            bar.advance(len(batch.subjects))
    return Ranks.from_counts(triples, torch.cat(counts, dim=1).cpu())


@dataclass(frozen=True)
class _Group:
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


class _Compare(Protocol):
    """A way to compare the truths of a group with other candidates."""

    def plan(self, questions: Tensor, rows: int) -> Iterator[_Group]:
        """Batches of at most ``rows`` questions."""

    def __call__(self, predictor: QueryScorer, group: _Group) -> Tensor:
        """``(better, equal, candidates)`` of each place; shape ``(3, num_places)``."""


class _AgainstAll:
    """Compares with all entities but the other known answers.

    Each distinct question is scored once. The scores of its known answers are replaced by NaN, which is neither greater
    than nor equal to anything, so one pass over the row counts for each truth. A question asked by several triples is
    passed over once for each: in round ``j`` the ``j``-th truth of every question that has one. Questions are sorted by
    their number of truths, most first, so a round is a prefix of the rows and nothing is copied.
    """

    def __init__(self, known: QueryIndex) -> None:
        self.known = known
        self.count = ThresholdCounter(known.num_entities)

    def plan(self, questions: Tensor, rows: int) -> Iterator[_Group]:
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
            yield _Group(pairs[by_size[start:stop]], places, row[places] - start, questions[places, 2])

    def __call__(self, predictor: QueryScorer, group: _Group) -> Tensor:
        device = predictor.device
        scores = predictor.scores(*group.questions.to(device).unbind(1))
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


class _AgainstSample:
    """Compares with seeded random negatives, drawn in the order of the triples: they depend on the seed alone."""

    def __init__(self, known: QueryIndex, num_negatives: int, rng: np.random.Generator) -> None:
        self.known = known
        self.num_negatives = num_negatives
        self.rng = rng

    def plan(self, questions: Tensor, rows: int) -> Iterator[_Group]:
        for places in torch.arange(len(questions)).split(rows):
            yield _Group(questions[places, :2], places, torch.arange(len(places)), questions[places, 2])

    def __call__(self, predictor: QueryScorer, group: _Group) -> Tensor:
        """Where fewer negatives are allowed than wanted, −1 stands for the missing ones."""
        drawn = draw_without(self._excluded(group), self.num_negatives, self.rng)
        candidates = torch.cat([group.truth[:, None], drawn], dim=1).to(predictor.device)
        usable = candidates[:, 1:] >= 0
        subjects, relations = group.questions.to(predictor.device).unbind(1)
        if isinstance(predictor, CandidateScorer):
            scores = predictor.candidate_scores(subjects, relations, candidates.clamp(min=0))
        else:
            scores = predictor.scores(subjects, relations).gather(1, candidates.clamp(min=0))
        target, against = _finite(scores[:, :1]), scores[:, 1:]
        better = ((against > target) & usable).sum(1)
        equal = ((against == target) & usable).sum(1)
        return torch.stack([better, equal, usable.sum(1) + 1])

    def _excluded(self, group: _Group) -> SparsePattern:
        """What may not be drawn: the known answers and the truth, sorted and distinct within each row."""
        answers = self.known.objects_of(group.questions[:, 0], group.questions[:, 1])
        span = answers.num_columns
        keys = torch.cat([answers.rows * span + answers.columns, torch.arange(len(group.truth)) * span + group.truth])
        keys = torch.unique(keys)
        return SparsePattern.from_rows(keys // span, keys % span, len(group.truth), span)


def _finite(scores: Tensor) -> Tensor:
    """The scores of true answers; a NaN among them would otherwise beat every candidate unseen."""
    if bool(scores.isnan().any()):
        raise UserError(_NO_NUMBERS)
    return scores
