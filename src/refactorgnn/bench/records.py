"""What is kept of a case: one small JSON file, from which page and figures are made.

{"format": 1, "case": {…}, "sizes": {…}, "seconds": {"subject": […], "floor": […]}, "peak_bytes": …,
"floor": {"num_products", "multiplications"},
"rivals": [{"name", "seconds", "share", "peak_bytes", "note"}],
"load_average": {"before", "after"}, "provenance": {…}}
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from refactorgnn.bench.cases import Case
from refactorgnn.errors import FileError, UserError
from refactorgnn.storage import write_text

FORMAT = 1
FOLDER = "benchmarks"
_REMEDY = "restore the file, or delete it to measure again"


@dataclass(frozen=True)
class BenchRecord:
    """The figures of one case; see the head of this module."""

    case: dict[str, Any]
    sizes: dict[str, int]
    seconds: dict[str, list[float]]
    peak_bytes: int
    floor: dict[str, int]
    rivals: list[dict[str, Any]]
    load_average: dict[str, list[float]]
    provenance: dict[str, Any]

    @property
    def of(self) -> Case:
        """The case that this is about."""
        return Case(**self.case)

    @property
    def machine(self) -> str:
        """Where it was measured."""
        return machine_name(self.provenance["hardware"])

    @property
    def key(self) -> str:
        """What the record is known by."""
        return record_key(self.of, self.machine)

    @property
    def subject_seconds(self) -> float:
        """The median of our runs."""
        return median(self.seconds["subject"])

    @property
    def floor_seconds(self) -> float:
        """The median of the floor's runs."""
        return median(self.seconds["floor"])

    @property
    def ratio(self) -> float:
        """Ours over the floor: the median over the rounds, each of which had both of them."""
        pairs = zip(self.seconds["subject"], self.seconds["floor"], strict=False)
        return median(ours / floor for ours, floor in pairs)

    def rival_seconds(self, name: str) -> float | None:
        """The median of a rival's runs, extrapolated to the whole work; None if it did not run."""
        for rival in self.rivals:
            if rival["name"] == name and rival["seconds"]:
                return float(median(rival["seconds"]) / rival["share"])
        return None

    @classmethod
    def read(cls, path: Path) -> BenchRecord:
        """Read a record; the error names the file and what is wrong with it."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise FileError(path, "this is not readable JSON", _REMEDY) from error
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise FileError(path, f"this is no record of a benchmark (no format {FORMAT})", _REMEDY)
        try:
            record = cls(**content)
            record.key, record.ratio  # noqa: B018  # what is missing shows here
        except (TypeError, KeyError, AttributeError, ZeroDivisionError, UserError) as error:
            raise FileError(path, "this record of a benchmark is not complete", _REMEDY) from error
        return record

    def write(self, folder: str | Path) -> Path:
        """Write the record to its place below ``folder``; the file."""
        path = record_path(folder, self.of, self.machine)
        write_text(path, json.dumps({"format": FORMAT} | asdict(self), indent=1, ensure_ascii=False) + "\n")
        return path


def machine_name(hardware: dict[str, Any]) -> str:
    """The accelerator, or else the processor, that a figure is about."""
    return str(hardware.get("gpu", hardware["cpu"]))


def record_key(case: Case, machine: str) -> str:
    """The hash of a case and the machine it is measured on: a commit is no part of it, for records get old."""
    content = json.dumps({"case": asdict(case), "machine": machine}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def record_path(folder: str | Path, case: Case, machine: str) -> Path:
    """Where the record of a case is."""
    words = f"{case.row}-{case.dataset}-d{case.dim}-{case.device}-{case.precision}".replace("/", "_")
    return Path(folder) / FOLDER / f"{words}-{record_key(case, machine)[:12]}.json"


def load_bench_records(folder: str | Path) -> list[BenchRecord]:
    """Every record of a benchmark below ``folder``, in the order of their files' names."""
    return [BenchRecord.read(path) for path in sorted((Path(folder) / FOLDER).glob("[!.]*.json"))]
