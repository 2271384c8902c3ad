"""Ensembles: models trained apart that answer together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.errors import UserError
from refactorgnn.models.base import LinkPredictor, QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer

# The probability of what a model thinks impossible, when its logarithm is added to the logits of others.
_LEAST_PROBABILITY = 1e-6


class Ensemble(LinkPredictor):
    """A weighted sum of the scores of trained models.

    The scores of a member are the logits of a softmax over the entities, so the sum is a weighted geometric mean of
    the members' probabilities, and the weights are inverse temperatures. Of members that give probabilities themselves
    (PageRank, rules) the logarithms are added. An ensemble answers about unseen entities if
    all its members do.

    Args:
        members: The models, over the same relations; of any kinds, scorers and widths.
        weights: A positive number for each.
    """

    def __init__(self, members: Sequence[LinkPredictor], weights: Sequence[float]) -> None:
        check_weights(weights, len(members))
        super().__init__(members[0].relation_names)
        for place, member in enumerate(members):
            if member.relation_names != self.relation_names:
                alone = sorted({*member.relation_names} ^ {*self.relation_names})
                example = f", such as {alone[0]!r}" if alone else " or number them differently"
                raise UserError(
                    f"members 0 and {place} of the ensemble know different relations{example}: "
                    "combine models trained on the same graph."
                )
        self.members = nn.ModuleList(members)
        self.weights = tuple(weights)
        self.uses_facts = any(member.uses_facts for member in members)

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> ConcatenatedScorer:
        """Bind every member to the graph."""
        bound = [bind_for_logits(cast(LinkPredictor, member), graph, message_splits) for member in self.members]
        return ConcatenatedScorer(bound, self.weights)


def bind_for_logits(
    model: LinkPredictor, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)
) -> QueryScorer:
    """A model bound to the graph so that its scores can be added to those of others."""
    bound = model.bind(graph, message_splits)
    return LogarithmScorer(bound) if model.gives_probabilities else bound


class LogarithmScorer:
    """The logarithms of a bound model's scores, which are probabilities."""

    def __init__(self, bound: QueryScorer) -> None:
        self.bound = bound

    @property
    def num_entities(self) -> int:
        """The number of candidates."""
        return self.bound.num_entities

    @property
    def device(self) -> torch.device:
        """Where questions must be put."""
        return self.bound.device

    def scores(self, subjects: Tensor, relations: Tensor) -> Tensor:
        """Shape ``(num_questions, num_entities)``."""
        return self.bound.scores(subjects, relations).add_(_LEAST_PROBABILITY).log_()


def check_weights(weights: Sequence[float], num_members: int) -> None:
    """Refuse weights of another number than the members, or that are not positive numbers."""
    if len(weights) != num_members:
        raise UserError(f"{len(weights)} weights cannot be given to {num_members} members: give one to each.")
    for weight in weights:
        if not (math.isfinite(weight) and weight > 0):
            raise UserError(f"weight {weight:g} cannot be used: choose a positive number, or leave the member out.")
