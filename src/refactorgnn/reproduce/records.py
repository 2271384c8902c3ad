"""What is kept of an experiment: one small JSON file, from which every figure of a table is read.

    {"format": 1, "key": …, "dataset": …, "graph": …, "seed": …, "config": {every setting},
     "training": {"seconds", "best_epoch", "valid_mrr", "num_parameters", "trained_with"},
     "full": {metrics, "num_triples", "ties"}, "partial": {…}, "partial_exact": {…},
     "costs": {"inference_seconds": binding and the full ranking, "peak_memory_mb": of the process or the GPU},
     "evaluated_with": {version, commit, command, time, hardware}, "seconds": training and evaluation}

Costs are missing from older records, peak memory also where several trainings shared a device.
The record of an ensemble has ``members`` too: the settings, weight and validation MRR of each candidate.

A record is found by what it says, not by what its file is called: its key is computed again from its settings when it
is read. So a setting that is younger than the record has its default there, and a default that has changed since makes
it the record of another experiment.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from refactorgnn.errors import FileError, UserError
from refactorgnn.reproduce.experiments import ADDED_LATER, Experiment, has_features
from refactorgnn.storage import write_text

FORMAT = 1
FOLDER = "records"
_REMEDY = "restore the file, or delete it to measure again"


@dataclass(frozen=True)
class Record:
    """The outcome of one experiment; see the head of this module for what is in it."""

    key: str
    dataset: str
    graph: str | None
    seed: int
    config: dict[str, Any]
    training: dict[str, Any]
    full: dict[str, Any]
    partial: dict[str, Any]
    partial_exact: dict[str, Any]
    evaluated_with: dict[str, Any]
    seconds: float
    members: list[dict[str, Any]] | None = None
    costs: dict[str, float] | None = None

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
            record = cls(**content)
            record.experiment.key  # noqa: B018  # settings that mean nothing any more show here
        except (TypeError, KeyError, AttributeError) as error:
            raise FileError(path, "this record is not complete", _REMEDY) from error
        except UserError as error:
            raise FileError(path, str(error).rstrip(".?"), _REMEDY) from error
        return record

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


def _experiment(graph: str | None, config: dict[str, Any]) -> Experiment:
    settings = {name: value for name, value in config.items() if name not in ("dataset", "seed")}
    if has_features(settings, "random"):  # of a record that does not say, whatever the default is now
        settings.setdefault("feature_scale", ADDED_LATER["feature_scale"])
    return Experiment(config["dataset"], graph, settings, config["seed"])


def load_records(folder: str | Path) -> dict[str, Record]:
    """Every record below ``FOLDER/records``, by the key of its experiment."""
    paths = sorted((Path(folder) / FOLDER).rglob("[!.]*.json"))
    # What a killed process has left is in folders whose names begin with a dot.
    whole = [path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    return {record.experiment.key: record for record in map(Record.read, whole)}


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
