"""Which members an ensemble should have, and with what weights: chosen on the validation split.

The search is a hill climb on the validation MRR. It starts from the best single member. In each round it tries to take
in each member that is out, with 1/4, 1 or 4 times the influence of the first, and to double, halve or drop each that is
in; it makes the best of these moves, and stops when none gains more than 1e-4. A member's influence is its weight times
the spread of its scores (their standard deviation over the entities, mean over the validation questions): logits of
differently trained models can differ fifty-fold in spread, and the flatter ones would never be heard.

Greedy choice of an ensemble's members goes back to Caruana et al. (ICML 2004), where a member's weight is how often it
was picked. Nothing is random. All moves of a round are measured in one pass over the questions, in which each member
scores a batch of them once; scores are kept for the next pass as long as they fit in a fixed memory. Those of rules,
which are dear, are mostly one number: they are kept as the others and their places, and before those of any other kind.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.evaluation.device_ranking import question_batches
from refactorgnn.evaluation.ranking import Ranks, ranking_budget
from refactorgnn.models.base import QueryScorer
from refactorgnn.models.ensemble import check_weights
from refactorgnn.ops.chunked import rows_within
from refactorgnn.progress import counting

DEFAULT_ROUNDS = 20
_SMALLEST_GAIN = 1e-4
# The influence that a member may enter with, and what that of one that is in may be multiplied with.
_ENTRIES = (1.0, 0.25, 4.0)
_FACTORS = (2.0, 0.5, 0.0)
# Score matrices alive at once beside those of the members: a weighted sum, and the outcomes of two comparisons.
_BUFFERS = 3
# Bytes of scores that are kept from one pass to the next.
_MOST_KEPT = {"cpu": 2**30, "cuda": 4 * 2**30}

# Scores are kept as those that differ from the most frequent one if no more than this share do: a place takes 4 bytes.
_MOST_DIFFERENT = 0.2

Influence = tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """A set of weights on the way of the search.

    Args:
        weights: One for each member, of sum 1; 0: not in.
        valid_mrr: The validation MRR of the ensemble with them.
    """

    weights: tuple[float, ...]
    valid_mrr: float


@dataclass(frozen=True)
class Choice:
    """Members and weights, and what they are worth.

    Args:
        weights: One for each member, of sum 1; 0: left out.
        valid_mrr: The validation MRR of the ensemble.
        member_mrrs: That of each member alone.
        steps: How the search came there, from the best single member on; empty where the weights were given.
    """

    weights: tuple[float, ...]
    valid_mrr: float
    member_mrrs: tuple[float, ...]
    steps: tuple[Step, ...]


def choose_weights(
    members: Sequence[QueryScorer], graph: KnowledgeGraph, *, rounds: int = DEFAULT_ROUNDS, progress: bool = False
) -> Choice:
    """Choose members and weights by the MRR on the graph's validation split, as this module describes.

    Args:
        members: The models, bound to ``graph``.
        graph: The graph they were trained on.
        rounds: The most moves to make.
        progress: Show a bar.
    """
    if rounds < 1:
        raise UserError(f"rounds={rounds} cannot be used: choose at least 1.")
    with counting("choosing members", rounds, enabled=progress) as bar:
        search = _Search(members, graph)
        units = _unit_vectors(len(members))
        alone = search.steps(units)
        start = _best(alone)
        current, steps = units[start], [alone[start]]
        for _ in range(rounds):
            moves = list(_moves(current))
            tried = search.steps(moves)
            best = _best(tried)
            if tried[best].valid_mrr <= steps[-1].valid_mrr + _SMALLEST_GAIN:
                break
            current = moves[best]
            steps.append(tried[best])
            bar.advance(note=f"valid MRR {steps[-1].valid_mrr:.4f}")
    member_mrrs = tuple(step.valid_mrr for step in alone)
    return Choice(steps[-1].weights, steps[-1].valid_mrr, member_mrrs, tuple(steps))


def measure_weights(members: Sequence[QueryScorer], graph: KnowledgeGraph, weights: Sequence[float]) -> Choice:
    """The validation MRR of an ensemble with given weights, and of each member."""
    check_weights(weights, len(members))
    *alone, together = _Scores(members, graph).steps([*_unit_vectors(len(members)), weights])
    return Choice(together.weights, together.valid_mrr, tuple(step.valid_mrr for step in alone), steps=())


class _Scores:
    """The members' scores of the validation questions, batch by batch, some of them kept.

    Args:
        members: The models, bound to ``graph``.
        graph: The graph they were trained on.
    """

    def __init__(self, members: Sequence[QueryScorer], graph: KnowledgeGraph) -> None:
        self.members, self.triples = members, graph.triples("valid")
        device, buffers = members[0].device, len(members) + _BUFFERS
        budget = None if device.type == "cuda" else ranking_budget(graph.num_entities)
        rows = rows_within(budget, graph.num_entities, buffers, device=device)
        questions = graph.with_reciprocals(self.triples)
        self.batches = list(question_batches(questions, graph.queries(), device, rows))
        self._kept: dict[tuple[int, int], _KeptScores] = {}
        self._dense: list[tuple[int, int]] = []
        self._room = _MOST_KEPT.get(device.type, 0)

    @torch.no_grad()
    def of(self, place: int, number: int) -> Tensor:
        """Those of a member for a batch; not to be changed."""
        if (place, number) in self._kept:
            return self._kept[place, number].scores()
        batch = self.batches[number]
        scores = self.members[place].scores(batch.subjects, batch.relations)
        self._keep((place, number), _KeptScores(scores))
        return scores

    def _keep(self, key: tuple[int, int], new: _KeptScores) -> None:
        """Keep scores where there is room, which for compact ones others make."""
        while new.is_compact and new.nbytes > self._room and self._dense:
            self._room += self._kept.pop(self._dense.pop()).nbytes
        if new.nbytes <= self._room:
            self._room -= new.nbytes
            self._kept[key] = new
            if not new.is_compact:
                self._dense.append(key)

    def spread(self, place: int) -> float:
        """The standard deviation of a member's scores over the entities, its mean over the questions."""
        spreads = [self.of(place, number).std(dim=1, correction=0).sum() for number in range(len(self.batches))]
        return float(sum(spreads)) / (2 * len(self.triples))

    @torch.no_grad()
    def steps(self, weightings: Sequence[Sequence[float]]) -> list[Step]:
        """The validation MRR with each weighting, which is divided by its sum to stay on the scale of the members."""
        shares = [tuple(weight / sum(weights) for weight in weights) for weights in weightings]
        places = [place for place in range(len(self.members)) if any(share[place] for share in shares)]
        counts: list[list[Tensor]] = [[] for _ in shares]
        for number, batch in enumerate(self.batches):
            scores = {place: self.of(place, number) for place in places}
            for found, share in zip(counts, shares, strict=True):
                found.append(batch.count_in(_weighted_sum(scores, share)))
        ranks = (Ranks.from_counts(self.triples, torch.cat(found, dim=1).cpu()).ranks() for found in counts)
        return [Step(share, float((1 / rank).mean())) for share, rank in zip(shares, ranks, strict=True)]


