"""The evaluation protocols, by name, and the result that states which one was used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError, unknown_name
from refactorgnn.evaluation.metrics import Outcomes, expected_outcomes, outcomes
from refactorgnn.evaluation.ranking import Ties, rank_in_ways
from refactorgnn.models.base import QueryScorer

Ranking = Literal["full", "partial", "partial-exact"]


@dataclass(frozen=True)
class Evaluation:
    """Metrics, and the protocol they were measured under.

    Args:
        metrics: ``mrr``, ``mr``, ``amri``, ``hits@1``, ``hits@3``, ``hits@10``.
        confidence: A 95 % bootstrap interval for each metric; empty if not asked for.
        by_direction: The metrics of ``tail`` and ``head`` questions.
        by_relation: The metrics of each relation, by name.
        protocol: Graph, split, ranking, tie policy, filter and sizes.
        seconds: How long it took.
    """

    metrics: dict[str, float]
    confidence: dict[str, list[float]]
    by_direction: dict[str, dict[str, float]]
    by_relation: dict[str, dict[str, float]]
    protocol: dict[str, Any]
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """A flat form for JSON: the metrics at the top level, everything else beside them."""
        return {
            **self.metrics,
            "confidence": self.confidence,
            "by_direction": self.by_direction,
            "by_relation": self.by_relation,
            "protocol": self.protocol,
            "seconds": round(self.seconds, 3),
        }


def evaluate_ranking(
    predictor: QueryScorer,
    graph: KnowledgeGraph,
    split: str = "test",
    *,
    ranking: Ranking = "full",
    ties: Ties = "realistic",
    filter_splits: Sequence[str] | None = None,
    num_negatives: int = 49,
    seed: int = 0,
    confidence: bool = True,
    memory_budget: int | None = None,
    progress: bool = False,
) -> Evaluation:
    """Evaluate a model on a split: filtered by the graph's triples, both directions.

    Args:
        predictor: The model, bound to ``graph``.
        graph: The graph.
        split: The split to ask about.
        ranking: ``"full"``: against all entities. ``"partial"``: against seeded random negatives, as GraIL does.
            ``"partial-exact"``: the expectation of the latter in closed form.
        ties: ``"realistic"``, ``"optimistic"`` or ``"pessimistic"``.
        filter_splits: Splits whose triples are not counted as mistakes; all if not given.
        num_negatives: The number of negatives of a partial ranking.
        seed: The seed of the negatives and of the bootstrap.
        confidence: Whether to add bootstrap intervals.
        memory_budget: Bytes of temporaries; None: 64 MiB, or what 64 questions take if that is more.
        progress: Show a bar.
    """
    found = evaluate_rankings(
        predictor,
        graph,
        split,
        rankings=(ranking,),
        ties=ties,
        filter_splits=filter_splits,
        num_negatives=num_negatives,
        seed=seed,
        confidence=confidence,
        memory_budget=memory_budget,
        progress=progress,
    )
    return found[ranking]


def evaluate_rankings(
    predictor: QueryScorer,
    graph: KnowledgeGraph,
    split: str = "test",
    *,
    rankings: Sequence[Ranking] = get_args(Ranking),
    ties: Ties = "realistic",
    filter_splits: Sequence[str] | None = None,
    num_negatives: int = 49,
    seed: int = 0,
    confidence: bool = True,
    memory_budget: int | None = None,
    progress: bool = False,
) -> dict[Ranking, Evaluation]:
    """Evaluate by several protocols, all read off one pass where that can be.

    The arguments are those of :func:`evaluate_ranking`.
    """
    for kind, names, choices in (("ranking", rankings, get_args(Ranking)), ("tie policy", (ties,), get_args(Ties))):
        for name in names:
            if name not in choices:
                raise unknown_name(kind, name, choices)
    triples = graph.triples(split)
    if not len(triples):
        raise UserError(f"split {split!r} of graph {graph.name!r} is empty: choose another split.")
    filters = tuple(graph.splits if filter_splits is None else filter_splits)
    if not filters:
        raise UserError(f"no split to filter by is named: graph {graph.name!r} has {', '.join(graph.splits)}.")
    known = graph.queries(*filters)
    ways = {ranking: num_negatives if ranking == "partial" else None for ranking in rankings}
    ranked = rank_in_ways(
        predictor,
        graph,
        triples,
        ways.values(),
        known=known,
        seed=seed,
        memory_budget=memory_budget,
        progress=progress,
    )
    found: dict[Ranking, Evaluation] = {}
    for ranking, way in ways.items():
        ranks, seconds = ranked[way]
        result = expected_outcomes(ranks, num_negatives, ties) if ranking == "partial-exact" else outcomes(ranks, ties)
        protocol = _protocol(graph, split, filters, ranking, ties, num_negatives, seed)
        found[ranking] = _evaluation(result, graph, protocol, seed, confidence, seconds)
    return found


def _protocol(
    graph: KnowledgeGraph,
    split: str,
    filters: tuple[str, ...],
    ranking: Ranking,
    ties: Ties,
    num_negatives: int,
    seed: int,
) -> dict[str, Any]:
    protocol: dict[str, Any] = {
        "graph": graph.name,
        "split": split,
        "ranking": ranking,
        "ties": ties,
        "filter": "+".join(filters),
        "num_triples": len(graph.triples(split)),
        "num_entities": graph.num_entities,
    }
    if ranking != "full":
        protocol |= {"num_negatives": num_negatives}
    if ranking == "partial":
        protocol |= {"seed": seed}
    return protocol


def _evaluation(
    result: Outcomes, graph: KnowledgeGraph, protocol: dict[str, Any], seed: int, confidence: bool, seconds: float
) -> Evaluation:
    return Evaluation(
        metrics=result.mean(),
        confidence=result.confidence(seed=seed) if confidence else {},
        by_direction=result.by_direction(),
        by_relation={graph.relations[relation]: values for relation, values in result.by_relation().items()},
        protocol=protocol,
        seconds=seconds,
    )
