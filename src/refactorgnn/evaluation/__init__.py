"""The yardstick: filtered ranking, tie policies, metrics with intervals, protocols."""

from refactorgnn.evaluation.metrics import Outcomes, expected_outcomes, outcomes
from refactorgnn.evaluation.protocols import Evaluation, Ranking, evaluate_ranking, evaluate_rankings
from refactorgnn.evaluation.ranking import Ranks, Ties, rank_triples

__all__ = [
    "Evaluation",
    "Outcomes",
    "Ranking",
    "Ranks",
    "Ties",
    "evaluate_ranking",
    "evaluate_rankings",
    "expected_outcomes",
    "outcomes",
    "rank_triples",
]
