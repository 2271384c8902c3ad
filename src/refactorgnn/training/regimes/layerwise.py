"""Layer-wise training of ReFactor GNNs, of finite depth and of ``L = ∞``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.models.infinite import InfiniteReFactorGNN
from refactorgnn.models.refactor import ReFactorGNN
from refactorgnn.training.config import ReFactorConfig
from refactorgnn.training.facts import TrainingFacts
from refactorgnn.training.objective import total_loss
from refactorgnn.training.regimes.base import Regime, takes_weights


@dataclass(frozen=True)
class LayerStep:
    """One step of layer-wise training: a layer, or the share of it that one mini-batch of the edges is.

    Args:
        layer: Which layer, from 0.
        support: All facts that carry messages in this layer; the features may look at them.
        messages: Those of this mini-batch.
        targets: The facts to predict.
    """

    layer: int
    support: QueryIndex
    messages: QueryIndex
    targets: QueryIndex


class LayerwiseRegime(Regime[LayerStep]):
    """An epoch is one cycle of ``L`` layers, from the features on.

    Each step applies one layer to the cached, detached states, takes the loss on the result and learns through that
    layer alone, so neither memory nor time of a step grows with ``L``. After ``L`` layers the cache is cleared, which
    is where the next epoch begins. With ``parts`` above 1, a layer is evaluated as a cascade over a partition of its
    edges, with a step of learning after each.
    """

    model: ReFactorGNN | InfiniteReFactorGNN
    config: ReFactorConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        mask, by, fixed = self.config.mask, self.config.mask_by, self.has_fixed_shapes
        self.facts = TrainingFacts(self.graph, mask, self.device, by=by, fixed_shapes=fixed)
        self.states: Tensor | None = None
        self.sums: Tensor | None = None

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether no tensor of a step changes its shape: on a GPU, where a layer is not cut into mini-batches."""
        is_whole = self.config.parts == 1 and not self.config.induced
        return is_whole and takes_weights(self.model.layer, self.device, self.share)

    def begin(self, epoch: int) -> None:
        """Clear the cache."""
        self.states, self.sums = None, None

    @property
    def num_layers(self) -> int:
        """The layers of an epoch."""
        assert isinstance(self.model, ReFactorGNN)
        return self.model.num_layers

    def batches(self, epoch: int) -> Iterator[LayerStep]:  # noqa: D102
        for layer in range(self.num_layers):
            support, queries = self.facts.split()
            if self.config.parts == 1:
                yield LayerStep(layer, support, support, queries)
                continue
            # As many parts of the one as of the other, whichever has few questions: no message is left out.
            num_parts = max(1, min(self.config.parts, support.num_queries, queries.num_queries))
            message_parts = support.partition(num_parts)
            target_parts = message_parts if queries is support else queries.partition(num_parts)
            for messages, targets in zip(message_parts, target_parts, strict=True):
                yield LayerStep(layer, support, messages, targets)

    def forward(self, batch: LayerStep) -> Tensor:  # noqa: D102
        assert isinstance(self.model, ReFactorGNN)
        states = self.model.features(self.graph, batch.support, draw=None) if self.states is None else self.states
        states, sums = self.model.step(states, batch.messages, self.sums, batch.layer)
        loss = self._loss(states, batch)
        self.states, self.sums = states.detach(), None if sums is None else sums.detach()
        return loss

    def num_targets(self, batch: LayerStep) -> Tensor | int:  # noqa: D102
        return batch.targets.total

    def _loss(self, states: Tensor, batch: LayerStep) -> Tensor:
        mine = self.share.of(batch.targets)
        total = total_loss(
            self.model.scorer,
            states,
            self.model.relation_embeddings,
            mine,
            self.facts.answers_to(mine),
            added=self.model.added_scores(batch.support, mine) if isinstance(self.model, ReFactorGNN) else None,
            relation_weight=self.config.relation_loss,
            config=self.config,
        )
        return total * self.share.world_size / batch.targets.total


class InfiniteRegime(LayerwiseRegime):
    """``L = ∞``: an epoch is one layer, and the cache, which is never cleared, is part of the model."""

    model: InfiniteReFactorGNN

    def begin(self, epoch: int) -> None:
        """Clear nothing: the model was built with its features in the cache."""

    @property
    def num_layers(self) -> int:  # noqa: D102
        return 1

    @property
    def has_fixed_shapes(self) -> bool:
        """False: the cache is another tensor after each step."""
        return False

    def forward(self, batch: LayerStep) -> Tensor:  # noqa: D102
        with torch.set_grad_enabled(self.config.through):
            states, sums = self.model.step(batch.messages)
        loss = self._loss(states, batch)
        self.model.keep(states, sums)
        return loss
