from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import refactorgnn
from refactorgnn import Run, UserError
from refactorgnn.data.thinning import thinned
from refactorgnn.evaluation.protocols import evaluate_ranking
from refactorgnn.models.lookup import Lookup
from refactorgnn.runs import build_model, load_tensors
from refactorgnn.scorers import SCORERS
from refactorgnn.training.beginning import begin_run
from refactorgnn.training.checkpoints import Progress
from refactorgnn.training.config import LookupConfig, TrainConfig
from refactorgnn.training.loop import fit, fit_together
from tests.conftest import QUICK, without_seconds
from tests.training.settings import assert_same_tensors

# As good as not learning at all: what is then measured is the model as it was made.
STILL = {"learning_rate": 1e-12, "epochs": 1, "dim": 8}


def train(tiny: Path, out: Path, **settings: Any) -> Run:
    return refactorgnn.train(tiny, out=out, progress=False, **settings)


# Early stopping --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A training that overfits at once."""
    settings = {"dim": 8, "epochs": 200, "validate_every": 2, "patience": 3, "learning_rate": 0.5, "n3": 0.0}
    return train(tiny, tmp_path_factory.mktemp("stopped") / "run", **settings)


def test_training_stops_when_the_patience_is_used_up(stopped: Run) -> None:
    records = stopped.records()
    validated = [record for record in records if "valid_mrr" in record]
    best = max(validated, key=lambda record: float(record["valid_mrr"]))
    assert [record["epoch"] for record in validated] == list(range(2, len(records) + 1, 2))
    assert len(records) == best["epoch"] + 3 * 2 < 200
    assert stopped.sidecar["best_epoch"] == best["epoch"]


def test_the_weights_kept_are_the_best_and_not_the_last(stopped: Run) -> None:
    best = max(record.get("valid_mrr", 0.0) for record in stopped.records())
    measured = refactorgnn.evaluate(stopped, split="valid").metrics["mrr"]
    assert measured == pytest.approx(best, abs=1e-6)
    assert measured == stopped.sidecar["valid_mrr"]
    assert load_tensors(stopped.weights_path)[1]["valid"]["mrr"] == measured
    kept, last = (load_tensors(path)[0]["states"] for path in (stopped.weights_path, stopped.last_path))
    assert not torch.equal(kept, last)
    assert stopped.records()[-1]["valid_mrr"] < best


def test_the_last_epoch_is_validated_whatever_the_interval(tiny: Path, tmp_path: Path) -> None:
    run = train(tiny, tmp_path / "run", dim=4, epochs=7, validate_every=3)
    assert [record["epoch"] for record in run.records() if "valid_mrr" in record] == [3, 6, 7]


@pytest.mark.parametrize(
    ("epoch", "best_epoch", "exhausted"),
    [
        (0, 0, False),
        (99, 98, False),
        (100, 100, True),  # no epochs left
        (50, 35, True),  # five validations without a better one
        (49, 35, False),
        (50, 38, False),
        (20, 0, False),  # not validated yet
    ],
)
def test_when_training_ends(epoch: int, best_epoch: int, exhausted: bool) -> None:
    config = LookupConfig(dataset="x", epochs=100, validate_every=3, patience=5)
    assert Progress(epoch=epoch, best_epoch=best_epoch).is_exhausted(config) is exhausted


# The loss --------------------------------------------------------------------------------------------------------


def test_an_untrained_model_is_as_wise_as_a_guess(tiny: Path, tmp_path: Path) -> None:
    run = train(tiny, tmp_path / "run", **STILL, n3=0.0)
    assert run.records()[0]["loss"] == pytest.approx(math.log(24), abs=1e-4)


def test_the_recorded_loss_is_the_mean_over_triples_however_they_are_batched(tiny: Path, tmp_path: Path) -> None:
    """Questions have different numbers of answers and the last batch is shorter: a mean of means would differ."""
    settings = {**STILL, "init_scale": 1.0, "n3": 0.05}
    losses = [
        train(tiny, tmp_path / f"run{size}", batch_size=size, **settings).records()[0]["loss"] for size in (7, 10_000)
    ]
    run = Run.open(tmp_path / "run7")
    model = build_model(run.config, run.graph)
    assert isinstance(model, Lookup)
    expected = float(model.loss(run.graph.queries("train")).detach())
    assert losses == pytest.approx([expected, expected], rel=1e-5)


