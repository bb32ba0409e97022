"""A feed in operation: logged, cut, sealed, handed out.

The source's own thread takes what the feed delivers, writes it to the log, tells
the feed so, cuts what is logged, seals and hands out. A crash costs nothing that
was logged: sealed frames come out of the log again, and the feed is told what is
there.

Frames close by element time. By arrival, or with `boundary="clock"` (the default
of an unbounded source), they also close by the monotonic clock: the newest time
seen plus the time that has passed since, so that a silent sensor does not stop
the process. With `boundary="hold"` a frame stays open until the source's own
elements pass it, and `remark` names the silent source. Each closing is sealed in
the log and never decided again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pyarrow as pa

from holdfast.errors import SourceError, invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import Cutter, times_of
from holdfast.graph.schemas import Column, Schema
from holdfast.sources.assembly import Assembly, earliest
from holdfast.sources.bad import Bad, Terms, quarantine_bad
from holdfast.sources.elements import table_of
from holdfast.sources.feed import Delivery, Feed, Known
from holdfast.sources.index import Piece
from holdfast.sources.log import Chunk, SourceLog
from holdfast.sources.putback import PutBack
from holdfast.sources.reader import SourceContext, SourceFrame
from holdfast.sources.redelivered import Redelivered

__all__ = ["OpenFeed"]

# How long the source's thread waits before it looks at `stop` and the clock.
LOOK_S = 0.05
# How often it looks for rows that somebody put back.
PUT_BACK_S = 1.0
# What is that large is a chunk of its own; less is staged where a feed delivers in small pieces.
STAGED_ROWS_MAX = 20_000
ARRIVAL_COLUMN = "_arrival_us"


class OpenFeed:
    def __init__(
        self,
        feed: Feed,
        context: SourceContext,
        *,
        bounded: bool,
        id_column: str | None = None,
        missing: str = "error",
    ) -> None:
        """`id_column`: elements with a value of it that was logged before are left out."""
        self._feed, self._context, self._bounded = feed, context, bounded
        self._arrival = context.time_column is None
        schema = context.schema
        if self._arrival:
            schema = Schema((*schema.columns, Column(ARRIVAL_COLUMN, "bigint")))
        self._log = SourceLog(context.directory / "log", schema)
        self._time = ARRIVAL_COLUMN if self._arrival else context.time_column
        self._terms = Terms(context.schema, context.name, context.new_columns, missing)
        self._redelivered = Redelivered(context.directory / "redelivered.arrow", self._log, id_column)
        self._put_back = PutBack(
            context.directory / "put-back", self._log, context.schema, context.time_column
        )
        self._put_back_at_s = self._settle_at_s = 0.0
        # A few chunks per frame: each is a file, and what is staged is not cut yet.
        self._settle_s = min(max(context.frame_us / 4e6, 0.02), 0.25)
        self._clock = context.clock
        self._wall = _Wall(context.monotonic)
        self._newest_us, self._newest_at_s = 0, context.monotonic()
        self._spoke_us = self._wall.now_us()
        self._started = False
        self.bad = 0  # elements that could not be taken as declared, in this run

    # -- what the engine calls -----------------------------------------------

    def first_time_us(self, wait_s: float | None = None) -> int | None:
        """None if the feed ends without an element that has a time, or if `wait_s` pass before one comes."""
        if self._arrival:
            return self._wall.now_us()
        if self._bounded:
            spread_us = self._context.grace_us + self._context.frame_us
            return earliest(self._logged_pieces(wait_s), spread_us)
        # A live source is not waited for longer than its first batch; what comes after it may be earlier by the grace.
        found = earliest(self._logged_pieces(wait_s), 0)
        return None if found is None else found - self._context.grace_us

    def _logged_pieces(self, wait_s: float | None) -> Iterator[Piece]:
        batch = 1
        until_s = None if wait_s is None else time.monotonic() + wait_s
        while True:
            while (chunk := self._log.chunk(batch)) is not None:
                yield self._piece(chunk)
                batch += 1
            if self._has_ended() or (until_s is not None and time.monotonic() >= until_s):
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
        self._log.trim(before_n, before_deleting=self._redelivered.outlive)

    def away(self) -> str:
        """Since when and why its sender cannot be reached; mostly nothing. Silence alone is no fault."""
        return self._feed.remark()

    def remark(self) -> str:
        """What a status should say of the source now; mostly nothing."""
        said = self.away()
        if said or self._by_clock or self._bounded:
            return said
        patience_us = max(self._context.frame_us + self._context.grace_us, 1_000_000)
        if self._wall.now_us() - self._spoke_us < patience_us:
            return ""
        return f"silent since {datetime.fromtimestamp(self._spoke_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def close(self) -> None:
        self._feed.stop()
        self._log.close()

    def frames(self, stop: threading.Event) -> Iterator[SourceFrame]:
        invariant(self._clock is not None, f"source {self._context.name!r} has no clock yet")
        for frame in self._log.sealed(self._context.from_n):
            if stop.is_set():
                return
            yield frame
        for frame in self._fresh(stop):
            if frame.n >= self._context.from_n:
                yield frame

    # -- cutting and sealing -------------------------------------------------

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
                if self._has_ended():
                    break
                self._ingest(LOOK_S)
                chunk = log.chunk(batch + 1)
            closed = cutter.closed
            if chunk is not None:
                batch = chunk.batch
                late = "admit" if "put_back" in chunk.note else None
                closed = assembly.add(chunk.file, self._piece(chunk), cutter, late)
                self._saw(cutter.newest_us or 0)
            elif self._by_clock and self._due() > cutter.closed:
                if self._log.settle() is not None:
                    continue  # it came before the clock ran out
                cutter.close(self._due())
                closed = cutter.closed
            yield from self._seal(assembly, cutter, closed, batch)
            assembly.check()
        if not stop.is_set():
            # Closed, not finished: a feed that has more in a later run may go on.
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

    @property
    def _by_clock(self) -> bool:
        if self._arrival or self._context.boundary is None:
            return self._arrival or not self._bounded
        return self._context.boundary == "clock"

    def _due(self) -> int:
        """The frame a source that is as far on as the clock would have closed."""
        if self._arrival:
            now_us = self._wall.now_us()
        else:
            passed_s = self._context.monotonic() - self._newest_at_s
            now_us = self._newest_us + int(passed_s * 1e6)
        grace_us = 0 if self._arrival else self._context.grace_us
        return self._clock.frame_at(now_us - grace_us) - 1

    # -- logging -------------------------------------------------------------

    def _ingest(self, wait_s: float) -> None:
        """Log what has come, or wait a little for it."""
        self._start()
        if self._log_put_back():
            return
        deliveries = self._feed.take(min(wait_s, self._settle_s) if self._log.staged_rows else wait_s)
        if deliveries:
            self._log_deliveries(deliveries)
        if self._log.staged_rows and time.monotonic() >= self._settle_at_s:
            self._log.settle()

    def _log_deliveries(self, deliveries: list[Delivery]) -> None:
        new = self._redelivered.without_repeats(deliveries)
        items = [item for each in new for item in each.items]
        fails = self._context.bad == "fail"
        table, bad = table_of(items, self._terms, self._log.logged, first_only=fails)
        error: SourceError | None = None
        if bad and fails:
            error = bad[0].error
            new, table, failing = self._before(new, bad[0], table)
            deliveries = deliveries[: deliveries.index(failing)]
        self._append(new, table, [] if fails else bad)
        for each in deliveries:
            self._feed.logged(each.token)
        if error is not None:
            raise error

    def _before(
        self, deliveries: list[Delivery], bad: Bad, table: pa.Table
    ) -> tuple[list[Delivery], pa.Table, Delivery]:
        """What came before the bad element, or before its delivery where that is one whole; and that delivery."""
        at, whole = 0, []
        for each in deliveries:
            if at + len(each.items) > bad.at:
                break
            at += len(each.items)
            whole.append(each)
        failing = deliveries[len(whole)]
        part = self._feed.part(failing, bad.at - at)
        if part is not None:
            return [*whole, part], table, failing
        items = [item for each in whole for item in each.items]
        return whole, table_of(items, self._terms, self._log.logged, first_only=True)[0], failing

    def _append(self, deliveries: Sequence[Delivery], table: pa.Table, bad: list[Bad]) -> None:
        if bad:
            self.bad += len(bad)
            # First, so that the batch of the bad ones has the number their file is named by.
            self._log.settle()
            if self._context.bad == "quarantine":
                quarantine_bad(self._context.directory / "quarantine", self._log.next_batch, bad)
        table = self._redelivered.without_known(table)
        # Bad elements alone make an empty batch: its number is the name of the file that holds them.
        if not table.num_rows and not bad:
            return
        note: dict[str, object] = {"deliveries": len(deliveries)}
        if keys := [each.key for each in deliveries if each.key]:
            note["keys"] = keys
        marks = [each.mark for each in deliveries if each.mark is not None]
        mark = marks[-1] if marks else None
        if bad or not self._feed.small or table.num_rows >= STAGED_ROWS_MAX:
            self._write(table, mark, note)
            return
        if not self._log.staged_rows:
            self._settle_at_s = time.monotonic() + self._settle_s
        self._redelivered.saw(self._log.next_batch, table, note)
        self._log.stage(self._stamped(table), mark, note)

    def _log_put_back(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._put_back_at_s:
            return False
        found = self._put_back.next()
        if found is None:
            self._put_back_at_s = now_s + PUT_BACK_S
            return False
        path, table = found
        self._write(table, None, {"put_back": path.name, "deliveries": 0})
        path.unlink()
        return True

    def _write(self, table: pa.Table, mark: dict | None, note: dict) -> None:
        self._log.settle()  # what came before comes before
        chunk = self._log.append(self._log.next_batch, self._stamped(table), mark, note)
        self._redelivered.saw(chunk.batch, table, note)

    def _stamped(self, table: pa.Table) -> pa.Table:
        """With its arrival, where that decides; and now the source has spoken."""
        self._spoke_us = self._wall.now_us()
        if not self._arrival:
            return table
        now = pa.array(np.full(table.num_rows, self._spoke_us, dtype=np.int64))
        return table.append_column(ARRIVAL_COLUMN, now)

    def _start(self) -> None:
        if not self._started:
            self._started = True
            self._feed.start(Known(self._log.logged, self._log.mark))

    def _has_ended(self) -> bool:
        self._start()
        return self._feed.has_ended() and self._log.settle() is None

    def _piece(self, chunk: Chunk) -> Piece:
        column = self._log.read(chunk, self._time)
        decode = column.to_numpy if self._arrival else partial(times_of, column)
        return Piece(0, chunk.file.rows, decode)

    def _saw(self, time_us: int) -> None:
        if time_us > self._newest_us:
            self._newest_us, self._newest_at_s = time_us, self._context.monotonic()

    def _assembly_context(self) -> SourceContext:
        # Arrival never runs backwards, so nothing is late by it.
        return replace(self._context, late="admit") if self._arrival else self._context


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
