"""Training: settings and the loop."""

import refactorgnn.training.rivals  # noqa: F401  # whatever module of training is imported, all models have their settings
