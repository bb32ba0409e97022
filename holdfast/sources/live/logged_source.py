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
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pyarrow as pa

from holdfast.errors import SourceError, invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import Cutter, times_of
from holdfast.graph.schemas import Column, Schema
from holdfast.journals.seals import SealJournal
from holdfast.sources.assembly import CLOSED_AT_ONCE_MAX, Assembly, earliest
from holdfast.sources.index import Piece
from holdfast.sources.live.ahead import Ahead
from holdfast.sources.live.elements import item_of, table_of
from holdfast.sources.live.feed import Delivery, Feed, Known
from holdfast.sources.live.log import Chunk, SourceLog
from holdfast.sources.live.notices import Notices
from holdfast.sources.live.putback import PutBack, is_ahead
from holdfast.sources.live.redelivered import Redelivered
from holdfast.sources.live.timed import Jumps
from holdfast.sources.parse.bad import Bad, Terms, quarantine_ahead, quarantine_bad
from holdfast.sources.reader import SourceContext, SourceFrame
from holdfast.sources.sealed import handed_out, taken_up

__all__ = ["OpenFeed", "Wall"]

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
        self._log.check_reaches(SealJournal(context.directory).last_n())
        self._time = ARRIVAL_COLUMN if self._arrival else context.time_column
        self._redelivered = Redelivered(context.directory / "redelivered.arrow", self._log, id_column)
        self._ahead = self._judge()
        self._terms = self._declared(missing)
        self._jumps = None
        if not self._arrival:
            self._jumps = Jumps(context.name, context.time_column, context.frame_us, context.grace_us)
        self._notices = Notices(context.name)
        self._put_back = PutBack(
            context.directory / "put-back", self._log, context.schema, context.time_column, self._ahead, self._jump_in
        )
        self._put_back_at_s = self._settle_at_s = 0.0
        # A few chunks per frame: each is a file, and what is staged is not cut yet.
        self._settle_s = min(max(context.frame_us / 4e6, 0.02), 0.25)
        self._clock = context.clock
        self._assembly: Assembly | None = None
        self._wall = Wall(context.monotonic)
        self._newest_us, self._newest_at_s = 0, context.monotonic()
        self._spoke_us = self._wall.now_us()
        self._started = False
        self.bad = 0  # elements that could not be taken as declared, in this run

    def _judge(self) -> Ahead | None:
        """Of rows ahead of the clock; None where they are taken at their word, or have no time of their own."""
        context = self._context
        if self._arrival or context.ahead_us is None or context.on_ahead == "admit":
            return None
        return Ahead(context.time_column, context.ahead_us, context.on_ahead, context.monotonic, context.wall)

    def _declared(self, missing: str) -> Terms:
        context = self._context
        # Where late rows are left out, one without a time goes where they go.
        needs_time = not self._arrival and context.late in ("admit", "fail")
        return Terms(
            context.schema,
            context.name,
            context.new_columns,
            missing,
            context.unheld,
            time=context.time_column if needs_time else None,
            judges_ahead=self._ahead is not None,
        )

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
                piece = self._piece(chunk)
                if self._jumps is not None:
                    self._jumps.saw(piece.times_us)
                yield piece
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
        from_n = self._context.from_n
        yield from handed_out(self._log.sealed(from_n), self._fresh(stop), from_n, stop)

    # -- cutting and sealing -------------------------------------------------

    def _fresh(self, stop: threading.Event) -> Iterator[SourceFrame]:
        log, state = self._log, self._log.state
        cutter, assembly = taken_up(self._context, self._clock, state, log.last_n, log.here, by_arrival=self._arrival)
        self._assembly = assembly
        batch, used = 0, 0  # all of this batch is cut, and so many rows of the next
        if state is not None:
            batch, used = state["batch"], state.get("used", 0)
            self._saw(state["newest_us"])
            self._wall.not_before(state["newest_us"])
        self._saw_cut(cutter)
        while not stop.is_set():
            chunk = log.chunk(batch + 1)
            if chunk is None:
                if self._arrival and not self._started:
                    if log.settle() is not None:
                        continue
                    try:
                        assembly.check_clock(self._wall.now_us())
                    except SourceError:
                        cutter.close(max(cutter.closed, assembly.last_open))
                        yield from self._seal(assembly, cutter, cutter.closed, batch, used)
                        raise
                if self._has_ended():
                    break
                self._ingest(LOOK_S)
                chunk = log.chunk(batch + 1)
            closed = cutter.closed
            if chunk is not None:
                late = "admit" if "put_back" in chunk.note else None
                closed = assembly.add(chunk.file, self._piece(chunk, used), cutter, late)
                # A row that stops the source stands in the log and is met again, with all that follow it.
                failed = assembly.failed_at
                batch, used = (chunk.batch, 0) if failed is None else (batch, failed)
                self._saw_cut(cutter)
            elif self._by_clock and self._due() > cutter.closed:
                if self._log.settle() is not None:
                    continue  # it came before the clock ran out
                cutter.close(min(self._due(), cutter.closed + CLOSED_AT_ONCE_MAX))
                closed = cutter.closed
            yield from self._seal(assembly, cutter, closed, batch, used)
            assembly.check()
        if not stop.is_set():
            # Closed, not finished: a feed that has more in a later run may go on.
            cutter.close(Cutter.restored(cutter.state()).finish())
            yield from self._seal(assembly, cutter, cutter.closed, batch, used)

    def _seal(self, assembly: Assembly, cutter: Cutter, closed: int, batch: int, used: int) -> list[SourceFrame]:
        frames = list(assembly.take(closed))
        if frames:
            state = {
                "batch": batch,
                "used": used,
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
        stop = (bad[0].at, bad[0].error) if bad and fails else None
        far = None if self._ahead is None else self._ahead.far(table)
        found = self._stopping(table, far)
        if found is not None:
            stop = item_of(found[0], items, bad), found[1]
        if stop is not None:
            new, failing = self._before(new, stop[0])
            items = [item for each in new for item in each.items]
            table, bad = table_of(items, self._terms, self._log.logged, first_only=fails)
            deliveries = deliveries[: deliveries.index(failing)]
            far = None if self._ahead is None else self._ahead.far(table)
        self._append(new, table, bad, far)
        for each in deliveries:
            self._feed.logged(each.token)
        if stop is not None:
            raise stop[1]

    def _stopping(self, table: pa.Table, far: np.ndarray | None) -> tuple[int, SourceError] | None:
        """The first row whose time stops the source, and what it says."""
        jump = self._jump_in(table, far)
        if far is not None and self._ahead.policy == "fail":
            row = int(far.argmax())
            if jump is None or row < jump[0]:
                return row, self._ahead.error(self._context.name, self._log.logged + row)
        return jump

    def _jump_in(self, table: pa.Table, far: np.ndarray | None = None) -> tuple[int, SourceError] | None:
        if self._jumps is None or not table.num_rows:
            return None
        floor_us = None
        if self._assembly is not None:
            floor_us = self._clock.start_us(self._assembly.next)
        found = self._jumps.first(times_of(table.column(self._time)), far, floor_us)
        return None if found is None else (found[0], self._jumps.error(self._log.logged + found[0], found[1]))

    def _before(self, deliveries: list[Delivery], at: int) -> tuple[list[Delivery], Delivery]:
        """What came before the item at this place, or before its delivery where that is one whole; and that delivery."""
        whole: list[Delivery] = []
        for each in deliveries:
            if len(each.items) > at:
                break
            at -= len(each.items)
            whole.append(each)
        failing = deliveries[len(whole)]
        part = self._feed.part(failing, at)
        return ([*whole, part] if part is not None else whole), failing

    def _append(self, deliveries: Sequence[Delivery], table: pa.Table, bad: list[Bad], far: np.ndarray | None) -> None:
        aside = bool(bad) or far is not None
        if aside:
            # First, so that the batch of what is left out has the number its file is named by.
            self._log.settle()
            self.bad += len(bad)
            if bad and self._context.bad == "quarantine":
                quarantine_bad(self._context.directory / "quarantine", self._log.next_batch, bad)
        if far is not None:
            table = self._without(table, far)
        table = self._redelivered.without_known(table)
        # What is left out alone makes an empty batch: its number is the name of the file that holds it.
        if not table.num_rows and not aside:
            return
        note: dict[str, object] = {"deliveries": len(deliveries)}
        if keys := [each.key for each in deliveries if each.key]:
            note["keys"] = keys
        marks = [each.mark for each in deliveries if each.mark is not None]
        mark = marks[-1] if marks else None
        if aside or not self._feed.small or table.num_rows >= STAGED_ROWS_MAX:
            self._write(table, mark, note)
            return
        if not self._log.staged_rows:
            self._settle_at_s = time.monotonic() + self._settle_s
        self._redelivered.saw(self._log.next_batch, table, note)
        self._log.stage(self._stamped(table), mark, note)

    def _without(self, table: pa.Table, far: np.ndarray) -> pa.Table:
        """The rows that are not too far ahead; the others are kept apart or dropped, as declared."""
        apart = table.filter(pa.array(far))
        self.bad += apart.num_rows
        done = "were dropped"
        if self._ahead.policy == "quarantine":
            done = "are in quarantine"
            quarantine_ahead(self._context.directory / "quarantine", self._log.next_batch, apart)
        self._notices.say("ahead", f"rows more than {self._ahead.bound} ahead of the clock {done}", apart.num_rows)
        return table.filter(pa.array(~far))

    def _log_put_back(self) -> bool:
        now_s = time.monotonic()
        if now_s < self._put_back_at_s:
            return False
        found = self._put_back.next()
        if found is None:
            self._put_back_at_s = now_s + PUT_BACK_S
            return False
        path, table = found
        if is_ahead(path):  # never logged, so it may have come again meanwhile; a late row's id is its own
            table = self._redelivered.without_known(table)
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
            self._jumps.saw(times_of(table.column(self._time)))
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

    def _piece(self, chunk: Chunk, start: int = 0) -> Piece:
        column = self._log.read(chunk, self._time).slice(start)
        decode = column.to_numpy if self._arrival else partial(times_of, column)
        return Piece(start, chunk.file.rows - start, decode)

    def _saw(self, time_us: int) -> None:
        if time_us > self._newest_us:
            self._newest_us, self._newest_at_s = time_us, self._context.monotonic()

    def _saw_cut(self, cutter: Cutter) -> None:
        if cutter.newest_us is not None:
            self._saw(cutter.newest_us)
            if self._jumps is not None:
                self._jumps.saw(np.array([cutter.newest_us]))


class Wall:
    """Wall time that never runs backwards: read once, carried on by the monotonic clock."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._offset_us = time.time_ns() // 1000 - int(monotonic() * 1e6)

    def now_us(self) -> int:
        return self._offset_us + int(self._monotonic() * 1e6)

    def not_before(self, time_us: int) -> None:
        """A restart under a wall clock that was set back goes on from the last arrival."""
        self._offset_us += max(0, time_us - self.now_us())
