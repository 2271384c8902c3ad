"""From the name of a table to the table: run what is missing, then read everything off the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from refactorgnn.errors import UserError
from refactorgnn.reproduce.cells import Cell
from refactorgnn.reproduce.costs import Cost, used_records
from refactorgnn.reproduce.pages import write_pages
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import FOLDER, load_records
from refactorgnn.reproduce.runner import Failure, run_experiments
from refactorgnn.reproduce.tables import NUM_SEEDS, Table, find_table


@dataclass(frozen=True)
class Reproduction:
    """A table, measured as far as it has been.

    Args:
        table: The table, or the part of it that was asked for.
        recipe: The recipe.
        num_seeds: How many seeds a figure should be of.
        cells: What was measured beside what the paper says.
        failures: The experiments that failed this time.
        cost: What the records behind the cells have cost.
        records: The folder of the records.
        pages: The pages that were written.
    """

    table: Table
    recipe: Recipe
    num_seeds: int
    cells: list[Cell]
    failures: list[Failure]
    cost: Cost
    records: Path
    pages: list[Path]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "table": self.table.name,
            "recipe": self.recipe.name,
            "seeds": self.num_seeds,
            "cells": [
                {
                    "row": cell.row.name,
                    "dataset": cell.column.dataset,
                    "graph": cell.column.graph,
                    "metric": cell.metric.title,
                    "ours": None if cell.ours is None else asdict(cell.ours),
                    "published": None if cell.published is None else asdict(cell.published),
                    "by_machine": {name: asdict(one) for name, one in cell.by_machine.items()},
                }
                for cell in self.cells
            ],
            "failures": [{"experiment": one.experiment.name, "reason": one.reason} for one in self.failures],
            "cost": self.cost.to_dict(),
            "records": str(self.records),
            "pages": [str(path) for path in self.pages],
        }


def reproduce_table(
    name: str,
    *,
    recipe: str,
    datasets: Sequence[str] | None,
    rows: Sequence[str] | None,
    num_seeds: int,
    jobs: int,
    accelerator: str,
    out: str | Path,
    pages: str | Path | None,
    run: bool,
    keep_runs: bool,
    data_root: str | Path | None,
    progress: bool,
) -> Reproduction:
    """Measure a table; see :func:`refactorgnn.reproduce`."""
    whole = find_table(name)
    chosen = Recipe.load(recipe)
    table = whole.part(rows, datasets)
    if not table.measured_rows(chosen):
        known = ", ".join(row.name for row in whole.measured_rows(chosen))
        raise UserError(f"recipe {recipe!r} has no settings for these rows of {name}: it has them for {known}.")
    if not table.experiments(chosen, 1):
        elsewhere = dict.fromkeys(one.dataset for one in whole.part(rows, None).experiments(chosen, 1))
        raise UserError(f"recipe {recipe!r} has these rows of {name} on other datasets only: {', '.join(elsewhere)}.")
    if num_seeds < 1:
        raise UserError(f"seeds={num_seeds} cannot be used: choose a whole number from 1 on.")
    failures = []
    if run:
        experiments = table.experiments(chosen, num_seeds)
        failures = run_experiments(
            experiments,
            out,
            jobs=jobs,
            accelerator=accelerator,
            progress=progress,
            keep_runs=keep_runs,
            data_root=data_root,
            group=name,
        )
    records = load_records(out)
    used = used_records(table, chosen, records, num_seeds)
    # A page is of the whole table and of as many seeds as the paper's, also when a part of it was asked for.
    place = pages or (out if run else None)
    written = [] if place is None else write_pages(place, name, records, max(num_seeds, NUM_SEEDS))
    return Reproduction(
        table,
        chosen,
        num_seeds,
        table.cells(chosen, records, num_seeds),
        failures,
        Cost.of(record for found in used.values() for record in found),
        Path(out) / FOLDER,
        written,
    )
