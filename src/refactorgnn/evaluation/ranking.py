"""Filtered ranking of every test triple in both directions, in bounded memory.

For each triple ``(h, r, t)`` two questions are asked, ``(h, r, ?)`` and ``(t, r⁻¹, ?)``, and the true answer is
compared with all other entities except the other known answers. What is kept for each question is not a rank but three counts,
from which every tie policy and the expectation of partial ranking follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph, reciprocal
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.evaluation.counting import ThresholdCounter
from refactorgnn.evaluation.sampling import draw_without
from refactorgnn.models.base import QueryScorer
from refactorgnn.ops.chunked import rows_within
from refactorgnn.ops.sparse import SparsePattern
from refactorgnn.progress import counting

Ties = Literal["realistic", "optimistic", "pessimistic"]
DEFAULT_RANKING_BUDGET = 256 * 2**20
# Copies of the score matrix alive at once: the scores, their rows repeated for several answers, and the byte mask.
_BUFFERS = 3


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


def rank_triples(
    predictor: QueryScorer,
    graph: KnowledgeGraph,
    triples: Tensor,
    *,
    known: QueryIndex | None = None,
    num_negatives: int | None = None,
    seed: int = 0,
    memory_budget: int = DEFAULT_RANKING_BUDGET,
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
        memory_budget: Bytes of temporaries.
        progress: Show a bar.
    """
    if predictor.num_entities != graph.num_entities:
        raise UserError(
            f"the model scores {predictor.num_entities:,} entities but graph {graph.name!r} has "
            f"{graph.num_entities:,}: bind the model to this graph first."
        )
    known = graph.queries() if known is None else known
    questions = torch.cat([triples, reciprocal(triples, graph.num_relations)])
    counts = torch.zeros(3, len(questions), dtype=torch.int64)
    rows = rows_within(memory_budget, graph.num_entities, _BUFFERS)
    negatives = None if num_negatives is None else np.random.default_rng(seed)
    # Negatives are drawn in the order of the questions, so that they depend on the seed alone.
    plan = _grouped(questions, rows) if negatives is None else _in_order(questions, rows)
    counter = ThresholdCounter(graph.num_entities)
    with counting("ranking", len(questions), enabled=progress) as bar, torch.inference_mode():
        for group in plan:
            scores = predictor.scores(group.subjects.to(predictor.device), group.relations.to(predictor.device))
            asked = questions[group.places]
            filters = _other_answers(known, asked)
            if negatives is None:
                counts[:, group.places] = _count_all(scores, group.row_of_place, asked[:, 2], filters, counter)
            else:
                drawn = draw_without(_with_truth(filters, asked[:, 2]), num_negatives or 0, negatives)
                counts[:, group.places] = _count_drawn(scores, asked[:, 2], drawn)
            bar.advance(len(asked))
    relations = triples[:, 1].numpy()
    return Ranks(
        relations=np.concatenate([relations, relations]),
        is_head=np.repeat([False, True], len(triples)),
        better=counts[0].numpy(),
        equal=counts[1].numpy(),
        candidates=counts[2].numpy(),
    )


@dataclass(frozen=True)
class _Group:
    """A batch of distinct questions to score, and the triples (``places``) that ask them (``row_of_place``)."""

    subjects: Tensor
    relations: Tensor
    places: Tensor
    row_of_place: Tensor


def _grouped(questions: Tensor, rows: int) -> Iterator[_Group]:
    """Batches in which each distinct ``(subject, relation)`` is scored once, however many triples ask it."""
    pairs, inverse = torch.unique(questions[:, :2], dim=0, return_inverse=True)
    order = torch.argsort(inverse, stable=True)
    ends = torch.bincount(inverse, minlength=len(pairs)).cumsum(0).tolist()
    for batch in _batches(ends, rows):
        start = ends[batch.start - 1] if batch.start else 0
        subjects, relations = pairs[batch].unbind(1)
        # Only a question asked by more than `rows` triples is split further, and then scored for each part.
        for places in order[start : ends[batch.stop - 1]].split(rows):
            yield _Group(subjects, relations, places, inverse[places] - batch.start)


