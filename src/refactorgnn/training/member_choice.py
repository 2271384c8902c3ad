"""Which members an ensemble should have, and with what weights: chosen on the validation split.

The search is a hill climb on the validation MRR. It starts from the best single member. In each round it tries to take
in each member that is out, with 1/4, 1 or 4 times the influence of the first, and to double, halve or drop each that is
in; it makes the best of these moves, and stops when none gains more than 1e-4. A member's influence is its weight times
the spread of its scores (their standard deviation over the entities, mean over the validation questions): logits of
differently trained models can differ fifty-fold in spread, and the flatter ones would never be heard.

Greedy choice of an ensemble's members goes back to Caruana et al. (ICML 2004), where a member's weight is how often it
was picked. Nothing is random, and scores are never kept: weights are measured by ranking with them, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.evaluation.protocols import evaluate_ranking
from refactorgnn.evaluation.ranking import ranking_budget
from refactorgnn.models.base import QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.models.ensemble import check_weights
from refactorgnn.ops.chunked import rows_within
from refactorgnn.progress import counting

DEFAULT_ROUNDS = 20
_SMALLEST_GAIN = 1e-4
# The influence that a member may enter with, and what that of one that is in may be multiplied with.
_ENTRIES = (1.0, 0.25, 4.0)
_FACTORS = (2.0, 0.5, 0.0)
# Score matrices alive at once while their spread is computed.
_BUFFERS = 2

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
    influences = [_unit_vector(place, len(members)) for place in range(len(members))]
    with counting("choosing members", rounds, enabled=progress) as bar:
        alone = [_measured(members, graph, influence) for influence in influences]
        search = _Search(members, graph)
        start = max(range(len(alone)), key=lambda place: alone[place].valid_mrr)  # the first of equals, here and below
        current, steps = influences[start], [alone[start]]
        for _ in range(rounds):
            moves = list(_moves(current))
            tried = [search.step(influence) for influence in moves]
            best = max(range(len(tried)), key=lambda place: tried[place].valid_mrr)
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
    alone = [_measured(members, graph, _unit_vector(place, len(members))) for place in range(len(members))]
    together = _measured(members, graph, weights)
    return Choice(together.weights, together.valid_mrr, tuple(step.valid_mrr for step in alone), steps=())


def score_spread(member: QueryScorer, graph: KnowledgeGraph) -> float:
    """The standard deviation of a model's scores over the entities, its mean over the validation questions."""
    questions = graph.with_reciprocals(graph.triples("valid")).to(member.device)
    total = 0.0
    with torch.no_grad():
        for chunk in questions.split(rows_within(ranking_budget(graph.num_entities), graph.num_entities, _BUFFERS)):
            scores = member.scores(chunk[:, 0], chunk[:, 1])
            total += float(scores.std(dim=1, correction=0).sum())
    return total / len(questions)


class _Search:
    """Measures influences on the validation split; each once, however they are scaled."""

    def __init__(self, members: Sequence[QueryScorer], graph: KnowledgeGraph) -> None:
        self.members = members
        self.graph = graph
        self.spreads = [score_spread(member, graph) or 1.0 for member in members]
        self._measured: dict[Influence, Step] = {}

    def step(self, influence: Influence) -> Step:
        largest = max(influence)
        scaled = tuple(value / largest for value in influence)  # exact: all are powers of two
        if scaled not in self._measured:
            weights = [value / spread for value, spread in zip(scaled, self.spreads, strict=True)]
            self._measured[scaled] = _measured(self.members, self.graph, weights)
        return self._measured[scaled]


def _measured(members: Sequence[QueryScorer], graph: KnowledgeGraph, weights: Sequence[float]) -> Step:
    """The validation MRR with some weights, which are divided by their sum to stay on the scale of the members."""
    shares = tuple(weight / sum(weights) for weight in weights)
    chosen = [place for place, share in enumerate(shares) if share]
    scorer = ConcatenatedScorer([members[place] for place in chosen], [shares[place] for place in chosen])
    return Step(shares, evaluate_ranking(scorer, graph, "valid", confidence=False).metrics["mrr"])


def _unit_vector(place: int, length: int) -> Influence:
    return tuple(float(other == place) for other in range(length))


def _moves(influence: Influence) -> Iterator[Influence]:
    """What a round tries, in a fixed order."""
    for place, value in enumerate(influence):
        for new in [value * factor for factor in _FACTORS] if value else _ENTRIES:
            moved = (*influence[:place], new, *influence[place + 1 :])
            if any(moved):
                yield moved
