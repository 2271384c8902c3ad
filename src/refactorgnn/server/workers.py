"""Threads that compute while the event loop talks to clients: they share the one model, and torch lets go of the lock.

Questions have their threads (but tiny ones, which the event loop answers itself: see :mod:`.routes`), and everything
slow (explanations, additions) a single one of its own: a slow request then waits for slow ones only, and a question
never waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from refactorgnn.errors import UserError

T = TypeVar("T")


class TooBusyError(Exception):
    """More requests are waiting than the server takes."""


class Workers:
    """The threads of a server.

    Args:
        num_threads: Threads for questions.
        max_waiting: Requests that may be waiting or under way, for each of the two kinds.
    """

    def __init__(self, num_threads: int, max_waiting: int) -> None:
        if num_threads < 1:
            raise UserError(f"workers={num_threads} cannot answer: choose 1 or more.")
        self._quick, self._slow = _Pool(num_threads, max_waiting), _Pool(1, max_waiting)

    async def quick(self, work: Callable[[], T]) -> T:
        """Do what takes milliseconds."""
        return await self._quick.run(work)

    async def slow(self, work: Callable[[], T]) -> T:
        """Do what takes longer, one at a time."""
        return await self._slow.run(work)

    def close(self) -> None:
        """Begin nothing more."""
        for pool in (self._quick, self._slow):
            pool.threads.shutdown(wait=False, cancel_futures=True)


class _Pool:
    def __init__(self, num_threads: int, max_waiting: int) -> None:
        # One thread of torch for each of ours: requests are parallel already.
        self.threads = ThreadPoolExecutor(num_threads, "refactorgnn", initializer=torch.set_num_threads, initargs=(1,))
        self._free = max_waiting

    async def run(self, work: Callable[[], T]) -> T:
        if not self._free:
            raise TooBusyError
        self._free -= 1  # in the event loop alone, so no lock is needed
        try:
            return await asyncio.get_running_loop().run_in_executor(self.threads, work)
        finally:
            self._free += 1
