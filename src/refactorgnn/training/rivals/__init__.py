"""Settings of the rivals, one module each; importing this package makes their names known to ``train``."""

from refactorgnn.training.config import CONFIGS
from refactorgnn.training.rivals.differentiable_rules import DRUMConfig, NeuralLPConfig

CONFIGS["neural-lp"] = NeuralLPConfig
CONFIGS["drum"] = DRUMConfig
