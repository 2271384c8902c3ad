"""The ReFactor GNN: ``L`` gradient steps of a factorisation model, from features, on any graph."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from refactorgnn.data.queries import QueryIndex
from refactorgnn.data.vocabulary import Vocabulary
from refactorgnn.layers import N3Weighting, Optimizer, ReFactorConv
from refactorgnn.likelihood import NTerm
from refactorgnn.models.base import initial_relations
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.models.features import Features
from refactorgnn.seeds import combined_seed


class ReFactorGNN(StateEncoder):
    """A ReFactor GNN of finite depth (Chen et al., NeurIPS 2022).

    Its parameters are the relation embeddings, shared by all layers, and those of the features: their number depends
    neither on the depth (unless step sizes are learned) nor on the entities. Bound to a graph, it starts from the
    features of its entities and applies ``L`` layers over its facts, so entities that training never saw are answered
    about like any others.

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
        learned_steps: Whether each layer learns its own step size, from ``alpha`` on: ``L`` more parameters.
        num_parts: Mini-batches that a layer's edges are partitioned into and evaluated over in a cascade.
        induced: Whether a mini-batch sees its own entities only, as in the paper; see :meth:`ReFactorConv.cascade`.
        num_samples: Candidates that ``n[v]`` is estimated from while training; see :class:`ReFactorConv`.
        layer_dropout: Dropout inside a layer while training; see :class:`ReFactorConv`.
        n3_weighting: ``"entity"`` or ``"triple"``; see :class:`ReFactorConv`.
        links: Whether to learn what facts between two entities say about others.
        seed: The seed of the initial relation embeddings and of the partition.
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
        learned_steps: bool = False,
        num_parts: int = 1,
        induced: bool = False,
        num_samples: int | None = None,
        layer_dropout: float = 0.0,
        n3_weighting: N3Weighting = "entity",
        links: bool = False,
        seed: int = 0,
        memory_budget: int | None = None,
    ) -> None:
        super().__init__(relations, features, num_draws=num_draws, links=links)
        self.num_layers = num_layers
        self.num_parts = num_parts
        self.induced = induced
        self.seed = seed
        self.layer = seeded_layer(
            relations,
            scorer,
            dim,
            init_scale=init_scale,
            seed=seed,
            alpha=alpha,
            optimizer=layer_optimizer,
            n3=n3,
            n_term=n_term,
            num_samples=num_samples,
            dropout=layer_dropout,
            n3_weighting=n3_weighting,
            memory_budget=memory_budget,
        )
        self.scorer = self.layer.scorer
        # Logarithms, so that steps stay positive whatever is learned.
        self.log_steps = nn.Parameter(torch.full((num_layers,), math.log(alpha))) if learned_steps else None

    @property
    def relation_embeddings(self) -> nn.Parameter:
        """``ψ``, shared by all layers and the decoder."""
        return self.layer.relations

    def step(
        self, states: Tensor, queries: QueryIndex, sums: Tensor | None, layer: int
    ) -> tuple[Tensor, Tensor | None]:
        """Layer number ``layer`` over all its edges or a mini-batch of them, with what its optimiser carries on."""
        return self.layer.cascade(states, [queries], sums, induced=self.induced, alpha=self.learned_step(layer))

    def learned_step(self, layer: int) -> Tensor | None:
        """The step size that layer number ``layer`` has learned, if it learns one."""
        return None if self.log_steps is None else self.log_steps[layer].exp()

    def propagate(self, states: Tensor, queries: QueryIndex) -> Tensor:
        """The states after ``L`` layers over ``queries``; shape ``(num_entities, dim)``."""
        sums: Tensor | None = None
        for layer in range(self.num_layers):
            for part in self._parts(queries, layer):
                states, sums = self.step(states, part, sums, layer)
        return states

    def _parts(self, queries: QueryIndex, layer: int) -> list[QueryIndex]:
        """The mini-batches of a layer; the same whenever it is evaluated."""
        if self.num_parts == 1:
            return [queries]
        return queries.partition(self.num_parts, torch.Generator().manual_seed(combined_seed(self.seed, layer)))


def seeded_layer(
    relations: Vocabulary, scorer: str, dim: int, *, init_scale: float, seed: int, **options: Any
) -> ReFactorConv:
    """A layer for ``relations`` and their reciprocals; the other options are those of :class:`ReFactorConv`."""
    layer = ReFactorConv(dim, 2 * len(relations), scorer, **options)
    layer.relations = initial_relations(relations, layer.scorer, init_scale, seed)
    return layer
