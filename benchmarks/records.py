"""What the benchmarks share: timing with peak memory, work in a process of its own, and the record that is written."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata, util
from pathlib import Path
from typing import Any, Literal

import torch

from refactorgnn.measuring import NOISE, load_average, peak_mb, resident_mb, timed
from refactorgnn.provenance import provenance

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"


def parser(description: str, record: str) -> argparse.ArgumentParser:
    """A command line with the options every benchmark has: ``--data-root``, ``--out`` and ``--threads``."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--data-root", help="folder with local copies of the datasets (or set REFACTORGNN_DATA)")
    result.add_argument("--out", type=Path, default=RESULTS / f"{record}.json", help="where to write the record")
    result.add_argument("--threads", type=int, default=1, help="processor threads (default 1)")
    result.add_argument("--repeats", type=int, default=5, help="runs of which the median counts (default 5)")
    return result


def measure(run: Callable[[], Any], repeats: int) -> dict[str, Any]:
    """Run ``repeats`` times: median seconds, and the process's peak memory beside what it held just before.

    The first run is one of those measured: nothing is warmed up unseen.
    """
    before = resident_mb()
    wall, cpu = timed(run, repeats)
    return {
        "seconds": round(statistics.median(wall), 3),
        "cpu_seconds": round(statistics.median(cpu), 3),
        "seconds_each": [round(value, 3) for value in wall],
        "peak_mb": round(peak_mb()),
        "peak_increase_mb": round(peak_mb() - before),
    }


def in_process(script: str, arguments: list[str], threads: int) -> dict[str, Any]:
    """Run a script in a process of its own with that many threads and return the JSON object it prints last.

    Raises:
        SystemExit: if the script fails; it has then said why.
    """
    count = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, script, *arguments], env=os.environ | count, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{Path(script).name} {' '.join(arguments)} failed with status {done.returncode}.")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def is_installed(package: str) -> bool:
    """Whether a package can be imported."""
    return util.find_spec(package) is not None


def goal(value: float | None, relation: Literal["<=", ">="], bound: float, what: str) -> dict[str, Any]:
    """A stated goal, and whether the value meets it; None where there is no value."""
    met = None if value is None else value <= bound if relation == "<=" else value >= bound
    return {"what": what, "goal": f"{relation} {bound:g}", "value": value, "met": met}


def begin(threads: int, packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """Fix the threads, and note where the figures will come from: before measuring, because sources may change."""
    torch.set_num_threads(threads)
    origin = provenance()
    origin["packages"] = {package: _version(package) for package in ("numpy", *packages)}
    return {"load_average": {"before": load_average()}, "note": NOISE, "provenance": origin}


def write_record(name: str, body: Mapping[str, Any], origin: dict[str, Any], out: Path) -> None:
    """Print the record and write it to ``out``: the figures, and what :func:`begin` noted."""
    origin["load_average"]["after"] = load_average()
    record = {"benchmark": name, **body, **origin}
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(text, end="")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
