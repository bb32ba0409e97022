"""A Python function as a feed: run in a thread of its own, which fills a short queue.

So a function that blocks does not keep a silent source's frames open. After a
restart a function with a parameter is told how many elements were taken; one
without yields from the beginning, and as many are passed over.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.sources.connectors.iterators import IteratorReader
from holdfast.sources.live.feed import Delivery, Known

__all__ = ["IteratorFeed"]

# The log is synced once per batch; elements that came meanwhile join the next.
BATCH_ROWS_MAX = 100_000
# The function is held when this much waits: two batches, one being logged.
WAITING_ROWS_MAX = 2 * BATCH_ROWS_MAX


class IteratorFeed:
    small = False

    def __init__(self, reader: IteratorReader, source: str) -> None:
        self._reader, self._source, self._taken = reader, source, 0
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Any, int]] = deque()  # items and their rows
        self._rows = 0
        self._stopped = self._done = False
        self._error: SourceError | None = None
        self._thread: threading.Thread | None = None

    def start(self, known: Known) -> None:
        # Not the rows logged: rows put back from quarantine are among those, bad ones are not.
        self._taken = known.rows if known.mark is None else known.mark["taken"]
        name = f"holdfast-iterator-{self._source}"
        self._thread = threading.Thread(target=self._run, args=(self._taken,), name=name, daemon=True)
        self._thread.start()

    def take(self, wait_s: float) -> list[Delivery]:
        items: list[Any] = []
        taken = 0
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._done, wait_s)
            while self._waiting and taken < BATCH_ROWS_MAX:
                item, rows = self._waiting.popleft()
                items.append(item)
                taken += rows
            self._rows -= taken
            self._changed.notify_all()
        self._taken += taken
        return [Delivery(items, mark={"taken": self._taken})] if items else []

    def part(self, delivery: Delivery, items: int) -> Delivery:
        """As if only its first items had come."""
        later = sum(_rows_in(item) for item in delivery.items[items:])
        return Delivery(delivery.items[:items], mark={"taken": delivery.mark["taken"] - later})

    def logged(self, token: Any) -> None:
        """Nobody waits for it."""

    def has_ended(self) -> bool:
        with self._changed:
            ended = self._done and not self._waiting
        if ended and self._error is not None:
            raise self._error
        return ended

    def remark(self) -> str:
        return ""

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self, taken: int) -> None:
        try:
            for item in self._elements(taken):
                rows, item = _rows_in(item), _own(item)
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or self._rows < WAITING_ROWS_MAX)
                    if self._stopped:
                        return
                    self._waiting.append((item, rows))
                    self._rows += rows
                    if len(self._waiting) == 1:
                        self._changed.notify_all()
        except Exception as error:
            self._error = _raised(self._source, self._reader, error)
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _elements(self, taken: int) -> Iterator[Any]:
        function = self._reader.function
        if self._reader.takes_count:
            yield from _items(function(taken))
            return
        # A recording begins anew: what was taken already is passed over. A live
        # function has nothing to repeat: whatever it yields is new.
        skip = taken if self._reader.bounded else 0
        for item in _items(function()):
            if skip == 0:
                yield item
                continue
            rows = _rows_in(item)
            if rows > skip:
                yield _tail(item, skip)
            skip -= min(rows, skip)


def _items(result: Any) -> Iterable[Any]:
    return [result] if hasattr(result, "columns") else result  # one table is one item


def _rows_in(item: Any) -> int:
    return len(item) if hasattr(item, "columns") or isinstance(item, pa.RecordBatch) else 1


_UNCHANGING = frozenset((str, int, float, bool, type(None), bytes, datetime, date, Decimal))


def _own(item: Any) -> Any:
    """As it is now: a function may yield one dict, array or DataFrame again and again, with other values in it."""
    if type(item) in _UNCHANGING:
        return item
    if isinstance(item, dict):
        return {name: value if type(value) in _UNCHANGING else _own(value) for name, value in item.items()}
    if isinstance(item, tuple):
        return item if _UNCHANGING.issuperset(map(type, item)) else tuple(map(_own, item))
    if isinstance(item, list):
        return list(map(_own, item))
    if isinstance(item, bytearray):
        return bytes(item)
    if isinstance(item, np.ndarray) or hasattr(item, "iloc"):
        return item.copy()
    if isinstance(item, pa.Table | pa.RecordBatch):  # Arrow takes a numpy array as it lies in memory
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, item.schema) as writer:
            writer.write(item)
        read = pa.ipc.open_stream(sink.getvalue())
        return read.read_all() if isinstance(item, pa.Table) else read.read_next_batch()
    return item


def _tail(item, skip: int):
    return item.iloc[skip:] if hasattr(item, "iloc") else item.slice(skip)


def _raised(source: str, reader: IteratorReader, error: Exception) -> SourceError:
    trace, line = error.__traceback__, ""
    code = getattr(reader.function, "__code__", None)
    while trace is not None:
        if code is not None and trace.tb_frame.f_code.co_filename == code.co_filename:
            line = f", {code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    found = SourceError(
        "HF-S012",
        "IteratorRaised",
        "the function of a source raised.",
        where=f"source {source!r}, {reader.describe()}{line}",
        why=f"{type(error).__name__}: {error}",
        effect="what it had yielded before is logged; a new run goes on from there",
        do="correct the function and run again",
    )
    found.__cause__ = error
    return found
