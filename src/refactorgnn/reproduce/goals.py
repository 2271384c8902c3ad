"""What we set out to reach beyond the paper, and how near each figure comes; the goals are in ``goals.json``."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from refactorgnn.reproduce.cells import Cell, Metric
from refactorgnn.reproduce.tables import Table

_FILE = Path(__file__).with_name("goals.json")
_MISSING = "–"


@cache
def goals_by_table() -> dict[str, Any]:
    """What ``goals.json`` says of each table."""
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


def goal_lines(table: Table, cells: list[Cell]) -> list[str]:
    """The goals of a table beside the best of our rows, in Markdown; none if it has no goals.

    A figure is the mean over the seeds; that of all columns is given only where each has one.
    """
    about = goals_by_table().get(table.name)
    if about is None:
        return []
    lines = [about["note"], ""]
    for metric in table.metrics:
        goals = about["metrics"].get(metric.title)
        if goals is not None:
            lines += [*_table(table, metric, goals, about["scale_name"], cells), ""]
    return lines


def _table(table: Table, metric: Metric, goals: dict[str, Any], scale_name: str, cells: list[Cell]) -> list[str]:
    names = [column.name for column in table.columns]
    lines = [f"| {metric.title} | {' | '.join(names)} | mean |", "|" + "---|" * (len(names) + 2)]
    lines.append(_line("goal", [goals["goal"].get(name) for name in names], goals["goal_of_mean"]))
    if goals["for scale"]:
        lines.append(_line(scale_name, [goals["for scale"].get(name) for name in names]))
    for row in table.rows:
        found = {cell.column.name: cell.ours for cell in cells if cell.row is row and cell.metric is metric}
        ours = [None if (one := found.get(name)) is None else one.mean for name in names]
        if 3 * sum(figure is not None for figure in ours) >= len(names):  # of less there is little to compare
            lines.append(_line(row.name, ours))
    return lines


def _line(name: str, figures: list[float | None], mean: float | None = None) -> str:
    """A row; its mean, where it is not given, is that of the figures if all are there."""
    known = [figure for figure in figures if figure is not None]
    if mean is None and len(known) == len(figures):
        mean = fmean(known)
    # A mean of many has a digit more: three would round what falls short of a goal up to it.
    return f"| {name} | {' | '.join([*(_text(figure) for figure in figures), _text(mean, 4)])} |"


def _text(figure: float | None, digits: int = 3) -> str:
    return _MISSING if figure is None else f"{figure:.{digits}f}"
