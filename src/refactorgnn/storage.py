"""Writing files so that nothing is ever half-written.

Everything this package puts on disk goes through :func:`atomic_path` or :func:`atomic_folder`: the content is written
beside its destination and moved into place in one step, so a reader sees the old file or the new one, and a failure
leaves the old one.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from refactorgnn.errors import FileError

_STAGING_PREFIX = ".refactorgnn-"
_REMEDIES = {
    errno.ENOSPC: "free some space or choose another place; nothing was changed",
    errno.EDQUOT: "free some space or choose another place; nothing was changed",
    errno.EACCES: "choose a place you may write to; nothing was changed",
    errno.EROFS: "choose a place you may write to; nothing was changed",
    errno.EPERM: "choose a place you may write to; nothing was changed",
}


@contextmanager
def atomic_path(destination: str | Path) -> Iterator[Path]:
    """Yield a fresh path beside ``destination`` to write a file to; move it into place when the block succeeds.

    The temporary name keeps the destination's suffixes, so that writers that look at them behave the same.

    Raises:
        FileError: if the disk is full or the place cannot be written; the destination is then as it was.
    """
    destination = Path(destination)
    staging: Path | None = None
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=destination.parent))
        temporary = staging / destination.name
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())  # a full disk may only show here
        temporary.replace(destination)
    except OSError as error:
        raise write_error(destination, error) from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def atomic_folder(destination: str | Path) -> Iterator[Path]:
    """Yield a fresh folder to write files to; move it into place when the block succeeds.

    Where ``destination`` is a folder already (a mounted volume, say), the files are moved into it one by one instead.

    Raises:
        FileError: if the disk is full or the place cannot be written; the destination is then as it was.
    """
    destination = Path(destination)
    is_new = not destination.exists()
    staging: Path | None = None
    try:
        if is_new:
            destination.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=destination.parent if is_new else destination))
        complete = staging / "complete"
        complete.mkdir()
        yield complete
        if is_new:
            complete.rename(destination)
        else:
            for path in complete.iterdir():
                path.replace(destination / path.name)
    except OSError as error:
        raise write_error(destination, error) from error
    except FileError as error:
        if isinstance(error.__cause__, OSError):  # it names a file that will never be there
            raise write_error(destination, error.__cause__) from error.__cause__
        raise
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)


def leftovers(folder: Path) -> list[Path]:
    """What a process that was killed while writing to ``folder`` has left there."""
    return sorted(folder.glob(f"{_STAGING_PREFIX}*"))


def remove_leftovers(folder: Path) -> None:
    """Remove what a process that was killed while writing to ``folder`` has left there."""
    for path in leftovers(folder):
        shutil.rmtree(path, ignore_errors=True)


def write_error(destination: Path, error: OSError) -> FileError:
    """The one-sentence form of an error met while writing ``destination``."""
    # "File exists" is how mkdir puts it that a part of the path is a file.
    number = errno.ENOTDIR if error.errno == errno.EEXIST else error.errno
    # Libraries put whole stories into strerror; the system's own words are short.
    reason = (os.strerror(number) if number else str(error)).lower()
    remedy = _REMEDIES.get(number or 0, "check the path and the disk; nothing was changed")
    return FileError(destination, f"cannot be written ({reason})", remedy)


def write_text(destination: str | Path, text: str) -> None:
    """Write ``text`` as UTF-8, atomically."""
    with atomic_path(destination) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_bytes(destination: str | Path, content: bytes) -> None:
    """Write ``content``, atomically."""
    with atomic_path(destination) as temporary:
        temporary.write_bytes(content)
