"""What is measured: rows, datasets, widths; the grid of them that a command asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from refactorgnn.data.graph import KnowledgeGraph
from refactorgnn.data.loading import check_source, load_graph
from refactorgnn.errors import UserError, unknown_name
from refactorgnn.reproduce.synthetic import synthetic_graph

Precision = Literal["32", "tf32", "bf16"]
# synthetic-|V|-|R|-|T|: graphs drawn at random, of just these sizes.
MILLION = "synthetic-1000000-100-1000000"
DATASETS = ("fb237_v1", "fb237_v4", "WN18RR_v3", "CoDEx-S", "FB15k-237", "WN18RR")
DIMS = (256, 768)
# The row of the command line that stands for the points of `sweeps`.
SCALING = "scaling"
_QUICK = "synthetic-60-3-240"
_SYNTHETIC = re.compile(r"synthetic-(\d+)-(\d+)-(\d+)")


@dataclass(frozen=True)
class Case:
    """One row of the benchmark.

    Args:
        row: What is measured; one of :data:`ROWS`.
        dataset: A dataset as :func:`graph_of` knows it.
        dim: ``d``, the width of the states.
        device: Where to compute.
        precision: Of the products: float32, the same with TF32 tensor cores, or bfloat16 with float32 sums.
        threads: Processor threads.
        layers: ``L``; 1 where a row is about a single layer.
        memory_budget_mb: MiB of temporaries that the products may hold; None: whatever the library's defaults are.
    """

    row: str
    dataset: str
    dim: int
    device: str = "cpu"
    precision: Precision = "32"
    threads: int = 1
    layers: int = 1
    memory_budget_mb: int | None = None

    def __post_init__(self) -> None:
        if self.row not in ROWS:
            raise unknown_name("row", self.row, [*ROWS, SCALING])
        if self.precision not in get_args(Precision):
            raise unknown_name("precision", self.precision, get_args(Precision))
        if min(self.dim, self.threads, self.layers, 1 if self.memory_budget_mb is None else self.memory_budget_mb) < 1:
            raise UserError("widths, threads, layers and memory of a benchmark must be 1 or more: give larger ones.")

    @property
    def name(self) -> str:
        """What to call it when talking to people."""
        depth = f", L={self.layers}" if ROWS[self.row].layers > 1 else ""
        return f"{self.row} of {self.dataset}, d={self.dim}{depth}, {self.precision} on {self.device}"


@dataclass(frozen=True)
class Row:
    """A kind of work.

    Args:
        title: What it is, in words.
        datasets: On what it is measured unless others are named.
        dims: In which widths.
        layers: ``L``.
    """

    title: str
    datasets: tuple[str, ...] = DATASETS
    dims: tuple[int, ...] = DIMS
    layers: int = 1


ROWS: Mapping[str, Row] = {
    "layer": Row("A layer, forward"),
    "layer-backward": Row("A layer, forward and backward"),
    "step": Row("A cycle of layer-wise training: L steps, one through each layer", layers=6),
    "training": Row("A whole training: 60 cycles and a validation", ("fb237_v1",), (384,), 6),
    "training-together": Row("Sixteen such trainings side by side, of different seeds", ("fb237_v1",), (384,), 6),
    "evaluation": Row("Filtered evaluation", (*DATASETS, MILLION)),
    "sampled-layer": Row("A layer, forward, with n[v] of 1,024 drawn candidates", (MILLION,)),
}


@dataclass(frozen=True)
class Sweep:
    """Cases of which one size changes.

    Args:
        symbol: The size, as the equations call it.
        rows: What is measured at each size.
        points: The cases without their rows, from small to large.
    """

    symbol: Literal["T", "V", "d", "L"]
    rows: tuple[str, ...]
    points: tuple[Case, ...]

    @property
    def cases(self) -> Iterator[Case]:
        """Every row at every size."""
        return (replace(point, row=row) for row in self.rows for point in self.points)


def sweeps(device: str) -> tuple[Sweep, ...]:
    """The sizes of which one changes at a time, large enough for ``device`` to be busy."""
    scale = 1 if device == "cpu" else 16
    num_entities, num_triples = 1000 * scale, 8000 * scale
    factors = (0.25, 0.5, 1, 2, 4)
    layers = "layer", "layer-backward"
    base = Case("layer", f"synthetic-{num_entities}-20-{num_triples}", 256, device)
    of_triples = [f"synthetic-{num_entities}-20-{int(factor * num_triples)}" for factor in factors]
    of_entities = [f"synthetic-{int(factor * num_entities)}-20-{num_triples}" for factor in factors]
    return (
        Sweep("T", layers, tuple(replace(base, dataset=dataset) for dataset in of_triples)),
        Sweep("V", layers, tuple(replace(base, dataset=dataset) for dataset in of_entities)),
        Sweep("d", layers, tuple(replace(base, dim=int(256 * factor)) for factor in factors)),
        Sweep("L", ("step",), tuple(replace(base, layers=depth) for depth in (1, 2, 4, 8, 16))),
    )


@dataclass(frozen=True)
class Choice:
    """What a command asks for.

    Args:
        rows: Some of :data:`ROWS`, or :data:`SCALING`; none: all of them.
        datasets: Some datasets; none: those of each row.
        dims: Some widths; none: those of each row.
        device: Where to compute.
        precision: Of the products.
        threads: Processor threads.
        memory_budget_mb: MiB of temporaries of the products; None: the library's defaults.
        quick: A tiny graph and width, to see that everything works.
    """

    rows: Sequence[str] = ()
    datasets: Sequence[str] = ()
    dims: Sequence[int] = ()
    device: str = "cpu"
    precision: Precision = "32"
    threads: int = 1
    memory_budget_mb: int | None = None
    quick: bool = False

    def cases(self) -> list[Case]:
        """All of them, each once."""
        for row in self.rows:
            if row not in (*ROWS, SCALING):
                raise unknown_name("row", row, [*ROWS, SCALING])
        for dataset in self.datasets:
            if not _SYNTHETIC.fullmatch(dataset):
                check_source(dataset)
        if self.quick and (self.datasets or self.dims):
            raise UserError("--quick has a dataset and a width of its own: leave --datasets and --dims out.")
        has_sizes = self.quick or bool(self.datasets or self.dims)
        if SCALING in self.rows and has_sizes:
            raise UserError(f"{SCALING} has sizes of its own: leave --datasets, --dims and --quick out with it.")
        found = [case for row in self.rows or ROWS if row != SCALING for case in self._grid(row)]
        if SCALING in self.rows or not (self.rows or has_sizes):
            found += [case for sweep in sweeps(self.device) for case in sweep.cases]
        return list(dict.fromkeys(self._circumstances(case) for case in found))

    def _grid(self, name: str) -> Iterator[Case]:
        row = ROWS[name]
        datasets = (_QUICK,) if self.quick else self.datasets or row.datasets
        dims = (16,) if self.quick else self.dims or row.dims
        return (Case(name, dataset, dim, layers=row.layers) for dataset in datasets for dim in dims)

    def _circumstances(self, case: Case) -> Case:
        return replace(
            case,
            device=self.device,
            precision=self.precision,
            threads=self.threads,
            memory_budget_mb=self.memory_budget_mb,
        )


def graph_of(dataset: str, data_root: str | Path | None = None) -> KnowledgeGraph:
    """The graph of that name: ``synthetic-|V|-|R|-|T|``, or whatever :func:`refactorgnn.load_graph` reads.

    A synthetic graph has no splits of its own; a hundredth of its facts, at least 8 and at most 1,000 of them, are also
    its ``valid`` and ``test``: what they cost to rank does not depend on whether a model has seen them.
    """
    match = _SYNTHETIC.fullmatch(dataset)
    if match is None:
        return load_graph(dataset, data_root=data_root, progress=False)
    graph = synthetic_graph(*map(int, match.groups()))
    facts = graph.triples("train")
    asked = facts[: min(1000, max(8, len(facts) // 100))]
    return KnowledgeGraph(dataset, graph.entities, graph.relations, {"train": facts, "valid": asked, "test": asked})
