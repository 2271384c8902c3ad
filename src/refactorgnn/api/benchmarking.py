"""Measuring how fast it is: :func:`bench`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refactorgnn.bench.cases import Precision
    from refactorgnn.bench.records import BenchRecord
    from refactorgnn.bench.running import Failure


@dataclass(frozen=True)
class Benchmark:
    """What :func:`bench` has made.

    Args:
        records: All records in the folder, those of earlier calls included.
        failures: What could not be measured.
        files: The page and its figures.
    """

    records: list[BenchRecord]
    failures: list[Failure]
    files: list[Path]


def bench(
    rows: Sequence[str] = (),
    *,
    datasets: Sequence[str] = (),
    dims: Sequence[int] = (),
    device: str = "cpu",
    precision: Precision = "32",
    threads: int = 1,
    memory_budget_mb: int | None = None,
    out: str | Path = "results",
    repeats: int = 5,
    quick: bool = False,
    run: bool = True,
    again: bool = False,
    data_root: str | Path | None = None,
    progress: bool = True,
    on_record: Callable[[BenchRecord], None] | None = None,
) -> Benchmark:
    """Measure time and memory beside the products that cannot be avoided, and beside rivals; ``refactorgnn bench``.

    A program that calls it must keep what it does under ``if __name__ == "__main__"``: each row is measured in a
    process of its own.

    Args:
        rows: Some of :data:`refactorgnn.bench.cases.ROWS`, or ``"scaling"``; all if not given.
        datasets: Some datasets, also ``synthetic-|V|-|R|-|T|``; those of each row if not given.
        dims: Some widths; those of each row if not given.
        device: Where to compute.
        precision: Of the products: ``"32"``, ``"tf32"`` or ``"bf16"``.
        threads: Processor threads.
        memory_budget_mb: MiB of temporaries of the products; None: the library's defaults.
        out: The folder of the records, their page and its figures. What has a record there is not measured again.
        repeats: Rounds in which ours, the floor and the rivals take turns.
        quick: A tiny graph and width, to see that everything works.
        run: False: measure nothing; write the page of the records that are there.
        again: Also measure what has a record, and replace it.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar.
        on_record: Called with each new record.
    """
    # They import what only this needs: the system's resource counters, PyG.
    from refactorgnn.bench.cases import Choice
    from refactorgnn.bench.page import write_page
    from refactorgnn.bench.records import load_bench_records
    from refactorgnn.bench.running import run_bench

    choice = Choice(rows, datasets, dims, device, precision, threads, memory_budget_mb, quick)
    failures = []
    if run:
        failures = run_bench(
            choice, out, repeats=repeats, again=again, data_root=data_root, progress=progress, on_record=on_record
        )
    records = load_bench_records(out)
    return Benchmark(records, failures, write_page(out, records) if records else [])
