"""Where the tests find local copies of the public benchmarks, if there are any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

BENCHMARK_COPIES = Path(os.environ.get("REFACTORGNN_DATA", Path(__file__).parents[2] / "shared" / "data"))
needs_benchmarks = pytest.mark.skipif(
    not BENCHMARK_COPIES.is_dir(), reason=f"no local copies of the benchmarks: {BENCHMARK_COPIES} is not a folder"
)
