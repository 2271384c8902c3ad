"""The paper's two-stage training: sub-graphs are sampled and written once, then streamed back, a step for each.

Candidates of the loss are the entities of the mini-batch and the one global node of its sub-graph, the paper's in-batch
and global negatives, without those known to be answers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.errors import UserError
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.models.infinite import InfiniteReFactorGNN
from refactorgnn.models.refactor import ReFactorGNN
from refactorgnn.sampling import SubGraph, subgraph_loader, write_subgraphs
from refactorgnn.training.config import GNNConfig, ReFactorConfig
from refactorgnn.training.objective import total_loss
from refactorgnn.training.regimes.base import Regime


class SampledRegime(Regime[SubGraph]):
    """What all training on sub-graphs shares. Each of several processes takes sub-graphs of its own.

    With ``mask`` above 0 the facts to predict, and all others between their entities, carry no messages.
    """

    model: StateEncoder | InfiniteReFactorGNN
    config: GNNConfig | ReFactorConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.known = self.graph.queries("train").to(self.device)
        self.draw = 0

    def prepare(self, *, progress: bool) -> None:
        """Sample the sub-graphs and write them into the run's folder."""
        write_subgraphs(
            self.folder / "subgraphs",
            self.graph,
            self.config.sampler,
            depth=1 if self.config.layers == "inf" else self.config.layers,
            width=self.config.sample_width,
            batch_size=self.config.sample_batch,
            passes=self.config.sample_passes,
            seed=self.config.seed,
            progress=progress,
        )

    def begin(self, epoch: int) -> None:
        """Each epoch has its own random draw of the features."""
        self.draw = epoch

    def subgraphs(self, number: int) -> Iterator[SubGraph]:
        """The sub-graphs of pass ``number``, from 1, as many for each process."""
        loader = subgraph_loader(
            self.folder / "subgraphs",
            epoch=number,
            seed=self.config.seed,
            num_workers=self.config.sample_workers,
            rank=self.share.rank,
            world_size=self.share.world_size,
        )
        num_steps = len(loader.dataset) // self.share.world_size  # type: ignore[arg-type]
        if num_steps == 0:
            raise UserError(
                f"{self.share.world_size} processes cannot share {len(loader.dataset)} sub-graphs: "  # type: ignore[arg-type]
                "choose a smaller sample_batch, or fewer devices."
            )
        for subgraph in islice(loader, num_steps):
            yield subgraph.to(self.device)

    def batches(self, epoch: int) -> Iterator[SubGraph]:  # noqa: D102
        yield from self.subgraphs(epoch)

    def forward(self, batch: SubGraph) -> Tensor:  # noqa: D102
        triples = batch.triples[~batch.is_target] if self.config.mask else batch.triples
        states = self.encode(batch, self._grouped(triples, batch))
        return self._loss(states, batch)

    @abstractmethod
    def encode(self, batch: SubGraph, messages: QueryIndex) -> Tensor:
        """The states of the sub-graph's entities to predict with."""

    def num_targets(self, batch: SubGraph) -> int:  # noqa: D102
        return 2 * len(batch.targets)

    def _grouped(self, triples: Tensor, batch: SubGraph) -> QueryIndex:
        both = self.graph.with_reciprocals(triples)
        return QueryIndex.from_triples(both, batch.num_nodes, 2 * self.graph.num_relations)

    def _loss(self, states: Tensor, batch: SubGraph) -> Tensor:
        targets, candidates = self._grouped(batch.targets, batch), batch.candidates
        known = self.known.objects_of(batch.nodes[targets.subjects], targets.relations)
        narrowed = QueryIndex(
            targets.subjects, targets.relations, targets.answers.restricted_to(candidates), targets.num_relations
        )
        total = total_loss(
            self.model.scorer,
            states,
            self.model.relation_embeddings,
            narrowed,
            known.restricted_to(batch.nodes[candidates]),
            candidates=states[candidates],
            config=self.config,
        )
        return total / targets.num_triples


class SampledUnrolledRegime(SampledRegime):
    """An epoch is one pass over the sub-graphs; each step learns through all layers."""

    model: StateEncoder

    def encode(self, batch: SubGraph, messages: QueryIndex) -> Tensor:  # noqa: D102
        features = self.model.features(self.graph, self.known, self.draw)
        return self.model.propagate(features[batch.nodes], messages)


class SampledLayerwiseRegime(SampledRegime):
    """An epoch is ``L`` passes over the sub-graphs: each pass is one layer, evaluated as a cascade over them.

    The states of all entities are cached; a step applies the layer to those of its sub-graph and learns through it
    alone. After ``L`` passes the cache is cleared, as after ``L`` full batches in the paper.
    """

    model: ReFactorGNN

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.layer = 0

    def begin(self, epoch: int) -> None:
        """Clear the cache."""
        super().begin(epoch)
        shape = self.graph.num_entities, self.model.scorer.dim
        self.states, self.sums = (torch.zeros(shape, device=self.device) for _ in range(2))
        self.is_cached = torch.zeros(self.graph.num_entities, dtype=torch.bool, device=self.device)

    def batches(self, epoch: int) -> Iterator[SubGraph]:  # noqa: D102
        for layer in range(self.model.num_layers):
            self.layer = layer
            yield from self.subgraphs((epoch - 1) * self.model.num_layers + layer + 1)

    def encode(self, batch: SubGraph, messages: QueryIndex) -> Tensor:  # noqa: D102
        nodes = batch.nodes
        states = self.states[nodes]
        if not self.is_cached[nodes].all():
            features = self.model.features(self.graph, self.known, self.draw)[nodes]
            states = torch.where(self.is_cached[nodes, None], states, features)
        sums = self.sums[nodes] if self.model.layer.optimizer == "adagrad" else None
        states, sums = self.model.step(states, messages, sums, self.layer)
        self.states[nodes] = states.detach()
        self.is_cached[nodes] = True
        if sums is not None:
            self.sums[nodes] = sums.detach()
        return states


class SampledInfiniteRegime(SampledRegime):
    """``L = ∞``: an epoch is one pass, and the cache, which is never cleared, is part of the model."""

    model: InfiniteReFactorGNN
    config: ReFactorConfig

    def encode(self, batch: SubGraph, messages: QueryIndex) -> Tensor:  # noqa: D102
        nodes, layer = batch.nodes, self.model.layer
        sums = self.model.sums[nodes] if layer.optimizer == "adagrad" else None
        with torch.set_grad_enabled(self.config.through):
            states, sums = layer.step(self.model.states[nodes], messages, sums)
        self.model.states[nodes] = states.detach()
        if sums is not None:
            self.model.sums[nodes] = sums.detach()
        return states
