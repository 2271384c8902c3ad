"""Training: settings and the loop."""

# The rivals' settings are made of those in `config`, which therefore cannot import them.
from refactorgnn.training import rivals  # noqa: F401
