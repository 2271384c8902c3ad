"""Measuring the paper's tables again: :func:`reproduce`, :func:`reproduce_complexity`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from refactorgnn.devices import usable_device
from refactorgnn.reproduce.reproduction import Reproduction, reproduce_table


def reproduce(
    table: str,
    *,
    recipe: str = "paper",
    datasets: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    seeds: int = 5,
    jobs: int = 1,
    accelerator: str = "auto",
    out: str | Path = "results",
    pages: str | Path | None = None,
    run: bool = True,
    keep_runs: bool = False,
    data_root: str | Path | None = None,
    progress: bool = True,
) -> Reproduction:
    """Measure a table of the paper again, beside the published figures; ``refactorgnn reproduce``.

    Args:
        table: The table, by its name in :data:`refactorgnn.reproduce.tables.TABLES`.
        recipe: ``"paper"``: the published choices; ``"best"``: whatever wins on validation.
        datasets: Some of its datasets; all if not given.
        rows: Some of its rows; all if not given.
        seeds: How many seeds, from 0 on.
        jobs: Experiments side by side, in processes of their own; a program that sets it above 1 must keep what it
            does under ``if __name__ == "__main__"``, as for all of Python's spawned processes.
        accelerator: Where to compute.
        out: The folder of records, and of runs while they last. What has a record there is not run again.
        pages: The folder to write the table's page to; ``out`` if not given.
        run: False: run nothing, and write no page unless ``pages`` is given; show what the records have so far.
        keep_runs: Keep the trained models; else a run is deleted after its record is written.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar.

    Returns:
        The cells of the table, what failed, what it has cost. A failure of one experiment does not stop the others.

    Example:
        >>> import refactorgnn
        >>> result = refactorgnn.reproduce("ablation", rows=["with n[v] [T]"], run=False)
        >>> [(cell.row.name, cell.column.name, cell.published.mean, cell.ours) for cell in result.cells]
        [('with n[v] [T]', 'fb237_v1', 0.486, None)]
    """
    return reproduce_table(
        table,
        recipe=recipe,
        datasets=datasets,
        rows=rows,
        num_seeds=seeds,
        jobs=jobs,
        accelerator=accelerator,
        out=out,
        pages=pages,
        run=run,
        keep_runs=keep_runs,
        data_root=data_root,
        progress=progress,
    )


def reproduce_complexity(
    out: str | Path, *, accelerator: str = "auto", quick: bool = False, progress: bool = True
) -> list[Path]:
    """Measure what a training step costs as L, d and |T| grow; ``refactorgnn reproduce complexity``.

    An interrupted measurement goes on where it was.

    Args:
        out: The folder of the record, its page and its figures.
        accelerator: Where to compute: ``"auto"``, ``"cpu"``, ``"cuda"``, …
        quick: Tiny sizes, to see that it works.
        progress: Show a bar.

    Returns:
        The files that were written.
    """
    # Both import what only this needs: the system's resource counters, and matplotlib.
    from refactorgnn.reproduce.complexity import ComplexityOptions, measure_complexity
    from refactorgnn.reproduce.complexity_page import write_complexity

    has_gpu = torch.cuda.is_available() if accelerator == "auto" else accelerator in ("cuda", "gpu")
    device = "cuda" if has_gpu else ("cpu" if accelerator == "auto" else accelerator)
    options = ComplexityOptions(quick=quick, device=str(usable_device(device)))
    kept = Path(out) / "complexity.partial.json"
    written = write_complexity(measure_complexity(options, kept=kept, progress=progress), out)
    kept.unlink()
    return written
