"""The form of a question: which part is asked for, the two others with type-ahead, and how many answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from refactorgnn.errors import UserError
from refactorgnn.page.address import MOST_ANSWERS, Asked, Unknown
from refactorgnn.page.combobox import Combobox
from refactorgnn.page.elements import tag
from refactorgnn.predict.predictor import Predictor
from refactorgnn.server.service import PredictorService
from refactorgnn.server.workers import Workers

_CHOICES: dict[Unknown, str] = {"tail": "Tail", "head": "Head", "relation": "Relation"}
_PLACES: tuple[Unknown, ...] = ("head", "relation", "tail")


class QuestionForm:
    """The form.

    Args:
        service: Where names are looked up.
        workers: The threads in which they are.
        on_ask: Called when the question is to be asked.
    """

    def __init__(self, service: PredictorService, workers: Workers, on_ask: Callable[[], Awaitable[None]]) -> None:
        self._fields: dict[Unknown, Combobox] = {}
        self._gaps = {}
        with tag("form", "", "ask-form", role="search", aria_label="Ask a question").on("submit.prevent", on_ask, []):
            with tag("div", "", "find", role="group", aria_label="What to find"):
                tag("span", "Find the", "find-label")
                self._unknown = ui.toggle(dict(_CHOICES), value="tail", on_change=self._arrange)
                self._unknown.props("no-caps unelevated dense")
            with tag("div", "", "triple"):
                for part in _PLACES:
                    search = service.search_relations if part == "relation" else service.search_entities
                    self._fields[part] = Combobox(_CHOICES[part], search, workers, "Type a name", on_ask)
                    with tag("div", "", "gap") as gap:
                        tag("span", _CHOICES[part], "gap-label")
                        tag("span", "?", "gap-mark")
                    self._gaps[part] = gap
            with tag("div", "", "ask-options"):
                self._known = ui.checkbox("Show known answers", value=True)
                self._typed = ui.checkbox("Only the right kind of thing", value=True)
                self._typed.tooltip("Only answers that training showed in that place of the relation")
                self._k = ui.number("Answers", value=10, min=1, max=MOST_ANSWERS, precision=0)
                self._k.props("outlined dense").classes("k")
                tag("button", "Ask", "button primary ask", type="submit")
        self._arrange()

    def asked(self) -> Asked:
        """What the form says.

        Raises:
            UserError: if a field is empty.
        """
        unknown: Unknown = self._unknown.value
        given = {part: field.value for part, field in self._fields.items() if part != unknown}
        if empty := next((part for part, value in given.items() if not value), None):
            example = "a relation" if empty == "relation" else "an entity"
            raise UserError(f"the {empty} is empty: type {example}, or choose another part to find.")
        k = self._k.value
        if k is None:
            raise UserError(f"the number of answers is empty: choose one from 1 to {MOST_ANSWERS}.")
        parts: dict[str, str | None] = {part: given.get(part) for part in _PLACES}
        return Asked(**parts, k=int(k), with_known=self._known.value, typed=self._typed.value)

    def show(self, asked: Asked, predictor: Predictor) -> None:
        """Put a question in, with labels where its names are known."""
        self._unknown.value = asked.unknown
        self._known.value, self._typed.value, self._k.value = asked.with_known, asked.typed, asked.k
        for part, value in (("head", asked.head), ("relation", asked.relation), ("tail", asked.tail)):
            if value is not None:
                self._fields[part].show(value, label_of(predictor, part, value))  # type: ignore[index]

    def _arrange(self) -> None:
        for part in _PLACES:
            self._fields[part].set_visibility(part != self._unknown.value)
            self._gaps[part].set_visibility(part == self._unknown.value)


def label_of(predictor: Predictor, part: str, name: str) -> str:
    """The label of an entity, where it has one; a relation and an unknown entity are what they are called."""
    graph = predictor.graph
    return graph.label(graph.entities.id(name)) if part != "relation" and name in graph.entities else name
