"""The ranked answers to a question: bars of calibrated probability, marks of what is known."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui
from nicegui.element import Element

from refactorgnn.page.address import Asked
from refactorgnn.page.elements import heading, percent, tag
from refactorgnn.predict.predictor import Answer

_MARKS = {"train": "known", "valid": "known · held out", "test": "known · held out"}


class AnswerList:
    """The answers, each a button that opens its explanation.

    Args:
        place: Where to put them.
        on_choose: Called with the name of the answer that is chosen.
    """

    def __init__(self, place: Element, on_choose: Callable[[str], Awaitable[None]]) -> None:
        self._place = place
        self._on_choose = on_choose
        self._rows: dict[str, Element] = {}

    def show(self, asked: Asked, answers: Sequence[Answer], labels: tuple[str, str, str]) -> None:
        """Show the answers to a question.

        Args:
            asked: The question.
            answers: Its answers, the best first.
            labels: The parts of the question for people, ``?`` for the unknown.
        """
        self._place.clear()
        self._rows = {}
        with self._place:
            heading(2, " — ".join(labels), "question")
            if not answers:
                tag("p", _no_answers(asked), "message", role="status")
                return
            if answers[0].probability is None:
                tag("p", "No probabilities: the graph has too few validation facts to tell. Scores are shown.", "muted")
            with tag("ol", "", "answers", aria_label="Answers, the best first"):
                for rank, answer in enumerate(answers, start=1):
                    self._row(rank, answer)

    def mark(self, chosen: str | None) -> None:
        """Mark the answer whose explanation is open."""
        for name, row in self._rows.items():
            row.props["aria-pressed"] = "true" if name == chosen else "false"
            row.update()

    def _row(self, rank: int, answer: Answer) -> None:
        with tag("li"):
            row = tag("button", "", "answer", type="button", aria_pressed="false", title=f"Score {answer.score:.4f}")
            row.on("click", lambda _, name=answer.entity: self._on_choose(name), [])
            self._rows[answer.entity] = row
        with row:
            tag("span", str(rank), "rank")
            with tag("span", "", "answer-name"):
                tag("span", answer.label, "answer-label")
                if answer.label != answer.entity:
                    tag("span", answer.entity, "muted")
            mark = "new" if answer.split is None else _MARKS.get(answer.split, "known")
            tag("span", mark, f"mark {'new' if answer.split is None else 'known'}")
            probability = answer.probability
            tag("span", f"{answer.score:.2f}" if probability is None else percent(probability), "number")
            if probability is not None:
                with tag("span", "", "track", aria_hidden="true", data_probability=repr(probability)):
                    tag("span", "", "bar").style(f"width: {100 * probability:.4f}%")


def _no_answers(asked: Asked) -> str:
    if asked.typed:
        return "Nothing of the right kind is left: show known answers, or allow any kind of thing."
    return "Every answer is known already: show known answers to see them."


def empty_answers(place: Element, examples: Sequence[tuple[str, str]]) -> None:
    """Before anything is asked: questions to begin with, each a text and an address."""
    with place:
        heading(2, "Not sure what to ask?", "question")
        tag("p", "Begin with one of these; held-out facts answer them.", "muted")
        with tag("ul", "", "examples"):
            for text, address in examples:
                with tag("li"):
                    ui.link(text, address)
