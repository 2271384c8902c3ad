"""An explanation as people read it: layer by layer the facts that weigh most, the rest of them in one part.

Nothing is left out: the contributions of all parts of a view add up to the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.predict.explaining import Explanation, Term

View = Literal["tail", "head"]
Role = Literal["fact", "others", "rest", "state", "features"]
# Facts shown one by one in each layer.
MOST_FACTS = 8


@dataclass(frozen=True)
class Part:
    """One part of a score.

    Args:
        role: A fact, the other facts together, the rest of a layer (``n[v]``, regulariser), the state before (which
            can be split) or the features (which cannot).
        label: What to call it.
        meaning: One sentence about what it is.
        contribution: What it adds to the score.
        fact: The names of the fact, for a fact.
    """

    role: Role
    label: str
    meaning: str
    contribution: float
    fact: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class LayerParts:
    """What one layer, or what was there before all that were split, adds to the score.

    Args:
        back: Which layer: 1 is the last; 0 for the state before those that were split.
        parts: Its parts: facts, the greatest first, the other facts together, and the rest.
    """

    back: int
    parts: tuple[Part, ...]

    @property
    def contribution(self) -> float:
        """What it adds to the score."""
        return sum(part.contribution for part in self.parts)

    @property
    def title(self) -> str:
        """What to call it."""
        return {0: "Before", 1: "Last layer"}.get(self.back, f"{self.back - 1} before the last")


def view_of(explanation: Explanation, view: View, graph: KnowledgeGraph) -> tuple[LayerParts, ...]:
    """The parts of a score by what made the state of the tail or the head: the last layer first, the state at the end.

    Args:
        explanation: The explanation.
        view: Whose state.
        graph: The graph it is about, for labels.
    """
    terms = explanation.by_tail if view == "tail" else explanation.by_head
    entity = explanation.triple[2 if view == "tail" else 0]
    layers = sorted({term.layers_back for term in terms}, key=lambda back: (back == 0, back))
    return tuple(
        LayerParts(back, _parts([term for term in terms if term.layers_back == back], entity, graph)) for back in layers
    )


def _parts(terms: Sequence[Term], entity: str, graph: KnowledgeGraph) -> tuple[Part, ...]:
    facts = [term for term in terms if term.fact is not None]
    shown = facts[: MOST_FACTS if len(facts) > MOST_FACTS + 1 else MOST_FACTS + 1]
    parts = [_fact(term, entity, graph) for term in shown]
    if others := facts[len(shown) :]:
        total = sum(term.contribution for term in others)
        parts.append(Part("others", f"{len(others)} other facts", "The facts that weigh less, together.", total))
    parts += [_rest(term) for term in terms if term.fact is None]
    return tuple(parts)


def _fact(term: Term, entity: str, graph: KnowledgeGraph) -> Part:
    assert term.fact is not None
    head, relation, tail = term.fact
    head_label, tail_label = (graph.label(graph.entities.id(name)) for name in (head, tail))
    label = f"{relation} · {tail_label}" if head == entity else f"{head_label} · {relation}"
    meaning = f"The graph says: {head_label} — {relation} — {tail_label}."
    if term.kind == "link":
        meaning += " The score looks at this link of the two directly."
    return Part("fact", label, meaning, term.contribution, term.fact)


def _rest(term: Term) -> Part:
    meanings = {
        "n[v]": "What pushes the entity away from questions it does not answer: n[v] of the paper.",
        "regulariser": "What keeps states small.",
        "earlier state": "The entity's state before this layer, which earlier layers made.",
        "features": "What the entity started from, before any layer.",
    }
    labels = {"n[v]": "All other candidates", "earlier state": "Earlier state", "features": "Features"}
    roles: dict[str, Role] = {"earlier state": "state", "features": "features"}
    label = labels.get(term.kind, term.kind.capitalize())
    return Part(roles.get(term.kind, "rest"), label, meanings[term.kind], term.contribution)
