"""refactorgnn: knowledge-graph completion on entities never seen in training.

The pieces: graphs (:func:`load_graph`, :class:`KnowledgeGraph`), the exact ReFactor layer (:class:`ReFactorConv`), the
yardstick (:func:`evaluate`), and models trained, tuned, combined, asked and explained by :func:`train`, :func:`tune`,
:func:`ensemble`, :func:`predict` and :func:`explain`, and handed on by :func:`export_embeddings`,
:func:`save_pretrained` and :func:`from_pretrained`.
"""

from importlib import metadata

from refactorgnn.api import (
    build_index,
    ensemble,
    evaluate,
    explain,
    export_embeddings,
    from_pretrained,
    load_predictor,
    predict,
    reproduce,
    rules,
    save_pretrained,
    train,
    tune,
)
from refactorgnn.data.graph import InductivePair, KnowledgeGraph
from refactorgnn.data.loading import load_graph, load_pair
from refactorgnn.errors import UserError
from refactorgnn.layers import ReFactorConv
from refactorgnn.predict.predictor import Predictor
from refactorgnn.runs import Run
from refactorgnn.scorers import make_scorer

__version__ = metadata.version("refactorgnn")

__all__ = [
    "InductivePair",
    "KnowledgeGraph",
    "Predictor",
    "ReFactorConv",
    "Run",
    "UserError",
    "__version__",
    "build_index",
    "ensemble",
    "evaluate",
    "explain",
    "export_embeddings",
    "from_pretrained",
    "load_graph",
    "load_pair",
    "load_predictor",
    "make_scorer",
    "predict",
    "reproduce",
    "rules",
    "save_pretrained",
    "train",
    "tune",
]