def test_training_lowers_the_loss_and_learns(tiny_run: Run) -> None:
    losses = [record["loss"] for record in tiny_run.records()]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.6 * math.log(24)


# Settings --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tiny, tmp_path_factory.mktemp("plain") / "run", **QUICK | {"epochs": 2})


@pytest.mark.parametrize(
    "setting",
    [
        {"optimizer": "adam"},
        {"learning_rate": 0.05},
        {"dropout": 0.3},
        {"n3": 1.0},
        {"batch_size": 8},
        {"init_scale": 0.1},
        {"seed": 1},
        {"scorer": "complex"},
    ],
    ids=str,
)
def test_a_setting_changes_the_result(setting: dict[str, Any], tiny: Path, plain: Run, tmp_path: Path) -> None:
    run = train(tiny, tmp_path / "run", **QUICK | {"epochs": 2} | setting)
    kept, expected = (load_tensors(each.weights_path)[0]["states"] for each in (run, plain))
    assert kept.shape == expected.shape
    assert not torch.allclose(kept, expected, rtol=1e-3)
    assert run.records()[-1]["loss"] != plain.records()[-1]["loss"]


@pytest.mark.parametrize("budget", [1, 64])
def test_the_memory_budget_changes_no_result(budget: int, tiny: Path, plain: Run, tmp_path: Path) -> None:
    run = train(tiny, tmp_path / "run", **QUICK | {"epochs": 2}, memory_budget_mb=budget)
    losses, expected = ([record["loss"] for record in each.records()] for each in (run, plain))
    assert losses == pytest.approx(expected, rel=1e-5)


def test_n3_keeps_the_states_small(tiny: Path, tmp_path: Path) -> None:
    settings = {"dim": 8, "epochs": 40, "validate_every": 40}
    norms = [
        float(train(tiny, tmp_path / f"{n3}", n3=n3, **settings).load_model().state_dict()["states"].norm())
        for n3 in (0.0, 0.01, 0.3)
    ]
    assert norms[0] > norms[1] > norms[2]


def test_dropout_is_off_when_measuring(tiny: Path, tmp_path: Path) -> None:
    run = train(tiny, tmp_path / "run", **QUICK | {"epochs": 3, "dropout": 0.5})
    first, second = (refactorgnn.evaluate(run, split="valid", confidence=False).metrics for _ in range(2))
    assert first == second
    assert first["mrr"] == pytest.approx(max(record["valid_mrr"] for record in run.records()), abs=1e-6)


@pytest.mark.parametrize("scorer", ["distmult", "complex", "cp", "simple", "rescal", "transe", "rotate"])
def test_every_scorer_learns(scorer: str, tiny: Path, tmp_path: Path) -> None:
    run = train(tiny, tmp_path / "run", scorer=scorer, dim=8, epochs=10, validate_every=5, init_scale=0.3)
    losses = [record["loss"] for record in run.records()]
    assert losses[-1] < 0.9 * losses[0]
    assert refactorgnn.evaluate(run, split="train", confidence=False).metrics["amri"] > 0.3


def test_every_scorer_is_in_the_test_above() -> None:
    (mark,) = test_every_scorer_learns.pytestmark
    assert set(mark.args[1]) == set(SCORERS)


# Settings as such ------------------------------------------------------------------------------------------------


def test_settings_survive_yaml(tmp_path: Path) -> None:
    config = LookupConfig(dataset="Île/[b]", scorer="complex", learning_rate=1e-3, n3=3e-5, dropout=0.25)
    (tmp_path / "config.yaml").write_text(config.to_yaml(), encoding="utf-8")
    assert LookupConfig.from_yaml(tmp_path / "config.yaml") == config


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown setting 'learnign_rate': did you mean 'learning_rate'"):
        refactorgnn.train("countries", learnign_rate=0.1)


