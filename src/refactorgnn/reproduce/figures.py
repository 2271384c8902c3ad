"""The figures of tables that have one, drawn from their cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal, cast

from refactorgnn.reproduce.cells import Cell
from refactorgnn.reproduce.cost_plot import COST_CAPTION, CostPoint, draw_costs
from refactorgnn.reproduce.plots import DepthPoint, draw_depth
from refactorgnn.reproduce.recipe import family_of

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


def cost_figure(cells: Mapping[str, Sequence[Cell]], path: Path) -> None:
    """Draw test MRR against seconds and parameters, and write ``PATH.svg`` and ``PATH.png``."""
    draw_costs(cost_points(cells), path.parent, path.name)


def cost_points(cells: Mapping[str, Sequence[Cell]]) -> list[CostPoint]:
    """The points of the figure: one for each system and family of datasets of which it has all that any system has.

    Args:
        cells: By recipe; where a system has been measured by several of them, the last one counts.
    """
    found: dict[tuple[str, str], CostPoint] = {}
    measured = {cell.column.dataset for there in cells.values() for cell in there if cell.ours}
    for there in cells.values():
        by_place = {(cell.row.name, cell.column.dataset, cell.metric.name): cell for cell in there if cell.ours}
        for system in dict.fromkeys(cell.row.name for cell in there):
            for family in dict.fromkeys(map(family_of, sorted(measured))):
                datasets = [dataset for dataset in measured if family_of(dataset) == family]
                point = _cost_point(system, family, datasets, by_place)
                if point is not None:
                    found[system, family] = point
    return sorted(found.values(), key=lambda point: point.family)


def _cost_point(
    system: str, family: str, datasets: Sequence[str], cells: Mapping[tuple[str, str, str], Cell]
) -> CostPoint | None:
    """The means over some datasets; None if one of them has not been measured."""
    columns = [
        [cell for dataset in datasets if (cell := cells.get((system, dataset, metric)))]
        for metric in ("mrr", "seconds", "num_parameters")
    ]
    if any(len(column) < len(datasets) for column in columns):
        return None
    machines = {cell.machine for cell in columns[1]}
    means = (fmean(cell.ours.mean for cell in column if cell.ours) for column in columns)
    return CostPoint(system, family, str(machines.pop()) if len(machines) == 1 else "both", *means)


# Called with the cells of a recipe and a path without an ending, each writes that path with .svg and with .png.
RECIPE_FIGURES: dict[str, Callable[[Sequence[Cell], Path], None]] = {"depth": depth_figure}
# Of all recipes, by name, and what to write below it.
TABLE_FIGURES: dict[str, tuple[Callable[[Mapping[str, Sequence[Cell]], Path], None], str]] = {
    "rivals": (cost_figure, COST_CAPTION)
}
