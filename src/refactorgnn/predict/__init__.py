"""Answers by name from a trained run."""

from refactorgnn.predict.predictor import Answer, Predictor

__all__ = ["Answer", "Predictor"]
