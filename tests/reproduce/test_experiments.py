"""The key of an experiment: what it depends on, and what not."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from refactorgnn.errors import UserError
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.runs import CIRCUMSTANCES
from refactorgnn.training.config import CONFIGS

SETTINGS = {"model": "refactor", "layers": 3, "alpha": 0.1, "features": "signature+random"}
ONE = Experiment("fb237_v1", "fb237_v1_ind", SETTINGS, seed=2)
TWO = replace(ONE, seed=3)
BOTH = Experiment("fb237_v1", "fb237_v1_ind", {}, 0, members=(ONE, TWO))


def test_the_key_is_the_same_in_every_process() -> None:
    program = "from tests.reproduce.test_experiments import BOTH, ONE; print(ONE.key, BOTH.key)"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}  # this process has another
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.split() == [ONE.key, BOTH.key]


def test_neither_order_nor_defaults_nor_circumstances_matter() -> None:
    backwards = dict(reversed(list(SETTINGS.items())))
    elsewhere = {"accelerator": "cpu", "threads": 3, "devices": "2", "memory_budget_mb": 7, "log": "csv"}
    for settings in (backwards, {**SETTINGS, "n_term": "exact"}, {**SETTINGS, "alpha": "0.10"}, SETTINGS | elsewhere):
        assert replace(ONE, settings=settings).key == ONE.key
    assert replace(ONE, label="otherwise called").key == ONE.key


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
@pytest.mark.parametrize("model", CONFIGS)
def test_every_other_setting_of_every_model_matters(model: str) -> None:
    experiment = Experiment("fb237_v1", None, {"model": model}, 0)
    for name in CONFIGS[model].model_fields:
        changed = replace(experiment)
        changed.__dict__["config"] = experiment.config.model_copy(update={name: "changed"})
        assert (changed.key == experiment.key) == (name in CIRCUMSTANCES), name


def test_dataset_graph_seed_and_members_matter() -> None:
    others = [replace(ONE, dataset="fb237_v2"), replace(ONE, graph=None), TWO, BOTH, replace(BOTH, seed=1)]
    others += [replace(BOTH, members=(TWO, ONE)), replace(BOTH, members=(ONE,))]
    assert len({experiment.key for experiment in (ONE, *others)}) == 8


def test_settings_are_checked() -> None:
    with pytest.raises(UserError, match="did you mean 'alpha'"):
        replace(ONE, settings={**SETTINGS, "alhpa": 1}).key  # noqa: B018
