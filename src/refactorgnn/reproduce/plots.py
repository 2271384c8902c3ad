"""Figures: lines against a size, as SVG and PNG, the same bytes for the same figures.

Colours are Okabe and Ito's, which colour-blind readers can tell apart, and every series has a marker of its own, so
that a print in black and white says the same. Needs matplotlib, the extra ``plots``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from refactorgnn.errors import UserError
from refactorgnn.storage import atomic_path

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = (("#0072B2", "o"), ("#D55E00", "s"), ("#009E73", "^"), ("#CC79A7", "D"), ("#E69F00", "v"), ("#56B4E9", "P"))
_FONT_POINTS = 10.0
# Inches. A page of GitHub shows a figure of this width as it is, so points in it are points on the screen.
_WIDTH, _HEIGHT = 7.2, 4.2
_PNG_DOTS_PER_INCH = 160
_SETTINGS: Any = {  # matplotlib types each of some 300 keys
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": _FONT_POINTS,
    "axes.titlesize": _FONT_POINTS,
    "axes.labelsize": _FONT_POINTS,
    "xtick.labelsize": _FONT_POINTS,
    "ytick.labelsize": _FONT_POINTS,
    "legend.fontsize": _FONT_POINTS,
    "svg.fonttype": "none",  # text stays text: it can be searched and read aloud
    "svg.hashsalt": "refactorgnn",  # ids depend on the content alone
}


@dataclass(frozen=True)
class Series:
    """A line, or loose marks.

    Args:
        label: Its name in the legend; series of one name in several panels have one entry.
        x: Where the points are.
        y: Their heights.
        style: The number of its colour and marker.
        errors: Half the lengths of the bars at the points, if there are any.
        kind: ``"solid"`` or ``"dashed"`` lines, or ``"marks"``, hollow and without a line.
        on_right: Whether the axis on the right is meant.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    style: int
    errors: tuple[float, ...] | None = None
    kind: Literal["solid", "dashed", "marks"] = "solid"
    on_right: bool = False


@dataclass(frozen=True)
class Panel:
    """A pair of axes.

    Args:
        x_label: What is along the axis.
        y_label: What is on the left.
        series: What is drawn.
        title: What is written above.
        right_label: What is on the right, from 0 on, if anything is.
        logarithmic: Whether both axes are, with ticks where the points are.
    """

    x_label: str
    y_label: str
    series: tuple[Series, ...]
    title: str = ""
    right_label: str | None = None
    logarithmic: bool = False


@dataclass(frozen=True)
class DepthPoint:
    """A model of some depth.

    Args:
        model: The kind of model.
        dataset: What it was trained on.
        layers: ``L``.
        num_parameters: The number of learned numbers.
        mean: The mean test MRR over the seeds.
        std: Its standard deviation.
        num_seeds: How many seeds there are.
        published: The paper's figure, if it is known.
    """

    model: Literal["GAT", "ReFactorGNN"]
    dataset: str
    layers: int
    num_parameters: int
    mean: float
    std: float
    num_seeds: int
    published: float | None = None


@dataclass(frozen=True)
class Drawing:
    """The files of a figure, and what to write below it."""

    svg: Path
    png: Path
    caption: str = ""


def draw_depth(points: Sequence[DepthPoint], folder: str | Path, name: str) -> Drawing:
    """Draw test MRR (solid) and parameters (dashed) against the depth; points that are missing are not drawn.

    Args:
        points: Points in any order; there is a panel for each dataset.
        folder: Where to write ``NAME.svg`` and ``NAME.png``.
        name: What to call them.
    """
    datasets = sorted({point.dataset for point in points})
    panels = [_depth_panel([point for point in points if point.dataset == dataset]) for dataset in datasets]
    return draw_lines(panels, folder, name, caption=_depth_caption(points, datasets))


def _depth_panel(points: Sequence[DepthPoint]) -> Panel:
    series: list[Series] = []
    for style, model in enumerate(("GAT", "ReFactorGNN")):
        found = sorted((point for point in points if point.model == model), key=lambda point: point.layers)
        if found:
            series += _depth_series(model, found, style)
    return Panel("layers L", "test MRR", tuple(series), points[0].dataset, right_label="parameters")


def draw_lines(
    panels: Sequence[Panel], folder: str | Path, name: str, *, columns: int = 1, caption: str = ""
) -> Drawing:
    """Draw panels side by side in rows of ``columns`` with one legend above, and write ``NAME.svg`` and ``NAME.png``.

    Raises:
        UserError: if matplotlib is not installed.
    """
    return write_figure(lambda: _figure(panels, columns), folder, name, caption)


