"""Records whose figures are known."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from refactorgnn.bench.cases import Case
from refactorgnn.bench.records import BenchRecord
from refactorgnn.bench.rivals import PUBLISHED


def planted_record(
    case: Case,
    seconds: float = 0.003,
    *,
    floor: float = 0.002,
    peak_bytes: int = 5_000_000,
    rivals: list[dict[str, Any]] | None = None,
    **sizes: int,
) -> BenchRecord:
    hardware = {"cpu": "abacus", "threads": case.threads}
    if case.device == "cuda":
        hardware["gpu"] = "NVIDIA H200"
    default = {"num_triples": 480, "num_queries": 246, "num_entities": 60, "num_relations": 3, "dim": case.dim}
    return BenchRecord(
        case=asdict(case),
        sizes={**default, "layers": case.layers, **sizes},
        seconds={"subject": [seconds, 9.0, seconds], "floor": [floor, 9.0, floor]},
        peak_bytes=peak_bytes,
        floor={"num_products": 3, "multiplications": 755_712},
        rivals=[] if rivals is None else rivals,
        load_average={"before": [0.5, 1.0, 1.0], "after": [1.5, 1.0, 1.0]},
        provenance={"commit": "c0ffee", "torch": "2", "time": "then", "hardware": hardware},
    )


def planted_rival(seconds: float | None, note: str = "", share: float = 1.0) -> dict[str, Any]:
    times = [] if seconds is None else [seconds]
    peak = None if seconds is None else 20_000_000
    return {"name": PUBLISHED, "seconds": times, "share": share, "peak_bytes": peak, "note": note}
