"""Measuring the cases of a benchmark one after the other, on a CPU each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from refactorgnn.bench.cases import Case, Choice
from refactorgnn.bench.contests import Contest, make_contest
from refactorgnn.bench.records import BenchRecord, machine_name, record_path
from refactorgnn.bench.rivals import Rival
from refactorgnn.bench.timing import Contestant, peak_bytes, seconds_in_turns
from refactorgnn.devices import usable_device
from refactorgnn.errors import UserError
from refactorgnn.measuring import isolated, load_average
from refactorgnn.progress import counting
from refactorgnn.provenance import hardware, provenance

DEFAULT_REPEATS = 5
_PRELOAD = ("torch_geometric.nn", "refactorgnn.bench.running")
# Seconds from which a rival does not run once more for its memory.
_TOO_LONG = 60.0


@dataclass(frozen=True)
class Failure:
    """A case that could not be measured."""

    case: Case
    reason: str


def run_bench(
    choice: Choice,
    out: str | Path,
    *,
    repeats: int = DEFAULT_REPEATS,
    again: bool = False,
    data_root: str | Path | None = None,
    progress: bool = True,
    on_record: Callable[[BenchRecord], None] | None = None,
) -> list[Failure]:
    """Measure what has no record yet; a record is written as soon as a case is done.

    Args:
        choice: What to measure.
        out: The folder of the records.
        repeats: Rounds in which ours, the floor and the rivals take turns.
        again: Also measure what has a record, and replace it.
        data_root: A folder with local copies of the known datasets.
        progress: Show a bar.
        on_record: Called with each new record.

    Returns:
        What could not be measured; one failure does not stop the others.
    """
    if repeats < 1:
        raise UserError(f"repeats={repeats} leaves nothing to measure: choose 1 or more.")
    usable_device(choice.device)
    torch.set_num_threads(choice.threads)
    machine = machine_name(hardware(choice.device))
    todo = [case for case in choice.cases() if again or not record_path(out, case, machine).is_file()]
    failures = []
    with counting("measuring", len(todo), enabled=progress) as bar:
        for case in todo:
            bar.advance(0, note=case.name)
            try:
                record = measure(case, repeats, data_root)
            except (RuntimeError, UserError) as error:  # killed or refused for want of memory, or no such dataset
                failures.append(Failure(case, str(error).splitlines()[0].rstrip(".")))
            else:
                record.write(out)
                if on_record is not None:
                    on_record(record)
            bar.advance()
    return failures


def measure(case: Case, repeats: int, data_root: str | Path | None = None) -> BenchRecord:
    """The record of a case, measured in a process of its own if it is about the memory of one."""
    origin, before = provenance(case.device), load_average()
    figures = isolated(measure_here, case, repeats, data_root, device=case.device, preload=_PRELOAD)
    load = {"before": before, "after": load_average()}
    return BenchRecord(case=asdict(case), load_average=load, provenance=origin, **figures)


def measure_here(case: Case, repeats: int, data_root: str | Path | None = None) -> dict[str, Any]:
    """The figures of a case, in this process; memory comes last, since measuring it slows what follows."""
    torch.set_num_threads(case.threads)
    device = usable_device(case.device)
    if device.index is not None:
        torch.cuda.set_device(device)  # events and kernels go to the current one
    contest = make_contest(case, data_root)
    try:
        return _figures(contest, repeats, device)
    finally:
        contest.close()
        if device.type == "cuda":
            torch.cuda.empty_cache()


def _figures(contest: Contest, repeats: int, device: torch.device) -> dict[str, Any]:
    contestants = {"subject": contest.subject, "floor": Contestant(contest.floor)}
    rivals = {rival.name: Contestant(rival.run) for rival in contest.rivals if rival.run is not None}
    seconds = seconds_in_turns(contestants | rivals, repeats, device)
    return {
        "sizes": dict(contest.sizes),
        "seconds": {name: _rounded(seconds[name]) for name in contestants},
        "peak_bytes": peak_bytes(contest.subject, device),
        "floor": _about_floor(contest),
        "rivals": [_about_rival(rival, seconds.get(rival.name, []), device) for rival in contest.rivals],
    }


def _about_floor(contest: Contest) -> dict[str, int]:
    floor = contest.floor
    return {
        "num_products": floor.times * sum(one.count for one in floor.products),
        "multiplications": floor.multiplications,
    }


def _about_rival(rival: Rival, seconds: list[float], device: torch.device) -> dict[str, Any]:
    is_short = rival.run is not None and min(seconds) < _TOO_LONG
    peak = peak_bytes(Contestant(rival.run), device) if is_short and rival.run is not None else None
    return {
        "name": rival.name,
        "seconds": _rounded(seconds),
        "share": rival.share,
        "peak_bytes": peak,
        "note": rival.note,
    }


def _rounded(seconds: list[float]) -> list[float]:
    """To ten nanoseconds."""
    return [round(value, 8) for value in seconds]
