"""The commands, and the one place where errors become a sentence and an exit code."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError

from refactorgnn.cli import (
    bench,
    data,
    ensemble,
    explain,
    export,
    index,
    model,
    predict,
    reproduce,
    rules,
    serve,
    train,
    tune,
)
from refactorgnn.cli.output import say
from refactorgnn.errors import UserError
from refactorgnn.storage import write_error

# What typer raises for a command line that it cannot parse; it exports the children of this class only.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_INTERRUPTED = 130

app = typer.Typer(
    help="Knowledge-graph completion on entities never seen in training.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("train")(train.train)
app.command("tune")(tune.tune)
app.command("ensemble")(ensemble.ensemble)
app.command("evaluate")(model.evaluate)
app.command("predict")(predict.predict)
app.command("explain")(explain.explain)
app.command("rules")(rules.rules)
app.command("index")(index.index)
app.command("serve")(serve.serve)
app.command("reproduce")(reproduce.reproduce)
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")
app.add_typer(export.app, name="export")


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
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name the terminal cannot show is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False)
    except UserError as error:
        _fail(str(error))
    except _UsageError as error:
        if not str(error):  # no command was given, and the help has been shown
            sys.exit(2)
        _fail(_usage(error))
    except OSError as error:
        where = error.filename or "standard output"
        _fail(str(write_error(Path(os.fsdecode(where)), error)))
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    if code == _INTERRUPTED:  # typer has turned the interrupt into this code
        say("interrupted: the same command goes on where this one was (train: with --resume).")
    sys.exit(code)


def _fail(message: str) -> NoReturn:
    say(message, label="error:")
    sys.exit(2)


def _usage(error: Exception) -> str:
    """One sentence for a command line that cannot be parsed."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "refactorgnn"
    problem = str(error.format_message() if hasattr(error, "format_message") else error).rstrip(".?")
    if isinstance(error.__cause__, ValidationError):
        problem = problem.partition(", ")[0] + f", not {error.__cause__.errors()[0]['input']!r}"
    problem = problem.replace(". Did you mean", "; did you mean").replace(": Input should", ": it should")
    return f"{problem[:1].lower()}{problem[1:]}; see {command} --help."
