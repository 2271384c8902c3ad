"""Which members an ensemble should have, and with what weights: chosen on the validation split.

The search is a hill climb on the validation MRR. It starts from the best single member. In each round it tries to take in
each member that is out, with 1/4, 1 or 4 times the weight 1 of the first, and to double, halve or drop the weight of each
that is in; it makes the best of these moves, and stops when none gains more than 1e-4.

Greedy choice of an ensemble's members goes back to Caruana et al. (ICML 2004), where a member's weight is how often it was
picked. Here weights are powers of two, so that members whose scores differ in scale meet after few rounds. Nothing is
random, and scores are never kept: a set of weights is measured by ranking with it, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.evaluation.protocols import evaluate_ranking
from refactorgnn.models.base import QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.models.ensemble import check_weights
from refactorgnn.progress import counting

DEFAULT_ROUNDS = 20
_SMALLEST_GAIN = 1e-4
# What a member that is out may enter with, and what the weight of one that is in may be multiplied with.
_FIRST_WEIGHTS = (1.0, 0.25, 4.0)
_FACTORS = (2.0, 0.5, 0.0)

Weights = tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """A set of weights on the way of the search.

    Args:
        weights: One for each member; 0: not in.
        valid_mrr: The validation MRR of the ensemble with them.
    """

    weights: Weights
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

    weights: Weights
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
    validation = _Validation(members, graph)
    with counting("choosing members", rounds, enabled=progress) as bar:
        alone = [validation.step(weights) for weights in _unit_vectors(len(members))]
        steps = [max(alone, key=_valid_mrr)]  # the first of equals, here and below
        for _ in range(rounds):
            best = max((validation.step(weights) for weights in _moves(steps[-1].weights)), key=_valid_mrr)
            if best.valid_mrr <= steps[-1].valid_mrr + _SMALLEST_GAIN:
                break
            steps.append(best)
            bar.advance(note=f"valid MRR {best.valid_mrr:.4f}")
    member_mrrs = tuple(step.valid_mrr for step in alone)
    return Choice(shares(steps[-1].weights), steps[-1].valid_mrr, member_mrrs, tuple(steps))


def measure_weights(members: Sequence[QueryScorer], graph: KnowledgeGraph, weights: Sequence[float]) -> Choice:
    """The validation MRR of an ensemble with given weights, and of each member."""
    check_weights(weights, len(members))
    validation = _Validation(members, graph)
    member_mrrs = tuple(validation.step(unit).valid_mrr for unit in _unit_vectors(len(members)))
    given = shares(weights)
    return Choice(given, validation.step(given).valid_mrr, member_mrrs, steps=())


def shares(weights: Sequence[float]) -> Weights:
    """The weights divided by their sum: a mean, so that scores stay on the scale of the members'."""
    total = sum(weights)
    return tuple(weight / total for weight in weights)


class _Validation:
    """Measures weights on the validation split; each once, however they are scaled."""

    def __init__(self, members: Sequence[QueryScorer], graph: KnowledgeGraph) -> None:
        self.members = members
        self.graph = graph
        self._measured: dict[Weights, float] = {}

    def step(self, weights: Weights) -> Step:
        largest = max(weights)
        scaled = tuple(weight / largest for weight in weights)  # exact for powers of two
        if scaled not in self._measured:
            self._measured[scaled] = self._measure(scaled)
        return Step(weights, self._measured[scaled])

    def _measure(self, weights: Weights) -> float:
        chosen = [place for place, weight in enumerate(weights) if weight]
        scorer = ConcatenatedScorer([self.members[place] for place in chosen], [weights[place] for place in chosen])
        return evaluate_ranking(scorer, self.graph, "valid", confidence=False).metrics["mrr"]


def _unit_vectors(length: int) -> Iterator[Weights]:
    return (tuple(float(place == one) for place in range(length)) for one in range(length))


def _moves(weights: Weights) -> Iterator[Weights]:
    """What a round tries, in a fixed order."""
    for place, weight in enumerate(weights):
        for new in [weight * factor for factor in _FACTORS] if weight else _FIRST_WEIGHTS:
            moved = (*weights[:place], new, *weights[place + 1 :])
            if any(moved):
                yield moved


def _valid_mrr(step: Step) -> float:
    return step.valid_mrr
