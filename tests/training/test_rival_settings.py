"""Every setting of a rival reaches its model or its training: with another value, other scores come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import refactorgnn
from refactorgnn.training.config import TrainConfig

QUICK: dict[str, dict[str, Any]] = {
    "nbfnet": {"dim": 8, "layers": 2, "epochs": 1, "batch_size": 16, "negatives": 4},
    "grail": {"dim": 8, "layers": 2, "epochs": 1, "validate_every": 1, "validation_negatives": 4},
    "neural-lp": {"dim": 8, "rule_length": 2, "epochs": 1, "batch_size": 16},
    "drum": {"dim": 8, "rule_length": 2, "rank": 2, "epochs": 1, "batch_size": 16},
    "rulen": {"min_support": 1},
    "ppr": {},
}
CHANGES: dict[str, dict[str, Any]] = {
    "nbfnet": {
        "learning_rate": 0.1,
        "batch_size": 8,
        "layers": 1,
        "dependent": False,
        "negatives": 2,
        "temperature": 5.0,
        "remove_one_hop": False,
        "seed": 1,
    },
    "grail": {
        "learning_rate": 0.1,
        "weight_decay": 0.1,
        "dropout": 0.0,
        "batch_size": 8,
        "layers": 1,
        "bases": 2,
        "negatives": 2,
        "radius": 1,
        "margin": 0.001,
        "seed": 1,
    },
    "neural-lp": {"dim": 4, "rule_length": 1, "batch_size": 8, "learning_rate": 0.1, "seed": 1},
    "drum": {"rank": 1, "dim": 4, "rule_length": 1, "batch_size": 8, "learning_rate": 0.1, "seed": 1},
    "rulen": {
        "rule_length": 1,
        "facts_per_relation": 1,
        "paths_per_fact": 1,
        "body_samples": 1,
        "min_support": 12,
        "min_confidence": 0.5,
        "laplace": 1.0,
        "rules_per_relation": 1,
        "constant_rules_per_relation": 0,
        "aggregation": "noisy-or",
    },
    "ppr": {"restart": 0.5, "tolerance": 0.5, "relation_range": "first", "neighbours": "consistent"},
}
HOW_LONG = {"validation_negatives"}  # says which epoch is the best


def scores(folder: Path, tiny: Path, model: str, **settings: Any) -> Tensor:
    """Of some questions, after a short training."""
    run = refactorgnn.train(tiny, out=folder, model=model, progress=False, **(QUICK[model] | settings))
    graph = run.graph
    questions = graph.with_reciprocals(graph.triples("train"))[::7]
    with torch.no_grad():
        return run.load_model().bind(graph).scores(questions[:, 0], questions[:, 1])


@pytest.fixture(scope="module")
def plain(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    return {model: scores(tmp_path_factory.mktemp("plain") / model, tiny, model) for model in CHANGES}


@pytest.mark.parametrize(("model", "name"), [(model, name) for model, names in CHANGES.items() for name in names])
def test_another_value_makes_other_scores(
    model: str, name: str, plain: dict[str, Tensor], tiny: Path, tmp_path: Path
) -> None:
    changed = scores(tmp_path / "run", tiny, model, **{name: CHANGES[model][name]})
    assert changed.shape == plain[model].shape
    assert not torch.equal(changed, plain[model])


@pytest.mark.parametrize("model", ["nbfnet", "grail", "neural-lp", "drum"])
def test_mixed_precision_is_close(model: str, tiny: Path, tmp_path: Path) -> None:
    settings = {**QUICK[model], "model": model, "epochs": 2, "progress": False}
    narrow = refactorgnn.train(tiny, out=tmp_path / "narrow", precision="bf16-mixed", **settings)
    wide = refactorgnn.train(tiny, out=tmp_path / "wide", **settings)
    losses = [[record["loss"] for record in run.records()] for run in (narrow, wide)]
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


@pytest.mark.parametrize("model", CHANGES)
def test_no_setting_is_forgotten(model: str) -> None:
    kind = type(TrainConfig.from_dict({"dataset": "x", "model": model}))
    own = {name for name in kind.model_fields if name not in TrainConfig.model_fields}
    assert own - HOW_LONG <= set(CHANGES[model])
