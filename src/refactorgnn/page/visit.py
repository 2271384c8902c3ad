"""One visitor's page, put together, and how a question goes through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from nicegui import ui

from refactorgnn.errors import UserError
from refactorgnn.page.address import Asked, asked_by
from refactorgnn.page.answers import AnswerList, empty_answers
from refactorgnn.page.card import show_card
from refactorgnn.page.elements import Turn, bring_into_sight, say, tag, waiting
from refactorgnn.page.examples import example_questions
from refactorgnn.page.explanation import ExplanationPanel
from refactorgnn.page.newcomers import NewcomerPanel
from refactorgnn.page.question_form import QuestionForm, label_of
from refactorgnn.predict.predictor import Answer, Predictor
from refactorgnn.server.service import PredictorService
from refactorgnn.server.workers import Workers

_STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
ICON = (Path(__file__).parent / "icon.svg").read_text(encoding="utf-8")


class Visit:
    """One visitor's page.

    Args:
        service: What answers.
        workers: The threads in which it does.
    """

    def __init__(self, service: PredictorService, workers: Workers) -> None:
        self._service, self._workers = service, workers
        self._asked: Asked | None = None

    def build(self) -> None:
        """Put the page together."""
        ui.add_css(_STYLE)
        ui.colors(primary="#17324d")
        graph = self._service.predictor.graph
        with tag("header", "", "top"), tag("div", "", "width"):
            with tag("a", "", "brand", href="."):
                ui.html(ICON, sanitize=False).classes("brand-icon").props('aria-hidden="true"')
                tag("span", "refactorgnn")
            tag("span", graph.name, "dataset")
            with tag("nav", aria_label="Parts of the page"):
                ui.link("Ask", "#ask")
                if self._service.allow_writes:
                    ui.link("Add", "#add")
                ui.link("About", "#about")
        # What is typed before the socket is there would be lost: until then nothing can be. (The layout is a <main>.)
        with tag("div", "", "content width", inert="") as content:
            self._build_ask()
            if self._service.allow_writes:
                with tag("section", "", "block", id="add"):
                    NewcomerPanel(self._service, self._workers, self.open)
            with tag("section", "", "block", id="about"):
                show_card(self._service.about())
        ui.skip_link(target=content)
        self._content = content

    def _build_ask(self) -> None:
        graph = self._service.predictor.graph
        with tag("section", "", "block", id="ask"):
            tag("h1", "What does the graph not say yet?")
            size = f"{graph.num_entities:,} entities, {graph.num_relations:,} relations, {graph.num_triples:,} facts"
            tag("p", f"{size}. Ask for a missing part of a fact, see how likely each answer is, and why.", "lead")
            self._form = QuestionForm(self._service, self._workers, self._ask)
            with tag("div", "", "columns"):
                with tag("section", "", "panel", aria_label="Answers") as answers:
                    empty_answers(answers, example_questions(graph))
                explanation = tag("section", "", "panel", aria_label="Explanation")
        self._answers_place, self._turn = answers, Turn(answers)
        self._answers = AnswerList(answers, self._explain)
        self._explanation = ExplanationPanel(explanation, self._service, self._workers)
        self._explanation.invite()

    async def arrive(self, parameters: Mapping[str, str]) -> None:
        """The socket is there: let the visitor in, and ask what the address asks."""
        del self._content.props["inert"]
        self._content.update()
        try:
            asked = asked_by(parameters)
        except UserError as error:
            say(self._answers_place, str(error))
            return
        if asked is not None:
            await self.open(asked)

    async def open(self, asked: Asked) -> None:
        """Put a question in the form and ask it."""
        self._form.show(asked, self._service.predictor)
        await self._answer(asked)
        if asked.why is not None and self._asked is not None:
            await self._explain(asked.why)

    async def _ask(self) -> None:
        try:
            asked = self._form.asked()
        except UserError as error:
            say(self._answers_place, str(error))
            return
        await self._answer(asked)

    async def _answer(self, asked: Asked) -> None:
        self._asked = None
        self._explanation.invite()
        waiting(self._answers_place, "Asking…")
        bring_into_sight(self._answers_place)

        def work() -> tuple[Asked, list[Answer], tuple[str, str, str]]:
            return _answered(self._service.predictor, asked)

        found = await self._turn.result(self._workers.quick(work))
        if found is None:
            return
        self._asked, answers, labels = found
        self._answers.show(self._asked, answers, labels)
        self._show_address(self._asked)

    def _show_address(self, asked: Asked) -> None:
        with self._content:  # whatever was clicked may be gone
            ui.navigate.history.replace(asked.address())

    async def _explain(self, answer: str) -> None:
        if self._asked is None:
            return
        self._answers.mark(answer)
        self._show_address(replace(self._asked, why=answer))
        # Of the two states that make a score, that of the entity asked about says more.
        await self._explanation.explain(self._asked.triple(answer), "tail" if self._asked.head is None else "head")


def _answered(predictor: Predictor, asked: Asked) -> tuple[Asked, list[Answer], tuple[str, str, str]]:
    """The question by names, its answers, and what to call its parts."""
    graph = predictor.graph

    def entity(name: str | None) -> str | None:
        return None if name is None else graph.entities[predictor.entity_id(name)]

    asked = replace(asked, head=entity(asked.head), tail=entity(asked.tail), why=None)
    answers = predictor.answer([asked.question], asked.k, include_known=asked.with_known, typed=asked.typed)[0]
    head, relation, tail = (
        "?" if name is None else label_of(predictor, part, name)
        for part, name in (("head", asked.head), ("relation", asked.relation), ("tail", asked.tail))
    )
    return asked, answers, (head, relation, tail)
