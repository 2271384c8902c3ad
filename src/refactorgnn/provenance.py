"""Where a figure comes from: version, commit, command, hardware, time."""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import datetime, timezone
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch


def provenance(device: str = "cpu") -> dict[str, Any]:
    """What must stand beside a figure for another person to measure it again."""
    return {
        "version": metadata.version("refactorgnn"),
        "commit": commit(),
        "command": command(),
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "hardware": hardware(device),
    }


def hardware(device: str = "cpu") -> dict[str, Any]:
    """The processor, its threads in use, and the accelerator if one is used."""
    found: dict[str, Any] = {"cpu": _cpu_name(), "threads": torch.get_num_threads()}
    if device.startswith("cuda") and torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name(device)
    return found


@cache
def commit() -> str | None:
    """The commit of the checkout this package runs from, with ``+changes`` if its files differ; None outside one.

    It is the one of the first call, which a run makes as it begins: the checkout may be moved on while it lasts, the
    code that was loaded stays.
    """
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=here, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")  # of the package, not of its records
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def command() -> str:
    """The command line as a person would type it, without the folders of one machine."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name  # python -m refactorgnn
    return " ".join([name, *map(_portable, sys.argv[1:])])


def _portable(word: str) -> str:
    """An absolute path as ``…/NAME``, also behind ``--option=``; anything else as it is."""
    option, equals, value = word.rpartition("=")
    return f"{option}{equals}…/{Path(value).name}" if Path(value).is_absolute() else word


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
