"""Seconds of several contestants, taken in turns, and the memory each of them needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from refactorgnn.measuring import memory_added_mb

Run = Callable[[], Any]
# Runs that do not count: libraries set up much in the first; for a GPU kernels are chosen and compiled too.
_NUM_UNSEEN = {"cpu": 1, "cuda": 3}
# Seconds from which a first run on a CPU counts: whatever is set up in it is too little to be seen.
_LONG = 10.0
# Seconds after which a contestant has no more turns.
_ENOUGH = 60.0


def nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Contestant:
    """Something to be timed.

    Args:
        run: Does the work and returns what it has made.
        get_ready: What has to be done before each run and is not part of the work.
    """

    run: Run
    get_ready: Run = nothing


def seconds_in_turns(
    contestants: Mapping[str, Contestant], repeats: int, device: torch.device
) -> dict[str, list[float]]:
    """The seconds of each contestant's runs, in rounds in which each has its turn: noise then hits all.

    There are ``repeats`` rounds, fewer for one whose runs have taken a minute. Before them each runs unseen; if that
    run was long, and not on a GPU, it is the first round's.
    """
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for name, one in contestants.items():
        unseen = [seconds_of(one, device) for _ in range(_NUM_UNSEEN.get(device.type, 1))]
        if device.type == "cpu" and unseen[0] >= _LONG:
            found[name] = unseen
    for rounds in range(1, repeats + 1):
        for name, one in contestants.items():
            if len(found[name]) < rounds and sum(found[name]) < _ENOUGH:
                found[name].append(seconds_of(one, device))
    return found


def seconds_of(one: Contestant, device: torch.device) -> float:
    """The seconds of one run: by the clock, or between two events of a GPU."""
    one.get_ready()
    if device.type != "cuda":
        started = time.perf_counter()
        one.run()
        return time.perf_counter() - started
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(device)
    begin.record()
    one.run()
    end.record()
    torch.cuda.synchronize(device)
    return float(begin.elapsed_time(end)) / 1e3


def peak_bytes(one: Contestant, device: torch.device) -> int:
    """The most memory a run holds above what was there before and what it returns.

    On a GPU: what torch has allocated. On a CPU: the memory of this process, which must be one made to measure.
    """
    one.get_ready()
    kept: list[Any] = []

    def run_and_keep() -> None:
        kept.append(one.run())

    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run_and_keep()
        torch.cuda.synchronize(device)
        added = torch.cuda.max_memory_allocated(device) - before
    else:
        added = round(1e6 * memory_added_mb(run_and_keep))
    return max(0, added - sum(tensor.nbytes for tensor in _tensors(kept)))


def _tensors(content: Any) -> Iterable[Tensor]:
    if isinstance(content, Tensor):
        yield content
    elif isinstance(content, list | tuple):
        for part in content:
            yield from _tensors(part)