def write_figure(make: Callable[[], Figure], folder: str | Path, name: str, caption: str = "") -> Drawing:
    """Write ``NAME.svg`` and ``NAME.png`` of what ``make`` draws.

    Raises:
        UserError: if matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context  # slow to import, and few callers need it
    except ImportError as error:
        raise UserError("drawing figures needs matplotlib: pip install 'refactorgnn[plots]'.") from error
    drawing = Drawing(Path(folder) / f"{name}.svg", Path(folder) / f"{name}.png", caption)
    with rc_context(_SETTINGS):
        figure = make()
        with atomic_path(drawing.svg) as path:
            figure.savefig(path, metadata={"Date": None, "Creator": None})
        with atomic_path(drawing.png) as path:
            figure.savefig(path, dpi=_PNG_DOTS_PER_INCH, metadata={"Software": None})
    return drawing


def _depth_series(model: str, points: Sequence[DepthPoint], style: int) -> list[Series]:
    layers = tuple(float(point.layers) for point in points)
    parameters = tuple(float(point.num_parameters) for point in points)
    means, errors = tuple(point.mean for point in points), tuple(point.std for point in points)
    series = [
        Series(f"{model}, test MRR", layers, means, style, errors),
        Series(f"{model}, parameters", layers, parameters, style, kind="dashed", on_right=True),
    ]
    published = [(float(point.layers), point.published) for point in points if point.published is not None]
    if published:
        x, y = zip(*published, strict=True)
        series.append(Series(f"{model}, paper's MRR", x, y, style + 2, kind="marks"))
    return series


def _depth_caption(points: Sequence[DepthPoint], datasets: Sequence[str]) -> str:
    counts = sorted({point.num_seeds for point in points})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"Test MRR (solid, left; mean ± standard deviation of {seeds} {'seed' if counts == [1] else 'seeds'}) and "
        f"number of parameters (dashed, right) against the number of layers on {' and '.join(datasets)}."
    )


def _figure(panels: Sequence[Panel], columns: int) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(_WIDTH, _HEIGHT if rows == 1 else 3.0 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    handles: dict[str, Any] = {}
    for number, panel in enumerate(panels, start=1):
        _draw_panel(figure.add_subplot(rows, columns, number), panel, handles)
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=2, frameon=False)
    return figure


def _draw_panel(axes: Axes, panel: Panel, handles: dict[str, Any]) -> None:
    right = axes.twinx() if panel.right_label else axes
    for series in panel.series:
        handle = _draw_series(right if series.on_right else axes, series)
        handles.setdefault(series.label, handle)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    axes.set_title(panel.title)
    if panel.logarithmic:
        _make_logarithmic(axes, panel)
    _mark_sizes(axes, panel)
    axes.grid(alpha=0.3)
    if panel.right_label:
        axes.margins(y=0.15)  # the lines of the right begin at the bottom
        right.set_ylabel(panel.right_label)
        right.set_ylim(bottom=0)
        right.yaxis.set_major_formatter(lambda value, _: short_number(value))


def _draw_series(axes: Axes, series: Series) -> Any:
    turn, place = divmod(series.style, len(_STYLES))
    colour, marker = _STYLES[place][0], _STYLES[(place + turn) % len(_STYLES)][1]  # no pair twice in 36 styles
    return axes.errorbar(
        series.x,
        series.y,
        yerr=series.errors,
        color=colour,
        marker=marker,
        markersize=6,
        linestyle="none" if series.kind == "marks" else series.kind,
        linewidth=1.5,
        capsize=3,
        markerfacecolor=colour if series.kind == "solid" else "white",
    )


def _make_logarithmic(axes: Axes, panel: Panel) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    # Plain numbers: the exponents of powers of ten would be too small to read.
    heights = [y for series in panel.series for y in series.y]
    steps = (1.0, 2.0, 5.0) if max(heights) < 100 * min(heights) else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=steps))
    axes.yaxis.set_major_formatter(lambda value, _: short_number(value))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _mark_sizes(axes: Axes, panel: Panel) -> None:
    """Ticks where the points are."""
    sizes = sorted({x for series in panel.series for x in series.x})
    axes.set_xticks(sizes, [short_number(size) for size in sizes])


def short_number(value: float) -> str:
    """1500000 as 1.5M, 2000 as 2k; in full what would not be shorter, such as 1,024."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if value >= unit:
            short = f"{value / unit:g}{letter}"
            return min(short, f"{value:,.0f}", key=len)
    return f"{value:g}"
