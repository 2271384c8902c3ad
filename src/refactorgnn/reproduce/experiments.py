"""An experiment: what is trained, on what, and which graph is asked about; and the key it is known by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from refactorgnn.runs import CIRCUMSTANCES
from refactorgnn.training.config import TrainConfig

# Settings that came after experiments had been recorded, as they were before: with these values they are no part of a
# key, and a record that does not say has them, whatever the defaults are now.
ADDED_LATER = {
    "validation_facts": 1.0,
    "relation_loss": 0.0,
    "mask_by": "pair",
    "validation_negatives": 0,
    "neighbours": "any",
    "links": False,
    "feature_scale": 1e-3,
}


@dataclass(frozen=True)
class Experiment:
    """A training, or an ensemble of trainings, and the graph whose test split is ranked once afterwards.

    Args:
        dataset: The dataset to train on.
        graph: The dataset to ask about; None: the training graph.
        settings: The settings of the training, without dataset and seed; none for an ensemble.
        seed: The seed of the training and of the negatives of a partial ranking.
        members: The experiments whose runs an ensemble is made of.
        label: What to call it when talking to people; it is no part of what the experiment is.
    """

    dataset: str
    graph: str | None
    settings: Mapping[str, Any] = field(hash=False)
    seed: int
    members: tuple[Experiment, ...] = ()
    label: str = field(default="", compare=False)

    @cached_property
    def config(self) -> TrainConfig:
        """The settings with every default filled in, checked."""
        return TrainConfig.from_dict({**self.settings, "dataset": self.dataset, "seed": self.seed})

    @cached_property
    def key(self) -> str:
        """The SHA-256 of all that the outcome depends on.

        That is: the resolved settings but for those that say where to compute, dataset, graph, seed, and members. The
        same experiment in two tables, or written with and without a default, has one key.
        """
        return _digest(self._content)

    @cached_property
    def key_but_seed(self) -> str:
        """What experiments have in common that differ in their seed alone; an ensemble is like no other."""
        if self.members:
            return self.key
        settings = {name: value for name, value in self._content["settings"].items() if name != "seed"}
        return _digest(self._content | {"seed": None, "settings": settings})

    @property
    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = {"dataset": self.dataset, "graph": self.graph, "seed": self.seed}
        if self.members:
            return content | {"members": [member.key for member in self.members]}
        settings = self.config.model_dump(mode="json", exclude=CIRCUMSTANCES)
        if not any(has_features(settings, name) for name in ("random", "learned")):
            settings.pop("feature_scale", None)  # says nothing
        return content | {"settings": dict(settings.items() - ADDED_LATER.items())}

    @property
    def name(self) -> str:
        """The label, or a description for want of one."""
        model = "ensemble" if self.members else self.config.model
        return self.label or f"{model} on {self.dataset}, seed {self.seed}"


def as_recorded(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a record has them, with those that are younger than it as they were before there was a choice."""
    fields = type(TrainConfig.from_dict({"dataset": "", "model": settings["model"]})).model_fields
    missing = {name: value for name, value in ADDED_LATER.items() if name in fields and name not in settings}
    if not has_features(settings, "random"):
        missing.pop("feature_scale", None)  # says nothing
    return {**settings, **missing}


def has_features(settings: Mapping[str, Any], name: str) -> bool:
    """Whether the states of a model begin with the features of this name, among others."""
    return name in settings.get("features", "").split("+")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
