"""Trainings of a fraction of a second, one for each regime, and what it takes to look inside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from refactorgnn.data import KnowledgeGraph
from refactorgnn.data.queries import QueryIndex
from refactorgnn.runs import load_tensors
from refactorgnn.training.building import build_model
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.regimes import Regime, make_regime

_REFACTOR = {"model": "refactor", "dim": 8, "layers": 2, "features": "signature+random"}
_SAMPLED = {"sample_width": 12, "sample_batch": 24, "sample_passes": 2}
# Every regime, with randomness of every kind that it has.
TRAININGS: dict[str, dict[str, Any]] = {
    "lookup": {"model": "lookup", "dim": 8, "batch_size": 16, "dropout": 0.2},
    "layerwise": {**_REFACTOR, "dropout": 0.2, "learned_steps": True},
    "parts": {**_REFACTOR, "parts": 3, "induced": True, "samples": 6},
    "unrolled": {**_REFACTOR, "regime": "unrolled", "steps_per_epoch": 2, "draws": 2},
    "inf": {**_REFACTOR, "layers": "inf"},
    "inf-sgd": {**_REFACTOR, "layers": "inf", "layer_optimizer": "sgd", "parts": 2},
    "forgetting": {"model": "forgetting", "dim": 8, "batch_size": 16, "forget_every": 7, "dropout": 0.2},
    "gat": {"model": "gat", "dim": 8, "heads": 2, "layers": 2, "steps_per_epoch": 2, "dropout": 0.2},
    "rgcn": {"model": "rgcn", "dim": 8, "bases": 2, "steps_per_epoch": 2, "dropout": 0.2},
    "learned": {"model": "rgcn", "dim": 8, "bases": 2, "steps_per_epoch": 2, "features": "learned+random"},
    "ladies": {**_REFACTOR, **_SAMPLED, "sampler": "ladies", "dropout": 0.2},
    "saint": {"model": "gat", "dim": 8, "heads": 2, "layers": 2, **_SAMPLED, "sampler": "saint"},
    "neural-lp": {"model": "neural-lp", "dim": 8, "rule_length": 2, "batch_size": 16},
    "drum": {"model": "drum", "dim": 8, "rule_length": 2, "rank": 2, "batch_size": 16},
    "ladies-inf": {**_REFACTOR, **_SAMPLED, "sampler": "ladies", "layers": "inf"},
    "nbfnet": {"model": "nbfnet", "dim": 8, "layers": 2, "batch_size": 16, "negatives": 4},
    "grail": {"model": "grail", "dim": 8, "layers": 2, "batch_size": 16, "dropout": 0.2},
}


def make(graph: KnowledgeGraph, folder: Path = Path(), **settings: Any) -> Regime[Any]:
    """A regime around a new model, ready for its first epoch."""
    config = TrainConfig.from_dict({"dataset": "x", **settings})
    regime = make_regime(build_model(config, graph), config, graph, torch.device("cpu"), folder=folder)
    return regime.train()


def optimizer_of(regime: Regime[Any], learning_rate: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(regime.model.parameters(), lr=learning_rate)


def remember_features(regime: Regime[Any]) -> list[Tensor]:
    """A list that every random draw of the features is added to from now on."""
    features, drawn = regime.model.features, []
    draw = features.forward

    def remembered(*arguments: Any, **more: Any) -> Tensor:
        drawn.append(draw(*arguments, **more))
        return drawn[-1]

    features.forward = remembered
    return drawn


def triples_of(queries: QueryIndex) -> Tensor:
    """The triples of an index, as it has them."""
    rows = queries.answers.rows
    return torch.stack([queries.subjects[rows], queries.relations[rows], queries.answers.columns], dim=1)


def assert_same_tensors(ours: Path, theirs: Path) -> None:
    """Two safetensors files hold the same numbers, bit for bit."""
    left, right = (load_tensors(path)[0] for path in (ours, theirs))
    assert left.keys() == right.keys()
    for name in left:
        assert torch.equal(left[name], right[name]), name


def epoch_of(regime: Regime[Any], epoch: int, learning_rate: float = 0.0) -> Iterator[Any]:
    """An epoch of SGD; stops after the backward pass of each step, with its batch."""
    optimizer = optimizer_of(regime, learning_rate)
    regime.begin(epoch)
    for batch in regime.batches(epoch):
        optimizer.zero_grad()
        regime(batch).backward()
        yield batch
        optimizer.step()
