"""What the README shows works: its Python runs, its commands parse and run on the bundled graph."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from refactorgnn import demo
from tests.conftest import Cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = (ROOT / "docs" / "use.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
# Those on public benchmarks need a copy of them, and are measured in docs/results.
LINES = README.replace("\\\n", "").splitlines()
COMMANDS = [line for line in LINES if line.startswith("refactorgnn ") and "fb237" not in line]
# A server runs until it is stopped: tests/server/test_serving.py, tests/page.
COMMANDS = [line for line in COMMANDS if not line.startswith("refactorgnn serve ")]
# Those about what `make demo` leaves.
AFTER_DEMO = [line for line in COMMANDS if " .demo/" in line]
COMMANDS = [line for line in COMMANDS if line not in AFTER_DEMO]
if importlib.util.find_spec("optuna") is None:  # the extra `tune`, which developers have
    COMMANDS = [line for line in COMMANDS if "tune" not in line]
# The same commands, but quick: the figures are not what is tested here.
QUICK = ("--dim", "8", "--epochs", "2", "--validate-every", "1")


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_python_blocks_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block.replace("n3=0.05", "n3=0.05, dim=8, epochs=2"), "README.md", "exec"), {})


def test_commands_run(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"person {i}\tworked at\tplace {(i * 3 + j) % 7}" for i in range(20) for j in range(4)]
    rows += [f"Marie Curie\tworked at\tplace {j}" for j in range(5)]
    rows += [f"person {i}\tworked at\tSorbonne" for i in range(1, 9)]
    (tmp_path / "mine.tsv").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "docs").symlink_to(ROOT / "docs")  # records that come with a clone
    assert len(COMMANDS) >= 9
    for command in COMMANDS:
        arguments = shlex.split(command)[1:]
        if arguments[0] in ("train", "tune"):
            arguments += QUICK  # the last of two values counts
        outcome = cli(*arguments)
        assert outcome.code == 0, (command, outcome.err)


def test_the_tour_can_be_taken(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    facts = re.search(r"```text\n(Atlantis\t.*?)```", TOUR, flags=re.DOTALL)
    assert facts is not None
    (tmp_path / "atlantis.tsv").write_text(facts[1], encoding="utf-8")
    (tmp_path / "questions.csv").write_text("head,relation,tail\nFrance,borders,\n,speaks,French\n", encoding="utf-8")
    commands = [line for line in TOUR.replace("\\\n", "").splitlines() if line.startswith("refactorgnn ")]
    assert len(commands) == 12
    if importlib.util.find_spec("faiss") is None:  # the extra `ann`, which developers have
        commands = [command for command in commands if "index" not in command]
    for command in commands:
        arguments = shlex.split(command)[1:]
        outcome = cli(*arguments, *(QUICK if arguments[0] == "train" else ()))
        assert outcome.code == 0, (command, outcome.err)
    for block in re.findall(r"```python\n(.*?)```", TOUR, flags=re.DOTALL):
        exec(compile(block, "use.md", "exec"), {})


def test_what_make_demo_leaves_can_be_asked(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "UNSEEN", {**demo.UNSEEN, "dim": 8, "epochs": 1, "draws": 1, "validate_every": 1})
    (tmp_path / ".demo").mkdir()
    demo.train_unseen(Path(".demo/unseen"), Path(".demo/atlantis.tsv"))
    pasted = re.search(r"```text\n( *Atlantis, .*?)```", README, flags=re.DOTALL)
    assert pasted is not None
    assert [tuple(line.strip().split(", ")) for line in pasted[1].splitlines() if line.strip()] == list(demo.ATLANTIS)
    assert len(AFTER_DEMO) == 2
    for command in AFTER_DEMO:
        outcome = cli(*shlex.split(command)[1:])
        assert outcome.code == 0, (command, outcome.err)
