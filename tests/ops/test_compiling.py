"""The kernels can be compiled for a GPU, on any machine: an interpreter accepts what a compiler does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "kernel_resources.py"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each kernel takes, compiled anew: nothing that Triton has kept is used, or left behind."""
    folder = tmp_path_factory.mktemp("kernels")
    environment = os.environ | {"TRITON_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, str(SCRIPT), "--out", str(folder / "record.json")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    assert record["target"] == "sm_90"
    assert all(goal["met"] for goal in record["goals"])
    found: dict[str, dict[str, Any]] = record["kernels"]
    return found


def test_every_kernel_is_compiled(kernels: dict[str, dict[str, Any]]) -> None:
    """Counted in the sources, so that a kernel in a new module is not forgotten."""
    modules = (SCRIPT.parents[1] / "src" / "refactorgnn" / "ops").glob("*.py")
    written = {
        f"{module.stem}.{line.partition('(')[0].removeprefix('def ')}"
        for module in modules
        for line in module.read_text(encoding="utf-8").splitlines()
        if line.startswith("def _") and line.partition("(")[0].endswith("_kernel")
    }
    assert set(kernels) == written
    assert all(kernel["variants"] >= 1 for kernel in kernels.values())


def test_no_kernel_runs_out_of_registers(kernels: dict[str, dict[str, Any]]) -> None:
    """What does not fit in them goes to memory and back."""
    assert {name: kernel["stack_bytes"] for name, kernel in kernels.items() if kernel["stack_bytes"]} == {}
