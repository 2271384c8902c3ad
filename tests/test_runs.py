"""Run folders: what is in them, that the same command makes the same one, and that a kill does no harm."""

from __future__ import annotations

import ast
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import refactorgnn
from refactorgnn import Run, storage
from refactorgnn.cli import main
from refactorgnn.runs import load_tensors, save_tensors
from refactorgnn.storage import leftovers
from refactorgnn.training import checkpoints
from refactorgnn.training.loop import _Training
from tests.conftest import QUICK, QUICK_OPTIONS, Cli, contents, without_seconds

SOURCES = sorted(Path(refactorgnn.__file__).parent.rglob("*.py"))
FILES = {"config.yaml", "metrics.jsonl", "model.json", "model.safetensors", "last.safetensors"}


# What is in a run ------------------------------------------------------------------------------------------------


def test_the_files_of_a_run(tiny_run: Run) -> None:
    found = set(contents(tiny_run.path))
    assert found == FILES | {f"graph/{split}.parquet" for split in ("train", "valid", "test")}
    assert [record["epoch"] for record in tiny_run.records()] == [1, 2, 3, 4, 5, 6]
    assert tiny_run.config.model_dump() == {**tiny_run.config.model_dump(), **QUICK}


def test_the_graph_comes_back_as_it_was(tiny_run: Run, tiny: Path) -> None:
    graph = refactorgnn.load_graph(tiny)
    assert tiny_run.graph.entities == graph.entities
    assert tiny_run.graph.relations == graph.relations
    assert tiny_run.graph.name == "tiny"
    for split, triples in graph.splits.items():
        assert torch.equal(tiny_run.graph.triples(split), triples)


def test_the_sidecar_says_what_the_weights_are(tiny_run: Run) -> None:
    about = json.loads((tiny_run.path / "model.json").read_text())
    best = max(tiny_run.records(), key=lambda record: float(record["valid_mrr"]))
    assert about["num_parameters"] == (24 + 2 * 3) * 8
    assert about["best_epoch"] == best["epoch"]
    assert about["valid_mrr"] == pytest.approx(best["valid_mrr"], abs=1e-6)
    assert about["entities_sha256"] == tiny_run.graph.entities.sha256
    assert {"commit", "command", "hardware", "torch", "version"} <= set(about["trained_with"])


def test_no_file_of_a_run_is_a_pickle(tiny_run: Run) -> None:
    for name, content in contents(tiny_run.path).items():
        assert not content.startswith((b"PK", b"\x80")), name  # torch.save writes zips, pickle starts with 0x80
    for path in tiny_run.path.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            assert set(file.keys()) >= {"states", "relations"}


def test_nothing_in_the_package_can_read_or_write_pickles() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
                assert not names & {"pickle", "cPickle", "dill", "joblib", "shelve", "marshal", "cloudpickle"}, path
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
                assert node.attr not in ("load", "save"), path
            if isinstance(node, ast.Call):
                assert "allow_pickle" not in {keyword.arg for keyword in node.keywords}, path


