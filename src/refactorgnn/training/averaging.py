"""The average of a model's weights, and of a cache's states, over the epochs."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor

from refactorgnn.models.base import LinkPredictor

PREFIX = "average."


class AveragedModel:
    """A copy of a model whose weights are ``a · average + (1 − a) · weights`` after each epoch.

    Averages are steadier than the last step of a noisy training; they are what is validated and kept.

    Args:
        model: The model.
        share: ``a``, what the average keeps of itself in an epoch.
        tensors: What :meth:`tensors` gave in an interrupted training, if there was one.
    """

    def __init__(self, model: LinkPredictor, share: float, tensors: Mapping[str, Tensor]) -> None:
        self.model = deepcopy(model)
        self.share = share
        kept = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
        self.has_begun = bool(kept)
        if kept:
            self.model.load_state_dict(kept)

    @torch.no_grad()
    def update(self, model: LinkPredictor) -> None:
        """Take the weights of one more epoch in."""
        latest = model.state_dict()
        for name, average in self.model.state_dict().items():
            weights = latest[name]
            average.copy_(torch.lerp(weights, average, self.share) if self.has_begun else weights)
        self.has_begun = True

    def tensors(self) -> dict[str, Tensor]:
        """The averages, named so that they fit beside the weights."""
        return {PREFIX + name: tensor for name, tensor in self.model.state_dict().items()}
