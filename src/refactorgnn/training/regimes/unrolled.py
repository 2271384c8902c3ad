"""Training through all layers at once: any encoder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from refactorgnn.data.queries import QueryIndex
from refactorgnn.models.encoder import StateEncoder
from refactorgnn.models.refactor import ReFactorGNN
from refactorgnn.training.config import MessagePassingConfig
from refactorgnn.training.facts import TrainingFacts
from refactorgnn.training.objective import total_loss
from refactorgnn.training.regimes.base import Regime, has_gpu_to_itself, takes_weights


class UnrolledRegime(Regime[tuple[QueryIndex, QueryIndex]]):
    """An epoch is a number of steps; each encodes the whole graph and learns through all layers.

    What the R-GCN and the GAT are trained with, and an alternative for a ReFactor GNN, whose memory then grows with
    its depth.
    """

    model: StateEncoder
    config: MessagePassingConfig

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        mask, by, fixed = self.config.mask, self.config.mask_by, self.has_fixed_shapes
        self.facts = TrainingFacts(self.graph, mask, self.device, by=by, fixed_shapes=fixed)

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether no tensor of a step changes its shape: on a GPU, with all facts in each or held out by weights.

        Layers other than the ReFactor layer know no weights.
        """
        if not isinstance(self.model, ReFactorGNN):
            return self.config.mask == 0 and has_gpu_to_itself(self.model.scorer, self.device, self.share)
        if self.model.num_parts > 1 or self.model.induced:
            return False
        return takes_weights(self.model.layer, self.device, self.share)

    def batches(self, epoch: int) -> Iterator[tuple[QueryIndex, QueryIndex]]:  # noqa: D102
        for _ in range(self.config.steps_per_epoch):
            yield self.facts.split()

    def forward(self, batch: tuple[QueryIndex, QueryIndex]) -> Tensor:  # noqa: D102
        messages, targets = batch
        mine = self.share.of(targets)
        total = total_loss(
            self.model.scorer,
            self.model.encode(self.graph, messages, draw=None),
            self.model.relation_embeddings,
            mine,
            self.facts.answers_to(mine),
            added=self.model.added_scores(messages, mine),
            config=self.config,
        )
        return total * self.share.world_size / targets.total

    def num_targets(self, batch: tuple[QueryIndex, QueryIndex]) -> Tensor | int:  # noqa: D102
        return batch[1].total
