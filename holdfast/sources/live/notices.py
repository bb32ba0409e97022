"""What strangers can cause is logged seldom: at once when it begins, then once a minute with a count.

A sender that does ten thousand wrong things must not fill the disk with ten thousand lines about them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

__all__ = ["Notices"]

EVERY_S = 60.0

_log = logging.getLogger("holdfast.sources")


class Notices:
    def __init__(self, source: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._source, self._monotonic = source, monotonic
        self._lock = threading.Lock()
        self._said: dict[str, tuple[float, int]] = {}  # kind: when it was said, and how often it came since

    def say(self, kind: str, what: str, count: int = 1) -> None:
        """`kind`: what is said once a minute; `what`: a sentence without values of rows."""
        now_s = self._monotonic()
        with self._lock:
            at_s, more = self._said.get(kind, (None, 0))
            if at_s is not None and now_s - at_s < EVERY_S:
                self._said[kind] = (at_s, more + count)
                return
            self._said[kind] = (now_s, 0)
        since = f" ({more + count:,} times since this was last said)" if more else ""
        _log.warning("source %r: %s%s", self._source, what, since)
