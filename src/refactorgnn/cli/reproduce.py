"""``refactorgnn reproduce``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from refactorgnn import api
from refactorgnn.cli.model import AsJson, DataRoot
from refactorgnn.cli.output import names_in, print_json, print_table, say
from refactorgnn.errors import UserError
from refactorgnn.reproduce.pages import our_texts, published_text
from refactorgnn.reproduce.recipe import RECIPES
from refactorgnn.reproduce.records import FOLDER
from refactorgnn.reproduce.reproduction import Reproduction
from refactorgnn.reproduce.tables import NUM_SEEDS, TABLES, find_table

# Columns side by side in a terminal.
_WIDTH = 4
_FAILED = 1
_COMPLEXITY = "complexity"
_CHOICES = ", ".join(
    [
        *(f"{name} ({table.title[0].lower()}{table.title[1:]})" for name, table in TABLES.items()),
        f"{_COMPLEXITY} (what a training step costs as L, d and |T| grow)",
    ]
)


def reproduce(
    context: typer.Context,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=escape(f"One of {_CHOICES}."), show_default=False)],
    recipe: Annotated[
        str,
        typer.Option(
            metavar="|".join(RECIPES), help="The settings: the published choices, or whatever wins on validation."
        ),
    ] = RECIPES[0],
    datasets: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Some of the datasets.", show_default="all")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help='Some of the rows, such as "ReFactorGNN(6) [T]".', show_default="all"),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.")] = NUM_SEEDS,
    jobs: Annotated[int, typer.Option(help="Experiments side by side, in processes that share a device.")] = 1,
    accelerator: Annotated[
        str,
        typer.Option(
            "--accelerator",
            "--device",
            metavar="auto|cpu|gpu|cuda|mps",
            help="Where to compute; auto: on the best there is.",
        ),
    ] = "auto",
    out: Annotated[Path, typer.Option(help="The folder of records, and of runs while they last.")] = Path("results"),
    pages: Annotated[
        Path | None, typer.Option(help="The folder to write the table's page to.", show_default="that of --out")
    ] = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show",
            help="Run nothing, whatever else is asked for: show what the records have so far (and write --pages).",
        ),
    ] = False,
    keep_runs: Annotated[
        bool, typer.Option("--keep-runs", help="Keep the trained models; else a run is deleted after its record.")
    ] = False,
    data_root: DataRoot = None,
    as_json: AsJson = False,
) -> None:
    """Measure a table of the paper again, beside the published figures.

    Every experiment leaves a record and is run once.
    The same command goes on after an interrupt; with other options it adds to what is there.
    Exit code 1: some experiments failed; they are named.

    Examples: refactorgnn reproduce ablation --recipe best --seeds 1;
    refactorgnn reproduce inductive --datasets fb237_v1,nell_v1 --rows "ReFactorGNN(6) [T]" --jobs 4;
    refactorgnn reproduce inductive --show --out docs/results
    """
    if table == _COMPLEXITY:
        _complexity(context, accelerator, out if pages is None else pages, as_json)
        return
    find_table(table, others=[_COMPLEXITY])
    if show and not (out / FOLDER).is_dir():
        raise UserError(f"{out} has no records: measure first (leave out --show), or name another folder with --out.")
    result = api.reproduce(
        table,
        recipe=recipe,
        datasets=names_in(datasets),
        rows=names_in(rows),
        seeds=seeds,
        jobs=jobs,
        accelerator=accelerator,
        out=out,
        pages=pages,
        run=not show,
        keep_runs=keep_runs,
        data_root=data_root,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        _print(result)
    for failure in result.failures:
        say(f"{failure.experiment.name}: {failure.reason}", label="failed:")
    if result.failures:
        say(f"{len(result.failures)} experiment(s) failed; the same command tries those again, and no others.")
        raise typer.Exit(_FAILED)


def _complexity(context: typer.Context, accelerator: str, folder: Path, as_json: bool) -> None:
    """Measure the cost of training steps: no recipe, no seeds, no records but its own."""
    for name in ("recipe", "datasets", "rows", "seeds", "jobs", "show", "keep_runs", "data_root"):
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise UserError(f"--{name.replace('_', '-')} is not for {_COMPLEXITY}, which trains nothing: leave it out.")
    written = api.reproduce_complexity(folder, accelerator=accelerator)
    if as_json:
        print_json({"files": [str(path) for path in written]})
        return
    for path in written:
        say(f"wrote {path}")


def _print(result: Reproduction) -> None:
    for metric in result.table.metrics:
        cells = {(cell.row.name, cell.column): cell for cell in result.cells if cell.metric is metric}
        rows = list(dict.fromkeys(name for name, _ in cells))
        columns = result.table.columns
        for group in (columns[start : start + _WIDTH] for start in range(0, len(columns), _WIDTH)):
            lines = []
            for name in rows:
                line = [name]
                for column in group:
                    cell = cells.get((name, column))
                    paper = "" if cell is None or cell.published is None else published_text(cell.published)
                    line += ["" if cell is None else ", ".join(our_texts(cell, result.num_seeds)), paper]
                lines.append(line)
            headings = [heading for column in group for heading in (column.name, "paper")]
            print_table(f"{result.table.title}, {metric.title}, recipe {result.recipe.name}", ["", *headings], lines)
    cost = result.cost
    hardware = f" on {'; '.join(cost.hardware)}" if cost.hardware else ""
    say(f"{cost.num_runs} run(s), {cost.seconds:,.0f} s in all{hardware}. The records are in {result.records}.")
    for path in result.pages:
        say(f"The page is {path}.")
