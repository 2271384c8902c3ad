"""Rivals that condition on the question: they have no entity states, and answer about graphs they never saw."""
