"""From ranks to figures: MRR, MR, AMRI, Hits@k, their confidence intervals, and the expectation of partial ranking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from refactorgnn.evaluation.ranking import TIE_SHARE, Ranks, Ties

Floats = npt.NDArray[np.float64]
HITS = (1, 3, 10)
# Questions whose two-way hypergeometric tables are held at once (50×50 float64 each).
_TABLES_PER_CHUNK = 1024
_RESAMPLES_PER_CHUNK = 50


@dataclass(frozen=True)
class Outcomes:
    """The value of each measure on each question: what is averaged into metrics and resampled for their intervals.

    Args:
        reciprocal_rank: ``1/rank``.
        rank: The rank.
        chance_rank: The mean rank of a random guess, ``(candidates + 1) / 2``.
        hits: Whether (or how probably) the rank is at most ``k``, for each ``k``.
        relations: The relation of each question.
        is_head: Whether the head was asked for.
    """

    reciprocal_rank: Floats
    rank: Floats
    chance_rank: Floats
    hits: dict[int, Floats]
    relations: npt.NDArray[np.int64]
    is_head: npt.NDArray[np.bool_]

    def mean(self, chosen: npt.NDArray[np.bool_] | slice = slice(None)) -> dict[str, float]:
        """``mrr``, ``mr``, ``amri`` and ``hits@k`` over the chosen questions, all by default."""
        if not len(self.rank[chosen]):
            return {}
        means = {name: float(values[chosen].mean()) for name, values in self._columns().items()}
        return _named(means)

    def by_direction(self) -> dict[str, dict[str, float]]:
        """The metrics of tail questions and of head questions."""
        return {"tail": self.mean(~self.is_head), "head": self.mean(self.is_head)}

    def by_relation(self) -> dict[int, dict[str, float]]:
        """The metrics of each relation that was asked, both directions together, with the number of questions."""
        return {
            int(relation): {"num_questions": int((self.relations == relation).sum())}
            | self.mean(self.relations == relation)
            for relation in np.unique(self.relations)
        }

    def confidence(self, level: float = 0.95, num_resamples: int = 1000, seed: int = 0) -> dict[str, list[float]]:
        """Bootstrap percentile intervals ``[low, high]`` of the metrics.

        Triples are resampled, not questions: the two questions of a triple stand or fall together.
        """
        columns = self._columns()
        num_triples = len(self.rank) // 2
        per_triple = np.stack([values.reshape(2, num_triples).mean(axis=0) for values in columns.values()], axis=1)
        rng = np.random.default_rng(seed)
        means = [
            rng.multinomial(num_triples, np.full(num_triples, 1 / num_triples), size=size) @ per_triple / num_triples
            for size in _split(num_resamples, _RESAMPLES_PER_CHUNK)
        ]
        resampled = np.concatenate(means)
        named = [_named(dict(zip(columns, row, strict=True))) for row in resampled]
        tail = 100 * (1 - level) / 2
        return {
            name: [float(bound) for bound in np.percentile([row[name] for row in named], [tail, 100 - tail])]
            for name in named[0]
        }

    def _columns(self) -> dict[str, Floats]:
        hits = {f"hits@{k}": values for k, values in self.hits.items()}
        return {"mrr": self.reciprocal_rank, "mr": self.rank, "chance": self.chance_rank, **hits}


def outcomes(ranks: Ranks, ties: Ties = "realistic", hits: tuple[int, ...] = HITS) -> Outcomes:
    """The outcome of each question under a tie policy."""
    rank = ranks.ranks(ties)
    return Outcomes(
        reciprocal_rank=1 / rank,
        rank=rank,
        chance_rank=(ranks.candidates + 1) / 2,
        hits={k: (rank <= k).astype(np.float64) for k in hits},
        relations=ranks.relations,
        is_head=ranks.is_head,
    )


def expected_outcomes(
    ranks: Ranks, num_negatives: int = 49, ties: Ties = "realistic", hits: tuple[int, ...] = HITS
) -> Outcomes:
    """The exact expectation of :func:`outcomes` when only ``num_negatives`` random candidates are ranked.

    Of ``N`` filtered negatives ``b`` beat the truth and ``e`` tie with it. A draw of ``n`` without replacement holds
    ``x`` of the first and ``y`` of the second with the hypergeometric probability
    ``C(b, x) C(e, y) C(N−b−e, n−x−y) / C(N, n)``; the measures are summed over it. No sampling, no noise.

    Args:
        ranks: The counts of a full ranking.
        num_negatives: ``n``; all ``N`` where there are fewer.
        ties: The tie policy.
        hits: The ``k`` of Hits@k.
    """
    better, equal = torch.from_numpy(ranks.better), torch.from_numpy(ranks.equal)
    total = torch.from_numpy(ranks.candidates) - 1
    drawn = total.clamp(max=num_negatives)
    columns = torch.empty(2 + len(hits), ranks.num_questions, dtype=torch.float64)
    for tied in (False, True):  # most questions have no ties and need a table of one axis only
        places = torch.nonzero((equal > 0) == tied).flatten()
        for chunk in places.split(_TABLES_PER_CHUNK):
            ties_drawn = num_negatives if tied else 0
            rank, probability = _rank_table(
                better[chunk], equal[chunk], total[chunk], drawn[chunk], num_negatives, ties_drawn, TIE_SHARE[ties]
            )
            measures = [1 / rank, rank, *((rank <= k).double() for k in hits)]
            columns[:, chunk] = torch.stack([(probability * measure).sum((1, 2)) for measure in measures])
    values = columns.numpy()
    return Outcomes(
        reciprocal_rank=values[0],
        rank=values[1],
        chance_rank=(drawn.numpy() + 2) / 2,
        hits={k: values[2 + i] for i, k in enumerate(hits)},
        relations=ranks.relations,
        is_head=ranks.is_head,
    )


def _rank_table(
    better: Tensor, equal: Tensor, total: Tensor, drawn: Tensor, most_better: int, most_equal: int, share: float
) -> tuple[Tensor, Tensor]:
    """Ranks and their probabilities over all ``(x, y)``; shapes ``(1, X, Y)`` and ``(num_questions, X, Y)``."""
    x = torch.arange(most_better + 1)[None, :, None]
    y = torch.arange(most_equal + 1)[None, None, :]
    better, equal, total, drawn = (counts[:, None, None] for counts in (better, equal, total, drawn))
    log_probability = (
        _log_choose(better, x)
        + _log_choose(equal, y)
        + _log_choose(total - better - equal, drawn - x - y)
        - _log_choose(total, drawn)
    )
    return 1.0 + x + share * y, log_probability.exp()


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    """``log C(n, k)``, −∞ where ``k`` is outside ``0…n``."""
    possible = (k >= 0) & (k <= n)
    n, k = n.double(), torch.where(possible, k, 0).double()
    value = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    return torch.where(possible, value, -torch.inf)


def _named(means: dict[str, float]) -> dict[str, float]:
    """Adds the adjusted mean rank index: 1 is perfect, 0 a random guess (Berrendorf et al., 2020)."""
    chance = means.pop("chance")
    amri = 1 - (means["mr"] - 1) / (chance - 1) if chance > 1 else 1.0
    return {"mrr": means["mrr"], "mr": means["mr"], "amri": amri} | {
        name: value for name, value in means.items() if name not in ("mrr", "mr")
    }


def _split(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]
