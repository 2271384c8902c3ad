"""Who multiplies float32 faster on this processor, MKL or oneDNN, how far they are apart, and how fast bfloat16 is."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from records import begin, goal, parser, write_record
from refactorgnn.ops import processor

# Queries (as many as a chunk has on a CPU), candidates, d: candidates as of fb237_v1, CoDEx-S, FB15k-237 and WN18RR.
SIZES = tuple((512, *size) for size in ((1594, 384), (2034, 256), (14541, 256), (14541, 768), (40943, 256)))


def products(rows: int, columns: int, dim: int, dtype: torch.dtype = torch.float32) -> dict[str, Callable[[], Tensor]]:
    """The three products of a chunk."""
    generator = torch.Generator().manual_seed(0)
    Q, K = (torch.randn(size, dim, generator=generator).to(dtype) for size in (rows, columns))
    P = torch.rand(rows, columns, generator=generator).to(dtype)
    return {"Q Kᵀ": lambda: Q @ K.T, "P K": lambda: P @ K, "Pᵀ Q": lambda: P.T @ Q}


def seconds_of(run: Callable[[], Tensor]) -> float:
    """The time of one run."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def row(sizes: tuple[int, int, int], repeats: int) -> dict[str, Any]:
    """Times of the three products together, the libraries taking turns, and by how much they are apart."""
    wanted, narrow = products(*sizes), products(*sizes, torch.bfloat16) if processor.has_bfloat16() else {}
    found: dict[str, list[float]] = {"mkl": [], "onednn": [], **({"bfloat16": []} if narrow else {})}
    for _ in range(repeats + 1):
        found["mkl"].append(sum(seconds_of(run) for run in wanted.values()))
        with processor.best_library():
            found["onednn"].append(sum(seconds_of(run) for run in wanted.values()))
        if narrow:
            found["bfloat16"].append(sum(seconds_of(run) for run in narrow.values()))
    medians = {name: statistics.median(values[1:]) for name, values in found.items()}
    with processor.best_library():
        other = {name: run() for name, run in wanted.items()}
    apart = max(float((other[name] - run()).abs().max() / run().abs().max()) for name, run in wanted.items())
    multiplications = 3 * sizes[0] * sizes[1] * sizes[2]
    return {
        **dict(zip(("rows", "candidates", "dim"), sizes, strict=True)),
        **{f"{name}_ms": round(1000 * value, 2) for name, value in medians.items()},
        **{f"{name}_gflops": round(2e-9 * multiplications / value, 1) for name, value in medians.items()},
        "mkl_over_onednn": round(medians["mkl"] / medians["onednn"], 2),
        "largest_difference": apart,
        **({"onednn_over_bfloat16": round(medians["onednn"] / medians["bfloat16"], 2)} if narrow else {}),
    }


def run(options: argparse.Namespace) -> None:
    """Measure, and write the record."""
    origin = begin(options.threads)
    if not processor.onednn_is_better():
        raise SystemExit("MKL does not hold back on this processor: there is nothing to compare.")
    rows = [row(sizes, options.repeats) for sizes in SIZES]
    slowest = min(one["mkl_over_onednn"] for one in rows)
    body = {
        "task": {"threads": options.threads, "repeats": options.repeats},
        "products": rows,
        "goals": [goal(slowest, ">=", 1.5, "MKL's time over oneDNN's, at the size where it gains least")],
    }
    write_record("processor_products", body, origin, options.out)


if __name__ == "__main__":
    run(parser(__doc__ or "", "processor_products").parse_args())
