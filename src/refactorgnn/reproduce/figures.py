"""The figures of tables that have one, drawn from their cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast

from refactorgnn.reproduce.plots import CostPoint, DepthPoint, draw_costs, draw_depth
from refactorgnn.reproduce.recipe import family_of
from refactorgnn.reproduce.tables import Cell

_DEPTH_ROW = re.compile(r"(GAT|ReFactorGNN)\((\d+)\)")


def depth_figure(cells: Sequence[Cell], path: Path) -> None:
    """Draw test MRR and parameters against the depth, and write ``PATH.svg`` and ``PATH.png``."""
    draw_depth(depth_points(cells), path.parent, path.name)


def depth_points(cells: Sequence[Cell]) -> list[DepthPoint]:
    """The points of the figure: one for each row and dataset that has been measured."""
    found = {(cell.row.name, cell.column.name, cell.metric.name): cell.ours for cell in cells}
    points = []
    for (row, dataset, metric), performance in found.items():
        parameters = found.get((row, dataset, "num_parameters"))
        named = _DEPTH_ROW.match(row)
        if metric == "mrr" and performance is not None and parameters is not None and named is not None:
            points.append(
                DepthPoint(
                    cast("Literal['GAT', 'ReFactorGNN']", named[1]),
                    dataset,
                    int(named[2]),
                    round(parameters.mean),
                    performance.mean,
                    performance.std or 0.0,
                    performance.n,
                )
            )
    return points


def cost_figure(cells: Sequence[Cell], path: Path) -> None:
    """Draw test MRR against seconds and parameters, and write ``PATH.svg`` and ``PATH.png``."""
    draw_costs(cost_points(cells), path.parent, path.name)


def cost_points(cells: Sequence[Cell]) -> list[CostPoint]:
    """The points of the figure: one for each system on the first measured dataset of each family.

    All twelve pairs would make a dozen rows of panels that say much the same.
    """
    found = {(cell.row.name, cell.column.dataset, cell.metric.name): cell.ours for cell in cells}
    measured = dict.fromkeys(dataset for (_, dataset, metric), ours in found.items() if metric == "mrr" and ours)
    shown = {family_of(dataset): dataset for dataset in sorted(measured, reverse=True)}.values()
    points = []
    for (system, dataset, metric), reached in found.items():
        seconds, parameters = (found.get((system, dataset, name)) for name in ("seconds", "num_parameters"))
        if metric == "mrr" and dataset in shown and reached and seconds and parameters:
            about = seconds.mean, round(parameters.mean)
            points.append(CostPoint(system, dataset, reached.mean, reached.std or 0.0, *about))
    return points


# Called with the cells of a recipe and a path without an ending, each writes that path with .svg and with .png.
FIGURES: dict[str, Callable[[Sequence[Cell], Path], None]] = {"depth": depth_figure, "rivals": cost_figure}
