"""What the settings make of the optimiser: clipping, weight decay; and trainings without any step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import refactorgnn
from refactorgnn import Run
from refactorgnn.models.forgetting import OPTIMIZERS
from refactorgnn.runs import load_tensors
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.loop import _make_optimizer
from tests.training.settings import TRAININGS

# One step of SGD over all questions.
ONE_STEP = {"dim": 6, "epochs": 1, "batch_size": 10_000, "optimizer": "sgd", "init_scale": 1.0, "n3": 0.0}


def step_of(tiny: Path, out: Path, **settings: object) -> tuple[torch.Tensor, torch.Tensor]:
    """All weights, end to end, before and after one step."""
    run = refactorgnn.train(tiny, out=out, progress=False, **{**ONE_STEP, **settings})
    before, after = build_model(run.config, run.graph).state_dict(), load_tensors(run.last_path)[0]
    return tuple(torch.cat([each[name].flatten().double() for name in sorted(before)]) for each in (before, after))


def test_a_clipped_step_is_as_long_as_it_may_be(tiny: Path, tmp_path: Path) -> None:
    before, after = step_of(tiny, tmp_path / "free", learning_rate=0.5)
    free = after - before
    norm = float(free.norm()) / 0.5  # of the gradient
    assert norm > 0.2
    before, after = step_of(tiny, tmp_path / "clipped", learning_rate=0.5, clip=0.1)
    clipped = after - before
    assert float(clipped.norm()) == pytest.approx(0.5 * 0.1, rel=1e-4)
    torch.testing.assert_close(clipped / clipped.norm(), free / free.norm(), rtol=1e-3, atol=1e-5)
    before, after = step_of(tiny, tmp_path / "loose", learning_rate=0.5, clip=2 * norm)
    torch.testing.assert_close(after - before, free)


def test_weight_decay_draws_the_weights_to_zero(tiny: Path, tmp_path: Path) -> None:
    before, plain = step_of(tiny, tmp_path / "plain", learning_rate=0.5)
    _, decayed = step_of(tiny, tmp_path / "decayed", learning_rate=0.5, weight_decay=0.1)
    torch.testing.assert_close(decayed - plain, -0.5 * 0.1 * before, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_gets_its_settings(name: str, tiny_run: Run) -> None:
    settings = {"dim": 4, "optimizer": name, "learning_rate": 0.07, "weight_decay": 0.03}
    config = TrainConfig.from_dict({"dataset": "x", **settings})
    optimizer = _make_optimizer(build_model(config, tiny_run.graph), config)
    assert type(optimizer) is OPTIMIZERS[name]
    assert (optimizer.defaults["lr"], optimizer.defaults["weight_decay"]) == (0.07, 0.03)


@pytest.mark.parametrize("name", ["lookup", "layerwise", "forgetting", "gat", "ladies"])
def test_no_epochs_keep_the_initial_values_and_measure_them_once(name: str, tiny: Path, tmp_path: Path) -> None:
    settings = {**TRAININGS[name], "epochs": 0, "progress": False}
    run = refactorgnn.train(tiny, out=tmp_path / "run", **settings)
    initial, kept = build_model(run.config, run.graph).state_dict(), load_tensors(run.weights_path)[0]
    assert initial.keys() == kept.keys()
    assert all(torch.equal(initial[key], kept[key]) for key in initial)
    refactorgnn.train(tiny, out=tmp_path / "run", resume=True, **settings)
    (record,) = run.records()
    assert record["epoch"] == 0
    assert record["valid_mrr"] == pytest.approx(run.sidecar["valid_mrr"], abs=1e-6)
    assert run.sidecar["best_epoch"] == 0
    measured = refactorgnn.evaluate(run, split="valid", confidence=False).metrics["mrr"]
    assert measured == pytest.approx(record["valid_mrr"], abs=1e-6)


def test_a_model_that_is_not_trained_can_be_measured_on_seen_and_unseen_entities(tmp_path: Path) -> None:
    settings = {"model": "no-pretrain", "dim": 16, "features": "signature+random", "progress": False}
    run = refactorgnn.train("countries_part", out=tmp_path / "run", **settings)
    assert [record["epoch"] for record in run.records()] == [0]
    for graph in (None, "countries_part_ind"):
        metrics = refactorgnn.evaluate(run, graph=graph, confidence=False).metrics
        assert 0 < metrics["mrr"] < 0.5
