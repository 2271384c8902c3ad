"""Several processes that each do one task after another, none of which can bring down the others."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Generic, TypeVar

from refactorgnn.reproduce.work import reason

T = TypeVar("T")
R = TypeVar("R")
# Spawned, not forked: a fork of a process that has used a GPU cannot use it.
_CONTEXT = multiprocessing.get_context("spawn")


def do_all(
    function: Callable[[T], R], tasks: Sequence[T], jobs: int, started: Callable[[T], None]
) -> Iterator[tuple[T, R | str]]:
    """Call ``function`` on every task and yield each with what came of it, or what went wrong, as it ends.

    Args:
        function: A function of a module, for it is called in other processes if there are several jobs.
        tasks: What to call it on.
        jobs: The number of processes; 1: this one.
        started: Told of each task when it begins.
    """
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            started(task)
            yield task, _attempt(function, task)
        return
    pool = _Pool(function, list(tasks), min(jobs, len(tasks)), started)
    try:
        yield from pool.outcomes()
    finally:
        pool.end()


def _attempt(function: Callable[[T], R], task: T) -> R | str:
    try:
        return function(task)
    except Exception as error:  # one experiment is not to stop the others
        return reason(error)


class _Pool(Generic[T, R]):
    """Processes, each with a connection to it and the task it has."""

    def __init__(self, function: Callable[[T], R], tasks: list[T], jobs: int, started: Callable[[T], None]) -> None:
        self.function, self.waiting, self.jobs, self.started = function, tasks[::-1], jobs, started
        self.busy: dict[Connection, tuple[BaseProcess, T]] = {}
        self.processes: list[BaseProcess] = []

    def outcomes(self) -> Iterator[tuple[T, R | str]]:
        """Each task with what came of it, or what went wrong, as it ends."""
        for _ in range(self.jobs):
            self._give(*self._begin())
        while self.busy:
            ready = wait(list(self.busy))
            for connection in [one for one in self.busy if one in ready]:
                process, task = self.busy.pop(connection)
                outcome: R | str
                try:
                    outcome = connection.recv()
                except (EOFError, OSError):  # it was killed, perhaps for its use of memory
                    process.join()
                    outcome = f"its process ended unexpectedly (exit code {process.exitcode})"
                    connection.close()
                    if self.waiting:
                        self._give(*self._begin())
                else:
                    self._give(process, connection)
                yield task, outcome

    def _begin(self) -> tuple[BaseProcess, Connection]:
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(self.function, theirs), daemon=False)
        with _interrupts_held_back():
            process.start()
            self.processes.append(process)
        theirs.close()  # so that the end of the process is the end of the connection
        return process, ours

    def _give(self, process: BaseProcess, connection: Connection) -> None:
        """The next task for a process, or its end."""
        if not self.waiting:
            connection.close()
            process.join()
            return
        task = self.waiting.pop()
        self.started(task)
        self.busy[connection] = process, task
        with suppress(OSError):  # the process was killed: that comes out when its answer is read
            connection.send(task)

    def end(self) -> None:
        """End what is still at work: the user has interrupted it."""
        for process in self.processes:
            process.terminate()
            process.join()
        for connection in self.busy:
            connection.close()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """What is started meanwhile never hears of a Ctrl-C, not even while it imports; this process hears of it later."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would let interrupts through once it is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(function: Callable[[T], R], connection: Connection) -> None:
    """Do tasks until there are no more; an interrupt is the first process's to act on."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(_attempt(function, task))


def _end_with_parent() -> None:
    """Do not outlive a first process that was killed: its successor may work in the same folders."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
