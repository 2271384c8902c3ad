"""What models share that have learned rules: they can say them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

from refactorgnn.data.vocabulary import Vocabulary


@dataclass(frozen=True)
class LearnedRule:
    """``r(X, Y) ← b_1(X, A), b_2(A, B), …, b_k(…, Y)``: a chain of facts from subject to answer.

    Args:
        body: The relations of the chain, from the subject on; those from ``num_relations`` on are reciprocals.
        confidence: How much the model believes in the rule, at most 1.
    """

    body: tuple[int, ...]
    confidence: float

    def in_words(self, relation: int, relations: Vocabulary) -> str:
        """The rule for ``relation``, such as ``r(X, Y) ← b_1(X, A), b_2(Y, A)``: reciprocals are turned round."""
        between = [chr(ord("A") + place) if place < 23 else f"A{place}" for place in range(len(self.body) - 1)]
        places = ["X", *between, "Y"]
        steps = zip(self.body, pairwise(places), strict=True)
        atoms = [_atom(one, *ends, relations) for one, ends in steps]
        return f"{_atom(relation, 'X', 'Y', relations)} ← {', '.join(atoms)}"


@runtime_checkable
class LearnedRules(Protocol):
    """A model that can say which rules it has learned."""

    relation_names: Vocabulary

    def rules(self, relation: int, limit: int) -> list[LearnedRule]:
        """The ``limit`` rules for ``relation`` (or a reciprocal) with the largest confidence, best first."""


def _atom(relation: int, start: str, end: str, relations: Vocabulary) -> str:
    if relation >= len(relations):
        relation, start, end = relation - len(relations), end, start
    return f"{relations[relation]}({start}, {end})"
