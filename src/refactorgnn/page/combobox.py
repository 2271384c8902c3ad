"""A text field with suggestions that the server looks up while somebody types (``combobox.js``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from nicegui.element import Element
from nicegui.events import GenericEventArguments

from refactorgnn.server.name_search import Found
from refactorgnn.server.workers import TooBusyError, Workers

_MOST_SUGGESTIONS = 12
_MOST_CHARACTERS = 200


class Combobox(Element, component="combobox.js"):
    """A text field for the name of an entity or a relation.

    Arrows choose a suggestion, Enter takes it (and asks, where there is none), Escape closes the list.

    Args:
        label: What the field is for.
        search: Finds names by a part of them.
        workers: The threads in which it does.
        placeholder: An example.
        on_submit: What Enter does.
    """

    def __init__(
        self,
        label: str,
        search: Callable[[str, int], Sequence[Found]],
        workers: Workers,
        placeholder: str,
        on_submit: Callable[[], Any],
    ) -> None:
        super().__init__()
        self._search, self._workers = search, workers
        self._latest = ""
        self.value = ""
        self._props.update(label=label, placeholder=placeholder, text="", version=0, options=[], answered="")
        self.on("typed", self._typed)
        self.on("choose", self._chosen)
        self.on("search", self._suggest)
        self.on("submit", lambda _: on_submit())

    def show(self, name: str, label: str) -> None:
        """Put an entity or relation in."""
        self.value = name
        self._props["text"] = label
        self._props["version"] += 1
        self.update()

    def _typed(self, event: GenericEventArguments) -> None:
        self.value = str(event.args)[:_MOST_CHARACTERS].strip()

    def _chosen(self, event: GenericEventArguments) -> None:
        self.value = str(event.args["name"])

    async def _suggest(self, event: GenericEventArguments) -> None:
        text = self._latest = str(event.args)[:_MOST_CHARACTERS]
        with suppress(TooBusyError):  # suggestions can be done without
            found = await self._workers.quick(lambda: self._search(text, _MOST_SUGGESTIONS))
            if text != self._latest:  # threads may finish in another order, and this is no longer wanted
                return
            self._props["options"] = [{"name": one.name, "label": one.label, "hint": hint(one)} for one in found]
            self._props["answered"] = text
            self.update()


def hint(found: Found) -> str:
    """What tells a name from others like it: its identifier where the label is another, and how much is known."""
    facts = "1 fact" if found.num_facts == 1 else f"{found.num_facts:,} facts"
    return facts if found.name == found.label else f"{found.name} · {facts}"
