"""Mining rules, as a training of one step."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from refactorgnn.models.rivals.facts import FactIndex
from refactorgnn.models.rivals.rule_mining import mine_constants, mine_paths
from refactorgnn.models.rivals.rulen import RuleN
from refactorgnn.training.regimes.base import Regime
from refactorgnn.training.rivals.rulen import RuleNConfig


class MiningRegime(Regime[Tensor]):
    """An epoch is one pass over the facts; its loss is the share of those between whose ends no path was drawn."""

    model: RuleN
    config: RuleNConfig

    def batches(self, epoch: int) -> Iterator[Tensor]:  # noqa: D102
        yield self.graph.with_reciprocals(self.graph.triples("train")).to(self.device)

    @torch.no_grad()
    def forward(self, batch: Tensor) -> Tensor:  # noqa: D102
        facts = FactIndex(batch, self.graph.num_entities, 2 * self.graph.num_relations, self.config.memory_budget)
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        paths, coverage = mine_paths(facts, self.config.mining, generator)
        constants = mine_constants(facts, self.config.min_support)
        self.model.keep(paths, constants, self.config.min_confidence)
        return torch.tensor(1 - coverage, device=self.device)

    def num_targets(self, batch: Tensor) -> int:  # noqa: D102
        return len(batch) // 2
