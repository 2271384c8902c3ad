"""Fetching a file by HTTP, checked against its SHA-256, with a bar; every failure is one sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from refactorgnn.errors import UserError
from refactorgnn.progress import quiet

_CHUNK_BYTES = 1 << 16


@contextmanager
def download_bars(*, enabled: bool = True) -> Iterator[Progress]:
    """Show bars in bytes on standard error, on a terminal only."""
    console = Console(stderr=True)
    display = Progress(
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        transient=True,
        disable=not enabled or not console.is_terminal,
    )
    with display as bars:
        yield bars


class PoochBar:
    """One task of a rich display, in the shape that pooch expects of a progress bar."""

    def __init__(self, bars: Progress, description: str) -> None:
        self._bars = bars
        self._task = bars.add_task(description, total=None)
        self._total = 0
        self._done = 0

    @property
    def total(self) -> int:
        """The size of the file in bytes, 0 while unknown."""
        return self._total

    @total.setter
    def total(self, value: int) -> None:
        self._total = value
        self._bars.update(self._task, total=value or None)

    def update(self, amount: int) -> None:
        """Move on by ``amount`` bytes; pooch counts whole chunks, so the last one is cut to size."""
        self._done += amount
        self._bars.update(self._task, completed=min(self._done, self._total or self._done))

    def reset(self) -> None:
        """Start from nothing again."""
        self._done = 0
        self._bars.update(self._task, completed=0)

    def close(self) -> None:
        """Leave the bar as it is; the display clears itself."""


def fetch(url: str, sha256: str, folder: Path, what: str, bars: Progress) -> bytes:
    """Download a file into ``folder`` and return its content.

    Args:
        url: Where it is.
        sha256: What its bytes must hash to; otherwise nothing is kept.
        folder: A scratch folder.
        what: What is being downloaded, for the bar and for messages.
        bars: The display of :func:`download_bars`.

    Raises:
        UserError: if it cannot be had; an ``OSError`` of the local disk passes through.
    """
    # Both are slow to import, and most calls find their files on disk.
    import pooch
    import requests  # type: ignore[import-untyped, unused-ignore]

    downloader = pooch.HTTPDownloader(progressbar=PoochBar(bars, what), chunk_size=_CHUNK_BYTES)
    try:
        with quiet(pooch.get_logger(), logging.WARNING):
            name = pooch.retrieve(
                url, known_hash=f"sha256:{sha256}", fname=Path(url).name, path=folder, downloader=downloader
            )
    except requests.exceptions.RequestException as error:
        raise _failed(what, _reason(error, url)) from error
    except ValueError as error:
        raise _failed(what, "what the server sent does not have the expected checksum") from error
    return Path(name).read_bytes()


def _failed(what: str, reason: str) -> UserError:
    return UserError(
        f"cannot download {what}: {reason}; try again later, or set REFACTORGNN_DATA or --data-root"
        " to a folder with a local copy."
    )


def _reason(error: OSError, url: str) -> str:
    """Say in a few words what went wrong; the library's own message is a chain of class names."""
    import requests

    host = urlsplit(url).hostname
    errors = requests.exceptions
    response = getattr(error, "response", None)
    if isinstance(error, errors.HTTPError) and response is not None:
        return f"{host} answered {response.status_code} {response.reason or ''}".rstrip()
    if isinstance(error, errors.Timeout):
        return f"{host} did not answer in time"
    if isinstance(error, errors.ChunkedEncodingError | errors.ContentDecodingError):
        return f"{host} broke off the transfer"
    if isinstance(error, errors.ConnectionError):
        return f"there is no connection to {host}"
    return f"the request to {host} failed ({type(error).__name__})"
