"""The tables of the paper: their rows, their datasets, and what is measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from refactorgnn.errors import UserError, unknown_name
from refactorgnn.reproduce.cells import Cell, Column, Metric, Row, rival_figures
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import Record

PAIRS = tuple(f"{family}_v{version}" for family in ("WN18RR", "fb237", "nell") for version in (1, 2, 3, 4))
DEPTHS = (1, 3, 6, 9)
NUM_SEEDS = 5  # as in the paper


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
            if _is_measured(row, column, recipe)
            for term in row.terms
            for seed in range(num_seeds)
        ]

    def cells(self, recipe: Recipe, records: Mapping[str, Record], num_seeds: int) -> list[Cell]:
        """All cells of the rows that the recipe has, of the seeds that there are records of."""
        found = []
        for row in self.measured_rows(recipe):
            for column in self.columns:
                if _is_measured(row, column, recipe):
                    seeds = _by_seed(row, column, recipe, records, num_seeds)
                    found += [Cell.measured(row, column, metric, seeds) for metric in self.metrics]
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


def has_cell(row: Row, column: Column) -> bool:
    """Whether the model of a row can be asked about the graph of a column."""
    return column.graph is None or not row.seen_only


def _is_measured(row: Row, column: Column, recipe: Recipe) -> bool:
    return has_cell(row, column) and all(recipe.has(term, column.dataset) for term in row.terms)


def find_table(name: str, others: Sequence[str] = ()) -> Table:
    """The table of that name.

    Args:
        name: The name.
        others: What else could have been meant, where more is asked for by name than tables.

    Raises:
        UserError: if there is none, with the nearest name.
    """
    if name not in TABLES:
        raise unknown_name("table", name, [*TABLES, *others])
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
_TRANSDUCTIVE_ROWS = "R-GCN", "RuleN", "DistMult", "ComplEx", "ComplEx + relations", *_INFINITE_ROWS
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
        "full ranking. What runs on a GPU and what runs on one thread of a CPU have cost stands apart; records name "
        "the machines. A parameter of RuleN is a rule; peak memory is of the whole process (on a GPU: of tensors). "
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
