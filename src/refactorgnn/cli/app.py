"""The commands, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from refactorgnn.cli import data, model
from refactorgnn.errors import UserError
from refactorgnn.storage import write_error

app = typer.Typer(
    help="Knowledge-graph completion on entities never seen in training.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(model.train)
app.command("evaluate")(model.evaluate)
app.command("predict")(model.predict)
app.add_typer(data.app, name="data")


def _version(show: bool) -> None:
    if show:
        from refactorgnn import __version__

        typer.echo(f"refactorgnn {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    errors = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        app()
    except UserError as error:
        errors.print("[bold red]error:[/]", end=" ")
        errors.print(str(error), markup=False)
        sys.exit(2)
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        errors.print("[bold red]error:[/]", end=" ")
        errors.print(str(write_error(Path(error.filename or "standard output"), error)), markup=False)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted; the same command with --resume goes on from the last epoch", markup=False)
        sys.exit(130)
