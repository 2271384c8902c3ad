"""Bytes in and out of files: reading, gzip, encodings, and output that is never half-written.

The readers of the formats work on bytes that have been checked here, so that each need only know its syntax.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from refactorgnn.errors import FileError
from refactorgnn.storage import atomic_path

_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def check_is_file(path: Path) -> None:
    """Raise a :class:`FileError` unless ``path`` is an existing file."""
    if path.is_dir():
        raise FileError(path, "is a folder, and a file was expected", "give the path of a file")
    if not path.exists():
        raise FileError(path, "does not exist", "check the path")


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, decompressed if its name ends in ``.gz``."""
    check_is_file(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise FileError(path, f"cannot be read ({reason})", "check the permissions and the disk") from error
    return _gunzip(path, content) if path.name.lower().endswith(".gz") else content


def _gunzip(path: Path, content: bytes) -> bytes:
    if content and not content.startswith(_GZIP_MAGIC):
        raise FileError(path, "is named .gz but is not compressed with gzip", "remove .gz from its name or compress it")
    try:
        return gzip.decompress(content)
    except EOFError as error:
        raise FileError(path, "is a truncated gzip file", "copy or download it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise FileError(path, f"is a corrupt gzip file ({error})", "copy or download it again") from error


def check_text(path: Path, content: bytes) -> bytes:
    """Return the content without a byte-order mark, after checking that it is UTF-8 text and not blank.

    Raises:
        FileError: with the first offending line and its usual cause; "invalid start byte" helps nobody.
    """
    if content.startswith(_UTF16_MARKS):
        raise FileError(path, "is encoded in UTF-16", "save it as UTF-8", line=1)
    if content.startswith(_GZIP_MAGIC):
        raise FileError(path, "is compressed with gzip", "add .gz to its name")
    content = content.removeprefix(codecs.BOM_UTF8)
    if (position := content.find(b"\0")) >= 0:
        problem = "contains a NUL byte, so it is a binary or UTF-16 file"
        raise FileError(path, problem, "give a text file in UTF-8", line=line_of(content, position))
    if not content.isascii():
        _check_utf8(path, content)
    if not content or content.isspace():
        raise FileError(path, "is empty", "give a file with at least one row")
    return content


def _check_utf8(path: Path, content: bytes) -> None:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        problem = f"byte 0x{content[error.start]:02x} is not UTF-8; the file may be Latin-1 or Windows-1252"
        remedy = "convert it, for example with: iconv -f WINDOWS-1252 -t UTF-8"
        raise FileError(path, problem, remedy, line=line_of(content, error.start)) from error


def line_of(content: bytes, position: int) -> int:
    r"""Return the 1-based line of a byte position; ``\n``, ``\r\n`` and ``\r`` all end a line."""
    before = content[:position]
    return before.count(b"\n") + before.count(b"\r") - before.count(b"\r\n") + 1


@contextmanager
def open_output(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary stream to a file that appears only when the block succeeds.

    It is compressed if the name ends in ``.gz``. The gzip header then carries neither time nor name, so that
    the same table always gives the same bytes.
    """
    with atomic_path(path) as temporary, temporary.open("wb") as raw:
        if path.name.lower().endswith(".gz"):
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as stream:
                yield cast(IO[bytes], stream)
        else:
            yield raw
