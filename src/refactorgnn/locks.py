"""One process at a time in a folder; the system lets go of a lock when its process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refactorgnn.errors import FileError


@contextmanager
def hold_folder(folder: Path, holder: str, *, shared: bool = False) -> Iterator[None]:
    """Hold a folder for one command: its processes hold it together (``shared``), and it is free when all have ended.

    Nothing is written.

    Args:
        folder: The folder, which is there.
        holder: What holds it, such as "search", for whoever comes later.
        shared: Whether the command holds it already, and this is another process of it.

    Raises:
        FileError: if another command holds it.
    """
    import fcntl  # of Unix

    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
        except BlockingIOError as error:
            problem = f"another {holder} is at work here"
            raise FileError(folder, problem, "wait for it or choose another --out") from error
        fcntl.flock(handle, fcntl.LOCK_SH)  # from now on, together with the processes to come
        yield
    finally:
        os.close(handle)


@contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process of several into the block, waiting for the others to leave it or to end."""
    import fcntl

    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
