"""How far a training has come, and what of it is on disk."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from refactorgnn.models.base import LinkPredictor
from refactorgnn.runs import Run
from refactorgnn.training.config import TrainConfig

# A kill costs at most so much work, or one epoch where that takes longer; epochs of a small graph take milliseconds.
SECONDS_BETWEEN_CHECKPOINTS = 5.0


@dataclass
class Progress:
    """How far a training has come.

    Args:
        epoch: Epochs done.
        best_epoch: The epoch with the best validation MRR.
        best_mrr: That MRR.
        seconds: Time spent so far, validation included.
    """

    epoch: int = 0
    best_epoch: int = 0
    best_mrr: float = -1.0
    seconds: float = 0.0

    def is_exhausted(self, config: TrainConfig) -> bool:
        """Whether the epochs are used up or the patience is."""
        waited = (self.epoch - self.best_epoch) // config.validate_every
        return self.epoch >= config.epochs or (self.best_epoch > 0 and waited >= config.patience)


class Checkpoints:
    """The best weights, and the last state of a training, written from time to time.

    What is done again after a kill comes out the same, so nothing depends on when the last checkpoint was written. The
    best weights are written before the state that knows of them.

    Args:
        run: The run.
        done: How far it has come; written with the last state.
    """

    def __init__(self, run: Run, done: Progress) -> None:
        self.run = run
        self.done = done
        self._best: dict[str, Tensor] | None = None
        self._about_best: dict[str, object] = {}
        self._written = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._written >= SECONDS_BETWEEN_CHECKPOINTS

    def keep_best(self, model: LinkPredictor, metrics: Mapping[str, float]) -> None:
        """Keep a copy of the best weights so far, and what they have reached on validation."""
        self._best = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
        self._about_best = {"epoch": self.done.epoch, "valid": dict(metrics)}

    def write(self, tensors: Mapping[str, Tensor]) -> None:
        """Write the state of the training."""
        self.write_best()
        self.run.save_tensors(self.run.last_path, tensors, **vars(self.done))
        self._written = time.monotonic()

    def write_best(self) -> None:
        """Write the best weights, if they are newer than those on disk."""
        if self._best is not None:
            self.run.save_tensors(self.run.weights_path, self._best, **self._about_best)
            self._best = None
