"""Cost against |T|, |V|, d and L: the figures of the records of ``scaling``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, get_args

from refactorgnn.bench.cases import Sweep, sweeps
from refactorgnn.bench.records import BenchRecord
from refactorgnn.bench.rivals import PUBLISHED
from refactorgnn.reproduce.plots import Drawing, Panel, Series, draw_lines

Quantity = Literal["time", "memory"]
_AXES = {"T": "triples |T|", "V": "entities |V|", "d": "width d", "L": "layers L"}
_SIZES = {"T": "num_triples", "V": "num_entities", "d": "dim", "L": "layers"}
_LABELS = {"layer": "forward", "layer-backward": "forward and backward", "step": "a cycle of training"}
_UNITS: dict[Quantity, str] = {"time": "seconds", "memory": "memory, MB"}
_Value = Callable[[BenchRecord], float | None]


def has_curves(records: Sequence[BenchRecord]) -> bool:
    """Whether each sweep has two points at least, without which there is no line; ``records`` are of one device."""
    return all(len(_points(sweep, row, records)) > 1 for sweep in _sweeps(records) for row in sweep.rows)


def curves_name(slug: str, quantity: str) -> str:
    """What the files of a figure are called, without their suffix."""
    return f"scaling-{quantity}-{slug}"


def draw_curves(records: Sequence[BenchRecord], folder: str | Path, slug: str) -> list[Drawing]:
    """Draw time and memory, both axes logarithmic: ours solid, the floor and the published formulation dashed."""
    drawings = []
    for quantity in get_args(Quantity):
        panels = [_panel(sweep, records, quantity) for sweep in _sweeps(records)]
        drawings.append(draw_lines(panels, folder, curves_name(slug, quantity), columns=2))
    return drawings


def _sweeps(records: Sequence[BenchRecord]) -> tuple[Sweep, ...]:
    return sweeps(records[0].of.device)


def _points(sweep: Sweep, row: str, records: Sequence[BenchRecord]) -> list[BenchRecord]:
    """The records of a row along a sweep, from small to large."""
    wanted = {(point.dataset, point.dim, point.layers) for point in sweep.points}
    found = [one for one in records if one.of.row == row and (one.of.dataset, one.of.dim, one.of.layers) in wanted]
    return sorted(found, key=lambda one: _size(one, sweep))


def _size(record: BenchRecord, sweep: Sweep) -> int:
    return record.sizes[_SIZES[sweep.symbol]]


def _panel(sweep: Sweep, records: Sequence[BenchRecord], quantity: Quantity) -> Panel:
    series = []
    for row in sweep.rows:
        points, style = _points(sweep, row, records), 2 * list(_LABELS).index(row)
        ours: _Value = _subject if quantity == "time" else _peak
        others: list[tuple[str, _Value, int]] = [("published", _published(quantity), style + 1)]
        if quantity == "time":
            others.append(("floor", lambda record: record.floor_seconds, style))
        series += _series(points, sweep, f"{_LABELS[row]}", ours, style, "solid")
        for name, value, its_style in others:
            series += _series(points, sweep, f"{_LABELS[row]}, {name}", value, its_style, "dashed")
    return Panel(_AXES[sweep.symbol], _UNITS[quantity], tuple(series), logarithmic=True)


def _series(
    points: Sequence[BenchRecord],
    sweep: Sweep,
    label: str,
    value: _Value,
    style: int,
    kind: Literal["solid", "dashed"],
) -> list[Series]:
    """A line through the points that have the value; none if there are no such points."""
    found = [(float(_size(point, sweep)), figure) for point in points if (figure := value(point))]
    if not found:
        return []
    x, y = zip(*found, strict=True)
    return [Series(label, x, y, style, kind=kind)]


def _subject(record: BenchRecord) -> float:
    return record.subject_seconds


def _peak(record: BenchRecord) -> float:
    return record.peak_bytes / 1e6


def _published(quantity: Quantity) -> _Value:
    def value(record: BenchRecord) -> float | None:
        if quantity == "time":
            return record.rival_seconds(PUBLISHED)
        peaks = [rival["peak_bytes"] for rival in record.rivals if rival["name"] == PUBLISHED]
        return peaks[0] / 1e6 if peaks and peaks[0] else None

    return value
