"""Spaces: what they say, and that nothing they can yield is invalid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from refactorgnn import UserError
from refactorgnn.training.config import TrainConfig
from refactorgnn.training.search_space import Choices, Range, Space, shipped_spaces
from tests.conftest import Cli

BASE: dict[str, Any] = {"dataset": "countries_part", "model": "refactor"}
# The settings that each shipped space is for.
SHIPPED: dict[str, dict[str, Any]] = {
    "paper-refactor": {**BASE, "dim": 768, "sampler": "ladies", "features": "text"},
    "paper-gat": {**BASE, "model": "gat", "dim": 768, "layers": 6},
    "best-text": {**BASE, "features": "text"},
    "best-signature": {**BASE, "features": "signature+random", "draws": 4},
}


def write(folder: Path, text: str) -> Path:
    path = folder / "space.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_a_file_says(tmp_path: Path) -> None:
    text = """
description: Two lines
  as one.
alpha: {low: 1e-2, high: 0.5, log: true}
layers: {low: 2, high: 6}
clip: {low: 1, high: 5, int: true}
mask: {low: 0, high: 0.5}
learned_steps: [true, false]
weight_decay: [0, 1e-3]
"""
    space = Space.read(write(tmp_path, text), BASE)
    assert space.description == "Two lines as one."
    assert dict(space.dimensions) == {
        "alpha": Range(0.01, 0.5, log=True, is_int=False),  # to YAML, 1e-2 is a text
        "layers": Range(2, 6, log=False, is_int=True),
        "clip": Range(1.0, 5.0, log=False, is_int=True),
        "mask": Range(0.0, 0.5, log=False, is_int=False),
        "learned_steps": Choices((True, False)),
        "weight_decay": Choices((0.0, 0.001)),
    }


def test_what_is_fixed_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "alpha: [0.1, 0.01]\nlayers: [4, 6]")
    base = {**BASE, "layers": 2, "alpha": 0.3}
    assert dict(Space.read(path, base, fixed=["layers", "dim"]).dimensions) == {"alpha": Choices((0.1, 0.01))}
    assert list(Space.read(path, base).dimensions) == ["alpha", "layers"]
    with pytest.raises(UserError, match="each of its settings is given a value beside it"):
        Space.read(path, base, fixed=["layers", "alpha"])
    with pytest.raises(UserError, match="unknown setting 'layer'"):
        Space.read(write(tmp_path, "layer: [4, 6]"), base, fixed=["layer"])


def test_the_cells_of_a_grid_are_all_combinations_in_order(tmp_path: Path) -> None:
    space = Space.read(write(tmp_path, "alpha: [0.1, 0.01]\nn_term: [paper, none, exact]"), BASE)
    assert [tuple(cell.values()) for cell in space.cells()] == [
        (0.1, "paper"), (0.1, "none"), (0.1, "exact"), (0.01, "paper"), (0.01, "none"), (0.01, "exact"),
    ]  # fmt: skip


class _Middle:
    """A trial that suggests what it is told to."""

    def __init__(self, number: float) -> None:
        self.number = number

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        assert low <= self.number <= high
        return self.number


def test_numbers_are_short_and_stay_in_the_range() -> None:
    dimension = Range(0.0123456, 0.9876543, log=True, is_int=False)
    assert dimension.suggest(_Middle(0.123456789), "x") == 0.1235  # type: ignore[arg-type]
    assert dimension.suggest(_Middle(0.0123456), "x") == 0.01235  # type: ignore[arg-type]
    assert dimension.suggest(_Middle(0.9876543), "x") == 0.9876543  # type: ignore[arg-type]  # 0.9877 is outside


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("alhpa: [0.1]", ["unknown setting 'alhpa'", "did you mean 'alpha'"]),
        ("heads: [4, 8]", ["setting 'heads' belongs to model gat, not to refactor"]),
        ("model: [gat, refactor]", ["setting 'model' cannot be searched", "--model"]),
        ("seed: [0, 1]", ["setting 'seed' cannot be searched", "--seeds"]),
        ("threads: [1, 2]", ["setting 'threads' cannot be searched"]),
        ("dataset: [UMLS]", ["setting 'dataset' cannot be searched"]),
        ("alpha: [0.1, -1]", ["setting alpha cannot be -1", "greater than 0"]),
        ("mask: {low: 0, high: 1}", ["setting mask cannot be 1", "less than 1"]),
        ("n_term: [exact, papers]", ["setting n_term cannot be 'papers'"]),
        ("dim: [64, yes]", ["setting dim cannot be True", "truth values"]),
        ("alpha: 0.1", ["setting alpha has neither choices nor a range in 0.1"]),
        ("alpha: []", ["setting alpha has neither choices nor a range"]),
        ("alpha: {high: 1}", ["setting alpha has neither choices nor a range"]),
        ("alpha: {low: 1}", ["the range of setting alpha has no high end"]),
        ("alpha: {low: 0.1, high: 1, step: 2}", ["the range of setting alpha has an unknown key 'step'"]),
        ("alpha: {low: 0.1, high: 1, loog: true}", ["unknown key 'loog'", "'log'"]),
        ("alpha: {low: 0.1, high: 1, log: 3}", ["log of setting alpha cannot be 3"]),
        ("alpha: {low: 1, high: 0.1}", ["the range of setting alpha is empty from 1.0 to 0.1"]),
        ("mask: {low: 0, high: 0.5, log: true}", ["the range of setting mask starts at 0.0", "no logarithm"]),
        ("features: {low: random, high: text}", ["setting features has no range, for 'random' is no number"]),
        ("layers: {low: 2, high: inf}", ["setting layers has no range, for 'inf' is no number"]),
        ("layers: {low: 2, high: 6, int: false}", ["setting layers takes whole numbers only"]),
        ("clip: {low: 0.5, high: 6, int: true}", ["setting clip is to be of whole numbers, but ends are 0.5"]),
        ("alpha: [0.1, 0.10]", ["setting alpha has the same choice twice"]),
        ("alpha: [[0.1], 0.2]", ["setting alpha cannot be [0.1]"]),
        ("scorer: [distmult, complexx]", ["unknown scorer 'complexx'", "complex"]),
        ("description: 3\nalpha: [0.1]", ["the description cannot be 3"]),
        ("description: nothing else", ["there is no setting to search"]),
        ("alpha: [0.1]\nalpha: [0.2]", ["'alpha' is given twice"]),
    ],
)
def test_mistakes(text: str, fragments: list[str], tmp_path: Path) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UserError) as error:
        Space.read(path, BASE)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)
    for fragment in fragments:
        assert fragment in str(error.value)


def test_values_that_exclude_each_other_are_found_before_any_is_drawn(tmp_path: Path) -> None:
    path = write(tmp_path, "n3: [0.1, 0]\ndropout: [0, 0.5]\nn3_weighting: [entity, triple]")
    with pytest.raises(UserError, match="setting n3_weighting='triple' needs n3 above 0"):
        Space.read(path, BASE)
    assert Space.read(write(tmp_path, "n3: [0.1, 0.2]\nn3_weighting: [entity, triple]"), BASE)


def test_every_whole_number_of_a_range_is_checked(tmp_path: Path) -> None:
    path = write(tmp_path, "dim: {low: 8, high: 12}")
    with pytest.raises(UserError, match="9"):  # ComplEx needs an even width; both ends are
        Space.read(path, {**BASE, "scorer": "complex"})
    assert Space.read(path, BASE)


def test_values_are_checked_beside_the_others_of_the_space_not_beside_the_base(tmp_path: Path) -> None:
    """With the base's 8 heads, a width of 30 would be refused; the space never yields the two together."""
    path = write(tmp_path, "dim: [30, 60]\nheads: [5, 10]")
    assert Space.read(path, {**BASE, "model": "gat", "dim": 64}).cells()[0] == {"dim": 30, "heads": 5}


