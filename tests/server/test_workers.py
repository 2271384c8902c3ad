"""Threads: questions do not wait for slow work, slow work is done one at a time, and no more wait than may."""

from __future__ import annotations

import asyncio
import threading

import pytest
import torch

from refactorgnn.server.workers import TooBusyError, Workers


def test_questions_do_not_wait_for_slow_work() -> None:
    async def work() -> tuple[int, str]:
        workers, may_end = Workers(1, max_waiting=2), threading.Event()
        slow = asyncio.ensure_future(workers.slow(lambda: str(may_end.wait(30))))
        threads = await workers.quick(torch.get_num_threads)
        assert not slow.done()
        may_end.set()
        ended = await slow
        workers.close()
        return threads, ended

    assert asyncio.run(work()) == (1, "True")


def test_slow_work_is_done_one_at_a_time_and_questions_at_once() -> None:
    together = threading.Barrier(2)
    most = under_way = 0

    def slow() -> None:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        threading.Event().wait(0.02)
        under_way -= 1

    async def work() -> None:
        workers = Workers(2, max_waiting=8)
        await asyncio.gather(*(workers.quick(lambda: together.wait(30)) for _ in range(2)))  # both, or neither ends
        await asyncio.gather(*(workers.slow(slow) for _ in range(5)))
        workers.close()

    asyncio.run(work())
    assert most == 1


def test_no_more_wait_than_may_and_places_are_given_back() -> None:
    async def work() -> None:
        workers, may_end = Workers(1, max_waiting=3), threading.Event()
        waiting = [asyncio.ensure_future(workers.quick(lambda: may_end.wait(30))) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(TooBusyError):
            await workers.quick(lambda: True)
        may_end.set()
        assert await asyncio.gather(*waiting) == [True] * 3
        with pytest.raises(ZeroDivisionError):
            await workers.quick(lambda: 1 / 0)
        assert [await workers.quick(lambda: number) for number in range(5)] == list(range(5))  # noqa: B023
        workers.close()

    asyncio.run(work())
