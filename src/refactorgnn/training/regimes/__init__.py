"""Training regimes: what an epoch and a step are, for each kind of model."""

from __future__ import annotations

from typing import Any

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.models.base import LinkPredictor
from refactorgnn.training.config import EncoderConfig, ForgettingConfig, LookupConfig, ReFactorConfig, TrainConfig
from refactorgnn.training.processes import Share
from refactorgnn.training.regimes.base import Regime
from refactorgnn.training.regimes.forgetting import ForgettingRegime
from refactorgnn.training.regimes.layerwise import InfiniteRegime, LayerwiseRegime
from refactorgnn.training.regimes.lookup import LookupRegime
from refactorgnn.training.regimes.unrolled import UnrolledRegime

__all__ = ["Regime", "make_regime"]


def make_regime(
    model: LinkPredictor,
    config: TrainConfig,
    graph: KnowledgeGraph,
    device: torch.device,
    share: Share = Share(),  # noqa: B008
) -> Regime[Any]:
    """The regime that the settings ask for."""
    return _regime_of(config)(model, config, graph, device, share)


def _regime_of(config: TrainConfig) -> type[Regime[Any]]:
    if isinstance(config, LookupConfig):
        return LookupRegime
    if isinstance(config, ForgettingConfig):
        return ForgettingRegime
    if isinstance(config, ReFactorConfig) and config.regime == "layerwise":
        return InfiniteRegime if config.layers == "inf" else LayerwiseRegime
    if isinstance(config, EncoderConfig):
        return UnrolledRegime
    raise TypeError(f"no regime is known for {type(config).__name__}")
