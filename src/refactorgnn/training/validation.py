"""Validation: the ranking that chooses the best weights of a training."""

from __future__ import annotations

import torch
from torch import Tensor

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.thinning import thinned
from refactorgnn.evaluation.device_ranking import count_all, question_batches
from refactorgnn.evaluation.metrics import outcomes
from refactorgnn.evaluation.ranking import Ranks, rank_triples
from refactorgnn.models.base import LinkPredictor
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.models.features import RandomFeatures
from refactorgnn.training.config import MessagePassingConfig, TrainConfig
from refactorgnn.training.replay import Lane, Replayed
from refactorgnn.training.rivals.grail import GraILConfig

_SPLIT = "valid"


def graph_to_validate_on(config: TrainConfig, graph: KnowledgeGraph) -> KnowledgeGraph:
    """The graph with as many of its facts as the settings let a validation know: the same ones in every training."""
    return thinned(graph, config.validation_facts) if isinstance(config, MessagePassingConfig) else graph


def negatives_to_validate_against(config: TrainConfig) -> int:
    """How many wrong answers a validation ranks the right one among; 0: all entities."""
    return config.validation_negatives if isinstance(config, GraILConfig) else 0


class Validation:
    """The filtered ranking of the validation triples.

    Args:
        model: The model to validate; its weights may change between two validations, but not their places.
        graph: The graph to ask about, the one it is trained on as a rule.
        num_negatives: Rank against so many wrong answers, the same ones each time; 0: against all entities.
    """

    def __init__(self, model: LinkPredictor, graph: KnowledgeGraph, num_negatives: int = 0) -> None:
        self.model = model
        self.graph = graph
        self.num_negatives = num_negatives

    def begin(self) -> None:
        """Have the work done, where that can be done in the background."""

    def metrics(self) -> dict[str, float]:
        """What the validation that was begun last has found."""
        bound = self.model.eval().bind(self.graph)
        triples = self.graph.triples(_SPLIT)
        return outcomes(rank_triples(bound, self.graph, triples, num_negatives=self.num_negatives or None)).mean()


class ReplayedValidation(Validation):
    """The same on a GPU: everything that does not depend on the weights is done once, the rest is replayed.

    Args:
        model: The model.
        graph: The graph.
        lane: Where the training runs.
    """

    def __init__(self, model: StateEncoder, graph: KnowledgeGraph, lane: Lane) -> None:
        super().__init__(model, graph)
        device = model.relation_embeddings.device
        self._triples = graph.triples(_SPLIT)
        questions = graph.with_reciprocals(self._triples)
        self._batches = list(question_batches(questions, graph.queries(), device))
        for part in model.features.modules():
            if isinstance(part, RandomFeatures):
                part.hold(graph, graph.queries("train").to(device), range(model.num_draws))
        self._count = Replayed(self._counts, lane)
        self._latest: Tensor | None = None

    @torch.no_grad()
    def _counts(self) -> Tensor:
        return count_all(self.model.eval().bind(self.graph), self._batches)

    def begin(self) -> None:  # noqa: D102
        self._latest = self._count()

    def metrics(self) -> dict[str, float]:  # noqa: D102
        assert self._latest is not None, "a validation is begun first"
        return outcomes(Ranks.from_counts(self._triples, self._latest.cpu()), "realistic").mean()
