"""Progress bars on standard error, so that standard output stays clean for results."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


def progress_bar(*, enabled: bool = True) -> Progress:
    """A rich progress display with description, bar, count, elapsed and remaining time.

    It animates on a terminal only; in a log file or with ``enabled=False`` nothing is drawn.
    """
    console = Console(stderr=True)
    return Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        transient=True,
        disable=not enabled or not console.is_terminal,
    )


@contextmanager
def counting(description: str, total: int, *, enabled: bool = True) -> Iterator[Counter]:
    """A bar that the caller advances by hand."""
    with progress_bar(enabled=enabled) as bar:
        yield Counter(bar, bar.add_task(description, total=total, note=""))


class Counter:
    """A handle on one task of a progress display."""

    def __init__(self, bar: Progress, task: int) -> None:
        self._bar = bar
        self._task = task

    def advance(self, amount: int = 1, note: str | None = None) -> None:
        """Move the bar on by ``amount``, optionally changing the note at its end."""
        fields = {} if note is None else {"note": note}
        self._bar.update(self._task, advance=amount, **fields)  # type: ignore[arg-type]


@contextmanager
def quiet(logger: logging.Logger, below: int) -> Iterator[None]:
    """Silence what a library logs below a level, where a bar or an error of ours says the same."""
    level = logger.level
    logger.setLevel(below)
    try:
        yield
    finally:
        logger.setLevel(level)