class _KeptScores:
    """Scores, in less room where most are the lowest or the highest of them, as those of rules are.

    Args:
        scores: Shape ``(num_questions, num_entities)``; not to be changed.
    """

    def __init__(self, scores: Tensor) -> None:
        self._shape = scores.shape
        self._usual: Tensor | None = None
        self._places: Tensor | None = None
        self._values = scores
        for usual in scores.aminmax() if scores.numel() else ():
            is_other = scores != usual
            if int(is_other.sum()) <= _MOST_DIFFERENT * scores.numel():
                places = is_other.flatten().nonzero().flatten()
                self._usual, self._places = usual, places.int()  # of a batch, whose scores are far fewer than 2³¹
                self._values = scores.flatten()[places]
                return

    @property
    def is_compact(self) -> bool:
        """Whether they are kept as those that differ."""
        return self._places is not None

    @property
    def nbytes(self) -> int:
        """What keeping them takes."""
        return self._values.nbytes + (0 if self._places is None else self._places.nbytes)

    def scores(self) -> Tensor:
        """As they were, to the bit; not to be changed."""
        if self._usual is None or self._places is None:
            return self._values
        full = self._usual.expand(self._shape.numel()).clone()
        return full.index_copy_(0, self._places.long(), self._values).view(self._shape)


class _Search:
    """Measures influences on the validation split; each once, however they are scaled."""

    def __init__(self, members: Sequence[QueryScorer], graph: KnowledgeGraph) -> None:
        self.scores = _Scores(members, graph)
        self.spreads = [self.scores.spread(place) or 1.0 for place in range(len(members))]
        self._known: dict[Influence, Step] = {}

    def steps(self, influences: Sequence[Influence]) -> list[Step]:
        """Where each of them leads."""
        # Exact: all are powers of two.
        scaled = [tuple(value / max(influence) for value in influence) for influence in influences]
        new = list(dict.fromkeys(one for one in scaled if one not in self._known))
        weightings = [[value / spread for value, spread in zip(one, self.spreads, strict=True)] for one in new]
        self._known.update(zip(new, self.scores.steps(weightings), strict=True))
        return [self._known[one] for one in scaled]


def _weighted_sum(scores: Mapping[int, Tensor], weights: Sequence[float]) -> Tensor:
    """The scores of the members whose weight is not 0, summed; those in ``scores`` stay as they are."""
    chosen = [(scores[place], weight) for place, weight in enumerate(weights) if weight]
    total = chosen[0][0] * chosen[0][1]
    for others, weight in chosen[1:]:
        total.add_(others, alpha=weight)
    return total


def _best(steps: Sequence[Step]) -> int:
    """The place of the best, the first of equals."""
    return max(range(len(steps)), key=lambda place: steps[place].valid_mrr)


def _unit_vectors(length: int) -> list[Influence]:
    return [tuple(float(other == place) for other in range(length)) for place in range(length)]


def _moves(influence: Influence) -> Iterator[Influence]:
    """What a round tries, in a fixed order."""
    for place, value in enumerate(influence):
        for new in [value * factor for factor in _FACTORS] if value else _ENTRIES:
            moved = (*influence[:place], new, *influence[place + 1 :])
            if any(moved):
                yield moved
