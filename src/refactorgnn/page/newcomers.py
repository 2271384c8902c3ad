"""New entities: facts are pasted and checked as they are typed, added for everybody, and answered about at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from refactorgnn.page.address import Asked
from refactorgnn.page.elements import Turn, button, heading, percent, say, tag, waiting
from refactorgnn.page.first_answers import FirstAnswer, first_answers
from refactorgnn.page.pasted_facts import MOST_CHARACTERS, PastedFacts, read_pasted
from refactorgnn.predict.growing import Added, preview_growth
from refactorgnn.server.service import PredictorService
from refactorgnn.server.workers import Workers

# Mistakes and names that are shown one by one.
_MOST_SHOWN = 8


class NewcomerPanel:
    """The part of the page where entities are added; only for a service that allows it.

    Args:
        service: What they are added to.
        workers: The threads in which that is done.
        on_ask: Called with a question to ask it above.
    """

    def __init__(self, service: PredictorService, workers: Workers, on_ask: Callable[[Asked], Awaitable[None]]) -> None:
        self._service, self._workers = service, workers
        self._on_ask = on_ask
        self._is_adding = False
        heading(2, "Add an entity it has never seen")
        tag(
            "p",
            "Paste its facts, one in a line: head, relation and tail, with tabs or commas between. Nothing is trained. "
            "What you add is seen by everybody who uses this server, until it stops.",
            "lead",
        )
        with tag("div", "", "columns"):
            with tag("form", "", "panel", aria_label="New facts").on("submit.prevent", self._add, []):
                self._text = ui.textarea("Facts", placeholder=_example(service))
                self._text.props(f"outlined autogrow stack-label maxlength={MOST_CHARACTERS} input-class=facts")
                self._text.on("update:model-value", self._preview, [], throttle=0.4, leading_events=False)
                self._token = ui.input("Token", password=True, password_toggle_button=True)
                self._token.props('outlined dense autocomplete=off hint="The server printed it when it started"')
                tag("button", "Add", "button primary", type="submit")
            with tag("section", "", "panel", aria_label="What is added") as self._outcome:
                tag("p", "What is new in your facts, and mistakes line by line, appear here.", "muted")
        self._turn = Turn(self._outcome)

    async def _preview(self) -> None:
        """Say what the text would add. It is asked a moment after the last key, so perhaps when it is added already."""
        text = self._text.value or ""
        if self._is_adding or not text.strip():
            return
        found = await self._turn.result(self._workers.slow(lambda: self._understood(text)))
        if found is not None:
            self._show_preview(*found)

    def _understood(self, text: str) -> tuple[PastedFacts, Added | None]:
        """What was read, and what it would add if all of it is right."""
        predictor = self._service.predictor
        pasted = read_pasted(text, predictor.graph)
        if pasted.mistakes or not pasted.triples:
            return pasted, None
        return pasted, preview_growth(predictor.model, predictor.graph, pasted.triples)

    def _show_preview(self, pasted: PastedFacts, growth: Added | None) -> None:
        self._outcome.clear()
        with self._outcome:
            if pasted.mistakes:
                heading(3, "Please mend")
                with tag("ul", "", "mistakes"):
                    for mistake in pasted.mistakes[:_MOST_SHOWN]:
                        tag("li", str(mistake))
                    if len(pasted.mistakes) > _MOST_SHOWN:
                        tag("li", f"… and {len(pasted.mistakes) - _MOST_SHOWN:,} lines more.")
            elif growth is None:
                tag("p", "There are no facts in this text yet.", "muted")
            else:
                heading(3, "This would add")
                _show_growth(growth)

    async def _add(self) -> None:
        if self._is_adding:
            return
        self._turn.begin()
        if not self._service.is_token(self._token.value or ""):
            say(self._outcome, "This is not the token of this server: use the one that it printed when it started.")
            return
        self._is_adding = True
        try:
            await self._add_pasted(self._text.value or "")
        finally:
            self._is_adding = False

    async def _add_pasted(self, text: str) -> None:
        waiting(self._outcome, "Running the layers with the new facts…")
        found = await self._turn.result(self._workers.slow(lambda: self._understood(text)))
        if found is None:
            return
        pasted, growth = found
        if growth is None:
            self._show_preview(pasted, growth)
            return

        def add() -> tuple[Added, list[FirstAnswer]]:
            added, predictor = self._service.add(pasted.triples), self._service.predictor
            mentioned = [name for head, _, tail in pasted.triples for name in (head, tail)]
            first = next((name for name in mentioned if name in added.entities), mentioned[0])
            return added, first_answers(predictor, predictor.graph.entities[predictor.entity_id(first)])

        done = await self._turn.result(self._workers.slow(add))
        if done is not None:
            self._show_added(*done)

    def _show_added(self, added: Added, answers: Sequence[FirstAnswer]) -> None:
        self._text.value = ""
        self._outcome.clear()
        with self._outcome:
            tag("p", f"Added in {1000 * added.seconds:,.0f} ms.", "message success", role="status")
            _show_growth(added)
            if not answers:
                return
            heading(3, f"What it says of {answers[0].about}")
            with tag("ul", "", "first-answers"):
                for answer in answers:
                    with tag("li"):
                        button(answer.text, lambda asked=answer.asked: self._on_ask(asked), "link")  # type: ignore[misc]
                        tag("span", "—" if answer.probability is None else percent(answer.probability), "number")


def _show_growth(growth: Added) -> None:
    names = ", ".join(growth.entities[:_MOST_SHOWN])
    more = f" and {len(growth.entities) - _MOST_SHOWN:,} more" if len(growth.entities) > _MOST_SHOWN else ""
    with tag("dl", "", "sizes"):
        for title, value in (
            ("New entities", f"{len(growth.entities):,}: {names}{more}" if growth.entities else "none"),
            ("New facts", f"{growth.num_facts:,}"),
            ("Known already", f"{growth.num_known:,}"),
        ):
            with tag("div"):
                tag("dt", title)
                tag("dd", value)


def _example(service: PredictorService) -> str:
    """A line in the words of this graph: its first fact, told of somebody else."""
    graph = service.predictor.graph
    _, relation, tail = graph.triples("train")[0].tolist()
    return f"Somebody new, {graph.relations[relation]}, {graph.entities[tail]}"
