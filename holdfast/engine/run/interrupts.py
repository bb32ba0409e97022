"""Ctrl-C and SIGTERM ask a run to stop after its frame; a second Ctrl-C breaks off."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

__all__ = ["interruptible"]


@contextlib.contextmanager
def interruptible(ask_to_stop: Callable[[], None]) -> Iterator[None]:
    """While inside, signals ask; only the main thread may set handlers, elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[int] = []

    def ask(number, frame):
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        # Not here: the main thread may hold the board's lock when the signal comes.
        threading.Thread(target=ask_to_stop, daemon=True).start()

    before = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