def test_every_shipped_space_is_known_here() -> None:
    assert set(shipped_spaces()) == set(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_spaces_are_valid_for_their_models(name: str) -> None:
    space = Space.read(name, SHIPPED[name])
    assert SHIPPED[name]["model"] in space.description
    for name in space.dimensions:
        assert space.dimensions[name].corners


def test_the_grids_are_those_of_the_paper() -> None:
    refactor = Space.read("paper-refactor", SHIPPED["paper-refactor"])
    assert refactor.to_dict() == {
        "learning_rate": [0.01, 0.001],
        "weight_decay": [0, 0.1, 0.01],
        "dropout": [0, 0.5],
        "alpha": [0.1, 0.01],
        "layer_optimizer": ["sgd", "adagrad"],
        "n3": [0, 0.005, 0.0005],
        "n_term": ["paper", "none"],
    }
    gat = Space.read("paper-gat", SHIPPED["paper-gat"])
    assert (len(refactor.cells()), len(gat.cells())) == (288, 24)
    for cell in refactor.cells():
        TrainConfig.from_dict({**SHIPPED["paper-refactor"], **cell})


def test_a_name_that_is_no_space(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="paper-refactr: there is no such file or space; give a YAML file or one of"):
        Space.read("paper-refactr", BASE)
    with pytest.raises(UserError, match="there is no such file"):
        Space.read(tmp_path / "missing.yaml", BASE)


def test_without_optuna(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    space = write(tmp_path, "dropout: [0, 0.5]")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    outcome = cli("tune", "countries_part", "--space", space, "--out", tmp_path / "out")
    outcome.refused("a search needs optuna", "pip install 'refactorgnn[tune]'")
    assert not (tmp_path / "out").exists()
