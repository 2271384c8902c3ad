"""The Python API, one function for each command.

:func:`train`, :func:`tune`, :func:`ensemble`; :func:`evaluate`, :func:`explain` and :func:`predict` (for files of
questions :func:`predict_file`, for all missing links :func:`predict_missing`); :func:`rules`; :func:`build_index`;
:func:`export_embeddings`, :func:`save_pretrained` and :func:`from_pretrained`; :func:`serve`;
:func:`reproduce`, :func:`bench`.
"""

from refactorgnn.api.asking import evaluate, explain, load_predictor, predict, rules
from refactorgnn.api.benchmarking import bench
from refactorgnn.api.reproducing import reproduce, reproduce_complexity
from refactorgnn.api.serving import serve
from refactorgnn.api.training import ensemble, train, tune
from refactorgnn.export.embeddings import export_embeddings
from refactorgnn.export.pretrained import from_pretrained, save_pretrained
from refactorgnn.predict.missing import write_missing_links as predict_missing
from refactorgnn.predict.questions import answer_file as predict_file
from refactorgnn.predict.run_index import build_index

__all__ = [
    "bench",
    "build_index",
    "ensemble",
    "evaluate",
    "explain",
    "export_embeddings",
    "from_pretrained",
    "load_predictor",
    "predict",
    "predict_file",
    "predict_missing",
    "reproduce",
    "reproduce_complexity",
    "rules",
    "save_pretrained",
    "serve",
    "train",
    "tune",
]
