"""The picture of what systems reach and what they cost: a point for each, with its name beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from refactorgnn.reproduce.plots import Drawing, short_number, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 10.0, 3.6  # inches, of a row
_OURS, _THEIRS = "#D55E00", "#555555"
_POINTS = 8.0  # the size of a name
_MARKERS = {"GPU": "o", "CPU": "s", "both": "D"}
COST_CAPTION = (
    "Test MRR, full ranking, against what it costs to train a system and to keep it: means over the pairs of a family, "
    "by recipe `best` where it has all of them, else by `paper`. ReFactor GNNs are in colour. Round: trained on a "
    "GPU; square: on one thread of a CPU; diamond: on a GPU for some of the pairs. Seconds of different machines do "
    "not compare."
)


@dataclass(frozen=True)
class CostPoint:
    """What a system reaches on a family of datasets, and at what cost: means over the datasets.

    Args:
        system: The system.
        family: The datasets.
        machine: What the seconds are of: ``"GPU"``, ``"CPU"``, or ``"both"``, each for some of the datasets.
        mrr: The test MRR.
        seconds: Of training.
        num_parameters: The number of learned numbers.
    """

    system: str
    family: str
    machine: str
    mrr: float
    seconds: float
    num_parameters: float

    @property
    def is_ours(self) -> bool:
        """Whether it is a ReFactor GNN."""
        return self.system.startswith(("ReFactorGNN", "best"))


class Box(NamedTuple):
    """A rectangle of a picture, in pixels."""

    left: float
    bottom: float
    right: float
    top: float

    def is_in(self, other: Box) -> bool:
        """Whether no part of it is outside the other."""
        across = self.left >= other.left and self.right <= other.right
        return across and self.bottom >= other.bottom and self.top <= other.top

    def overlaps(self, other: Box) -> bool:
        """Whether they have a place in common."""
        apart = self.right <= other.left or other.right <= self.left
        return not apart and self.bottom < other.top and other.bottom < self.top


def draw_costs(points: Sequence[CostPoint], folder: str | Path, name: str) -> Drawing:
    """Draw test MRR against the seconds of training and against the number of parameters, a row for each family.

    Args:
        points: Points in any order.
        folder: Where to write ``NAME.svg`` and ``NAME.png``.
        name: What to call them.
    """
    return write_figure(lambda: _figure(points), folder, name, COST_CAPTION)


def _figure(points: Sequence[CostPoint]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    families = list(dict.fromkeys(point.family for point in points))
    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(families)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = []
    for row, family in enumerate(families):
        there = [point for point in points if point.family == family]
        seconds = [max(point.seconds, 1e-3) for point in there]  # what a clock with three decimals calls 0
        parameters = [max(point.num_parameters, 1.0) for point in there]
        costs = (seconds, "seconds of training"), (parameters, "parameters (none: at 1)")
        for column, (places, label) in enumerate(costs, start=1):
            axes = figure.add_subplot(len(families), 2, 2 * row + column)
            _draw_points(axes, there, places)
            axes.set(xlabel=label, ylabel="test MRR", title=family)
            panels.append((axes, there, places))
    figure.draw_without_rendering()  # only now is known where the points are
    for axes, there, places in panels:
        _write_names(axes, there, places)
    return figure


def _draw_points(axes: Axes, points: Sequence[CostPoint], places: Sequence[float]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    for point, place in zip(points, places, strict=True):
        colour, fill = (_OURS, _OURS) if point.is_ours else (_THEIRS, "white")
        marker = _MARKERS[point.machine]
        axes.plot(place, point.mrr, marker=marker, markersize=6, linestyle="none", color=colour, markerfacecolor=fill)
    axes.set_xscale("log")
    axes.margins(x=0.16, y=0.08)  # room for the names
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_major_formatter(lambda value, _: short_number(value))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


def _write_names(axes: Axes, points: Sequence[CostPoint], places: Sequence[float]) -> None:
    scale = axes.figure.dpi / 72
    order = sorted(range(len(points)), key=lambda number: (not points[number].is_ours, -points[number].mrr))
    at = [axes.transData.transform((places[number], points[number].mrr)) for number in order]
    sizes = [_size(points[number], scale) for number in order]
    frame = Box(*axes.get_window_extent().extents)
    boxes = boxes_beside([(float(x), float(y)) for x, y in at], sizes, 5 * scale, frame)
    for number, box in zip(order, boxes, strict=True):
        x, y = axes.transData.inverted().transform((box.left, box.bottom))
        point = points[number]
        colour, weight = (_OURS, "bold") if point.is_ours else (_THEIRS, "normal")
        axes.text(x, y, point.system, fontsize=_POINTS, color=colour, fontweight=weight, va="bottom")


def _size(point: CostPoint, scale: float) -> tuple[float, float]:
    """About how wide and high its name is; bold letters are wider."""
    letter = 0.7 if point.is_ours else 0.6
    return letter * _POINTS * len(point.system) * scale, 1.1 * _POINTS * scale


def boxes_beside(
    points: Sequence[tuple[float, float]], sizes: Iterable[tuple[float, float]], distance: float, frame: Box
) -> list[Box]:
    """A place for the name of each point: beside, above or below it, and further off where others are already.

    Args:
        points: Where the points are.
        sizes: Width and height of each name.
        distance: Between a point and its name, and half the width of a point.
        frame: What names are to stay in.
    """
    marks = [Box(x - distance, y - distance, x + distance, y + distance) for x, y in points]
    found: list[Box] = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        rows = [row * height / 2 for step in range(8) for row in ({0} if not step else (step, -step))]
        sides = (x + distance, x - distance - width, x - width / 2)
        tried = [
            Box(left, middle - height / 2, left + width, middle + height / 2)
            for middle in (y + row for row in rows)
            for left in sides
        ]
        inside = [box for box in tried if box.is_in(frame)]
        free = (box for box in inside if not any(box.overlaps(other) for other in (*marks, *found)))
        found.append(next(free, (inside or tried)[0]))
    return found
