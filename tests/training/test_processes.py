"""Two processes on the CPU train what one trains; mistakes in them come out as one sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import refactorgnn
from refactorgnn import Run, UserError
from refactorgnn.data.queries import QueryIndex
from refactorgnn.runs import load_tensors
from refactorgnn.training import checkpoints, processes
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.loop import _Training, fit
from refactorgnn.training.processes import Share, launch, make_fabric
from tests.conftest import without_seconds
from tests.strategies import Case, cases
from tests.training.settings import TRAININGS, triples_of

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TWO = {"devices": "2", "accelerator": "cpu"}
# Without dropout, whose masks cannot be the same; batches of lookup and forgetting are of odd sizes.
KINDS: dict[str, dict[str, Any]] = {
    "lookup": {**TRAININGS["lookup"], "dropout": 0.0, "batch_size": 15},
    # 122 questions: one is left over, and the second process has nothing to do.
    "rotate": {"model": "lookup", "scorer": "rotate", "dim": 8, "batch_size": 121, "n3": 0.0, "init_scale": 0.1},
    "layerwise": {**TRAININGS["layerwise"], "dropout": 0.0},
    "parts": {**TRAININGS["parts"], "clip": 0.1, "optimizer": "sgd", "learning_rate": 1.0},
    "inf": TRAININGS["inf"],
    "gat": {**TRAININGS["gat"], "dropout": 0.0},
    "forgetting": {**TRAININGS["forgetting"], "dropout": 0.0, "batch_size": 15},
}
SHARED = {"epochs": 3, "validate_every": 2}


# The share of a process --------------------------------------------------------------------------------------------


@given(case=cases(), world_size=st.integers(1, 5))
@settings(max_examples=30, deadline=None)
def test_shares_partition_the_questions(case: Case, world_size: int) -> None:
    shares = [Share(rank, world_size).of(case.queries) for rank in range(world_size)]
    together = torch.cat([triples_of(share) for share in shares])
    assert sorted(together.tolist()) == sorted(case.triples.tolist())
    keys = torch.cat([share.subjects * case.num_relations + share.relations for share in shares])
    assert len(keys.unique()) == len(keys) == case.queries.num_queries
    sizes = [share.num_queries for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_one_process_takes_the_batch_as_it_is() -> None:
    queries = QueryIndex.from_triples(torch.tensor([[0, 0, 1]]), 2, 1)
    assert Share().of(queries) is queries


@pytest.mark.parametrize("name", ["layerwise", "unrolled", "forgetting", "gat"])
def test_what_a_step_draws_does_not_change_the_next_batch(name: str, tiny: Path, tmp_path: Path) -> None:
    """Dropout of a share draws as much as the share is large; processes must agree on the facts all the same."""
    settings = {"model": "forgetting", "batch_size": 50} if name == "forgetting" else TRAININGS[name]
    config = TrainConfig.from_dict({"dataset": str(tiny), **settings})
    run = Run.create(tmp_path / "run", config, refactorgnn.load_graph(tiny))
    training, seen = _Training(run, make_fabric(config), progress=False), []
    for num_drawn in (0, 7):
        batches = []
        for batch in training._seeded_batches(epoch=1):
            batches.append(batch[0] if isinstance(batch, tuple) else getattr(batch, "support", batch))
            torch.rand(num_drawn)
        seen.append([triples_of(batch).tolist() for batch in batches])
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][1]


# The machine -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("devices", "num_processes"), [("1", 1), ("auto", 1), ("2", 2), ("3", 3)])
def test_devices_are_processes_on_the_cpu(devices: str, num_processes: int) -> None:
    fabric = make_fabric(TrainConfig(dataset="x", model="lookup", devices=devices, accelerator="cpu"))
    assert fabric.world_size == num_processes


def test_what_this_machine_does_not_have_is_refused_in_one_sentence() -> None:
    with pytest.raises(UserError, match="cannot be used here") as caught:
        make_fabric(TrainConfig(dataset="x", model="lookup", accelerator="cpu", devices="0,"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "needed"), [("layerwise", True), ("unrolled", False), ("lookup", False)])
def test_unused_parameters_are_looked_for_where_there_are_some(name: str, needed: bool) -> None:
    config = TrainConfig.from_dict({"dataset": "x", **TRAININGS[name]})
    assert processes._ddp_options(config)["find_unused_parameters"] is needed


# Two processes -----------------------------------------------------------------------------------------------------


def _train_all(fabric: Fabric, folder: Path, names: list[str]) -> None:
    """What each of the two processes does; they are started once for all kinds, which is what takes the time."""
    for name in names:
        fit(Run.open(folder / name), fabric, progress=False)
    # Interrupted after an epoch of three, to be resumed with one process.
    _next_epoch(_Training(Run.open(folder / "interrupted"), fabric, progress=False))
    # With dropout, shares of different sizes draw differently: the processes must agree on facts and cache even so.
    training = _Training(Run.open(folder / "dropout"), fabric, progress=False)
    for _ in range(3):
        _next_epoch(training)
    for tensor in (training.regime.states, training.model.relation_embeddings):
        ours, theirs = fabric.all_gather(tensor.detach())
        if not torch.equal(ours, theirs):
            raise AssertionError(f"the processes differ by {(ours - theirs).abs().max()}")


def _next_epoch(training: _Training) -> None:
    checkpoints.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    training.start_epoch()
    training.end_epoch()


@pytest.fixture(scope="module")
def two_processes(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs, all trained by one pair of processes."""
    folder = tmp_path_factory.mktemp("two")
    graph = refactorgnn.load_graph(tiny)
    kinds = {**KINDS, "interrupted": KINDS["lookup"], "dropout": {**KINDS["layerwise"], "layers": 4, "dropout": 0.3}}
    for name, kind in kinds.items():
        config = TrainConfig.from_dict({"dataset": str(tiny), **SHARED, **kind, **TWO})
        Run.create(folder / name, config, graph)
    config = TrainConfig.from_dict({"dataset": str(tiny), **KINDS["layerwise"], **TWO})
    launch(make_fabric(config), _train_all, folder, list(KINDS))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_two_processes_train_what_one_trains(name: str, two_processes: Path, tiny: Path, tmp_path: Path) -> None:
    alone = refactorgnn.train(tiny, out=tmp_path / "one", progress=False, **SHARED, **KINDS[name])
    assert_alike(Run.open(two_processes / name), alone)


