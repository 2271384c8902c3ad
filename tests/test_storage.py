from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from refactorgnn.errors import FileError, UserError
from refactorgnn.storage import (
    atomic_folder,
    atomic_path,
    leftovers,
    remove_leftovers,
    write_bytes,
    write_error,
    write_text,
)
from tests.conftest import contents


def test_text_is_utf8_with_plain_line_ends(tmp_path: Path) -> None:
    write_text(tmp_path / "new" / "file.txt", "Île\n→\n")
    assert contents(tmp_path) == {"new/file.txt": "Île\n→\n".encode()}


def test_an_existing_file_is_replaced_and_keeps_its_neighbours(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"old")
    write_bytes(tmp_path / "b", b"other")
    write_bytes(tmp_path / "a", b"new")
    assert contents(tmp_path) == {"a": b"new", "b": b"other"}


def test_the_temporary_file_keeps_the_suffixes(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "x.tsv.gz") as temporary:
        assert temporary.name == "x.tsv.gz"
        assert temporary.parent.parent == tmp_path
        temporary.write_bytes(b"")


@pytest.mark.parametrize("failure", [ValueError("bug"), KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, failure: BaseException) -> None:
    write_bytes(tmp_path / "a", b"old")
    expected = FileError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected), atomic_path(tmp_path / "a") as temporary:  # noqa: PT012
        temporary.write_bytes(b"half")
        raise failure
    assert contents(tmp_path) == {"a": b"old"}
    assert not leftovers(tmp_path)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "cannot be written (no space left on device); free some space"),
        (errno.EDQUOT, "cannot be written (disk quota exceeded); free some space"),
        (errno.EACCES, "cannot be written (permission denied); choose a place you may write to"),
        (errno.EROFS, "cannot be written (read-only file system); choose a place you may write to"),
        (errno.EIO, "cannot be written (input/output error); check the path and the disk"),
    ],
)
def test_an_error_of_the_system_becomes_a_sentence_with_the_remedy(code: int, words: str) -> None:
    # Libraries such as Arrow put a story of their own where the system's words should be.
    error = write_error(Path("out.tsv"), OSError(code, "Error writing bytes to file. Detail: …"))
    assert str(error).startswith(f"out.tsv: {words}")
    assert str(error).endswith("; nothing was changed.")


def test_an_error_without_a_number_keeps_its_own_words() -> None:
    assert "cannot be written (something odd)" in str(write_error(Path("x"), OSError("something odd")))


def test_a_full_disk_leaves_the_old_file(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("64k")
    write_bytes(disk / "a", b"old")
    with pytest.raises(FileError, match="no space left on device"):
        write_bytes(disk / "a", b"x" * 100_000)
    assert contents(disk) == {"a": b"old"}
    assert os.listdir(disk) == ["a"]  # noqa: PTH208  # no empty staging folder either


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    write_bytes(tmp_path / "file", b"")
    with pytest.raises(FileError, match=r"file/x: cannot be written \(not a directory\)"):
        write_bytes(tmp_path / "file" / "x", b"")


def test_a_new_folder_appears_complete(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "deep" / "folder") as draft:
        write_text(draft / "a", "1")
        write_text(draft / "sub" / "b", "2")
        assert not (tmp_path / "deep" / "folder").exists()
    assert contents(tmp_path) == {"deep/folder/a": b"1", "deep/folder/sub/b": b"2"}
    assert not leftovers(tmp_path / "deep")


def test_an_existing_folder_is_filled_and_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    inode = folder.stat().st_ino
    with atomic_folder(folder) as draft:
        write_text(draft / "a", "1")
    assert contents(tmp_path) == {"folder/a": b"1"}
    assert folder.stat().st_ino == inode  # a mounted volume cannot be replaced
    assert not leftovers(folder)


@pytest.mark.parametrize("exists", [True, False])
def test_a_failure_leaves_no_folder(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "folder"
    if exists:
        folder.mkdir()
    with pytest.raises(UserError, match="bad"), atomic_folder(folder) as draft:  # noqa: PT012
        write_text(draft / "a", "1")
        raise UserError("bad")
    assert folder.exists() == exists
    assert list(tmp_path.iterdir()) == ([folder] if exists else [])
    assert not exists or not list(folder.iterdir())


def test_a_failed_write_inside_names_the_folder_that_was_asked_for(tmp_path: Path) -> None:
    with (
        pytest.raises(FileError, match=r"^\S+/folder: cannot be written \(no space left"),
        atomic_folder(tmp_path / "folder") as draft,
        atomic_path(draft / "a"),
    ):
        raise OSError(errno.ENOSPC, "full")


def test_what_a_killed_process_left_is_found_and_removed(tmp_path: Path) -> None:
    write_bytes(tmp_path / ".refactorgnn-abc" / "half", b"x")
    write_bytes(tmp_path / "whole", b"y")
    assert leftovers(tmp_path) == [tmp_path / ".refactorgnn-abc"]
    remove_leftovers(tmp_path)
    assert contents(tmp_path) == {"whole": b"y"}
