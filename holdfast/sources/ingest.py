"""A Python iterator in operation: logged, cut, sealed, handed out.

A thread runs the user's function and fills a short queue; the source's own thread
empties it into the log, cuts what is logged, seals and hands out. So a function
that blocks does not keep a silent source's frames open, and a crash costs
nothing that was logged: sealed frames come out of the log again, and the
function is told how many elements are there.

Frames close by element time. By arrival, or when the source is unbounded, they
also close by the monotonic clock: the newest time seen plus the time that has
passed since, so that a silent sensor does not stop the process. Each closing is
sealed in the log and never decided again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from holdfast.errors import SourceError, invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import Cutter, times_of
from holdfast.graph.schemas import Column, Schema
from holdfast.sources.assembly import Assembly, earliest
from holdfast.sources.elements import table_of
from holdfast.sources.index import Piece
from holdfast.sources.iterators import IteratorReader
from holdfast.sources.log import Chunk, SourceLog
from holdfast.sources.reader import SourceContext, SourceFrame

__all__ = ["OpenIterator"]

# The log is synced once per batch; elements that came meanwhile join the next.
BATCH_ROWS_MAX = 100_000
# The function is held when this much waits: two batches, one being logged.
WAITING_ROWS_MAX = 2 * BATCH_ROWS_MAX
# How long the source's thread waits before it looks at `stop` and the clock.
LOOK_S = 0.05
ARRIVAL_COLUMN = "_arrival_us"


class OpenIterator:
    def __init__(self, reader: IteratorReader, context: SourceContext) -> None:
        self._reader, self._context = reader, context
        self._arrival = context.time_column is None
        schema = context.schema
        if self._arrival:
            schema = Schema((*schema.columns, Column(ARRIVAL_COLUMN, "bigint")))
        self._log = SourceLog(context.directory / "log", schema)
        self._time = ARRIVAL_COLUMN if self._arrival else context.time_column
        self._clock = context.clock
        self._puller = _Puller(reader, context.name, self._log.logged)
        self._wall = _Wall(context.monotonic)
        self._newest_us, self._newest_at_s = 0, context.monotonic()

    # -- what the engine calls -----------------------------------------------

    def first_time_us(self) -> int | None:
        """Blocks until it is known; None if the iterator ends without an element with a time."""
        if self._arrival:
            return self._wall.now_us()
        # A live source is not waited for longer than its first batch.
        spread_us = self._context.grace_us + self._context.frame_us if self._reader.bounded else 0
        return earliest(self._logged_pieces(), spread_us)

    def _logged_pieces(self) -> Iterator[Piece]:
        batch = 1
        while True:
            while (chunk := self._log.chunk(batch)) is not None:
                yield self._piece(chunk)
                batch += 1
            if self._puller.has_ended():
                return
            self._ingest(LOOK_S)

    def set_clock(self, clock: FrameClock) -> None:
        self._clock = clock
        self._saw(clock.t0_us)

    def seen_until(self) -> int:
        return self._newest_us

    @property
    def logged(self) -> int:
        """Elements logged so far."""
        return self._log.logged

    def extent(self) -> int:
        return self._log.logged

    def trim(self, before_n: int) -> None:
        self._log.trim(before_n)

    def close(self) -> None:
        self._puller.stop()

    def frames(self, stop: threading.Event) -> Iterator[SourceFrame]:
        invariant(self._clock is not None, f"source {self._context.name!r} has no clock yet")
        for frame in self._log.sealed(self._context.from_n):
            if stop.is_set():
                return
            yield frame
        for frame in self._fresh(stop):
            if frame.n >= self._context.from_n:
                yield frame

    # -- logging, cutting, sealing -------------------------------------------

    def _fresh(self, stop: threading.Event) -> Iterator[SourceFrame]:
        context, log = self._context, self._log
        cutter = Cutter(self._clock, 0 if self._arrival else context.grace_us)
        assembly = Assembly(self._assembly_context(), self._clock)
        batch = 0
        if log.state is not None:
            state = log.state
            batch, cutter = state["batch"], Cutter.restored(state["cutter"])
            assembly.restore(state["open"], log.here)
            assembly.next = log.last_n + 1
            self._saw(state["newest_us"])
            self._wall.not_before(state["newest_us"])
        while not stop.is_set():
            chunk = log.chunk(batch + 1)
            if chunk is None:
                if self._puller.has_ended():
                    break
                self._ingest(LOOK_S)
                chunk = log.chunk(batch + 1)
            closed = cutter.closed
            if chunk is not None:
                batch = chunk.batch
                closed = assembly.add(chunk.file, self._piece(chunk), cutter)
                self._saw(cutter.newest_us or 0)
            elif self._arrival or not self._reader.bounded:
                closed = self._close_by_clock(cutter)
            yield from self._seal(assembly, cutter, closed, batch)
            assembly.check()
        if not stop.is_set():
            # Closed, not finished: a function that has more in a later run may go on.
            cutter.close(Cutter.restored(cutter.state()).finish())
            yield from self._seal(assembly, cutter, cutter.closed, batch)

    def _seal(
        self, assembly: Assembly, cutter: Cutter, closed: int, batch: int
    ) -> list[SourceFrame]:
        frames = list(assembly.take(closed))
        if frames:
            state = {
                "batch": batch,
                "cutter": cutter.state(),
                "open": assembly.saved(),
                "newest_us": self._newest_us,
            }
            self._log.seal(frames, state)
        return frames

    def _close_by_clock(self, cutter: Cutter) -> int:
        """Close what a source as far on as the clock says would have closed."""
        if self._arrival:
            now_us = self._wall.now_us()
        else:
            passed_s = self._context.monotonic() - self._newest_at_s
            now_us = self._newest_us + int(passed_s * 1e6)
        grace_us = 0 if self._arrival else self._context.grace_us
        n = self._clock.frame_at(now_us - grace_us) - 1
        if n > cutter.closed:
            cutter.close(n)
        return cutter.closed

    def _ingest(self, wait_s: float) -> None:
        """Log what has come, or wait a little for it."""
        items = self._puller.take(wait_s)
        if not items:
            return
        context = self._context
        table, error = table_of(items, context.schema, context.name, self._log.logged)
        if self._arrival:
            now = pa.array(np.full(table.num_rows, self._wall.now_us(), dtype=np.int64))
            table = table.append_column(ARRIVAL_COLUMN, now)
        if table.num_rows:
            self._log.append(self._log.next_batch, table)
        if error is not None:
            raise error

    def _piece(self, chunk: Chunk) -> Piece:
        column = self._log.read(chunk, self._time)
        decode = column.to_numpy if self._arrival else partial(times_of, column)
        return Piece(0, chunk.file.rows, decode)

    def _saw(self, time_us: int) -> None:
        if time_us > self._newest_us:
            self._newest_us, self._newest_at_s = time_us, self._context.monotonic()

    @property
    def _late(self) -> str:
        # Arrival never runs backwards, so nothing is late by it.
        return "admit" if self._arrival else self._context.late

    def _assembly_context(self) -> SourceContext:
        return replace(self._context, late=self._late)


class _Wall:
    """Wall time that never runs backwards: read once, carried on by the monotonic clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._offset_us = time.time_ns() // 1000 - int(monotonic() * 1e6)

    def now_us(self) -> int:
        return self._offset_us + int(self._monotonic() * 1e6)

    def not_before(self, time_us: int) -> None:
        """A restart under a wall clock that was set back goes on from the last arrival."""
        self._offset_us += max(0, time_us - self.now_us())


