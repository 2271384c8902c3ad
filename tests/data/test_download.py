"""Getting hold of a dataset: local copies, and downloads from a server of our own that may misbehave."""

from __future__ import annotations

import gzip
import hashlib
import io
import logging
import os
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType

import pytest

from refactorgnn.data import datasets
from refactorgnn.data.datasets import (
    Counts,
    DatasetSpec,
    RemoteFile,
    dataset_folder,
)
from refactorgnn.data.download import PoochBar, download_bars
from refactorgnn.errors import FileError, UserError

CONTENTS = {"train": b"a\tr\tb\nb\tr\tc\n", "valid": b"a\tr\tc\n", "test": b"c\tr\ta\n"}
COUNTS = Counts(3, 1, 2, 1, 1)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def packed(contents: dict[str, bytes], folder: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(folder + name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


class Server:
    """A web server on this machine whose files, failures and visits the tests control."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_short: set[str] = set()
        self.requests: list[str] = []
        handler = self._handler()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.removeprefix("/")
                server.requests.append(name)
                content = server.files.get(name)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if name in server.cut_short else content)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def stop(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = Server()
    running.files = {f"{split}.txt": content for split, content in CONTENTS.items()}
    yield running
    running.stop()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REFACTORGNN_DATA", raising=False)
    monkeypatch.setenv("REFACTORGNN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def register(monkeypatch: pytest.MonkeyPatch, server: Server | None, archive: bytes | None = None) -> DatasetSpec:
    """Make a dataset "toy" known, whose files are on the server."""
    url = server.url if server else "http://127.0.0.1:9"
    files = {
        split: RemoteFile(sha256(content), None if archive else f"{url}/{split}.txt")
        for split, content in CONTENTS.items()
    }
    whole = RemoteFile(sha256(archive), f"{url}/toy.tar.gz") if archive else None
    spec = DatasetSpec("toy", "a toy", "made up", COUNTS, files, archive=whole)
    monkeypatch.setattr(datasets, "DATASETS", MappingProxyType({"toy": spec}))
    return spec


def assert_holds_toy(folder: Path) -> None:
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        f"{split}.txt": content for split, content in CONTENTS.items()
    }


def assert_nothing_left(cache: Path) -> None:
    assert list(cache.rglob("*")) == []


# Local copies


def local_copy(root: Path, end: str = ".txt") -> Path:
    folder = root / "toy"
    folder.mkdir(parents=True)
    for split, content in CONTENTS.items():
        (folder / f"{split}{end}").write_bytes(gzip.compress(content, mtime=0) if end.endswith("gz") else content)
    return folder


@pytest.mark.parametrize("end", [".txt", ".txt.gz"])
@pytest.mark.parametrize("by_variable", [False, True])
def test_local_copies_are_used_and_nothing_is_downloaded(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, end: str, by_variable: bool
) -> None:
    register(monkeypatch, None)
    folder = local_copy(tmp_path / "data", end)
    if by_variable:
        monkeypatch.setenv("REFACTORGNN_DATA", str(tmp_path / "data"))
        assert dataset_folder("TOY") == folder
    else:
        monkeypatch.setenv("REFACTORGNN_DATA", str(tmp_path / "elsewhere"))
        assert dataset_folder("toy", tmp_path / "data") == folder
    assert not cache.exists()


def test_missing_local_copies_name_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, None)
    with pytest.raises(UserError, match=f"{tmp_path}/data does not exist; add it, or unset REFACTORGNN_DATA"):
        dataset_folder("toy", tmp_path / "data")
    (tmp_path / "data").mkdir()
    with pytest.raises(UserError, match=f"{tmp_path}/data/toy does not exist"):
        dataset_folder("toy", tmp_path / "data")
    folder = local_copy(tmp_path / "other")
    (folder / "valid.txt").unlink()
    with pytest.raises(UserError, match=rf"neither {folder}/valid\.txt nor valid\.txt\.gz exists"):
        dataset_folder("toy", tmp_path / "other")


def test_wrong_local_copies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, None)
    folder = local_copy(tmp_path)
    (folder / "test.txt").write_bytes(b"x\ty\tz\n")
    with pytest.raises(FileError, match="replace it by the original of toy") as caught:
        dataset_folder("toy", tmp_path)
    assert caught.value.path == folder / "test.txt"
    assert sha256(b"x\ty\tz\n")[:12] in str(caught.value)
    assert sha256(CONTENTS["test"])[:12] in str(caught.value)


# Downloads


def test_download_then_cache(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, server)
    folder = dataset_folder("toy")
    assert folder == cache / "toy"
    assert_holds_toy(folder)
    assert [path.name for path in cache.iterdir()] == ["toy"], "no scratch folder may stay behind"
    assert sorted(server.requests) == ["test.txt", "train.txt", "valid.txt"]
    server.stop()
    assert dataset_folder("toy") == folder


def test_files_in_the_cache_can_be_shared(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, server)
    before = os.umask(0o022)
    try:
        folder = dataset_folder("toy")
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


@pytest.mark.parametrize("folder", ["", "deep/inside/"])
def test_download_of_an_archive(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    members = {f"{split}.txt": content.rstrip(b"\n") for split, content in CONTENTS.items()}
    members |= {"readme.txt": b"hello", "._train.txt": b"\0"}
    server.files["toy.tar.gz"] = packed(members, folder)
    register(monkeypatch, server, server.files["toy.tar.gz"])
    downloaded = dataset_folder("toy")
    assert sorted(path.name for path in downloaded.iterdir()) == ["test.txt", "train.txt", "valid.txt"]
    assert server.requests == ["toy.tar.gz"]


def test_an_archive_without_a_split_is_refused(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["toy.tar.gz"] = packed({"train.txt": CONTENTS["train"], "test.txt": b"other"})
    register(monkeypatch, server, server.files["toy.tar.gz"])
    with pytest.raises(UserError, match=r"archive of toy does not hold the expected valid\.txt"):
        dataset_folder("toy")
    assert_nothing_left(cache)


def test_wrong_checksum_leaves_nothing(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, server)
    server.files["test.txt"] = b"x\ty\tz\n"
    with pytest.raises(UserError, match=r"cannot download toy test: .*checksum.*REFACTORGNN_DATA or --data-root"):
        dataset_folder("toy")
    assert_nothing_left(cache)


def test_interrupted_transfer_leaves_nothing(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, server)
    server.cut_short = {"valid.txt"}
    with pytest.raises(UserError, match="cannot download toy valid: "):
        dataset_folder("toy")
    assert_nothing_left(cache)
    server.cut_short = set()
    assert_holds_toy(dataset_folder("toy"))


def test_missing_on_the_server(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, server)
    del server.files["train.txt"]
    with pytest.raises(UserError, match=r"cannot download toy train: .* answered 404 Not Found"):
        dataset_folder("toy")
    assert_nothing_left(cache)


def test_no_network_is_one_sentence(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, server)
    server.stop()
    with pytest.raises(UserError) as caught:
        dataset_folder("toy")
    assert str(caught.value) == (
        "cannot download toy train: there is no connection to 127.0.0.1; try again later,"
        " or set REFACTORGNN_DATA or --data-root to a folder with a local copy."
    )
    assert_nothing_left(cache)


def test_damaged_cache_is_refused_and_mended_by_deleting(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, server)
    damaged = dataset_folder("toy") / "valid.txt"
    damaged.write_bytes(b"half")
    with pytest.raises(FileError, match=r"delete valid\.txt there to download it again"):
        dataset_folder("toy")
    damaged.unlink()
    assert_holds_toy(dataset_folder("toy"))


def test_unwritable_cache(server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, server)
    cache.write_text("a file where a folder should be")
    with pytest.raises(FileError, match="cannot be written"):
        dataset_folder("toy")


def test_download_is_silent(
    server: Server,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    register(monkeypatch, server)
    with caplog.at_level(logging.INFO):
        dataset_folder("toy", progress=True)
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.name == "pooch"] == []


def test_bar_counts_bytes_and_never_passes_the_end() -> None:
    with download_bars(enabled=False) as bars:
        bar = PoochBar(bars, "toy")
        assert bars.tasks[0].total is None, "the size is not known before the server has answered"
        bar.total = 100
        for _ in range(3):
            bar.update(64)
        assert (bar.total, bars.tasks[0].completed) == (100, 100)
        bar.reset()
        assert bars.tasks[0].completed == 0
        bar.update(100)
        bar.close()
        assert bars.finished