def _batches(ends: list[int], rows: int) -> Iterator[slice]:
    """Runs of distinct questions asked by at most ``rows`` triples together, or of a single question."""
    first, before = 0, 0
    for last, end in enumerate(ends):
        if last > first and end - before > rows:
            yield slice(first, last)
            first, before = last, ends[last - 1]
    if first < len(ends):
        yield slice(first, len(ends))


def _in_order(questions: Tensor, rows: int) -> Iterator[_Group]:
    for start in range(0, len(questions), rows):
        places = torch.arange(start, min(start + rows, len(questions)))
        subjects, relations, _ = questions[places].unbind(1)
        yield _Group(subjects, relations, places, torch.arange(len(places)))


def _other_answers(known: QueryIndex, asked: Tensor) -> SparsePattern:
    """The known objects of each question without its own truth, each once."""
    objects = known.objects_of(asked[:, 0], asked[:, 1])
    rows, columns = objects.rows, objects.columns
    keep = columns != asked[rows, 2]
    if len(columns) > 1:  # the objects of a row are sorted, so a repeated one follows itself
        keep[1:] &= (columns[1:] != columns[:-1]) | (rows[1:] != rows[:-1])
    counts = torch.bincount(rows[keep], minlength=len(asked))
    return SparsePattern(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), columns[keep], objects.num_columns)


def _with_truth(filters: SparsePattern, truth: Tensor) -> SparsePattern:
    """The filters with the truth put back in, rows sorted again: all that may not be drawn as a negative."""
    rows = torch.cat([filters.rows, torch.arange(len(truth))])
    columns = torch.cat([filters.columns, truth])
    order = torch.argsort(rows * filters.num_columns + columns)
    counts = filters.counts + 1
    return SparsePattern(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), columns[order], filters.num_columns)


def _count_all(
    scores: Tensor, row_of_place: Tensor, truth: Tensor, filters: SparsePattern, counter: ThresholdCounter
) -> Tensor:
    """``(better, equal, candidates)`` against all entities but the filtered ones; shape ``(3, num_places)``.

    The filter is applied by subtracting what the filtered entities contributed, which leaves the scores untouched.
    """
    device = scores.device
    row_of_place, truth = row_of_place.to(device), truth.to(device)
    target = _finite(scores[row_of_place, truth])
    if len(row_of_place) != len(scores):  # several triples ask the same question: repeat its row
        filtered_scores = scores[row_of_place[filters.rows.to(device)], filters.columns.to(device)]
        scores = scores[row_of_place]
    else:
        filtered_scores = scores[filters.rows.to(device), filters.columns.to(device)]
    better, equal = counter(scores, target)
    place_of_filter = filters.rows.to(device)
    threshold = target[place_of_filter]
    better = better - torch.bincount(place_of_filter[filtered_scores > threshold], minlength=len(truth))
    equal = equal - torch.bincount(place_of_filter[filtered_scores == threshold], minlength=len(truth))
    candidates = filters.num_columns - filters.counts
    return torch.stack([better.cpu(), equal.cpu() - 1, candidates])  # the truth equals itself


def _count_drawn(scores: Tensor, truth: Tensor, drawn: Tensor) -> Tensor:
    """``(better, equal, candidates)`` against the drawn negatives, where −1 stands for none left to draw."""
    device = scores.device
    target = _finite(scores.gather(1, truth[:, None].to(device)))
    usable = drawn.to(device) >= 0
    against = scores.gather(1, drawn.clamp(min=0).to(device))
    better = ((against > target) & usable).sum(1)
    equal = ((against == target) & usable).sum(1)
    return torch.stack([better.cpu(), equal.cpu(), usable.sum(1).cpu() + 1])


def _finite(scores: Tensor) -> Tensor:
    """The scores of true answers; a NaN among them would otherwise beat every candidate unseen."""
    if bool(scores.isnan().any()):
        raise UserError("the model's scores are not numbers (NaN): train it again with a smaller learning rate.")
    return scores
