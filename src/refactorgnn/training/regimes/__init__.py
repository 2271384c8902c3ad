"""Training regimes: what an epoch and a step are, for each kind of model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.models.base import LinkPredictor
from refactorgnn.training.config import (
    ForgettingConfig,
    LookupConfig,
    MessagePassingConfig,
    ReFactorConfig,
    TrainConfig,
)
from refactorgnn.training.processes import Share
from refactorgnn.training.regimes.base import Regime
from refactorgnn.training.regimes.differentiable_rules import DifferentiableRulesRegime
from refactorgnn.training.regimes.forgetting import ForgettingRegime
from refactorgnn.training.regimes.grail import GraILRegime
from refactorgnn.training.regimes.layerwise import InfiniteRegime, LayerwiseRegime
from refactorgnn.training.regimes.lookup import LookupRegime
from refactorgnn.training.regimes.nbfnet import NBFNetRegime
from refactorgnn.training.regimes.rulen import MiningRegime
from refactorgnn.training.regimes.sampled import SampledInfiniteRegime, SampledLayerwiseRegime, SampledUnrolledRegime
from refactorgnn.training.regimes.unrolled import UnrolledRegime
from refactorgnn.training.rivals.differentiable_rules import DifferentiableRulesConfig
from refactorgnn.training.rivals.grail import GraILConfig
from refactorgnn.training.rivals.nbfnet import NBFNetConfig
from refactorgnn.training.rivals.rulen import RuleNConfig

__all__ = ["Regime", "make_regime"]


# Of the models that have one way to be trained.
_REGIMES: dict[type[TrainConfig], type[Regime[Any]]] = {
    LookupConfig: LookupRegime,
    ForgettingConfig: ForgettingRegime,
    DifferentiableRulesConfig: DifferentiableRulesRegime,
    RuleNConfig: MiningRegime,
    NBFNetConfig: NBFNetRegime,
    GraILConfig: GraILRegime,
}


def make_regime(
    model: LinkPredictor,
    config: TrainConfig,
    graph: KnowledgeGraph,
    device: torch.device,
    share: Share = Share(),  # noqa: B008
    folder: Path = Path(),
) -> Regime[Any]:
    """The regime that the settings ask for; arguments as :class:`Regime`."""
    return _regime_of(config)(model, config, graph, device, share, folder)


def _regime_of(config: TrainConfig) -> type[Regime[Any]]:
    for kind, regime in _REGIMES.items():
        if isinstance(config, kind):
            return regime
    sampled = isinstance(config, MessagePassingConfig) and config.sampler != "none"
    if isinstance(config, ReFactorConfig) and config.layers == "inf":
        return SampledInfiniteRegime if sampled else InfiniteRegime
    if isinstance(config, ReFactorConfig) and config.regime == "layerwise":
        return SampledLayerwiseRegime if sampled else LayerwiseRegime
    return SampledUnrolledRegime if sampled else UnrolledRegime
