"""The states of a ReFactor GNN before each of its layers, and the scorer that they make in the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.models.base import EmbeddingScorer, LinkPredictor, QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.models.links import LinkScorer
from refactorgnn.models.refactor import ReFactorGNN
from refactorgnn.scorers import DotScorer


@dataclass(frozen=True)
class Trace:
    """One random draw of a ReFactor GNN on a graph: its states layer by layer.

    Args:
        model: The model.
        weight: What its score counts for in the whole.
        draw: Which draw of the features.
        states: Of all entities before each layer and after the last; ``L + 1`` of shape ``(num_entities, dim)``.
        sums: AdaGrad's sums after each layer; ``L`` of that shape, or None for SGD.
    """

    model: ReFactorGNN
    weight: float
    draw: int
    states: tuple[Tensor, ...]
    sums: tuple[Tensor | None, ...]

    @property
    def bound(self) -> EmbeddingScorer:
        """What answers with the states after the last layer."""
        return EmbeddingScorer(self.model.scorer, self.states[-1], self.model.relation_embeddings.detach())


def why_not_traced(model: LinkPredictor) -> str | None:
    """Why a model's layers cannot be taken one by one and entity by entity, as a clause; None if they can."""
    if isinstance(model, Ensemble):
        return next(
            (reason for member in model.members if (reason := why_not_traced(cast(LinkPredictor, member)))), None
        )
    if not isinstance(model, ReFactorGNN):
        return f"{type(model).__name__} has no ReFactor layers of finite number"
    if not isinstance(model.scorer, DotScorer):
        return f"the scorer {model.scorer.name!r} is no dot product"
    return "its layers are evaluated in parts" if model.num_parts > 1 or model.induced else None


@torch.no_grad()
def trace(model: LinkPredictor, graph: KnowledgeGraph) -> list[Trace]:
    """The traces of all members and draws; their weighted scores add up to those of ``model.bind(graph)``.

    It takes the time of binding the model, and ``L + 1`` times the memory of its states.
    """
    found = []
    for member, weight in _weighted_members(model):
        queries = graph.queries("train").to(member.relation_embeddings.device)
        for draw in range(member.num_draws):
            states, sums = [member.features(graph, queries, draw)], list[Tensor | None]()
            for layer in range(member.num_layers):
                moved, kept = member.step(states[-1], queries, sums[-1] if sums else None, layer)
                states.append(moved)
                sums.append(kept)
            found.append(Trace(member, weight / member.num_draws, draw, tuple(states), tuple(sums)))
    return found


def bound_by(traces: Sequence[Trace], graph: KnowledgeGraph) -> QueryScorer:
    """The weighted sum of the scores of all traces, and of what the facts of ``graph`` add to them directly."""
    bound: list[QueryScorer] = [one.bound for one in traces]
    weights = [one.weight for one in traces]
    for one in traces:
        if one.model.links is not None and one.draw == 0:  # the same for all draws
            bound.append(LinkScorer(one.model.links, graph.queries("train").to(one.states[0].device)))
            weights.append(one.weight * one.model.num_draws)
    return bound[0] if len(bound) == 1 else ConcatenatedScorer(bound, weights)


def _weighted_members(model: LinkPredictor, weight: float = 1.0) -> Iterator[tuple[ReFactorGNN, float]]:
    if isinstance(model, Ensemble):
        for member, share in zip(model.members, model.weights, strict=True):
            yield from _weighted_members(cast(LinkPredictor, member), weight * share)
    else:
        assert isinstance(model, ReFactorGNN), "callers ask why_not_traced first"
        yield model, weight
