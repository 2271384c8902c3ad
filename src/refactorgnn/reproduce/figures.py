"""The figures of tables that have one, drawn from their cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast

from refactorgnn.reproduce.plots import DepthPoint, draw_depth
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


# Called with the cells of a recipe and a path without an ending, each writes that path with .svg and with .png.
FIGURES: dict[str, Callable[[Sequence[Cell], Path], None]] = {"depth": depth_figure}
