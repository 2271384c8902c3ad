"""Settings of the rivals, one module each; importing this package makes their names known to ``train``."""

from refactorgnn.training.config import CONFIGS
from refactorgnn.training.rivals.grail import GraILConfig
from refactorgnn.training.rivals.nbfnet import NBFNetConfig

CONFIGS["nbfnet"] = NBFNetConfig
CONFIGS["grail"] = GraILConfig
