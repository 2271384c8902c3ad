"""Pieces of HTML that several parts of the page use."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement

from refactorgnn.errors import UserError
from refactorgnn.server.workers import TooBusyError

T = TypeVar("T")
_log = logging.getLogger(__name__)
_BRING_INTO_SIGHT = """{
    const place = document.getElementById("%s"), { top, bottom } = place.getBoundingClientRect();
    if (top > 0.8 * innerHeight || bottom < 72) place.scrollIntoView({ block: "start" });
}"""


def tag(name: str, text: str = "", classes: str = "", **attributes: str) -> TextElement:
    """An HTML element; its text is text, whatever characters it has, and ``aria_label`` becomes ``aria-label``."""
    element = TextElement(tag=name, text=text).classes(classes)
    element.props.update({key.replace("_", "-"): value for key, value in attributes.items()})
    return element


def button(text: str, on_click: Callable[[], Any], classes: str = "", **attributes: str) -> TextElement:
    """A button of the browser's own kind, so that keyboards and screen readers know what to do with it."""
    element = tag("button", text, f"button {classes}", type="button", **attributes)
    element.on("click", lambda _: on_click(), [])
    return element


def heading(level: int, text: str, classes: str = "") -> TextElement:
    """A heading."""
    return tag(f"h{level}", text, classes)


def say(place: Element, sentence: str, *, is_error: bool = True) -> None:
    """Put one sentence in a place, read aloud at once."""
    place.clear()
    with place:
        tag(
            "p",
            sentence[:1].upper() + sentence[1:],
            "message error" if is_error else "message",
            role="alert" if is_error else "status",
        )


def waiting(place: Element, sentence: str) -> None:
    """Say in a place that something is being computed."""
    place.clear()
    with place, tag("p", "", "waiting", role="status"):
        ui.spinner(size="1.2em")
        tag("span", sentence)


def bring_into_sight(place: Element) -> None:
    """Scroll to a place that is below the others on a narrow screen; a screen that shows it is left alone."""
    with place:  # the button that was clicked may be gone
        ui.run_javascript(_BRING_INTO_SIGHT % place.html_id)


class Turn:
    """Which of a visitor's wishes in one part of the page is the latest: what was computed for others is dropped.

    Args:
        place: Where results are shown, and what goes wrong is said.
    """

    def __init__(self, place: Element) -> None:
        self._place = place
        self._number = 0

    def begin(self) -> None:
        """Another wish: what is still being computed is not wanted any more."""
        self._number += 1

    async def result(self, work: Awaitable[T]) -> T | None:
        """Wait for what threads compute; None if it went wrong, which is said, or is not wanted any more.

        Args:
            work: What :class:`~refactorgnn.server.workers.Workers` do.
        """
        self.begin()
        number = self._number
        found, problem = None, ""
        try:
            found = await work
        except UserError as error:
            problem = str(error)
        except TooBusyError:
            problem = "Too many requests are waiting: try again in a second."
        except Exception:
            _log.exception("a visitor's request failed")
            problem = "This could not be computed: the server's log says why."
        if number != self._number:
            return None
        if problem:
            say(self._place, problem)
        return found


def percent(probability: float) -> str:
    """A probability for people."""
    if 0 < probability < 0.001:
        return "< 0.1 %"
    return f"{100 * probability:.1f} %"
