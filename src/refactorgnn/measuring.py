"""What measurements share: seconds, peak memory, a process of its own for each figure, how busy the machine is."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

NOISE = (
    "Wall-clock times of a shared machine: other jobs slow them (see load_average, before and after). "
    "cpu_seconds is the processor time of the same runs and suffers less."
)
_M_MMAP_THRESHOLD = -3  # malloc.h


def timed(run: Callable[[], Any], repeats: int) -> tuple[list[float], list[float]]:
    """The seconds of each of ``repeats`` runs, by the clock and by the processor; nothing is warmed up unseen."""
    wall, cpu = [], []
    for _ in range(repeats):
        started, started_cpu = time.perf_counter(), time.process_time()
        run()
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - started_cpu)
    return wall, cpu


def memory_added_mb(run: Callable[[], Any]) -> float:
    """The peak of this process's memory during ``run``, in MB above what it held before.

    For a process that was made to measure: from then on it gives back at once what is freed. Where the system cannot
    forget an earlier peak (it is not Linux), one that was higher counts.
    """
    gc.collect()
    give_back_freed()
    forget_peak()
    before = resident_mb()
    run()
    return peak_mb() - before


def peak_mb() -> float:
    """The most memory this process has ever held, in MB (10⁶ bytes)."""
    # Linux counts the memory of the process that started this one in ru_maxrss; VmHWM is this one's alone.
    for line in _lines("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def resident_mb() -> float:
    """The memory this process holds now, in MB; the peak so far where the system does not tell."""
    for line in _lines("/proc/self/statm"):
        return int(line.split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return peak_mb()


def forget_peak() -> bool:
    """Let :func:`peak_mb` begin anew from what is held now; whether the system can do so."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # proc(5): resets VmHWM
    except OSError:
        return False
    return True


def give_back_freed() -> None:
    """Let the C library give memory back to the system once it is freed; glibc only.

    What it keeps would else be taken anew without being seen, or be counted although nobody holds it.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.mallopt(_M_MMAP_THRESHOLD, 2**16)  # larger blocks are mapped one by one, and unmapped when freed
        library.malloc_trim(0)


def load_average() -> list[float]:
    """How many processes wanted a processor over the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def in_fresh_process(function: Callable[..., Any], *arguments: Any, preload: Sequence[str] = ()) -> Any:
    """Call ``function`` in a process of its own, whose memory has seen nothing else, and return what it returns.

    The process is a fork of a server that has imported ``preload`` and done nothing, so that no time goes into imports.

    Raises:
        RuntimeError: if the process was killed, for want of memory perhaps.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(sender, function, arguments), daemon=True)
    process.start()
    sender.close()
    try:
        result, error = receiver.recv()
    except EOFError:
        process.join()
        raise RuntimeError(f"a process that measured was killed (status {process.exitcode}).") from None
    process.join()
    if error is not None:
        raise error
    return result


def isolated(function: Callable[..., Any], *arguments: Any, device: str, preload: Sequence[str] = ()) -> Any:
    """As :func:`in_fresh_process` where memory is a process's, on a CPU; here and now where it is a GPU's.

    What is held on a GPU is counted by torch, whatever the process has seen. And a fork cannot use a GPU once its
    server has asked for one, as libraries do when they are imported.
    """
    if device == "cpu":
        return in_fresh_process(function, *arguments, preload=preload)
    return function(*arguments)


def _answer(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        sender.send((function(*arguments), None))
    except Exception as error:
        sender.send((None, error))


def _lines(path: str) -> list[str]:
    """The lines of a file of Linux's; none where there is no such file."""
    try:
        return Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return []
