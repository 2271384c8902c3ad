"""The ReFactor GNN of infinite depth: the cache of node states is never cleared and becomes part of the model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.layers import ReFactorConv
from refactorgnn.models.base import EmbeddingScorer, LinkPredictor
from refactorgnn.models.features import Features
from refactorgnn.models.lookup import known_entity_ids


class InfiniteReFactorGNN(LinkPredictor):
    """A ReFactor GNN of ``L = ∞`` (Chen et al., NeurIPS 2022): layer after layer on one graph, while it trains.

    What is learned by gradient are the relation embeddings; the states of the entities are what the layers have made of
    their features. They are saved with the weights, and they are why this model knows no other entities.

    Args:
        entities: The entities of the training graph.
        relations: The relations; reciprocals are added.
        features: Where the states start.
        layer: The layer, its relation embeddings in it.
        induced: Whether a mini-batch of edges sees its own entities only; see :meth:`ReFactorConv.cascade`.
    """

    uses_facts = False
    states: Tensor
    sums: Tensor

    def __init__(
        self,
        entities: Vocabulary,
        relations: Vocabulary,
        features: Features,
        layer: ReFactorConv,
        *,
        induced: bool = False,
    ) -> None:
        super().__init__(relations)
        self.entity_names = entities
        self.features = features.requires_grad_(False)  # they are met once, at the start
        self.layer = layer
        self.scorer = layer.scorer
        self.induced = induced
        empty = torch.zeros(len(entities), layer.scorer.dim)
        self.register_buffer("states", empty)
        self.register_buffer("sums", torch.zeros_like(empty))

    @property
    def relation_embeddings(self) -> nn.Parameter:
        """``ψ``, shared by all layers and the decoder."""
        return self.layer.relations

    def start(self, states: Tensor) -> None:
        """Fill the cache with features and clear the optimiser's sums."""
        self.states.copy_(states)
        self.sums.zero_()

    def step(self, queries: QueryIndex) -> tuple[Tensor, Tensor | None]:
        """What one more layer, or a mini-batch of it, makes of the cache; differentiable in the relations."""
        sums = self.sums if self.layer.optimizer == "adagrad" else None
        return self.layer.cascade(self.states, [queries], sums, induced=self.induced)

    def keep(self, states: Tensor, sums: Tensor | None) -> None:
        """Make the outcome of a layer the cache; the tensors before it stay as they are for the backward pass."""
        self.states = states.detach()
        if sums is not None:
            self.sums = sums.detach()

    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> EmbeddingScorer:
        """Look the states of the graph's entities up; ``message_splits`` do not matter to this model.

        Raises:
            UserError: if the graph has entities the model has not been trained on.
        """
        ids = known_entity_ids(self.entity_names, graph, "a ReFactor GNN of infinite depth")
        return EmbeddingScorer(self.scorer, self.states[ids.to(self.states.device)], self.relation_embeddings.detach())
