"""``refactorgnn bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from refactorgnn import api
from refactorgnn.bench.cases import ROWS, SCALING
from refactorgnn.bench.page import duration
from refactorgnn.bench.records import BenchRecord
from refactorgnn.cli.model import AsJson, DataRoot, Device
from refactorgnn.cli.output import names_in, print_json, print_table, say
from refactorgnn.errors import UserError

_FAILED = 1
_CHOICES = ", ".join(
    [
        *(f"{name} ({row.title[0].lower()}{row.title[1:]})" for name, row in ROWS.items()),
        f"{SCALING} (cost against |T|, |V|, d and L, on synthetic graphs)",
    ]
)


def bench(
    context: typer.Context,
    rows: Annotated[
        list[str] | None, typer.Argument(metavar="[ROWS]…", help=escape(f"Some of {_CHOICES}."), show_default="all")
    ] = None,
    datasets: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…", help="Other datasets, also synthetic-|V|-|R|-|T|.", show_default="those of each row"
        ),
    ] = None,
    dims: Annotated[
        str | None, typer.Option(metavar="D1,D2,…", help="Other widths.", show_default="those of each row")
    ] = None,
    device: Device = "cpu",
    precision: Annotated[
        str, typer.Option(metavar="32|tf32|bf16", help="Of the products; bf16: with float32 sums.")
    ] = "32",
    threads: Annotated[int, typer.Option(min=1, help="Processor threads.")] = 1,
    memory_budget_mb: Annotated[
        int | None, typer.Option(min=1, help="MiB of temporaries of the products.", show_default="the library's")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of records, page and figures.")] = Path("results"),
    repeats: Annotated[int, typer.Option(min=1, help="Rounds in which ours, the floor and the rivals take turns.")] = 5,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tiny graph and width, to see that everything works.")
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Measure nothing: write the page of the records again.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Also measure what has a record, and replace it.")] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Measure time and memory, beside the matrix products that cannot be avoided and beside other ways.

    Every row leaves a record and is measured once; the same command goes on after an interrupt.
    Exit code 1: some rows could not be measured; they are named.

    Examples: refactorgnn bench layer --datasets CoDEx-S --dims 256;
    refactorgnn bench --device cuda --precision bf16 --out docs; refactorgnn bench --show --out docs
    """
    if show:
        _refuse_settings(context)
    result = api.bench(
        rows or [],
        datasets=names_in(datasets) or [],
        dims=_widths(dims),
        device=device,
        precision=precision,  # type: ignore[arg-type]  # checked, with a sentence for the user, by Case
        threads=threads,
        memory_budget_mb=memory_budget_mb,
        out=out,
        repeats=repeats,
        quick=quick,
        run=not show,
        again=again,
        data_root=data_root,
        on_record=_announce,
    )
    if as_json:
        print_json([_to_dict(record) for record in result.records])
    else:
        headings = ["row", "dataset", "d", "L", "machine", "precision", "time", "floor", "time / floor", "memory, MB"]
        print_table("benchmarks", headings, [_cells(record) for record in result.records])
    for path in result.files:
        say(f"wrote {path}")
    for failure in result.failures:
        say(f"{failure.case.name}: {failure.reason}", label="failed:")
    if result.failures:
        say(f"{len(result.failures)} row(s) failed; the same command tries those again, and no others.")
        raise typer.Exit(_FAILED)


def _refuse_settings(context: typer.Context) -> None:
    """With ``--show`` nothing is measured, so nothing can be said about how."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if name not in ("show", "out", "as_json") and source is not None and source.name == "COMMANDLINE":
            option = "ROWS" if name == "rows" else f"--{name.replace('_', '-')}"
            raise UserError(f"{option} says how to measure, and --show measures nothing: leave one of them out.")


def _announce(record: BenchRecord) -> None:
    say(f"{record.of.name}: {duration(record.subject_seconds)}, {record.ratio:.2f} × the floor")


def _to_dict(record: BenchRecord) -> dict[str, Any]:
    return {
        **record.case,
        **record.sizes,
        "machine": record.machine,
        "seconds": record.subject_seconds,
        "floor_seconds": record.floor_seconds,
        "ratio": record.ratio,
        "peak_bytes": record.peak_bytes,
        "rivals": {rival["name"]: record.rival_seconds(rival["name"]) for rival in record.rivals},
    }


def _cells(record: BenchRecord) -> list[object]:
    case = record.of
    times = duration(record.subject_seconds), duration(record.floor_seconds), round(record.ratio, 2)
    sizes = case.row, case.dataset, case.dim, case.layers, record.machine, case.precision
    return [*sizes, *times, round(record.peak_bytes / 1e6)]


def _widths(text: str | None) -> list[int]:
    try:
        return [int(word) for word in names_in(text) or []]
    except ValueError as error:
        raise UserError(f"--dims {text} cannot be read: give whole numbers with commas, such as 256,768.") from error
