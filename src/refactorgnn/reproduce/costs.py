"""What the figures of a table have cost: seconds, hardware, commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from refactorgnn.reproduce.experiments import Experiment
from refactorgnn.reproduce.recipe import Recipe
from refactorgnn.reproduce.records import Record
from refactorgnn.reproduce.tables import Table


@dataclass(frozen=True)
class Cost:
    """What some records have cost.

    Args:
        num_runs: How many there are.
        seconds: Training and evaluation together.
        hardware: What they were computed on.
        commits: The commits of the programs that did it.
    """

    num_runs: int
    seconds: float
    hardware: tuple[str, ...]
    commits: tuple[str, ...]

    @classmethod
    def of(cls, records: Iterable[Record]) -> Cost:
        """The cost of some records."""
        found = list(records)
        stamps = [stamp for record in found for stamp in (record.training["trained_with"], record.evaluated_with)]
        return cls(
            len(found),
            sum(record.seconds for record in found),
            tuple(sorted({_hardware(record.training["trained_with"]["hardware"]) for record in found})),
            tuple(sorted({stamp["commit"] or "not in a checkout" for stamp in stamps})),
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"runs": self.num_runs, "seconds": round(self.seconds, 3), "hardware": list(self.hardware)}


def used_records(
    table: Table, recipe: Recipe, records: Mapping[str, Record], num_seeds: int
) -> dict[str, list[Record]]:
    """The records behind a table, by the row of the recipe; each is listed once, members of ensembles apart."""
    found: dict[str, list[Record]] = {}
    met: set[str] = set()

    def add(name: str, experiment: Experiment) -> None:
        if experiment.key in records and experiment.key not in met:
            met.add(experiment.key)
            found.setdefault(name, []).append(records[experiment.key])

    experiments = table.experiments(recipe, num_seeds)
    for experiment in experiments:
        add(experiment.label.partition(" on ")[0], experiment)
    for experiment in experiments:
        for member in experiment.members:
            add("other members of ensembles", member)
    return found


def _hardware(about: Mapping[str, Any]) -> str:
    return str(about["gpu"]) if "gpu" in about else f"{about['cpu']}, {about['threads']} thread(s)"
