"""Seconds and megabytes, measured where they are known."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from refactorgnn.errors import UserError
from refactorgnn.measuring import forget_peak, in_fresh_process, memory_added_mb, peak_mb, resident_mb, timed

BLOCK = 64_000_000  # bytes


def test_seconds_by_the_clock_and_by_the_processor() -> None:
    wall, cpu = timed(lambda: time.sleep(0.02), repeats=3)
    assert len(wall) == len(cpu) == 3
    assert min(wall) >= 0.02
    assert max(cpu) < 0.02


def _memory_around_a_block() -> tuple[float, float, float, float]:
    before = resident_mb()
    added = memory_added_mb(lambda: len(b"\1" * BLOCK))
    return before, added, resident_mb(), peak_mb()


def test_memory_that_was_given_back_counts() -> None:
    """In a process of its own: whatever else runs in this one may let the peak begin anew."""
    before, added, after, peak = in_fresh_process(_memory_around_a_block)
    assert added == pytest.approx(64, abs=6)
    assert after < before + 10
    assert peak > after + 40  # what is held now says nothing of it


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can forget a peak")
def test_an_earlier_peak_is_forgotten() -> None:
    memory_added_mb(lambda: len(b"\1" * (2 * BLOCK)))
    assert forget_peak()
    assert memory_added_mb(lambda: len(b"\1" * BLOCK)) == pytest.approx(64, abs=6)


def _peak_of_a_block(size: int) -> tuple[int, float]:
    return os.getpid(), memory_added_mb(lambda: len(b"\1" * size))


def test_each_figure_has_a_process_of_its_own() -> None:
    results = [in_fresh_process(_peak_of_a_block, size) for size in (2 * BLOCK, BLOCK)]
    assert len({os.getpid(), *(pid for pid, _ in results)}) == 3
    assert [added for _, added in results] == pytest.approx([128, 64], abs=6)


def _refuse() -> None:
    raise UserError("this cannot be: choose another.")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_errors_come_back_and_a_killed_process_is_noticed() -> None:
    with pytest.raises(UserError, match="choose another"):
        in_fresh_process(_refuse)
    with pytest.raises(RuntimeError, match=r"was killed \(status -9\)"):
        in_fresh_process(_die)
