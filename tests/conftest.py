"""What several test modules share: a tiny graph on disk, a run trained on it, and the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import refactorgnn
from refactorgnn import Run
from refactorgnn.cli import main
from refactorgnn.training import checkpoints

# Tensors in tests are tiny: a second thread only adds waiting, most of all on a busy machine.
torch.set_num_threads(1)
# Whoever runs the tests may say how wide a terminal is; what is printed into a file is as wide as it needs to be.
os.environ.pop("COLUMNS", None)

# A name that rich would take for markup and an emoji, and that ASCII cannot hold.
ODD_NAME = "Île [/b] :smile:"
NUM_PEOPLE = 24
# Settings under which a training takes a fraction of a second.
QUICK = {"dim": 8, "epochs": 6, "validate_every": 1, "batch_size": 16}
QUICK_OPTIONS = ("--dim", "8", "--epochs", "6", "--validate-every", "1", "--batch-size", "16")


def person(number: int) -> str:
    return ODD_NAME if number % NUM_PEOPLE == 5 else f"person {number % NUM_PEOPLE}"


def tiny_triples() -> dict[str, list[tuple[str, str, str]]]:
    """Three relations on a ring of people; every entity and relation occurs in train."""
    splits: dict[str, list[tuple[str, str, str]]] = {"train": [], "valid": [], "test": []}
    for number in range(NUM_PEOPLE):
        splits["train"].append((person(number), "twin of", person(number ^ 1)))
        for relation, step in (("next to", 1), ("across", 7)):
            split = {3: "valid", 8: "test"}.get((number + step) % 11, "train")
            splits[split].append((person(number), relation, person(number + step)))
    for split, number in (("valid", 0), ("test", 2)):  # its mirror image stays in train
        splits["train"].remove(triple := (person(number), "twin of", person(number + 1)))
        splits[split].append(triple)
    return splits


def rows(triples: list[tuple[str, str, str]]) -> str:
    return "".join("\t".join(triple) + "\n" for triple in triples)


def write_folder(folder: Path, **files: str | bytes) -> Path:
    """A folder of files ``NAME.tsv``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.tsv").write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and what is in it, to see that nothing changed."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def without_seconds(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder dataset: 24 entities, 3 relations."""
    splits = {split: rows(triples) for split, triples in tiny_triples().items()}
    return write_folder(tmp_path_factory.mktemp("data") / "tiny", **splits)


@pytest.fixture(scope="session")
def tiny_run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run trained on ``tiny``; not to be changed."""
    return refactorgnn.train(tiny, out=tmp_path_factory.mktemp("runs") / "tiny", progress=False, **QUICK)


@pytest.fixture
def run_copy(tiny_run: Run, tmp_path: Path) -> Path:
    """A copy of ``tiny_run`` to damage."""
    return Path(shutil.copytree(tiny_run.path, tmp_path / "run"))


@dataclass(frozen=True)
class Outcome:
    """What a command did: its exit code and what it printed."""

    code: int
    out: str
    err: str

    def refused(self, *fragments: str | Path) -> None:
        """It failed with exit code 2 and one sentence that has all the fragments in it."""
        assert self.code == 2, self
        assert self.out == ""
        assert self.err.startswith("error: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert self.err.endswith((".\n", "?\n")), self.err
        for fragment in fragments:
            assert str(fragment) in self.err


Cli = Callable[..., Outcome]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in this process."""

    def call(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["refactorgnn", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        code = exit_.value.code
        return Outcome(code if isinstance(code, int) else 0, *capsys.readouterr())

    return call


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A disk of a size like ``"64k"``; called again with another size, the same disk grows."""
    mount_point = tmp_path / "disk"

    def resize(size: str) -> Path:
        mounted = mount_point.is_mount()
        mount_point.mkdir(exist_ok=True)
        options = f"{'remount,' if mounted else ''}size={size}"
        try:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "none", mount_point], check=True, capture_output=True
            )
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"a small disk needs the right to mount one: {error}")
        return mount_point

    yield resize
    if mount_point.is_mount():
        subprocess.run(["umount", mount_point], check=True)


@pytest.fixture(autouse=True)
def _checkpoint_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of tests take milliseconds; with a state on disk after each, a resume has something to go on from."""
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
