"""What is kept of an experiment: one small JSON file, from which every figure of a table is read.

    {"format": 1, "key": …, "dataset": …, "graph": …, "seed": …, "config": {every setting},
     "training": {"seconds", "best_epoch", "valid_mrr", "num_parameters", "trained_with"},
     "full": {metrics, "num_triples", "ties"}, "partial": {…}, "partial_exact": {…},
     "costs": {"inference_seconds": binding and the full ranking, "peak_memory_mb": of the process or the GPU},
     "evaluated_with": {version, commit, command, time, hardware}, "seconds": training and evaluation}

Costs are missing from older records, peak memory also where several trainings shared a process. Where it is missing,
that of a record below ``memory`` is taken, of the same experiment done once more by itself, on a GPU as well or not on
one either; nothing else of it is.
The record of an ensemble has ``members`` too: the settings, weight and validation MRR of each candidate.

A record is found by what it says, not by what its file is called: its key is computed again from its settings when it
is read. So a setting that is younger than the record has there what it was before there was one (``ADDED_LATER``), or
its default, and a default that has changed since makes it the record of another experiment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError

from refactorgnn.errors import FileError, UserError
from refactorgnn.reproduce.experiments import Experiment, as_recorded
from refactorgnn.storage import write_text

FORMAT = 1
FOLDER = "records"
_MEMORY_FOLDER = "memory"
_PEAK = "peak_memory_mb"
_REMEDY = "restore the file, or delete it to measure again"

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]
_SHARE = TypeAdapter(Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)])
_AMOUNT = TypeAdapter(Amount)


def _check_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    for name in ("mrr", "hits@1", "hits@3", "hits@10"):
        _checked(_SHARE, metrics, name)
    return metrics


def _check_stamp(stamp: dict[str, Any]) -> dict[str, Any]:
    if not {"commit", "hardware"} <= set(stamp) or "cpu" not in (stamp["hardware"] or {}):
        raise ValueError("it does not say which commit ran on what hardware")
    return stamp


def _check_training(training: dict[str, Any]) -> dict[str, Any]:
    _checked(_AMOUNT, training, "seconds")
    if not isinstance(stamp := training.get("trained_with"), dict):
        raise ValueError("trained_with is missing")
    _check_stamp(stamp)
    return training


def _checked(adapter: TypeAdapter[float], mapping: dict[str, Any], name: str) -> None:
    try:
        adapter.validate_python(mapping.get(name))
    except ValidationError as error:
        raise ValueError(f"{name} is {mapping.get(name)!r}") from error


Metrics = Annotated[dict[str, Any], AfterValidator(_check_metrics)]


@dataclass(frozen=True)
class Record:
    """The outcome of one experiment; see the head of this module for what is in it."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    key: str
    dataset: str
    graph: str | None
    seed: Annotated[int, Field(strict=True)]
    config: dict[str, Any]
    training: Annotated[dict[str, Any], AfterValidator(_check_training)]
    full: Metrics
    partial: Metrics
    partial_exact: Metrics
    evaluated_with: Annotated[dict[str, Any], AfterValidator(_check_stamp)]
    seconds: Amount
    members: list[dict[str, Any]] | None = None
    costs: dict[str, Amount] | None = None

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read a record; the error names the file and what is wrong with it."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileError(path, "this is not readable JSON", _REMEDY) from error
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise FileError(path, f"this is no record of an experiment (no format {FORMAT})", _REMEDY)
        try:
            record: Record = _adapter().validate_python(content)
            record.experiment.key  # noqa: B018  # settings that mean nothing any more show here
            record._check_config()
        except ValidationError as error:
            raise FileError(path, _first_problem(error), _REMEDY) from error
        except (TypeError, KeyError, AttributeError) as error:
            raise FileError(path, "this record is not complete", _REMEDY) from error
        except UserError as error:
            raise FileError(path, str(error).rstrip(".?"), _REMEDY) from error
        return record

    def _check_config(self) -> None:
        """Refuse a record that says of itself what its settings do not."""
        for name in () if self.members else ("dataset", "seed"):
            if self.config[name] != getattr(self, name):
                raise UserError(f"{name} is {getattr(self, name)!r} here and {self.config[name]!r} in its settings.")

    def write(self, path: Path) -> None:
        """Write the record, atomically."""
        content = {"format": FORMAT} | asdict(self)
        for name in ("members", "costs"):
            if content[name] is None:
                del content[name]
        write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment that this is the outcome of."""
        members = tuple(_experiment(self.graph, member["config"]) for member in self.members or ())
        if members:
            return Experiment(self.dataset, self.graph, {}, self.seed, members)
        return _experiment(self.graph, self.config)


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Record)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    place = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"this record is not complete ({place} is missing)"
    if problem["type"] == "value_error":
        return f"{place}: {problem['ctx']['error']}"
    return f"{place}: {problem['msg'].lower()}"


def _experiment(graph: str | None, config: dict[str, Any]) -> Experiment:
    settings = {name: value for name, value in config.items() if name not in ("dataset", "seed")}
    return Experiment(config["dataset"], graph, as_recorded(settings), config["seed"])


def load_records(folder: str | Path) -> dict[str, Record]:
    """Every record below ``FOLDER/records``, by the key of its experiment; see the head of this module for ``memory``.

    Raises:
        FileError: if a record is damaged, or two are of the same experiment.
    """
    found = _read_all(Path(folder), FOLDER)
    for key, again in _read_all(Path(folder), _MEMORY_FOLDER).items():
        record, costs = found.get(key), again.costs or {}
        if record and _PEAK in costs and machine_of(record.evaluated_with) == machine_of(again.evaluated_with):
            found[key] = replace(record, costs={_PEAK: costs[_PEAK]} | (record.costs or {}))
    return found


def _read_all(folder: Path, below: str) -> dict[str, Record]:
    paths = sorted((folder / below).rglob("[!.]*.json"))
    # What a killed process has left is in folders whose names begin with a dot.
    whole = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    found: dict[str, Record] = {}
    places: dict[str, Path] = {}
    for path in whole:
        record = Record.read(path)
        key = record.experiment.key
        if key in found:
            raise FileError(path, f"this is of the same experiment as {places[key]}", "delete one of them")
        found[key], places[key] = record, path
    return found


def machine_of(stamp: Mapping[str, Any]) -> str:
    """The kind of machine that something was computed on, by the stamp that says where."""
    return "GPU" if "gpu" in stamp["hardware"] else "CPU"


@dataclass(frozen=True)
class Aggregate:
    """Figures of several seeds.

    Args:
        mean: Their mean.
        std: Their sample standard deviation (of ``n − 1``); None for one figure.
        n: How many there are.
    """

    mean: float
    std: float | None
    n: int

    @classmethod
    def of(cls, figures: Iterable[float]) -> Aggregate | None:
        """The aggregate of some figures, or None if there are none."""
        found = list(figures)
        if not found:
            return None
        return cls(fmean(found), stdev(found) if len(found) > 1 else None, len(found))