class _Puller:
    """Runs the user's function in a thread of its own, started with the first `take`."""

    def __init__(self, reader: IteratorReader, source: str, logged: int) -> None:
        self._reader, self._source, self._logged = reader, source, logged
        self._changed = threading.Condition()
        self._waiting: deque[tuple[object, int]] = deque()  # items and their rows
        self._rows = 0
        self._stopped = self._done = False
        self._error: SourceError | None = None
        self._thread: threading.Thread | None = None

    def has_ended(self) -> bool:
        """All elements were taken; raises what the function raised after the last."""
        with self._changed:
            ended = self._done and not self._waiting
        if ended and self._error is not None:
            raise self._error
        return ended

    def take(self, wait_s: float) -> list[object]:
        """What has come, at most a batch; waits a little if nothing has."""
        if self._thread is None:
            name = f"holdfast-iterator-{self._source}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        items: list[object] = []
        taken = 0
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._done, wait_s)
            while self._waiting and taken < BATCH_ROWS_MAX:
                item, rows = self._waiting.popleft()
                items.append(item)
                taken += rows
            self._rows -= taken
            self._changed.notify_all()
        return items

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            for item in self._elements():
                rows = _rows_in(item)
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped or self._rows < WAITING_ROWS_MAX)
                    if self._stopped:
                        return
                    self._waiting.append((item, rows))
                    self._rows += rows
                    if len(self._waiting) == 1:
                        self._changed.notify_all()
        except Exception as error:  # noqa: BLE001  the user's code: wrapped, never mixed with ours
            self._error = _raised(self._source, self._reader, error)
        finally:
            with self._changed:
                self._done = True
                self._changed.notify_all()

    def _elements(self) -> Iterator[object]:
        function = self._reader.function
        if self._reader.takes_count:
            yield from _items(function(self._logged))
            return
        # A recording begins anew: what is logged already is passed over. A live
        # function has nothing to repeat: whatever it yields is new.
        skip = self._logged if self._reader.bounded else 0
        for item in _items(function()):
            if skip == 0:
                yield item
                continue
            rows = _rows_in(item)
            if rows > skip:
                yield _tail(item, skip)
            skip -= min(rows, skip)


def _items(result: object) -> Iterable[object]:
    return [result] if hasattr(result, "columns") else result  # one table is one item


def _rows_in(item: object) -> int:
    return len(item) if hasattr(item, "columns") or isinstance(item, pa.RecordBatch) else 1


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
