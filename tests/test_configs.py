"""Every file in ``configs/``: it is valid, says what it is, agrees with its record, and trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refactorgnn import Run
from refactorgnn.data.datasets import DATASETS
from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.records import load_records
from refactorgnn.runs import CIRCUMSTANCES
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.config_files import ConfigFile
from refactorgnn.training.rivals.base import QuestionConfig
from tests.conftest import Cli
from tests.data.test_text_features import HAS_PACKAGES

ROOT = Path(__file__).parent.parent
FILES = sorted((ROOT / "configs").iterdir())


def test_there_are_files_and_all_are_yaml() -> None:
    assert FILES
    assert {path.suffix for path in FILES} == {".yaml"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_valid_and_says_what_it_is(path: Path) -> None:
    file = ConfigFile.read(path)
    assert len(file.description) > 20
    assert file.description.endswith(".")
    assert file.train_config({}).dataset


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_agrees_with_the_record_of_its_name(path: Path) -> None:
    record = ROOT / "docs" / "results" / f"{path.stem}.json"
    if not record.is_file():
        assert is_in_a_table(path), "no figure of this experiment is recorded"
        return
    recorded = json.loads(record.read_text(encoding="utf-8"))["config"]
    recorded.pop("device", None)  # of records from before there were several
    # Settings that are younger than the record have their defaults; where it was computed is the record's own affair.
    ours, theirs = ConfigFile.read(path).train_config({}), TrainConfig.from_dict(recorded)
    assert ours.model_dump(exclude=CIRCUMSTANCES) == theirs.model_dump(exclude=CIRCUMSTANCES)
    assert ours.dataset == theirs.dataset


def is_in_a_table(path: Path) -> bool:
    """Whether a table has a record of the experiment, on its own graph or on the unseen one of its pair."""
    config = ConfigFile.read(path).train_config({})
    settings = config.model_dump(exclude={"dataset", "seed"})
    graphs = (None, DATASETS[config.dataset].unseen)
    keys = {Experiment(config.dataset, graph, settings, config.seed).key for graph in graphs}
    return not keys.isdisjoint(load_records(ROOT / "docs" / "results"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_trains(path: Path, cli: Cli, tiny: Path, tmp_path: Path) -> None:
    """One narrow epoch on the bundled graph, or on a tiny one for models that read it anew for each question.

    Where the sentence encoder is not installed, text becomes signature.
    """
    config = ConfigFile.read(path).train_config({})
    changes = {"dim": 8, "epochs": 1, "validate_every": 1, "threads": 1}
    features = getattr(config, "features", "").split("+")
    if "text" in features and not HAS_PACKAGES:
        changes["features"] = "+".join(dict.fromkeys("signature" if name == "text" else name for name in features))
    options = [part for name, value in changes.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    dataset = str(tiny) if isinstance(config, QuestionConfig) else "countries"
    outcome = cli("train", dataset, "--config", path, "--out", tmp_path / "run", *options)
    assert outcome.code == 0, outcome.err
    assert Run.open(tmp_path / "run").config == config.model_copy(update={"dataset": dataset, **changes})
    assert Run.open(tmp_path / "run").sidecar["best_epoch"] == 1
