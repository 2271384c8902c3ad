"""Spaces to search for hyper-parameters: the settings to choose, and from what, in YAML.

A file has settings of the model as its keys; each has a list of choices or a range::

    description: Step sizes of a ReFactor GNN.
    alpha: {low: 0.03, high: 0.3, log: true}
    layers: {low: 2, high: 6}
    layer_optimizer: [sgd, adagrad]

The numbers of a range are whole if the setting's are, or if it says ``int: true``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from refactorgnn.errors import FileError, UserError, closest_names
from refactorgnn.runs import CIRCUMSTANCES
from refactorgnn.training.config import CONFIGS, TrainConfig, settings_by_name
from refactorgnn.training.config_files import DESCRIPTION, check_truth_values
from refactorgnn.training.setting_errors import models_in_words, unknown_setting
from refactorgnn.training.strict_yaml import read_mapping

if TYPE_CHECKING:
    from optuna.trial import Trial

# The spaces that come with the package, known by their names.
SHIPPED = Path(__file__).parent.parent / "reproduce" / "spaces"
_RANGE_KEYS = ("low", "high", "log", "int")
# What no search may choose, and why.
_NOT_SEARCHED = {
    "model": "a space is for one model: give it as --model or in --config",
    "seed": "the luckiest seed is no better setting: give --seeds to average over several",
} | dict.fromkeys(CIRCUMSTANCES, "it does not say what is learned: give it as an option or in --config")
# Digits of a number from a range, so that a file with the best settings can be read and repeats them exactly.
_DIGITS = 4


@dataclass(frozen=True)
class Choices:
    """A setting that takes one of several values."""

    values: tuple[Any, ...]

    @property
    def corners(self) -> tuple[Any, ...]:
        """The values that must fit those of every other setting."""
        return self.values

    @property
    def checked(self) -> tuple[Any, ...]:
        """The values that must be valid by themselves."""
        return self.values

    def suggest(self, trial: Trial, name: str) -> Any:
        """The value of the setting in a trial."""
        return trial.suggest_categorical(name, self.values)


@dataclass(frozen=True)
class Range:
    """A setting that takes a number from ``low`` to ``high``, both included."""

    low: float
    high: float
    log: bool
    is_int: bool

    @property
    def corners(self) -> tuple[float, float]:
        """The values that must fit those of every other setting."""
        return self.low, self.high

    @property
    def checked(self) -> Iterator[float]:
        """The values that must be valid by themselves: every whole number, for a width may have to be even."""
        return iter(range(int(self.low), int(self.high) + 1)) if self.is_int else iter(self.corners)

    def suggest(self, trial: Trial, name: str) -> Any:
        """The value of the setting in a trial."""
        if self.is_int:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        number = float(f"{trial.suggest_float(name, self.low, self.high, log=self.log):.{_DIGITS}g}")
        return min(max(number, self.low), self.high)  # rounding may leave the range


@dataclass(frozen=True)
class Space:
    """A space, read and checked.

    Args:
        path: The file.
        dimensions: What each setting is chosen from, in the order of the file.
        description: What the file says of itself, on one line.
    """

    path: Path
    dimensions: Mapping[str, Choices | Range]
    description: str = ""

    @classmethod
    def read(cls, source: str | Path, base: Mapping[str, Any], fixed: Collection[str] = ()) -> Space:
        """Read a space and make sure that all it can yield is valid on top of the ``base`` settings.

        Each choice, both ends of each range and every whole number of one are checked, and so are each two values of
        different settings beside each other.

        Args:
            source: The file, or the name of a space that comes with the package.
            base: The settings that the search leaves as they are, the dataset among them.
            fixed: Which of them it leaves even if the file has them; the others give way to the file.
        """
        path = _find(source)
        content = read_mapping(path, remedy="write a line such as alpha: {low: 0.01, high: 0.1, log: true} per setting")
        description = content.pop(DESCRIPTION, "")
        if not isinstance(description, str):
            raise FileError(path, f"the description cannot be {description!r}", "write a sentence")
        if not content:
            raise FileError(path, "there is no setting to search", "add one, such as dropout: [0, 0.5]")
        check_names(content, base, path)
        content = {name: value for name, value in content.items() if name not in fixed}
        if not content:
            raise FileError(path, "each of its settings is given a value beside it", "leave one of these out")
        firsts = {name: _first(name, value, path) for name, value in content.items()}
        reader = _Reader(path, {**base, **firsts})
        dimensions = {name: reader.dimension(name, value) for name, value in content.items()}
        _check_pairs(dimensions, reader)
        return cls(path, dimensions, " ".join(description.split()))

    def suggest(self, trial: Trial) -> dict[str, Any]:
        """The settings of a trial."""
        return {name: dimension.suggest(trial, name) for name, dimension in self.dimensions.items()}

    def cells(self) -> list[dict[str, Any]]:
        """Every combination of the choices; the last setting changes fastest.

        Raises:
            FileError: if a setting has a range, of which there is no every.
        """
        lists = []
        for name, dimension in self.dimensions.items():
            if isinstance(dimension, Range):
                raise FileError(self.path, f"setting {name} has a range, but a grid needs choices", "write a list")
            lists.append(dimension.values)
        return [dict(zip(self.dimensions, values, strict=True)) for values in itertools.product(*lists)]

    def to_dict(self) -> dict[str, Any]:
        """The space as plain values, to be compared with another."""
        return {
            name: list(dimension.values) if isinstance(dimension, Choices) else vars(dimension)
            for name, dimension in self.dimensions.items()
        }


def shipped_spaces() -> dict[str, Path]:
    """The spaces that come with the package, by name."""
    return {path.stem: path for path in sorted(SHIPPED.glob("*.yaml"))}


def _find(source: str | Path) -> Path:
    known, path = shipped_spaces(), Path(source)
    if path.suffix in (".yaml", ".yml") or path.exists():
        return path
    if str(source) in known:
        return known[str(source)]
    raise FileError(path, "there is no such file or space", f"give a YAML file or one of {', '.join(known)}")


def check_names(content: Mapping[str, Any], base: Mapping[str, Any], path: Path) -> None:
    """Refuse keys that are no settings of the model, or none to be searched."""
    owners, model = settings_by_name(), base.get("model", "lookup")
    known = [name for name in CONFIGS[model].model_fields if name not in _NOT_SEARCHED]
    for name in content:
        if name in _NOT_SEARCHED:
            raise FileError(path, f"setting {name!r} cannot be searched", _NOT_SEARCHED[name])
        if name not in owners:
            raise FileError(path, unknown_setting(name, [*known, DESCRIPTION]).rstrip(".?"), "correct it")
        if model not in owners[name]:
            problem = f"setting {name!r} belongs to {models_in_words(owners[name])}, not to {model}"
            raise FileError(path, problem, "leave it out or search for another --model")


def _first(name: str, value: Any, path: Path) -> Any:
    """A value of the setting: all are checked later."""
    if isinstance(value, list) and value:
        return value[0]
    if isinstance(value, dict) and "low" in value:
        return value["low"]
    remedy = "write a list of choices, or {low: …, high: …} with log: true and int: true if need be"
    raise FileError(path, f"setting {name} has neither choices nor a range in {value!r}", remedy)


def _check_pairs(dimensions: Mapping[str, Choices | Range], reader: _Reader) -> None:
    """Settings may exclude each other's values: each value of one must be valid beside each of another."""
    for one, other in itertools.combinations(dimensions, 2):
        for values in itertools.product(dimensions[one].corners, dimensions[other].corners):
            reader.config(dict(zip((one, other), values, strict=True)))


