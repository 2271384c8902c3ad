"""The ReFactor GNN: ``L`` gradient steps of a factorisation model, from features, on any graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.layers import NTerm, Optimizer, ReFactorConv
from refactorgnn.models.base import EmbeddingScorer, LinkPredictor, QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.models.features import Features
from refactorgnn.ops import DEFAULT_MEMORY_BUDGET


class ReFactorGNN(LinkPredictor):
    """A ReFactor GNN of finite depth (Chen et al., NeurIPS 2022).

    Its parameters are the relation embeddings, shared by all layers, and those of the features: their number does not
    depend on the depth, nor on the entities. Bound to a graph, it starts from the features of its entities and applies
    ``L`` layers over its facts, so entities that training never saw are answered about like any others.

    Args:
        relations: The relations; reciprocals are added.
        features: Where the states of the entities start.
        scorer: The name of a registered scorer.
        dim: The width of an entity state.
        num_layers: ``L``.
        alpha: The step size of a layer.
        layer_optimizer: The optimiser whose step a layer is.
        n3: The weight of the layers' N3 regulariser.
        n_term: ``"exact"``, ``"paper"`` or ``"none"``.
        num_draws: How many random draws of the features are averaged when answering.
        init_scale: The standard deviation of the initial relation embeddings.
        seed: Their seed.
        memory_budget: Bytes of temporaries of a layer.
    """

    def __init__(
        self,
        relations: Vocabulary,
        features: Features,
        scorer: str = "distmult",
        dim: int = 384,
        *,
        num_layers: int = 6,
        alpha: float = 0.03,
        layer_optimizer: Optimizer = "adagrad",
        n3: float = 0.0,
        n_term: NTerm = "exact",
        num_draws: int = 1,
        init_scale: float = 0.1,
        seed: int = 0,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
    ) -> None:
        super().__init__(relations)
        self.features = features
        self.num_layers = num_layers
        self.num_draws = num_draws
        self.layer = ReFactorConv(
            dim,
            2 * len(relations),
            scorer,
            alpha=alpha,
            optimizer=layer_optimizer,
            n3=n3,
            n_term=n_term,
            memory_budget=memory_budget,
        )
        self.scorer = self.layer.scorer
        generator = torch.Generator().manual_seed(seed)
        initial = init_scale * torch.randn(self.layer.relations.shape, generator=generator)
        self.layer.relations = nn.Parameter(initial)

    def encode(self, graph: KnowledgeGraph, queries: QueryIndex, draw: int = 0) -> Tensor:
        """The states of all entities after ``L`` layers over ``queries``; shape ``(num_entities, dim)``."""
        states: Tensor = self.features(graph, queries, draw)
        sums: Tensor | None = None
        for _ in range(self.num_layers):
            states, sums = self.layer.step(states, queries, sums)
        return states

    @torch.no_grad()
    def bind(self, graph: KnowledgeGraph, message_splits: Sequence[str] = ("train",)) -> QueryScorer:
        """Compute the states of the graph's entities, for each random draw."""
        relations = self.layer.relations.detach()
        queries = graph.queries(*message_splits).to(relations.device)
        members = [
            EmbeddingScorer(self.scorer, self.encode(graph, queries, draw), relations) for draw in range(self.num_draws)
        ]
        return members[0] if len(members) == 1 else ConcatenatedScorer(members, [1 / len(members)] * len(members))
