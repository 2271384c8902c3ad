"""Answers by name from a trained run."""

from refactorgnn.predict.predictor import Answer, Predictor, Question

__all__ = ["Answer", "Predictor", "Question"]
