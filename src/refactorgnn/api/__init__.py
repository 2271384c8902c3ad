"""The Python API, one function for each command.

:func:`train`, :func:`tune`, :func:`ensemble`; :func:`evaluate`, :func:`explain` and :func:`predict` (for files of
questions :func:`predict_file`, for all missing links :func:`predict_missing`); :func:`reproduce`;
:func:`serve`.
"""

from refactorgnn.api.asking import evaluate, explain, load_predictor, predict
from refactorgnn.api.reproducing import reproduce, reproduce_complexity
from refactorgnn.api.serving import serve
from refactorgnn.api.training import ensemble, train, tune
from refactorgnn.predict.missing import write_missing_links as predict_missing
from refactorgnn.predict.questions import answer_file as predict_file

__all__ = [
    "ensemble",
    "evaluate",
    "explain",
    "load_predictor",
    "predict",
    "predict_file",
    "predict_missing",
    "reproduce",
    "reproduce_complexity",
    "serve",
    "train",
    "tune",
]
