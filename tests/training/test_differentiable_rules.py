"""Neural-LP and DRUM in the project's own loop: they find a planted rule, and resume bit for bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

import refactorgnn
from refactorgnn import Run, UserError
from refactorgnn.models.rivals.rules_protocol import LearnedRules
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.loop import fit
from refactorgnn.training.processes import Share
from tests.conftest import Cli, rows, without_seconds, write_folder
from tests.training.settings import assert_same_tensors, make

MODELS = ("neural-lp", "drum")
QUICK = {"dim": 8, "rule_length": 2, "epochs": 4, "batch_size": 16, "validate_every": 2, "learning_rate": 0.01}


class _EnoughError(Exception):
    """Raised to end a training."""


def planted(folder: Path, name: str, seed: int) -> Path:
    """``uncle`` is ``parent`` followed by ``brother``; some of its facts are left to be found.

    Everyone has a parent and a brother, so that each other chain leads somewhere, and mostly to a wrong answer.
    """
    draw = random.Random(seed)
    people = [f"{name} {number}" for number in range(30)]
    parent, brother = ({person: draw.choice(people) for person in people} for _ in range(2))
    uncle = [(person, "uncle", brother[parent[person]]) for person in people]
    train = [(person, "parent", parent[person]) for person in people] + uncle[12:]
    train += [(person, "brother", brother[person]) for person in people]
    return write_folder(folder / name, train=rows(train), valid=rows(uncle[:6]), test=rows(uncle[6:12]))


@pytest.mark.parametrize("model", MODELS)
def test_a_planted_rule_is_found_and_holds_on_an_unseen_graph(model: str, tmp_path: Path) -> None:
    here, elsewhere = planted(tmp_path, "Anna", 0), planted(tmp_path, "Otto", 1)
    settings = {**QUICK, "dim": 16, "epochs": 20, "validate_every": 20, "learning_rate": 0.02}
    run = refactorgnn.train(here, model=model, out=tmp_path / "run", progress=False, **settings)
    assert refactorgnn.evaluate(run, split="test").metrics["mrr"] >= 0.9
    assert refactorgnn.evaluate(run, graph=elsewhere, split="test").metrics["mrr"] >= 0.9
    trained = run.load_model()
    assert isinstance(trained, LearnedRules)
    relations = run.graph.relations
    brother, parent, uncle = (relations.id(name) for name in ("brother", "parent", "uncle"))
    forwards, backwards = trained.rules(uncle, 5), trained.rules(uncle + len(relations), 5)
    assert forwards[0].body == (parent, brother)
    assert backwards[0].body == (brother + len(relations), parent + len(relations))
    assert min(forwards[0].confidence, backwards[0].confidence) > 0.5
    assert forwards[0].in_words(uncle, trained.relation_names) == "uncle(X, Y) ← parent(X, A), brother(A, Y)"


@pytest.mark.parametrize("model", MODELS)
def test_a_resumed_training_ends_where_one_in_one_go_does(model: str, tiny: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**QUICK, "model": model, "progress": False}
    whole = refactorgnn.train(tiny, out=tmp_path / "whole", **settings)

    def stop(epoch: int, mrr: float) -> None:
        raise _EnoughError

    parted = Run.create(tmp_path / "parted", whole.train_config, whole.graph)
    with pytest.raises(_EnoughError):
        fit(parted, progress=False, on_validation=stop)
    assert [record["epoch"] for record in parted.records()] == [1, 2]
    fit(Run.open(parted.path), progress=False)
    assert without_seconds(parted.records()) == without_seconds(whole.records())
    assert_same_tensors(parted.last_path, whole.last_path)
    assert_same_tensors(parted.weights_path, whole.weights_path)


@pytest.mark.parametrize("model", MODELS)
def test_a_step_of_two_processes_is_one_of_one(model: str, tiny_run: Run) -> None:
    """Shares of a batch have different sizes; the mean of their gradients is that of the whole."""
    regime = make(tiny_run.graph, **{**QUICK, "model": model})
    batch = torch.randperm(regime.operators.num_edges)[:13]
    whole = torch.autograd.grad(regime(batch), list(regime.parameters()))
    shares = []
    for rank in range(2):
        regime.share = Share(rank, 2)
        shares.append(torch.autograd.grad(regime(batch), list(regime.parameters())))
    for one, first, second in zip(whole, *shares, strict=True):
        torch.testing.assert_close((first + second) / 2, one, rtol=1e-4, atol=1e-6)


def test_an_epoch_asks_every_fact_from_both_ends_once(tiny_run: Run) -> None:
    regime = make(tiny_run.graph, **{**QUICK, "model": "drum"})
    batches = list(regime.batches(1))
    assert [len(batch) for batch in batches[:-1]] == [16] * (len(batches) - 1)
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(2 * len(tiny_run.graph.triples("train"))))


@pytest.mark.parametrize("model", MODELS)
def test_all_commands_take_such_a_run(model: str, cli: Cli, tiny: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = [part for name, value in QUICK.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    assert cli("train", tiny, "--model", model, *options, "--out", run).code == 0
    assert cli("evaluate", run).code == 0
    answers = cli("predict", run, "--head", "person 0", "--relation", "next to")
    assert answers.code == 0
    assert "person" in answers.out


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "drum", "scorer": "complex"}, "setting scorer='complex' does nothing for drum"),
        ({"model": "neural-lp", "dropout": 0.5}, "setting dropout=0.5 does nothing for neural-lp"),
        ({"model": "neural-lp", "init_scale": 0.5}, "setting init_scale=0.5 does nothing for neural-lp"),
        ({"model": "neural-lp", "rank": 2}, "setting 'rank' belongs to model drum: leave it out for neural-lp"),
        ({"model": "drum", "rank": 0}, "setting rank cannot be 0"),
        ({"model": "drum", "rule_length": 9}, "setting rule_length cannot be 9"),
    ],
    ids=str,
)
def test_settings_that_do_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TrainConfig.from_dict({"dataset": "x", **settings})
