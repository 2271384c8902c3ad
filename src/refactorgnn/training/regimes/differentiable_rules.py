"""Training models that learn rules by attention: every fact is asked for, from both ends, as if it were not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from refactorgnn.models.rivals.differentiable_rules import DifferentiableRules, operators_of, reverse_edges
from refactorgnn.training.regimes.base import Regime
from refactorgnn.training.rivals.differentiable_rules import DifferentiableRulesConfig


class DifferentiableRulesRegime(Regime[Tensor]):
    """An epoch is one pass over the facts and their reciprocals; a batch is the numbers of some of these edges."""

    model: DifferentiableRules
    config: DifferentiableRulesConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.operators = operators_of(self.graph, ("train",), self.device)
        self.reverse = reverse_edges(self.operators, self.graph.num_relations)

    def batches(self, epoch: int) -> Iterator[Tensor]:  # noqa: D102
        order = torch.randperm(self.operators.num_edges).to(self.device)
        yield from order.split(self.config.batch_size)

    def forward(self, batch: Tensor) -> Tensor:  # noqa: D102
        mine = batch[self.share.rank :: self.share.world_size]
        return self.model.total_loss(self.operators, self.reverse, mine) * self.share.world_size / len(batch)

    def num_targets(self, batch: Tensor) -> int:  # noqa: D102
        return len(batch)
