"""Seeds made of two numbers, so that each epoch or draw has its own, whatever was computed before it."""

from __future__ import annotations

# Parts of a seed beyond those that epochs and draws take: nothing is to start as a copy of something else.
RELATIONS, LAYERS, SIGNATURE, PROJECTION, TABLE = range(2**62, 2**62 + 5)


def combined_seed(seed: int, number: int) -> int:
    """A seed for the ``number``-th part of what ``seed`` stands for; Python hashes tuples of integers without salt."""
    return hash((seed, number)) % 2**63
