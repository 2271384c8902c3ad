"""How results are shown: tables for people, JSON for machines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

# The width of a table that is not printed to a terminal: nothing there needs to fit a window.
_FILE_WIDTH = 200


def names_in(text: str | None) -> list[str] | None:
    """The names of an option that takes several with commas; None if it was not given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def print_json(content: Any) -> None:
    """Write JSON to standard output."""
    is_unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    typer.echo(json.dumps(content, indent=2, ensure_ascii=not is_unicode))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; columns of numbers are aligned to the right."""
    # Names are data: as Text, "[b]" or ":x:" in them means nothing to rich.
    table = Table(box=box.SIMPLE_HEAD, show_header=any(columns))
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_FILE_WIDTH)
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


def say(text: str, label: str = "") -> None:
    """A line for people, on standard error, with a word in red before it if need be."""
    line = Text.assemble((f"{label} ", "bold red"), text) if label else Text(text)
    Console(stderr=True, highlight=False, soft_wrap=True).print(line)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
