"""What a regime is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.layers import ReFactorConv
from refactorgnn.models.base import LinkPredictor
from refactorgnn.scorers import DotScorer, Scorer
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.processes import Share

Batch = TypeVar("Batch")


class Regime(nn.Module, ABC, Generic[Batch]):
    """How a kind of model is trained: the batches of an epoch, and the loss of each.

    It is a module around the model, so that whatever wraps its ``forward`` (precision, processes) covers a whole step.
    All randomness comes from torch's generator, which the loop seeds with ``(seed, epoch, step)`` before it asks for a
    batch: an epoch gives the same result whether the training came to it in one go or was resumed before it, and all
    processes get the same batches. What is drawn for a process's share alone must be drawn last in a step.

    Args:
        model: The model.
        config: The settings.
        graph: The graph to learn on.
        device: Where to compute.
        share: What part of each batch this process takes.
        folder: The run's folder.
    """

    def __init__(
        self,
        model: LinkPredictor,
        config: TrainConfig,
        graph: KnowledgeGraph,
        device: torch.device,
        share: Share = Share(),  # noqa: B008
        folder: Path = Path(),
    ) -> None:
        super().__init__()
        self.model = model
        self.config = config
        self.graph = graph
        self.device = device
        self.share = share
        self.folder = folder

    def prepare(self, *, progress: bool) -> None:
        """Make, once and in one process, what the training reads from the run's folder; most regimes read nothing."""

    def begin(self, epoch: int) -> None:
        """Prepare an epoch; most regimes have nothing to do."""

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch, one optimiser step each."""

    @abstractmethod
    def forward(self, batch: Batch) -> Tensor:
        """The loss of this process's share of the batch; its mean over the processes is that of the whole batch."""

    @abstractmethod
    def num_targets(self, batch: Batch) -> Tensor | int:
        """The number of triples whose mean the loss of ``batch`` is."""

    @property
    def has_fixed_shapes(self) -> bool:
        """Whether every epoch is the same kernels on tensors of the same shapes, so that it can be replayed."""
        return False


def takes_weights(layer: ReFactorConv, device: torch.device, share: Share) -> bool:
    """Whether facts can be held out of a layer by weights, and it pays: on a GPU that has the whole of each batch."""
    return layer.num_samples is None and has_gpu_to_itself(layer.scorer, device, share)


def has_gpu_to_itself(scorer: Scorer, device: torch.device, share: Share) -> bool:
    """Whether steps run on a GPU that has the whole of each batch, with a decoder whose loss need not wait for it."""
    return device.type == "cuda" and share.world_size == 1 and isinstance(scorer, DotScorer)
