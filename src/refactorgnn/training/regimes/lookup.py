"""Training a lookup table: passes over the questions, in shuffled batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.models.lookup import Lookup
from refactorgnn.training.config import LookupConfig
from refactorgnn.training.regimes.base import Regime


class LookupRegime(Regime[QueryIndex]):
    """An epoch of a lookup model: one pass over the training questions."""

    model: Lookup
    config: LookupConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.queries = self.graph.queries("train").to(self.device)

    def batches(self, epoch: int) -> Iterator[QueryIndex]:  # noqa: D102
        order = torch.randperm(self.queries.num_queries).to(self.device)
        yield from map(self.queries.take, order.split(self.config.batch_size))

    def forward(self, batch: QueryIndex) -> Tensor:  # noqa: D102
        total = self.model.total_loss(self.share.of(batch), self.config.memory_budget)
        return total * self.share.world_size / batch.num_triples

    def num_targets(self, batch: QueryIndex) -> int:  # noqa: D102
        return batch.num_triples
