"""A source in operation: one thread that takes sealed frames from its reader to the board.

The thread is held when it is so many frames ahead of the slowest unit that reads
it, when its bytes are at the queue's bound, and when the disk is nearly full; so
what a source may cost is bounded whatever its speed. At a recorded pace a frame
is released when its time has come.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.atomic import drafted, make_folder, write_whole
from holdfast.engine.flow.delays import DelayWatch
from holdfast.engine.flow.disks import is_full
from holdfast.engine.flow.promises import PromiseWatch
from holdfast.engine.flow.queues import Sealed
from holdfast.engine.flow.scheduler import Board
from holdfast.errors import HoldfastError, SourceError
from holdfast.failpoints import stall_s
from holdfast.frames.clock import FrameClock
from holdfast.graph.model import Graph, Source
from holdfast.graph.reaching import not_held_below
from holdfast.journals.notes import as_note, read_note
from holdfast.journals.seals import SealJournal
from holdfast.sources.pace import Pace, PacedSince
from holdfast.sources.reader import OpenSource, SourceContext, SourceFrame
from holdfast.sources.reference import load

__all__ = ["Intake", "first_time_us", "look_at", "open_source"]

# Enough that no unit ever waits for the thread, little enough to keep in memory.
_FRAMES_AHEAD = 256
# Forgetting looks at every seal: not at every frame.
_FRAMES_PER_TRIM = 64
# How long each live source is listened to in turn until one of them speaks.
_FIRST_WAIT_S = 0.2
# Between two looks whether a disk that was full has room again.
_ROOM_S = 0.5
_log = logging.getLogger("holdfast.source")


def look_at(source: Source, graph: Graph, directory: Path) -> None:
    """Find the first element of an input that can be read again: what is wrong shows before Spark starts."""
    if source.reader.reliable:
        opened = open_source(source, graph, directory, from_n=1, clock=None, epoch=0)
        try:
            opened.first_time_us()
        finally:
            opened.close()


def open_source(
    source: Source,
    graph: Graph,
    directory: Path,
    *,
    from_n: int,
    clock: FrameClock | None,
    epoch: int,
    spark_feed: Callable[..., Any] | None = None,
) -> OpenSource:
    return source.reader.open(
        SourceContext(
            name=source.name,
            schema=source.schema,
            time=source.time if source.time is not None else graph.time,
            grace_us=graph.grace_ms * 1000,
            late=source.late,
            directory=directory,
            base=Path(graph.base),
            frame_us=graph.frame_ms * 1000,
            from_n=from_n,
            clock=clock,
            epoch=epoch,
            monotonic=time.monotonic,
            process=graph.name,
            boundary=source.boundary,
            bad=source.bad,
            new_columns=source.new_columns,
            ahead_us=None if source.ahead_ms is None else source.ahead_ms * 1000,
            on_ahead=source.on_ahead,
            unheld=not_held_below(graph, source.name),
            spark_feed=spark_feed,
        )
    )


def first_time_us(intakes: Sequence[Intake], note: Callable[[str], None]) -> int:
    """Where the process's time begins: the earliest first element.

    Inputs that end are all asked. Of live ones it is enough that one has spoken: a
    sensor that is switched off must not keep the others from being heard. While
    none has, `note` is told for whom everybody waits; and "" when that is over.
    """
    ended = [intake for intake in intakes if intake.source.reader.bounded]
    live = [intake for intake in intakes if not intake.source.reader.bounded]
    found = [first for intake in ended if (first := intake.first_time_us()) is not None]
    said = ""
    while live:
        asked = [intake.first_time_us(_FIRST_WAIT_S) for intake in live]
        found += [first for first in asked if first is not None]
        if found:
            break
        sentence = "waits for the first element of " + ", ".join(intake.whom() for intake in live)
        if sentence != said:
            said = sentence
            note(sentence)
    if said:
        note("")
    return min(found, default=0)


class Intake(threading.Thread):
    def __init__(
        self,
        source: Source,
        graph: Graph,
        *,
        board: Board,
        directory: Path,
        from_n: int,
        clock: FrameClock | None,
        epoch: int,
        rate: object,
        decided: int,
        delays: DelayWatch,
        promises: PromiseWatch,
        spark_feed: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(name=f"source {source.name}", daemon=True)
        self.source, self._board, self._epoch = source, board, epoch
        self._halted = threading.Event()
        self._decided = decided  # the last frame that any unit had made when the run began
        self._delays, self._promises = delays, promises
        self._end_file = directory / "end.json"
        self._since = rate if isinstance(rate, PacedSince) else None
        rate = self._since.rate if self._since is not None else rate
        self._pace = Pace.of(rate if rate is not None else getattr(source.reader, "rate", None))
        self._frame_us = graph.frame_ms * 1000
        self._frames_kept = -(-(source.keep_ms or 0) // graph.frame_ms)
        self._rows = 0
        self._from_n, self._last = from_n, from_n - 1
        self._opening = partial(open_source, source, graph, directory, epoch=epoch, spark_feed=spark_feed)
        self._open = self._reopen(from_n, clock)
        self._quarantined_dir = directory / "quarantine"
        self._seals = SealJournal(directory)
        known = self._known() if source.reader.bounded else None
        if known is not None and decided > known["last"]:
            board.streams[source.name].closed_at = known["last"]

    def _reopen(self, from_n: int, clock: FrameClock | None) -> OpenSource:
        opened = self._opening(from_n=from_n, clock=clock)
        if hasattr(opened, "remark"):
            self._board.streams[self.source.name].live = opened
        return opened

    @property
    def is_paced(self) -> bool:
        """Frames come at a pace of their own, not as fast as they are taken."""
        return not self.source.reader.bounded or self._pace != Pace()

    def first_time_us(self, wait_s: float | None = None) -> int | None:
        return self._open.first_time_us() if wait_s is None else self._open.first_time_us(wait_s)  # type: ignore[call-arg]

    def whom(self) -> str:
        """Its name, and what it says of itself."""
        said = self._open.remark() if hasattr(self._open, "remark") else ""
        return f"{self.source.name} ({said})" if said else self.source.name

    def set_clock(self, clock: FrameClock) -> None:
        self._open.set_clock(clock)

    def run(self) -> None:
        name = self.source.name
        started = time.monotonic() if self._since is None else self._since.began()
        try:
            while True:
                try:
                    self._hand_out(name, started)
                    return
                except Exception as error:
                    if not is_full(error) or not self._opened_again(error):
                        raise
        except HoldfastError as error:
            self._board.fail_after_sealed(error)
        except Exception as error:
            if is_full(error):  # while the run ends: the next one goes on
                return
            self._board.fail_after_sealed(
                SourceError(
                    "HF-S021",
                    "SourceRaised",
                    f"source {name!r} raised {type(error).__name__}: {error}",
                    where=f"{self.source.line}, after frame {self._last}",
                    effect=f"frames up to {self._last} are sealed; nothing is lost; the run stops after them",
                    do="mend the source and run again: it goes on where it stopped",
                )
            )
        finally:
            self._open.close()
            self._seals.close()

    def _opened_again(self, error: Exception) -> bool:
        """A disk was full: when there is room, the source goes on after the last frame it handed out. False at the end."""
        _log.warning("source %s waits for room on a disk: %s", self.source.name, error)
        self._open.close()
        while not self._halted.wait(_ROOM_S):
            with self._board.changed:
                if self._board.stopping:
                    return False
                if self._board.held_for_space:
                    continue
            try:
                self._open = self._reopen(self._last + 1, self._board.clock)
                return True
            except Exception as again:
                if not is_full(again):
                    raise
        return False

    def _hand_out(self, name: str, started: float) -> None:
        end = self._settled_end()
        for frame in self._open.frames(self._halted):
            self._rows += frame.rows
            if not self._wait_for_turn(frame.n, started):
                return
            if (silent_s := stall_s(name, frame.n)) and self._halted.wait(silent_s):
                return
            if end is not None and frame.n > end:
                raise self._grown(end)  # before anybody can take it
            self._quarantine(frame)
            self._board.seal(
                name,
                Sealed(
                    frame.n,
                    self._board.clock.boundary_us(frame.n),
                    frame.rows,
                    frame.bytes,
                    frame.checksum,
                    self._epoch,
                    references=frame.references,
                ),
            )
            self._last = frame.n
            self._board.streams[name].late += frame.late_rows
            self._note_patiently(frame)
            self._delays.sealed(name, frame.n, time.monotonic())
            self._promises.sealed(name, frame.n, time.monotonic())
            self._trim(frame.n)
        if not self._halted.is_set() and self.source.reader.bounded:
            self._board.end(name, self._ended(self._last))

    def _note_patiently(self, frame: SourceFrame) -> None:
        """The frame is handed out: what is noted of it waits for room, and is given up with the run."""
        while True:
            try:
                return self._note(frame)
            except OSError as error:
                if not is_full(error):
                    raise
                if self._halted.wait(_ROOM_S):
                    return None

    def _note(self, frame: SourceFrame) -> None:
        """For `holdfast trace`: where the rows of this frame lie."""
        self._seals.note(
            frame.n,
            epoch=self._epoch,
            boundary_us=self._board.clock.boundary_us(frame.n),
            rows=frame.rows,
            size=frame.bytes,
            checksum=frame.checksum,
            late=frame.late_rows,
            references=frame.references,
            at=time.time(),
        )

    def _trim(self, n: int) -> None:
        """Let the source forget, now and then, what no restart needs and `keep=` does not hold."""
        if n % _FRAMES_PER_TRIM:
            return
        with self._board.changed:
            queue = self._board.streams[self.source.name]
            acked = min([*queue.acked.values(), *queue.held.values()], default=0)
        # A new run counts its first frame as acknowledged; its last commit entry may still be lost.
        self._open.trim(acked - 1 - self._frames_kept)

    def _quarantine(self, frame: SourceFrame) -> None:
        """Late rows kept apart, one Parquet file per frame that was open when they came. A replay writes the same."""
        if not frame.quarantined:
            return
        import pyarrow as pa

        from holdfast.journals.asides import write_aside

        schema = self.source.schema
        parts = [batch for reference in frame.quarantined for batch in load(reference, schema)]
        make_folder(self._quarantined_dir, sync=True)
        with drafted(self._quarantined_dir / f"{frame.n:08d}.parquet", sync=True) as draft:
            write_aside(draft, pa.Table.from_batches(parts, schema.arrow))

    def _ended(self, last: int) -> int:
        """The last frame of a bounded source. Written down first: closing frames follow from it."""
        extent = self._open.extent()
        end = self._settled_end()
        if end is not None:
            if extent > self._known()["extent"]:
                raise self._grown(end)
            return end
        write_whole(self._end_file, as_note({"last": last, "extent": extent}), sync=True)
        return last

    def _known(self) -> dict[str, int] | None:
        if not self._end_file.exists():
            return None
        return read_note(
            self._end_file,
            effect="the source was not read; sealed frames and sink tables are as they were",
            do="put the file back from a copy; without one delete it, if the input has not grown since it ended",
        )

    def _settled_end(self) -> int | None:
        """The last frame, if closing frames have followed it: then it cannot move any more."""
        known = self._known()
        # Files are cut anew: a later one may hold elements of the last frame itself. A log is not:
        # what comes for a sealed frame is late and goes into the next.
        closed = self._decided + 1 if self.source.reader.reliable else self._decided
        return known["last"] if known is not None and closed > known["last"] else None

    def _grown(self, last: int) -> SourceError:
        return SourceError(
            "HF-S020",
            "SourceGrew",
            f"source {self.source.name!r} had ended with frame {last} and now has more.",
            where=self.source.line,
            why="after the end, windows were closed for good; new elements would change sealed results",
            effect="what is new was not read; sealed frames and sinks are as they were",
            do="run over all of it in a folder of its own: --state DIR; where files keep coming, declare growing=True there",
        )

    def stop(self) -> None:
        """Close what was opened for a run that never began. Safe to call twice, and after the thread."""
        if not self.is_alive():
            self._open.close()

    def halt(self) -> None:
        self._halted.set()
        with self._board.changed:
            self._board.changed.notify_all()

    def _wait_for_turn(self, n: int, started: float) -> bool:
        """Held until there is room and, at a recorded pace, until the frame is due."""
        first = self._from_n if self._since is None else self._since.first
        due = self._pace.due_s(n - first + 1, self._frame_us, self._rows)
        while not self._halted.is_set():
            wait = started + due - time.monotonic()
            with self._board.changed:
                if self._board.stopping:
                    return False
                queue = self._board.streams[self.source.name]
                slowest = queue.taken_floor() if queue.acked else n
                full = n - slowest > _FRAMES_AHEAD or queue.waiting_bytes() >= queue.bytes_bound
                if not full and not self._board.held_for_space and wait <= 0:
                    return True
                self._board.changed.wait(timeout=max(0.001, wait) if wait > 0 and not full else 0.5)
        return False
