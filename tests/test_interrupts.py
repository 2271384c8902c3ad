"""A Ctrl-C at a moment at which Python loses the exception still ends the training."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import refactorgnn
from refactorgnn.interrupts import heard_interrupts
from refactorgnn.training.loop import _Training


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Python's own handler, also where the tests run in the background of a shell, which has Ctrl-C ignored there."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class InterruptedWhenItEnds:
    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # the handler runs, and raises, between two steps of this
            pass


def test_an_interrupt_that_python_loses_is_heard_at_the_next_look() -> None:
    with heard_interrupts() as look:
        look()
        InterruptedWhenItEnds()
        with pytest.raises(KeyboardInterrupt):
            look()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_training_ends_after_such_an_interrupt(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = []

    def start_epoch(training: _Training, original: object = _Training.start_epoch) -> None:
        epochs.append(training.done.epoch)
        if len(epochs) == 3:
            InterruptedWhenItEnds()
        original(training)  # type: ignore[operator]

    monkeypatch.setattr(_Training, "start_epoch", start_epoch)
    with pytest.raises(KeyboardInterrupt):
        refactorgnn.train(tiny, out=tmp_path / "run", progress=False, dim=4, epochs=50)
    assert len(epochs) == 3


def test_other_handlers_and_threads_are_left_alone() -> None:
    def handler(number: int, frame: object) -> None:
        pass

    before = signal.signal(signal.SIGINT, handler)
    try:
        with heard_interrupts():
            assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    thread = threading.Thread(target=lambda: heard_interrupts().__enter__()())
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before
