"""Models behind one contract: bound to a graph, they score every entity as an answer."""

from refactorgnn.models.base import EmbeddingScorer, LinkPredictor, QueryScorer
from refactorgnn.models.concatenated import ConcatenatedScorer
from refactorgnn.models.ensemble import Ensemble
from refactorgnn.models.forgetting import ForgettingLookup
from refactorgnn.models.gnn import GAT, RGCN, NoPretrain
from refactorgnn.models.infinite import InfiniteReFactorGNN
from refactorgnn.models.lookup import Lookup
from refactorgnn.models.refactor import ReFactorGNN

__all__ = [
    "GAT",
    "RGCN",
    "ConcatenatedScorer",
    "EmbeddingScorer",
    "Ensemble",
    "ForgettingLookup",
    "InfiniteReFactorGNN",
    "LinkPredictor",
    "Lookup",
    "NoPretrain",
    "QueryScorer",
    "ReFactorGNN",
]
