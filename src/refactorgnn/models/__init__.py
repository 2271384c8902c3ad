"""Models behind one contract: bound to a graph, they score every entity as an answer."""

from refactorgnn.models.base import EmbeddingScorer, LinkPredictor, QueryScorer
from refactorgnn.models.gnn import GAT, RGCN, NoPretrain
from refactorgnn.models.lookup import Lookup
from refactorgnn.models.refactor import ReFactorGNN

__all__ = ["GAT", "RGCN", "EmbeddingScorer", "LinkPredictor", "Lookup", "NoPretrain", "QueryScorer", "ReFactorGNN"]