def test_a_run_cannot_be_trained_without_validation_triples(run_copy: Path) -> None:
    (run_copy / "graph" / "valid.parquet").unlink()
    with pytest.raises(UserError, match="'tiny' has no validation triples"):
        fit(Run.open(run_copy), progress=False)


class _EnoughError(Exception):
    """Raised to end a training."""


def test_a_validation_can_be_watched_and_end_the_training(tiny_run: Run, tmp_path: Path) -> None:
    """What is seen is what is recorded, and a training that was ended so goes on as if it had not been."""
    seen: list[tuple[int, float]] = []

    def watch(epoch: int, mrr: float) -> None:
        seen.append((epoch, mrr))
        if epoch == 3:
            raise _EnoughError

    run = Run.create(tmp_path / "run", tiny_run.train_config, tiny_run.graph)
    with pytest.raises(_EnoughError):
        fit(run, progress=False, on_validation=watch)
    assert [(record["epoch"], record["valid_mrr"]) for record in run.records()] == [
        (epoch, round(mrr, 6)) for epoch, mrr in seen
    ]
    assert [epoch for epoch, _ in seen] == [1, 2, 3]
    fit(Run.open(run.path), progress=False)
    assert without_seconds(run.records()) == without_seconds(tiny_run.records())


def test_a_validation_knows_a_share_of_the_facts(tiny: Path, tmp_path: Path) -> None:
    """What is recorded is what the best weights reach on the thinned graph, and not on the whole one."""
    settings = {"model": "refactor", "features": "signature", "layers": 2, "dim": 8, "epochs": 4, "validate_every": 1}
    run = refactorgnn.train(tiny, out=tmp_path / "run", progress=False, validation_facts=0.6, **settings)
    graphs = thinned(run.graph, 0.6), run.graph
    known, all_known = (evaluate_ranking(run.load_model().bind(graph), graph, "valid").metrics for graph in graphs)
    assert run.sidecar["valid_mrr"] == pytest.approx(known["mrr"], abs=1e-6)
    assert abs(known["mrr"] - all_known["mrr"]) > 1e-3
    twin = refactorgnn.train(tiny, out=tmp_path / "twin", progress=False, validation_facts=0.6, seed=1, **settings)
    ensemble = refactorgnn.ensemble([run, twin], out=tmp_path / "both", weights=[0.5, 0.5], progress=False)
    assert ensemble.sidecar["candidates"][0]["valid_mrr"] == pytest.approx(known["mrr"], abs=1e-6)
    assert len(ensemble.graph.triples("train")) == len(run.graph.triples("train"))


def test_runs_trained_together_are_as_trained_alone(tiny: Path, tmp_path: Path) -> None:
    """Three runs of different lengths side by side: weights, records and states bit for bit those of each alone."""
    base = {"model": "refactor", "dim": 8, "layers": 2, "features": "signature+random", "dropout": 0.2, "average": 0.5}
    runs = []
    for seed, epochs in ((0, 3), (1, 5), (2, 4)):
        settings = {**base, "seed": seed, "epochs": epochs, "validate_every": 2}
        config = TrainConfig.from_dict({"dataset": str(tiny), **settings})
        runs.append(begin_run(config, tmp_path / f"together-{seed}", resume=False))
        refactorgnn.train(tiny, out=tmp_path / f"alone-{seed}", progress=False, **settings)
    done = fit_together(runs, progress=False)
    assert [one.epoch for one in done] == [3, 5, 4]
    for seed, run in enumerate(runs):
        alone = Run.open(tmp_path / f"alone-{seed}")
        assert_same_tensors(run.weights_path, alone.weights_path)
        assert_same_tensors(run.last_path, alone.last_path)
        assert without_seconds(run.records()) == without_seconds(alone.records())


def test_tf32_is_refused_on_a_cpu(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tf32 needs an NVIDIA GPU"):
        refactorgnn.train(tiny, out=tmp_path / "run", progress=False, model="lookup", dim=8, tf32=True)
    assert not (tmp_path / "run").exists()
