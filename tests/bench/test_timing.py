"""Turns are taken, the unseen run is not counted unless it is long, and memory is what it should be."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from refactorgnn.bench import timing
from refactorgnn.bench.timing import Contestant, peak_bytes, seconds_in_turns
from refactorgnn.measuring import in_fresh_process

CPU = torch.device("cpu")


def turns(lengths: dict[str, float], repeats: int, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, int]]:
    """The order in which contestants of these lengths run on a clock that only they move, and how often they count."""
    now, order = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def contestant(name: str) -> Contestant:
        def run() -> None:
            order.append(name)
            now[0] += lengths[name]

        def get_ready() -> None:
            now[0] += 1000.0  # must not be seen

        return Contestant(run, get_ready)

    found = seconds_in_turns({name: contestant(name) for name in lengths}, repeats, CPU)
    for name, seconds in found.items():
        assert seconds == pytest.approx([lengths[name]] * len(seconds))
    return "".join(order), {name: len(seconds) for name, seconds in found.items()}


def test_short_ones_take_turns_after_a_run_that_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turns({"a": 0.5, "b": 2.0}, 3, monkeypatch) == ("abababab", {"a": 3, "b": 3})


def test_a_long_first_run_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turns({"a": 0.5, "b": 10.0}, 2, monkeypatch) == ("abaab", {"a": 2, "b": 2})


def test_who_has_taken_a_minute_has_no_more_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turns({"a": 0.5, "b": 35.0, "c": 90.0}, 4, monkeypatch) == ("abcaabaa", {"a": 4, "b": 2, "c": 1})


def test_what_a_gpu_compiles_at_first_never_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = iter([30.0, 20.0, 1.0, 2.0, 3.0])
    monkeypatch.setattr(timing, "seconds_of", lambda one, device: next(lengths))
    assert seconds_in_turns({"a": Contestant(lambda: None)}, 2, torch.device("cuda")) == {"a": [2.0, 3.0]}


def _temporary_and_output() -> Tensor:
    temporary = torch.ones(8_000_000)
    return temporary[:4_000_000].clone()


def _peak() -> int:
    _temporary_and_output()  # what torch sets up when it is first used is not what is measured
    return peak_bytes(Contestant(_temporary_and_output), CPU)


def test_memory_is_what_was_held_beside_the_output() -> None:
    # 32 MB of temporaries and 16 MB of output are held at once.
    assert in_fresh_process(_peak, preload=("torch",)) == pytest.approx(32e6, abs=4e6)
