"""Settings of the rivals, put beside those of our own models; :mod:`refactorgnn.training` sees to it that they are."""

from __future__ import annotations

from refactorgnn.training.config import CONFIGS
from refactorgnn.training.rivals.differentiable_rules import DRUMConfig, NeuralLPConfig
from refactorgnn.training.rivals.grail import GraILConfig
from refactorgnn.training.rivals.nbfnet import NBFNetConfig
from refactorgnn.training.rivals.ppr import PPRConfig
from refactorgnn.training.rivals.rulen import RuleNConfig
from refactorgnn.training.rivals.unlinked import UnlinkedConfig

CONFIGS["neural-lp"] = NeuralLPConfig
CONFIGS["drum"] = DRUMConfig
CONFIGS["rulen"] = RuleNConfig
CONFIGS["ppr"] = PPRConfig
CONFIGS["unlinked"] = UnlinkedConfig
CONFIGS["nbfnet"] = NBFNetConfig
CONFIGS["grail"] = GraILConfig
