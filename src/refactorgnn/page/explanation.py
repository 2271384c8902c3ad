"""Why a triple has its score: a graph to click, the same as a list, and what becomes of it without certain facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nicegui import ui
from nicegui.element import Element
from nicegui.events import EChartPointClickEventArguments

from refactorgnn.page.elements import Turn, bring_into_sight, button, heading, tag, waiting
from refactorgnn.page.explanation_chart import chart_height, chart_options
from refactorgnn.page.explanation_parts import LayerParts, Part, View, view_of
from refactorgnn.predict.explaining import Explanation
from refactorgnn.predict.predictor import Predictor
from refactorgnn.server.service import PredictorService
from refactorgnn.server.workers import Workers

Names = tuple[str, str, str]
_NUM_COUNTERFACTUALS = 5
# How many explanations one can go back to.
_LONGEST_TRAIL = 8


@dataclass(frozen=True)
class _Reasons:
    """What is shown of an explanation; the explanation itself and its graph are let go."""

    labels: Names
    score: float
    tail_rank: float
    head_rank: float
    note: str
    views: dict[View, tuple[LayerParts, ...]]
    can_go_deeper: bool
    without: tuple[tuple[str, float, float], ...]  # a fact, the score without it, and the tail's rank


class ExplanationPanel:
    """The panel beside the answers.

    Args:
        place: Where it is.
        service: What explains.
        workers: The threads in which it does.
    """

    def __init__(self, place: Element, service: PredictorService, workers: Workers) -> None:
        self._place = place
        self._service, self._workers = service, workers
        self._trail: list[Names] = []
        self._view: View = "head"
        self._depth = 1
        self._turn = Turn(place)

    def invite(self) -> None:
        """Say what is to be done."""
        self._trail = []
        self._turn.begin()
        self._place.clear()
        with self._place, tag("div", "", "invitation"):
            tag("p", "Choose an answer to see which facts made it.")

    async def explain(self, triple: Names, view: View) -> None:
        """Explain an answer.

        Args:
            triple: The names of head, relation and tail.
            view: Whose state to begin with.
        """
        self._trail, self._view = [triple], view
        await self._compute(1)

    async def _compute(self, depth: int, num_counterfactuals: int = 0) -> None:
        triple = self._trail[-1]
        work = "Taking facts away, one at a time…" if num_counterfactuals else "Splitting the score…"
        waiting(self._place, work)
        bring_into_sight(self._place)

        def compute() -> _Reasons:
            return _reasons(self._service.predictor, triple, depth, num_counterfactuals)

        reasons = await self._turn.result(self._workers.slow(compute))
        if reasons is not None:
            self._depth = depth
            self._show(reasons)

    async def _walk(self, fact: Names) -> None:
        """Explain a fact that had a part in the explanation before."""
        if fact != self._trail[-1]:
            self._trail = [*self._trail, fact][-_LONGEST_TRAIL:]
        await self._compute(1)

    async def _back(self) -> None:
        self._trail.pop()
        await self._compute(1)

    def _show(self, reasons: _Reasons) -> None:
        self._place.clear()
        head, relation, tail = reasons.labels
        with self._place:
            if len(self._trail) > 1:
                button("← Back", self._back, "quiet back")
            heading(2, f"Why {head} — {relation} — {tail}?", "question")
            tag("p", _standing(reasons), "muted")
            if reasons.note:
                tag("p", f"{reasons.note[:1].upper()}{reasons.note[1:]}.", "message")
            if reasons.views:
                self._show_views(reasons)
            with tag("div", "", "explain-actions"):
                if reasons.can_go_deeper:
                    button("One layer deeper", lambda: self._compute(self._depth + 1), "quiet")
                if not reasons.without:
                    button("Take facts away", lambda: self._compute(self._depth, _NUM_COUNTERFACTUALS), "quiet")
            if reasons.without:
                _show_counterfactuals(reasons)

    def _show_views(self, reasons: _Reasons) -> None:
        head, relation, tail = reasons.labels
        shown: list[Element] = []

        def draw() -> None:
            entity, other = (tail, head) if self._view == "tail" else (head, tail)
            shown[0].clear()
            with shown[0]:
                layers = reasons.views[self._view]
                self._chart(layers, entity, other, relation, reasons.score)
                _part_list(layers, entity, reasons.score, self._walk, lambda: self._compute(self._depth + 1))

        def choose(view: View) -> None:
            self._view = view
            draw()

        with tag("div", "", "find", role="group", aria_label="Whose state to split"):
            tag("span", "What made", "find-label")
            toggle = ui.toggle({"head": head, "tail": tail}, value=self._view, on_change=lambda e: choose(e.value))
            toggle.props("no-caps unelevated dense").classes("views")
        shown.append(tag("div"))
        draw()

    def _chart(self, layers: Sequence[LayerParts], entity: str, other: str, relation: str, score: float) -> None:
        async def click(event: EChartPointClickEventArguments) -> None:
            data = cast("dict[str, Any]", event.data)  # one of our nodes or links
            fact = data.get("fact")
            if data.get("role") == "state":
                await self._compute(self._depth + 1)
            elif isinstance(fact, list) and len(fact) == 3:
                await self._walk((str(fact[0]), str(fact[1]), str(fact[2])))

        chart = ui.echart(chart_options(layers, entity, other, relation, score), on_point_click=click)
        chart.style(f"height: {chart_height(layers)}px").classes("explanation-chart")
        chart.props["role"] = "img"
        chart.props["aria-label"] = f"What made the state of {entity}, as a graph; the list below says the same."
        with tag("p", "", "legend muted"):
            tag("span", "", "swatch positive", aria_hidden="true")
            tag("span", "raises the score")
            tag("span", "", "swatch negative", aria_hidden="true")
            tag("span", "lowers it")
            tag("span", "Click a fact to explain it, the earlier state to split it; drag to move.", "hint")


def _reasons(predictor: Predictor, triple: Names, depth: int, num_counterfactuals: int) -> _Reasons:
    head, relation, tail = triple
    found = predictor.explain(head, relation, tail, depth=depth, num_counterfactuals=num_counterfactuals)
    graph = predictor.graph
    names: tuple[View, View] = ("head", "tail")
    views = {view: view_of(found, view, graph) for view in names} if found.by_head else {}
    left = [part.role for layers in views.values() for layer in layers for part in layer.parts]
    return _Reasons(
        labels=_labels(predictor, found.triple),
        score=found.score,
        tail_rank=found.tail_rank,
        head_rank=found.head_rank,
        note=found.note,
        views=views,
        can_go_deeper="state" in left,
        without=_without(predictor, found),
    )


def _without(predictor: Predictor, found: Explanation) -> tuple[tuple[str, float, float], ...]:
    return tuple((" — ".join(_labels(predictor, one.fact)), one.score, one.tail_rank) for one in found.counterfactuals)


def _labels(predictor: Predictor, triple: Names) -> Names:
    graph = predictor.graph
    head, relation, tail = triple
    return graph.label(graph.entities.id(head)), relation, graph.label(graph.entities.id(tail))


def _standing(reasons: _Reasons) -> str:
    head, _, tail = reasons.labels
    return (
        f"Score {reasons.score:.3f}. Among what is not known, {tail} ranks {reasons.tail_rank:g} as tail and {head} "
        f"{reasons.head_rank:g} as head."
    )


def _part_list(
    layers: Sequence[LayerParts],
    entity: str,
    score: float,
    on_fact: Callable[[Names], Any],
    on_state: Callable[[], Any],
) -> None:
    """The same as the graph, for keyboards and screen readers, and with all figures."""
    largest = max(abs(part.contribution) for layer in layers for part in layer.parts) or 1.0
    with tag("table", "", "parts", aria_label=f"What made the state of {entity}"):
        for layer in layers:
            with tag("tbody"):
                with tag("tr"):
                    tag("th", layer.title, "layer", colspan="3", scope="rowgroup")
                for part in layer.parts:
                    _part_row(part, largest, on_fact, on_state)
        with tag("tfoot"), tag("tr"):
            tag("th", "Score", scope="row")
            tag("td")
            tag("td", f"{score:.3f}", "number")


def _part_row(part: Part, largest: float, on_fact: Callable[[Names], Any], on_state: Callable[[], Any]) -> None:
    with tag("tr", "", "part", data_contribution=repr(part.contribution)):
        with tag("th", "", scope="row", title=part.meaning):
            if part.fact is not None:
                button(part.label, lambda fact=part.fact: on_fact(fact), "link")  # type: ignore[misc]
            elif part.role == "state":
                button(part.label, on_state, "link")
            else:
                tag("span", part.label)
        with tag("td", "", "sided", aria_hidden="true"):
            side = "positive" if part.contribution >= 0 else "negative"
            tag("span", "", f"side {side}").style(f"width: {50 * abs(part.contribution) / largest:.3f}%")
        tag("td", f"{part.contribution:+.3f}", "number")


def _show_counterfactuals(reasons: _Reasons) -> None:
    heading(3, "Without a fact, all layers run again")
    with tag("table", "", "parts without"):
        with tag("thead"), tag("tr"):
            for title in ("Fact taken away", "Score", "Change", "Rank"):
                tag("th", title, scope="col")
        with tag("tbody"):
            for fact, score, rank in reasons.without:
                with tag("tr"):
                    tag("th", fact, scope="row")
                    tag("td", f"{score:.3f}", "number")
                    tag("td", f"{score - reasons.score:+.3f}", "number")
                    tag("td", f"{rank:g}", "number")
