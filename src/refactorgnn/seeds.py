"""Seeds made of two numbers, so that each epoch or draw has its own, whatever was computed before it."""

from __future__ import annotations

# Parts of a seed beside those that epochs and draws take. They were meant to be far from them, but Python hashes 2**62
# as it does 2: draws and epochs 2 to 6 have the same seeds, and a draw of random features may begin as a copy of the
# initial relations. Other numbers would change the first weights of every model: this waits for a version that does.
RELATIONS, LAYERS, SIGNATURE, PROJECTION, TABLE = range(2**62, 2**62 + 5)


def combined_seed(seed: int, number: int) -> int:
    """A seed for the ``number``-th part of what ``seed`` stands for; Python hashes tuples of integers without salt."""
    return hash((seed, number)) % 2**63
