"""Ctrl-C that is always heard."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def heard_interrupts() -> Iterator[Callable[[], None]]:
    """Remember a Ctrl-C; what is yielded raises ``KeyboardInterrupt`` if there was one.

    Python raises the exception wherever the program happens to be. If that is in the end of an object (``__del__``, a
    weak reference's callback), Python reports it as ignored and goes on as if nothing had been pressed: long work calls
    the function now and then, and there is no such report. Where a program has a handler of its own, or outside the
    main thread, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield lambda: None
        return
    pressed = []

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    def tell_of_others(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            tell(lost)

    tell, sys.unraisablehook = sys.unraisablehook, tell_of_others
    signal.signal(signal.SIGINT, press)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = tell
