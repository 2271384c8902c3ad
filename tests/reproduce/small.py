"""A table and recipes that take fractions of a second, on the bundled pair; and records nobody has measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from refactorgnn.reproduce import recipe as recipe_module
from refactorgnn.reproduce.cells import Column, Metric, Row
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import Record
from refactorgnn.reproduce.tables import TABLES, Table

PAIR = Column("countries_part", "countries_part_ind")
TABLE = Table(
    "small",
    "A small table",
    "Anyhow.",
    (Row("noise"), Row("counts"), Row("gain", of="counts", minus="noise"), Row("both")),
    (PAIR,),
    (Metric("MRR", "full", "mrr"), Metric("Hits@10", "partial", "hits@10")),
)
RECIPE = """
description: Small.
defaults: {dim: 8}
rows:
  noise:
    settings: {model: refactor, layers: 1, features: random, epochs: 2, validate_every: 1}
  counts: {like: noise, settings: {features: signature}, selected: true}
  both:
    members: [{row: noise}, {row: noise, seed_offset: 100}, {row: counts}]
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    """The small table among the tables, the small recipe in place of both recipes."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    for name in recipe_module.RECIPES:
        (folder / f"{name}.yaml").write_text(RECIPE, encoding="utf-8")
    monkeypatch.setattr(recipe_module, "FOLDER", folder)
    monkeypatch.setitem(TABLES, TABLE.name, TABLE)
    return Recipe.load("paper")


def fake_record(experiment: Experiment, figure: float, **more: Any) -> Record:
    """A record in which every metric is ``figure``."""
    metrics = dict.fromkeys(("mrr", "mr", "amri", "hits@1", "hits@3", "hits@10"), figure)
    stamp = {"commit": "c0ffee", "command": "refactorgnn …", "hardware": {"cpu": "abacus", "threads": 2}}
    training = {"seconds": 3.0, "best_epoch": 1, "valid_mrr": figure, "num_parameters": 1234, "trained_with": stamp}
    members = [
        {"key": member.key, "weight": 0.5, "valid_mrr": figure, "config": member.config.model_dump(mode="json")}
        for member in experiment.members
    ]
    return Record(
        **{
            "key": experiment.key,
            "dataset": experiment.dataset,
            "graph": experiment.graph,
            "seed": experiment.seed,
            "config": {} if members else experiment.config.model_dump(mode="json"),
            "training": training,
            "full": metrics,
            "partial": metrics,
            "partial_exact": metrics,
            "evaluated_with": stamp,
            "seconds": 4.0,
            "members": members or None,
            **more,
        }
    )