@pytest.mark.slow
def test_a_training_of_two_processes_goes_on_with_one(two_processes: Path, tiny: Path, tmp_path: Path) -> None:
    path = two_processes / "interrupted"
    assert [record["epoch"] for record in Run.open(path).records()] == [1]
    resumed = refactorgnn.train(tiny, out=path, resume=True, progress=False, **SHARED, **KINDS["lookup"])
    assert resumed.train_config.devices == "1"
    alone = refactorgnn.train(tiny, out=tmp_path / "one", progress=False, **SHARED, **KINDS["lookup"])
    assert_alike(resumed, alone)


def assert_alike(ours: Run, theirs: Run) -> None:
    left, right = (load_tensors(run.last_path)[0] for run in (ours, theirs))
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(
            left[name], right[name], rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text
        )
    records = [without_seconds(run.records()) for run in (ours, theirs)]
    assert len(records[0]) == SHARED["epochs"]
    for mine, other in zip(*records, strict=True):
        assert mine == pytest.approx(other, rel=1e-4, abs=1e-4)


@pytest.mark.slow
def test_a_mistake_in_a_process_is_one_sentence_to_the_caller(tiny: Path, tmp_path: Path) -> None:
    out = {"out": tmp_path / "run", "progress": False, "dim": 4, **TWO}
    with pytest.raises(UserError) as caught:
        refactorgnn.train(tiny, **out, learning_rate=1e30, epochs=3, validate_every=3)
    assert str(caught.value) == "the loss is not a number in epoch 2: choose a smaller learning rate or init scale."


def fail_beside_one_that_waits(fabric: Fabric) -> None:
    """The first process makes a mistake while the other waits for a message that never comes."""
    if fabric.global_rank == 0:
        raise UserError("a mistake of the first process.")
    torch.distributed.recv(torch.zeros(1), src=0)


@pytest.mark.slow
def test_a_process_that_fails_waits_for_no_other() -> None:
    with pytest.raises(UserError, match="a mistake of the first process"):
        launch(make_fabric(TrainConfig(dataset="any", model="lookup", **TWO)), fail_beside_one_that_waits)


# The command -------------------------------------------------------------------------------------------------------


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment = {key: value for key, value in environment.items() if key not in ("LOCAL_RANK", "MASTER_PORT")}
    full = [sys.executable, "-m", "refactorgnn", "train", *map(str, arguments)]
    return subprocess.run(full, capture_output=True, text=True, timeout=120, env=environment, check=False)


@pytest.mark.slow
def test_the_command_starts_itself_again(tiny: Path, tmp_path: Path) -> None:
    options = ("--dim", "8", "--epochs", "2", "--batch-size", "16", "--accelerator", "cpu", "--out", tmp_path / "run")
    outcome = command(tiny, *options, "--devices", "2", "--strategy", "ddp", "--json")
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout)["best_epoch"] in (1, 2)  # one of the two speaks
    alone = refactorgnn.train(tiny, out=tmp_path / "one", progress=False, dim=8, epochs=2, batch_size=16)
    losses = [[record["loss"] for record in run.records()] for run in (Run.open(tmp_path / "run"), alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.slow
def test_the_command_complains_once(tiny: Path, tmp_path: Path) -> None:
    options = ("--dim", "4", "--learning-rate", "1e30", "--accelerator", "cpu", "--out", tmp_path / "run")
    outcome = command(tiny, *options, "--devices", "2", "--strategy", "ddp")
    assert outcome.returncode == 2
    assert outcome.stdout == ""
    assert outcome.stderr.count("error: the loss is not a number") == outcome.stderr.count("\n") == 1


def test_a_helper_whose_first_process_has_ended_leaves_the_word_to_it(tmp_path: Path) -> None:
    """The folder of complaints may go at any moment, also between a look at it and a look into it."""
    assert not processes._is_told(tmp_path)
    (tmp_path / "0").write_text("the loss is not a number", encoding="utf-8")
    assert processes._is_told(tmp_path)
    assert processes._is_told(tmp_path / "gone")
