"""Training with active forgetting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from refactorgnn.data.queries import QueryIndex
from refactorgnn.models.forgetting import ForgettingLookup
from refactorgnn.training.config import ForgettingConfig
from refactorgnn.training.regimes.base import Regime


class ForgettingRegime(Regime[QueryIndex]):
    """An epoch is one life of the table: from the features, through ``forget_every`` steps, to the reset.

    The relations are learned on; the table, which belongs to no checkpoint, has an optimiser of its own, which begins
    anew with it.
    """

    model: ForgettingLookup
    config: ForgettingConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.queries = self.graph.queries("train").to(self.device)
        self.table = nn.Parameter(torch.zeros(self.graph.num_entities, self.model.scorer.dim, device=self.device))
        self.table_optimizer = self.model.new_optimizer(self.table)

    def begin(self, epoch: int) -> None:
        """Forget the entities."""
        with torch.no_grad():
            self.table.copy_(self.model.features(self.graph, self.queries, draw=epoch))
        self.table_optimizer = self.model.new_optimizer(self.table)

    def batches(self, epoch: int) -> Iterator[QueryIndex]:  # noqa: D102
        for batch in self.model.batches(self.queries):
            self.table_optimizer.zero_grad()
            yield batch
            self.table_optimizer.step()

    def forward(self, batch: QueryIndex) -> Tensor:  # noqa: D102
        total = self.model.loss(self.table, self.share.of(batch))
        return total * self.share.world_size / batch.num_triples

    def num_targets(self, batch: QueryIndex) -> int:  # noqa: D102
        return batch.num_triples
