"""What stands in a table: rows, columns, metrics, and cells of what was measured beside the published figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from refactorgnn.reproduce.records import Aggregate, Record, machine_of


@cache
def published_figures() -> dict[str, Any]:
    """The figures of the paper, as they are in ``published.json``."""
    content: dict[str, Any] = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
    return content


@cache
def rival_figures() -> dict[str, Any]:
    """Figures of other papers that the paper does not quote, with their source, from ``published_rivals.json``."""
    content: dict[str, Any] = json.loads((Path(__file__).parent / "published_rivals.json").read_text(encoding="utf-8"))
    return content


@dataclass(frozen=True)
class Published:
    """A figure of the paper, with the standard deviation where it gives one."""

    mean: float
    std: float | None = None


@dataclass(frozen=True)
class Metric:
    """What a table shows of a record.

    Args:
        title: What to call it.
        part: The part of the record that it is in.
        name: What it is called there.
        published: Where ``published.json`` or ``published_rivals.json`` has figures; None: nowhere.
    """

    title: str
    part: Literal["full", "partial", "partial_exact", "training", "costs"]
    name: str
    published: str | None = None

    @property
    def is_score(self) -> bool:
        """Whether it tells how good answers are, not what they cost."""
        return self.part not in ("training", "costs")

    @property
    def depends_on_machine(self) -> bool:
        """Whether a GPU and a CPU give figures that no mean should mix."""
        return not self.is_score and self.name != "num_parameters"

    def machine_of(self, record: Record) -> str:
        """The kind of machine that the figure of a record is of."""
        stamp = record.training["trained_with"] if self.part == "training" else record.evaluated_with
        return machine_of(stamp)

    def of(self, record: Record) -> float | None:
        """The figure of one record; None if it was not measured when the record was made."""
        figure = (getattr(record, self.part) or {}).get(self.name)
        return None if figure is None else float(figure)


@dataclass(frozen=True)
class Column:
    """A column: what is trained on, the graph that is asked about (None: the same), and a title of its own."""

    dataset: str
    graph: str | None = None
    title: str = ""

    @property
    def name(self) -> str:
        """What stands over the column."""
        if self.title:
            return self.title
        return self.dataset if self.graph in (None, f"{self.dataset}_ind") else f"{self.dataset} → {self.graph}"


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        name: Its name, in the paper's words.
        of: The row of the recipe that is measured; the row's own name if not given.
        minus: A second row of the recipe, seed by seed subtracted from the first.
        published: The path to its figures below a metric's; the row's name if not given.
        best_of: Several published rows instead, the best of which stands in each column.
        seen_only: Whether the model knows the entities of its training graph only.
    """

    name: str
    of: str | None = None
    minus: str | None = None
    published: tuple[str, ...] = ()
    best_of: tuple[str, ...] = ()
    seen_only: bool = False

    @property
    def terms(self) -> tuple[str, ...]:
        """The rows of the recipe that must be measured."""
        return (self.of or self.name, self.minus) if self.minus else (self.of or self.name,)


@dataclass(frozen=True)
class Cell:
    """A cell: what was measured, and what the paper says.

    Args:
        row: The row.
        column: The column.
        metric: What is measured.
        ours: Mean, standard deviation and number of the seeds that have been measured; None if none has. Of what
            depends on the machine, the seeds of the kind of machine that most of them had.
        published: The paper's figure, if there is one.
        by_machine: The same for each kind of machine, ``"GPU"`` or ``"CPU"``, of what depends on it.
    """

    row: Row
    column: Column
    metric: Metric
    ours: Aggregate | None
    published: Published | None
    by_machine: Mapping[str, Aggregate] = field(default_factory=dict)

    @classmethod
    def measured(cls, row: Row, column: Column, metric: Metric, seeds: Sequence[Sequence[Record]]) -> Cell:
        """A cell of the records of some seeds, for each seed those of all terms of the row."""
        beside = published(metric, row, column)
        if not metric.depends_on_machine:
            return cls(row, column, metric, _aggregate(metric, seeds), beside)
        by_machine = {}
        for machine in ("GPU", "CPU"):
            there = [records for records in seeds if metric.machine_of(records[0]) == machine]
            if found := _aggregate(metric, there):
                by_machine[machine] = found
        ours = max(by_machine.values(), key=lambda found: found.n, default=None)
        return cls(row, column, metric, ours, beside, by_machine)

    @classmethod
    def published_only(cls, row: Row, column: Column, metric: Metric) -> Cell:
        """A cell of a row that is not measured."""
        return cls(row, column, metric, None, published(metric, row, column))

    @property
    def machine(self) -> str | None:
        """The kind of machine that ``ours`` is of, if that matters."""
        return next((name for name, found in self.by_machine.items() if found is self.ours), None)

    @property
    def shortfall(self) -> float | None:
        """By how much ours is below the paper's; None if one is missing or ours is not below."""
        if self.ours is None or self.published is None or self.ours.mean >= self.published.mean:
            return None
        return self.published.mean - self.ours.mean


def _aggregate(metric: Metric, seeds: Sequence[Sequence[Record]]) -> Aggregate | None:
    found = [[metric.of(record) for record in records] for records in seeds]
    whole = [[value for value in values if value is not None] for values in found if None not in values]
    return Aggregate.of(first - sum(others) for first, *others in whole)


def published(metric: Metric, row: Row, column: Column) -> Published | None:
    """The paper's figure, or None where it has none."""
    if metric.published is None:
        return None
    if row.best_of:
        several = [published(metric, Row(name), column) for name in row.best_of]
        return max((one for one in several if one is not None), key=lambda one: one.mean, default=None)
    found: Any = (published_figures() | rival_figures())[metric.published]
    for step in row.published or (row.name,):
        found = found.get(step) if found is not None else None
    if isinstance(found, dict) and "mean" not in found:  # by dataset
        found = found.get(column.dataset)
    if found is None:
        return None
    return Published(found["mean"], found.get("std")) if isinstance(found, dict) else Published(found)
