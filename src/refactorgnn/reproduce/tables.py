"""The tables of the paper: their rows, their datasets, what is measured, and the published figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from refactorgnn.errors import UserError, unknown_name
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import Aggregate, Record

PAIRS = tuple(f"{family}_v{version}" for family in ("WN18RR", "fb237", "nell") for version in (1, 2, 3, 4))
DEPTHS = (1, 3, 6, 9)
NUM_SEEDS = 5  # as in the paper


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
        ours: Mean, standard deviation and number of the seeds that have been measured; None if none has.
        published: The paper's figure, if there is one.
    """

    row: Row
    column: Column
    metric: Metric
    ours: Aggregate | None
    published: Published | None

    @classmethod
    def published_only(cls, row: Row, column: Column, metric: Metric) -> Cell:
        """A cell of a row that is not measured."""
        return cls(row, column, metric, None, published(metric, row, column))

    @property
    def shortfall(self) -> float | None:
        """By how much ours is below the paper's; None if one is missing or ours is not below."""
        if self.ours is None or self.published is None or self.ours.mean >= self.published.mean:
            return None
        return self.published.mean - self.ours.mean


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    Args:
        name: What ``refactorgnn reproduce`` calls it.
        title: Its title.
        protocol: How it is measured, in sentences.
        rows: Its rows.
        columns: Its columns.
        metrics: What is shown, each in a table of its own.
        rivals: Rows of other papers: shown with their published figures, unless they are measured.
    """

    name: str
    title: str
    protocol: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    metrics: tuple[Metric, ...]
    rivals: tuple[str, ...] = ()

    @property
    def datasets(self) -> list[str]:
        """The datasets that are trained on."""
        return list(dict.fromkeys(column.dataset for column in self.columns))

    def part(self, rows: Sequence[str] | None, datasets: Sequence[str] | None) -> Table:
        """The table with some of its rows and datasets only.

        Raises:
            UserError: for a name that is not one of them, with the nearest.
        """
        kept_rows = _chosen("row", rows, [row.name for row in self.rows])
        kept_datasets = _chosen("dataset", datasets, self.datasets)
        return Table(
            self.name,
            self.title,
            self.protocol,
            tuple(row for row in self.rows if row.name in kept_rows),
            tuple(column for column in self.columns if column.dataset in kept_datasets),
            self.metrics,
            self.rivals,
        )

    def measured_rows(self, recipe: Recipe) -> list[Row]:
        """The rows that a recipe has settings for."""
        return [row for row in self.rows if all(term in recipe.rows for term in row.terms)]

    def experiments(self, recipe: Recipe, num_seeds: int) -> list[Experiment]:
        """What must be measured to fill the table."""
        return [
            recipe.experiment(term, column.dataset, column.graph, seed)
            for column in self.columns
            for row in self.measured_rows(recipe)
            if has_cell(row, column)
            for term in row.terms
            for seed in range(num_seeds)
        ]

    def cells(self, recipe: Recipe, records: Mapping[str, Record], num_seeds: int) -> list[Cell]:
        """All cells of the rows that the recipe has, of the seeds that there are records of."""
        found = []
        for row in self.measured_rows(recipe):
            for column in self.columns:
                if has_cell(row, column):
                    seeds = _by_seed(row, column, recipe, records, num_seeds)
                    found += [
                        Cell(row, column, metric, *_figures(metric, row, column, seeds)) for metric in self.metrics
                    ]
        return found


def _by_seed(
    row: Row, column: Column, recipe: Recipe, records: Mapping[str, Record], num_seeds: int
) -> list[list[Record]]:
    """The records of each seed that has one for every term of the row."""
    seeds = []
    for seed in range(num_seeds):
        keys = [recipe.experiment(term, column.dataset, column.graph, seed).key for term in row.terms]
        if all(key in records for key in keys):
            seeds.append([records[key] for key in keys])
    return seeds


def _figures(
    metric: Metric, row: Row, column: Column, seeds: list[list[Record]]
) -> tuple[Aggregate | None, Published | None]:
    found = [[metric.of(record) for record in records] for records in seeds]
    whole = [[value for value in values if value is not None] for values in found if None not in values]
    return Aggregate.of(first - sum(others) for first, *others in whole), published(metric, row, column)


def has_cell(row: Row, column: Column) -> bool:
    """Whether the model of a row can be asked about the graph of a column."""
    return column.graph is None or not row.seen_only


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


def find_table(name: str) -> Table:
    """The table of that name.

    Raises:
        UserError: if there is none, with the nearest name.
    """
    if name not in TABLES:
        raise unknown_name("table", name, list(TABLES))
    return TABLES[name]


def _chosen(kind: str, names: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """The known names that were asked for, in any case; all of them if none was."""
    if names is None:
        return list(known)
    by_folded = {name.casefold(): name for name in known}
    for name in names:
        if name.casefold() not in by_folded:
            raise unknown_name(kind, name, list(known))
    if not names:
        raise UserError(f"no {kind} is named: name at least one of {', '.join(known)}.")
    return [by_folded[name.casefold()] for name in names]


def _unseen(datasets: Iterable[str]) -> tuple[Column, ...]:
    return tuple(Column(dataset, f"{dataset}_ind") for dataset in datasets)


_INDUCTIVE_PROTOCOL = (
    "Trained on NAME, settings and epoch selected on NAME/valid, asked about NAME_ind, whose entities are all new: "
    "messages pass over NAME_ind/train, the questions are NAME_ind/test. Filtered ranking (by all of NAME_ind) in both "
    "directions, realistic ties. Full ranking: against all entities."
)
_REFACTOR_ROWS = tuple(f"ReFactorGNN({depth}) [{features}]" for features in "RT" for depth in (3, 6))
_RIVALS = "NBFNet", "GraIL", "Neural-LP", "DRUM", "RuleN", "PPR", "PPR (range first)", "PPR (consistent)", "R-GCN"
_GATS, _WITHOUT = ("GAT(3) [R]", "GAT(3) [T]"), ("No Pretrain [R]", "No Pretrain [T]")
_OUR_RIVALS = (*_GATS, *_WITHOUT, *_REFACTOR_ROWS[1::2], "best [R]", "best [T]")
_INFINITE_ROWS = "ReFactorGNN(inf)", "ReFactorGNN(inf) ComplEx", "ensemble (inf)", "ensemble (unlinked)"
_TRANSDUCTIVE_ROWS = "R-GCN", "RuleN", "DistMult", "ComplEx", *_INFINITE_ROWS
_DEPTH_ROWS = tuple(f"{model}({depth}) [R]" for model in ("GAT", "ReFactorGNN") for depth in DEPTHS)

_ALL = (
    Table(
        "transductive",
        "Transductive link prediction",
        "Trained on NAME/train, settings and epoch selected on NAME/valid, asked about NAME/test. Filtered full "
        "ranking (by all of NAME) in both directions, realistic ties. `ensemble (unlinked)` has a member that knows "
        "which entities a training fact links to the subject: FB15k-237 was made so that none of them is an answer.",
        tuple(map(Row, _TRANSDUCTIVE_ROWS)),
        (Column("UMLS"), Column("CoDEx-S"), Column("FB15k-237")),
        (Metric("MRR", "full", "mrr", "transductive_mrr"),),
    ),
    Table(
        "inductive",
        "Inductive link prediction",
        f"{_INDUCTIVE_PROTOCOL} Partial ranking: against 49 negatives, drawn with the seed of the run. [R]: random "
        "features, [T]: text features. Beside `best [R]` and `ensemble [R]` stands the paper's ReFactorGNN(6) [R], "
        "beside `best [T]` and `ensemble [T]` the best of its four ReFactorGNN rows in each column.",
        (
            *map(Row, ("No Pretrain [R]", "No Pretrain [T]", "GAT(3) [R]", "GAT(6) [R]", "GAT(3) [T]", "GAT(6) [T]")),
            *map(Row, _REFACTOR_ROWS),
            Row("best [R]", published=("ReFactorGNN(6) [R]",)),
            Row("best [T]", best_of=_REFACTOR_ROWS),
            Row("ensemble [R]", published=("ReFactorGNN(6) [R]",)),
            Row("ensemble [T]", best_of=_REFACTOR_ROWS),
        ),
        _unseen(PAIRS),
        (
            Metric("Hits@10, full ranking", "full", "hits@10", "inductive_hits10_full"),
            Metric("Hits@10, partial ranking", "partial", "hits@10", "inductive_hits10_partial_50"),
            Metric("MRR, full ranking", "full", "mrr"),
        ),
        rivals=("Neural-LP", "DRUM", "RuleN", "GraIL", "NBFNet"),
    ),
    Table(
        "ablation",
        "Ablation of n[v]",
        f"{_INDUCTIVE_PROTOCOL} Six layers, with the global term n[v] and without it.",
        tuple(
            Row(f"{word} n[v] [{features}]", published=(word, features))
            for features in "RT"
            for word in ("with", "without")
        ),
        _unseen(("fb237_v1",)),
        (Metric("MRR", "full", "mrr", "ablation_nv_mrr_fb237_v1_L6"),),
    ),
    Table(
        "text-gain",
        "What text features add",
        "MRR with text features minus MRR with random ones, seed by seed. The paper names fb237_v1 and not the graph "
        "that was asked about; at infinite depth it can only be the training graph, so all depths are measured on its "
        "test split, and the finite ones on fb237_v1_ind as well. Filtered full ranking in both directions, realistic "
        "ties; epoch selected on fb237_v1/valid.",
        tuple(
            Row(
                f"L = {depth}",
                of=f"ReFactorGNN({depth}) [T]",
                minus=f"ReFactorGNN({depth}) [R]",
                published=(depth,),
                seen_only=depth == "inf",
            )
            for depth in ("3", "6", "inf")
        ),
        (Column("fb237_v1"), Column("fb237_v1", "fb237_v1_ind", title="fb237_v1_ind")),
        (Metric("difference of MRR", "full", "mrr", "text_minus_random_mrr_fb237_v1"),),
    ),
    Table(
        "depth",
        "Depth, performance and parameters",
        f"{_INDUCTIVE_PROTOCOL} Random features: the paper's figure shows GATs that are best with three layers, as its "
        "GATs with random features are. It gives no numbers for this figure.",
        tuple(map(Row, _DEPTH_ROWS)),
        _unseen(("fb237_v1", "fb237_v2")),
        (Metric("MRR", "full", "mrr"), Metric("parameters", "training", "num_parameters")),
    ),
    Table(
        "rivals",
        "Rivals, live",
        f"{_INDUCTIVE_PROTOCOL} Partial ranking: against 49 negatives, drawn with the seed of the run. Training "
        "seconds include validation; inference seconds are those of binding the model to the unseen graph and of the "
        "full ranking, both of the machine that a run had, a GPU or a thread of a CPU, which its record names; a "
        "parameter of RuleN is a rule; peak memory is of the whole process (on a GPU: of tensors). "
        "`PPR (range first)` ranks entities seen as objects of the relation before the others; `PPR (consistent)` "
        "leaves out entities whose links to the subject exclude the relation. DistMult and ComplEx with a table of "
        "entities know none of those asked about: `No Pretrain` is what they come to here, and their own figures are "
        "in the [transductive table](transductive.md). Published MRRs (below ours): "
        f"{rival_figures()['source']} {rival_figures()['note']} Other published figures are those of the paper.",
        tuple(map(Row, (*_RIVALS, *_OUR_RIVALS))),
        _unseen(PAIRS),
        (
            Metric("MRR, full ranking", "full", "mrr", "rivals_mrr_full"),
            Metric("Hits@10, full ranking", "full", "hits@10", "inductive_hits10_full"),
            Metric("Hits@10, partial ranking", "partial", "hits@10", "inductive_hits10_partial_50"),
            Metric("training seconds", "training", "seconds"),
            Metric("inference seconds", "costs", "inference_seconds"),
            Metric("parameters", "training", "num_parameters"),
            Metric("peak memory, MB", "costs", "peak_memory_mb"),
        ),
        rivals=("NBFNet", "GraIL", "Neural-LP", "DRUM"),
    ),
)
TABLES: dict[str, Table] = {table.name: table for table in _ALL}
