"""A question as the address of the page, so that it can be shared: ``?head=France&relation=borders&why=Spain``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode

from refactorgnn.errors import UserError
from refactorgnn.predict.predictor import Question

Unknown = Literal["tail", "head", "relation"]
MOST_ANSWERS = 100


@dataclass(frozen=True)
class Asked:
    """What a visitor asks.

    Args:
        head: The name of the head, or None where it is asked for.
        relation: The same for the relation.
        tail: The same for the tail.
        k: The number of answers.
        with_known: Whether answers that the graph already has are shown, with a mark.
        typed: Whether to keep to the kind of thing that training showed in that place.
        why: The answer whose explanation is open, if one is.
    """

    head: str | None
    relation: str | None
    tail: str | None
    k: int = 10
    with_known: bool = True
    typed: bool = True
    why: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.k <= MOST_ANSWERS:
            raise UserError(f"{self.k} answers cannot be shown: choose a number from 1 to {MOST_ANSWERS}.")

    @property
    def question(self) -> Question:
        """What the predictor is asked."""
        return Question(self.head, self.relation, self.tail)

    @property
    def unknown(self) -> Unknown:
        """Which part is asked for."""
        if self.tail is None:
            return "tail"
        return "head" if self.head is None else "relation"

    def triple(self, answer: str) -> tuple[str, str, str]:
        """The question with an answer in its place."""
        head, relation, tail = (answer if part is None else part for part in (self.head, self.relation, self.tail))
        return head, relation, tail

    def address(self) -> str:
        """The page's address, from which :func:`asked_by` reads the same."""
        parts: dict[str, str | None] = {"head": self.head, "relation": self.relation, "tail": self.tail}
        if self.k != 10:
            parts["k"] = str(self.k)
        parts |= {"known": None if self.with_known else "0", "typed": None if self.typed else "0", "why": self.why}
        return "?" + urlencode({name: part for name, part in parts.items() if part is not None})


def asked_by(parameters: Mapping[str, str]) -> Asked | None:
    """What an address asks; None if it asks nothing.

    Raises:
        UserError: if it does not ask for one thing.
    """
    parts = {name: parameters.get(name) or None for name in ("head", "relation", "tail")}
    if not any(parts.values()):
        return None
    if list(parts.values()).count(None) != 1:
        raise UserError("this address does not ask for one thing: give two of head, relation and tail.")
    number = parameters.get("k", "10")
    if not (number.isascii() and number.isdigit()):
        raise UserError(f"this address asks for {number!r} answers: choose a number from 1 to {MOST_ANSWERS}.")
    return Asked(
        **parts,
        k=int(number),
        with_known=parameters.get("known") != "0",
        typed=parameters.get("typed") != "0",
        why=parameters.get("why") or None,
    )
