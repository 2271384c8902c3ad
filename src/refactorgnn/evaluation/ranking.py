"""Filtered ranking of every test triple in both directions, in bounded memory.

For each triple ``(h, r, t)`` two questions are asked, ``(h, r, ?)`` and ``(t, r⁻¹, ?)``, and the true answer is
compared with all other entities except the other known answers. What is kept for each question is not a rank but three
counts, from which every tie policy and the expectation of partial ranking follow.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.evaluation.comparing import NO_NUMBERS, AgainstAll, AgainstSample, Comparison, groups_of
from refactorgnn.evaluation.device_ranking import question_batches
from refactorgnn.models.base import CandidateScorer, QueryScorer
from refactorgnn.ops.chunked import rows_within
from refactorgnn.progress import Counter, counting

Ties = Literal["realistic", "optimistic", "pessimistic"]
# How many random negatives a truth is ranked against; None: all entities.
Way = int | None
# Half of it, one score matrix, stays below the size from which glibc maps memory anew for each chunk; on FB15k-237
# the page faults of larger ones cost 40 % more time.
_RANKING_BUDGET = 64 * 2**20
# With fewer questions at a time a product is no faster than reading all candidates anew for each of them.
_FEWEST_ROWS = 64
# Score matrices alive at once: the scores, and the byte mask with what NumPy needs to sum it.
_BUFFERS = 2


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
            raise UserError(NO_NUMBERS)
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
    found = rank_in_ways(
        predictor,
        graph,
        triples,
        [num_negatives],
        known=known,
        seed=seed,
        memory_budget=memory_budget,
        progress=progress,
    )
    return found[num_negatives][0]


def rank_in_ways(
    predictor: QueryScorer,
    graph: KnowledgeGraph,
    triples: Tensor,
    ways: Collection[Way],
    *,
    known: QueryIndex | None = None,
    seed: int = 0,
    memory_budget: int | None = None,
    progress: bool = False,
) -> dict[Way, tuple[Ranks, float]]:
    """The ranks of :func:`rank_triples` for several numbers of negatives, and the seconds that each took.

    A distinct question is scored once for all of them. Two kinds have passes of their own: samples of a model to which
    a few candidates cost much less than all, and a ranking against all entities on a GPU. To draw negatives is no part
    of the seconds of a ranking against all.

    Args:
        predictor: As there.
        graph: As there.
        triples: As there.
        ways: The numbers of negatives; None: all entities.
        known: As there.
        seed: As there.
        memory_budget: As there.
        progress: As there.
    """
    if predictor.num_entities != graph.num_entities:
        raise UserError(
            f"the model scores {predictor.num_entities:,} entities but graph {graph.name!r} has "
            f"{graph.num_entities:,}: bind the model to this graph first."
        )
    known = graph.queries() if known is None else known
    questions = graph.with_reciprocals(triples)
    budget = ranking_budget(graph.num_entities) if memory_budget is None else memory_budget
    rows = rows_within(budget, graph.num_entities, _BUFFERS, device=predictor.device)
    found: dict[Way, tuple[Ranks, float]] = {}
    for together in _passes(predictor, ways):
        started = time.perf_counter()
        samples = [AgainstSample(known, questions, way, seed, rows) for way in together if way is not None]
        drawn = time.perf_counter()
        with counting("ranking", len(questions), enabled=progress) as bar, torch.no_grad():
            if None not in together and isinstance(predictor, CandidateScorer):
                counts = [_counted_alone(predictor, questions, sample, rows, bar) for sample in samples]
            elif together == [None] and predictor.device.type == "cuda":
                counts = [_counted_on_gpu(predictor, questions, known, bar)]
            else:
                compares: list[Comparison] = [*samples]
                if None in together:
                    compares.append(AgainstAll(known))  # at the last, for it spoils the scores
                counts = _counted(predictor, questions, compares, rows, bar)
        finished = time.perf_counter()
        for way, values in zip(together, counts, strict=True):
            seconds = finished - (drawn if way is None else started)
            found[way] = Ranks.from_counts(triples, values.cpu()), seconds
    return found


def _passes(predictor: QueryScorer, ways: Collection[Way]) -> Iterator[list[Way]]:
    """The ways that share the scores of a pass; all entities come last."""
    samples: list[Way] = [way for way in dict.fromkeys(ways) if way is not None]
    all_of_them: list[Way] = [None] if None in ways else []
    if predictor.device.type != "cuda" and not isinstance(predictor, CandidateScorer):
        yield [*samples, *all_of_them]
        return
    yield from (some for some in (samples, all_of_them) if some)


def _counted(
    predictor: QueryScorer, questions: Tensor, compares: Sequence[Comparison], rows: int, bar: Counter
) -> list[Tensor]:
    """``(better, equal, candidates)`` of all questions, by each comparison; shape ``(3, num_questions)``."""
    counts = [torch.zeros(3, len(questions), dtype=torch.int64) for _ in compares]
    for group in groups_of(questions, rows):
        scores = predictor.scores(*group.questions.to(predictor.device).unbind(1))
        for compare, found in zip(compares, counts, strict=True):
            found[:, group.places] = compare(scores, group).cpu()
        bar.advance(len(group.places))
    return counts


def _counted_alone(
    predictor: CandidateScorer, questions: Tensor, sample: AgainstSample, rows: int, bar: Counter
) -> Tensor:
    """Of the candidates in a sample and no others."""
    counts = []
    for places in torch.arange(len(questions)).split(rows):
        candidates = sample.of(places, predictor.device)
        subjects, relations = questions[places, :2].to(predictor.device).unbind(1)
        scores = predictor.candidate_scores(subjects, relations, candidates.clamp(min=0))
        counts.append(sample.count(scores, candidates))
        bar.advance(len(places))
    return torch.cat(counts, dim=1)


def _counted_on_gpu(predictor: QueryScorer, questions: Tensor, known: QueryIndex, bar: Counter) -> Tensor:
    counts = []
    for batch in question_batches(questions, known, predictor.device):
        counts.append(batch.count(predictor))
        bar.advance(len(batch.subjects))
    return torch.cat(counts, dim=1)