def test_tensors_come_back_bit_by_bit(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 4), "b": torch.tensor(7), "c": torch.randn(4, 3).T}
    save_tensors(tmp_path / "x.safetensors", tensors, epoch=3, best_mrr=0.1 + 0.2)
    found, about = load_tensors(tmp_path / "x.safetensors")
    assert about == {"epoch": 3, "best_mrr": 0.1 + 0.2}
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_record_cut_short_by_a_kill_is_left_out(run_copy: Path) -> None:
    run = Run.open(run_copy)
    whole = run.records()
    with (run_copy / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 7, "lo')
    assert run.records() == whole
    run.drop_records_after(4)
    assert [record["epoch"] for record in run.records()] == [1, 2, 3, 4]


def test_an_interrupted_run_can_be_measured_and_recorded(cli: Cli, run_copy: Path, tmp_path: Path) -> None:
    sidecar = json.loads((run_copy / "model.json").read_text())
    for key in ("best_epoch", "valid_mrr", "seconds"):
        del sidecar[key]
    (run_copy / "model.json").write_text(json.dumps(sidecar))
    assert cli("evaluate", run_copy, "--json", "--record", tmp_path / "record.json").code == 0
    assert json.loads((tmp_path / "record.json").read_text())["training"]["best_epoch"] is None


# The same again, in other processes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Makes processes that have imported the package already: torch takes seconds to import."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["refactorgnn.cli", "torch._dynamo", "tests.test_runs"])
    return context


def run_command(arguments: list[str], stderr: str, fatal_write: int = 0) -> None:
    """Run the command line; SIGKILL strikes when the file of number ``fatal_write`` is about to be moved into place."""
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs the tests in the background
    torch.set_num_threads(1)  # on a busy machine two threads wait for each other at every small operation
    if fatal_write:
        checkpoints.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    real_fsync, writes = os.fsync, []

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        writes.append(descriptor)
        if len(writes) == fatal_write:
            os.kill(os.getpid(), signal.SIGKILL)

    storage.os.fsync = fsync
    sys.argv = ["refactorgnn", *arguments]
    main()


StartTraining = Callable[..., BaseProcess]


@pytest.fixture
def start_training(processes: ForkServerContext, tiny: Path, tmp_path: Path) -> StartTraining:
    def start(*options: str, fatal_write: int = 0) -> BaseProcess:
        arguments = ["train", str(tiny), "--out", str(tmp_path / "run"), *options]
        process = processes.Process(target=run_command, args=(arguments, str(tmp_path / "stderr"), fatal_write))
        process.start()
        return process

    return start


def finished(process: BaseProcess) -> int | None:
    process.join(60)
    return process.exitcode


def wait_for_records(process: BaseProcess, path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while not path.is_file() or path.read_bytes().count(b"\n") < count:
        assert process.is_alive(), "the training ended before it could be interrupted"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_the_same_command_makes_the_same_run(
    start_training: StartTraining, tiny_run: Run, tmp_path: Path, cli: Cli
) -> None:
    """Another process, with another hash seed: bit-identical weights and graph, the same metrics."""
    assert finished(start_training(*QUICK_OPTIONS)) == 0
    again = Run.open(tmp_path / "run")
    ours, theirs = contents(tiny_run.path), contents(again.path)
    identical = {"model.safetensors", "config.yaml", *(name for name in ours if name.startswith("graph/"))}
    assert {name: theirs[name] for name in identical} == {name: ours[name] for name in identical}
    assert without_seconds(again.records()) == without_seconds(tiny_run.records())
    last, about = load_tensors(again.last_path)
    expected, expected_about = load_tensors(tiny_run.last_path)
    assert all(torch.equal(last[name], tensor) for name, tensor in expected.items())
    assert without_seconds([about]) == without_seconds([expected_about])
    first, second = (json.loads(cli("evaluate", run.path, "--json").out) for run in (tiny_run, again))
    assert without_seconds([first]) == without_seconds([second])


# A run of six epochs, each the best so far, writes three files of triples, model.json, metrics.jsonl and config.yaml
# (1–6); metrics.jsonl again (7); then in each epoch the weights and the state (8–19); model.json again (20).
@pytest.mark.parametrize("fatal_write", [2, 6, 7, 8, 9, 10, 15, 19, 20])
def test_a_run_killed_at_any_write_resumes_to_the_same_end(
    fatal_write: int, start_training: StartTraining, tiny_run: Run, tiny: Path, tmp_path: Path, cli: Cli
) -> None:
    assert finished(start_training(*QUICK_OPTIONS, fatal_write=fatal_write)) == -signal.SIGKILL
    path = tmp_path / "run"
    assert path.exists() == (fatal_write > 6)  # the folder appears complete
    assert cli("train", tiny, "--out", path, "--resume", *QUICK_OPTIONS).code == 0
    resumed = Run.open(path)
    assert resumed.weights_path.read_bytes() == tiny_run.weights_path.read_bytes()
    assert without_seconds(resumed.records()) == without_seconds(tiny_run.records())
    assert resumed.sidecar["best_epoch"] == tiny_run.sidecar["best_epoch"]
    assert set(contents(path)) == set(contents(tiny_run.path))
    assert not leftovers(path)


def test_a_run_killed_again_and_again_resumes_to_the_same_end(
    start_training: StartTraining, tiny: Path, tmp_path: Path
) -> None:
    """Kills from outside, at moments nobody chose; Adam, dropout and a validation now and then."""
    settings = {"dim": 8, "epochs": 40, "validate_every": 2, "patience": 40, "batch_size": 32, "dropout": 0.2}
    options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    options += ["--optimizer", "adam", "--learning-rate", "0.01", "--resume"]
    for count in (3, 14, 25):
        process = start_training(*options)
        wait_for_records(process, tmp_path / "run" / "metrics.jsonl", count)
        process.kill()
        assert finished(process) == -signal.SIGKILL
    assert finished(start_training(*options)) == 0
    resumed = Run.open(tmp_path / "run")
    straight = refactorgnn.train(
        tiny, out=tmp_path / "straight", optimizer="adam", learning_rate=0.01, progress=False, **settings
    )
    assert [record["epoch"] for record in resumed.records()] == list(range(1, 41))
    assert without_seconds(resumed.records()) == without_seconds(straight.records())
    assert resumed.weights_path.read_bytes() == straight.weights_path.read_bytes()


def test_ctrl_c_ends_with_130_and_a_sentence(start_training: StartTraining, tmp_path: Path, cli: Cli) -> None:
    process = start_training("--dim", "8", "--epochs", "100000", "--patience", "100000")
    wait_for_records(process, tmp_path / "run" / "metrics.jsonl", 4)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    assert finished(process) == 130
    said = (tmp_path / "stderr").read_text()
    assert said.startswith("interrupted: ")
    assert "--resume" in said
    assert said.count("\n") == 1
    assert not leftovers(tmp_path / "run")
    assert cli("evaluate", tmp_path / "run", "--json").code == 0  # the best so far is there


def test_resuming_a_finished_run_changes_nothing(cli: Cli, tiny: Path, run_copy: Path) -> None:
    before = contents(run_copy)
    assert cli("train", tiny, "--out", run_copy, "--resume", *QUICK_OPTIONS).code == 0
    assert contents(run_copy) == before


@pytest.mark.parametrize("has_log", [True, False])
def test_a_finished_run_needs_its_weights_only(has_log: bool, cli: Cli, tiny: Path, run_copy: Path) -> None:
    (run_copy / "last.safetensors").unlink()
    if not has_log:
        (run_copy / "metrics.jsonl").write_text("")
    before = contents(run_copy)
    assert cli("train", tiny, "--out", run_copy, "--resume", *QUICK_OPTIONS).code == 0
    assert contents(run_copy) == before


def test_a_finished_run_without_epochs_stays_as_it_is(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    command = "train", tiny, "--out", tmp_path / "run", "--model", "ppr"
    assert cli(*command).code == 0
    before = contents(tmp_path / "run")
    assert cli(*command, "--resume").code == 0
    assert contents(tmp_path / "run") == before


def test_resuming_what_is_not_there_starts_it(cli: Cli, tiny: Path, tiny_run: Run, tmp_path: Path) -> None:
    assert cli("train", tiny, "--out", tmp_path / "run", "--resume", *QUICK_OPTIONS).code == 0
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == tiny_run.weights_path.read_bytes()


def test_to_resume_takes_nothing_but_the_run(
    cli: Cli, tiny: Path, tiny_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = _Training.start_epoch

    def start_epoch(training: _Training) -> None:
        if training.done.epoch == 3:
            raise KeyboardInterrupt
        original(training)

    with monkeypatch.context() as patch:
        patch.setattr(_Training, "start_epoch", start_epoch)
        with pytest.raises(KeyboardInterrupt):
            refactorgnn.train(tiny, out=tmp_path / "run", progress=False, **QUICK)
    assert len(Run.open(tmp_path / "run").records()) < QUICK["epochs"]
    assert cli("train", "--resume", "--out", tmp_path / "run").code == 0
    assert Run.open(tmp_path / "run").weights_path.read_bytes() == tiny_run.weights_path.read_bytes()
    cli("train", "--resume", "--out", tmp_path / "elsewhere").refused("missing argument dataset")
    cli("train", "--resume", "--out", tmp_path / "run", "--dim", "16").refused("other settings (dim was 8)")