@dataclass(frozen=True)
class _Reader:
    """What turns the values of a file into dimensions.

    Args:
        path: The file.
        settings: Valid settings to put a value among: those of the base, and the first of every other dimension.
    """

    path: Path
    settings: dict[str, Any]

    def config(self, changes: dict[str, Any]) -> TrainConfig:
        """The settings with some changed, once it is certain that they are valid."""
        check_truth_values(changes, self.path)
        try:
            return TrainConfig.from_dict({**self.settings, **changes})
        except UserError as error:
            raise FileError(self.path, str(error).rstrip(".?"), "correct the space") from error

    def value(self, name: str, value: Any) -> Any:
        """A value as the setting has it: a number that YAML takes for a text, such as 1e-3, becomes one."""
        if isinstance(value, list | dict):
            raise FileError(self.path, f"setting {name} cannot be {value!r}", "give plain values to choose from")
        return getattr(self.config({name: value}), name)

    def dimension(self, name: str, content: Any) -> Choices | Range:
        """What a setting is chosen from."""
        found = self._range(name, content) if isinstance(content, dict) else self._choices(name, content)
        for value in found.checked:
            self.config({name: value})
        return found

    def _choices(self, name: str, content: list[Any]) -> Choices:
        values = tuple(self.value(name, value) for value in content)
        if len(set(values)) < len(values):
            raise FileError(self.path, f"setting {name} has the same choice twice in {content!r}", "name each once")
        return Choices(values)

    def _range(self, name: str, content: dict[str, Any]) -> Range:
        for key in content:
            if key not in _RANGE_KEYS:
                closest = closest_names(key, _RANGE_KEYS)
                hint = f"write {closest[0]!r}" if closest else f"known are {', '.join(_RANGE_KEYS)}"
                raise FileError(self.path, f"the range of setting {name} has an unknown key {key!r}", hint)
        if "high" not in content:
            raise FileError(self.path, f"the range of setting {name} has no high end", "add high")
        for key in ("log", "int"):
            if not isinstance(content.get(key, False), bool):
                problem = f"{key} of setting {name} cannot be {content[key]!r}"
                raise FileError(self.path, problem, "write true or false")
        low, high = (self.value(name, content[key]) for key in ("low", "high"))
        self._check_ends(name, low, high, log=content.get("log", False))
        takes_int = isinstance(low, int) and isinstance(high, int)
        is_int = content.get("int", takes_int)
        if takes_int and not is_int:
            raise FileError(self.path, f"setting {name} takes whole numbers only", "leave int: false out")
        if is_int and not (float(low).is_integer() and float(high).is_integer()):
            problem = f"the range of setting {name} is to be of whole numbers, but ends are {low} and {high}"
            raise FileError(self.path, problem, "give whole ends or leave int out")
        return Range(low, high, content.get("log", False), is_int)

    def _check_ends(self, name: str, low: Any, high: Any, *, log: bool) -> None:
        for end in (low, high):
            if isinstance(end, bool) or not isinstance(end, int | float) or not math.isfinite(end):
                raise FileError(self.path, f"setting {name} has no range, for {end!r} is no number", "write a list")
        if not low < high:
            raise FileError(self.path, f"the range of setting {name} is empty from {low} to {high}", "give low < high")
        if log and low <= 0:
            problem = f"the range of setting {name} starts at {low}, which has no logarithm"
            raise FileError(self.path, problem, "give a low end above 0 or leave log out")
