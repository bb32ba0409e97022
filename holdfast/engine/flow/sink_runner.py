"""A sink in operation: one thread that takes sealed frames from the queue to the writer.

Frames wait in the queue, sealed, until the sink's own transaction has them; only
then are they acknowledged. After a restart the sink's ledger says where to go on,
and a frame it has already is not written twice.

A target that does not answer (`SinkAway`) is tried again, later each time, for as
long as the run lasts: its frames stay in the queue, the others go on until that
queue is at its bound, and the status says since when. The same frames are sent, so
a commit whose answer was lost is settled by the ledger. Any other error ends the run.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.flow.disks import is_full
from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.flow.scheduler import Board
from holdfast.errors import HoldfastError, SinkAway, SinkError
from holdfast.frames.files import read_frame
from holdfast.graph.model import Graph, Sink
from holdfast.graph.restarting import RestartPolicy
from holdfast.graph.schemas import Schema
from holdfast.sinks.owners import Owner
from holdfast.sinks.writer import SinkContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AwaySink", "Outlet", "rows_refused"]

_log = logging.getLogger("holdfast.sinks")

# Frames in one transaction when behind: amortises the commit, bounds the memory.
_FRAMES_AT_ONCE = 64
_BYTES_AT_ONCE = 64 * 1024 * 1024

# A server that restarts is back within seconds, one that is repaired within minutes; half a minute
# is what a person waits after mending it.
_RETRY = RestartPolicy(first_s=0.5, longest_s=30.0)
# Deleting a host's folder takes a moment until it is noticed.
_LOST_WAIT_S = 10.0
_DOUBLINGS_MAX = 16  # 2 ** 1024 is no number, and half a minute is reached long before


@dataclass(frozen=True, slots=True)
class AwaySink:
    """What the board knows of a sink whose target does not answer."""

    since_s: float
    tries: int
    next_s: float
    why: str

    def sentence(self, now_s: float) -> str:
        since = datetime.fromtimestamp(self.since_s, UTC)
        return f"since {since:%H:%M:%S}Z, try {self.tries}, next in {max(0.0, self.next_s - now_s):.0f} s: {self.why}"


class Outlet(threading.Thread):
    def __init__(
        self,
        sink: Sink,
        graph: Graph,
        schema: Schema,
        *,
        board: Board,
        epoch: int,
        spark: SparkSession | None = None,
        owner: Owner | None = None,
        folder: Path | None = None,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], bool] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`folder`: the state folder, for decisions about rows that the target refuses. `wait(seconds)` is True when the run ends meanwhile; `chance` spreads the tries of several sinks."""
        super().__init__(name=f"sink {sink.name}", daemon=True)
        self.sink, self._board = sink, board
        column = graph.time if isinstance(graph.time, str) and graph.time in schema else None
        self.refused = (
            Exclusions(folder / "sinks" / sink.name) if folder is not None and sink.on_error != "fail" else None
        )
        self._open = sink.writer.open(
            SinkContext(
                graph.name,
                sink.name,
                schema,
                column,
                Path(graph.base),
                epoch,
                spark,
                owner,
                sink.on_error,
                self.refused,
                sink.stream,
            )
        )
        self.rows = self.left_out = 0  # that this run wrote, and that the target refused
        self._halted = threading.Event()
        self._clock, self._wait, self._chance = clock, wait or self._halted.wait, chance

    def last(self) -> int:
        return self._open.last()

    def run(self) -> None:
        try:
            while (frames := self._next_frames()) is not None:
                try:
                    batch = [read_frame(Path(frame.file)) for frame in frames]
                except (OSError, HoldfastError) as error:
                    if self._are_lost(frames, error):
                        continue  # with their host, or alone: they are made again
                    raise
                written = self._write(batch)
                if written is None:
                    return
                for record, _ in (each for each, fresh in zip(batch, written, strict=True) if fresh):
                    left_out = 0 if self.refused is None else self.refused.left_out(record.n)
                    self.rows += record.rows - left_out
                    self.left_out += left_out
                last = batch[-1][0].n
                self._board.write(self.sink.name, last)
                self._board.acknowledge(self.sink.stream, f"sink {self.sink.name}", last)
        except HoldfastError as error:
            self._say_away(None)  # it answered, and said no
            self._board.fail(error)
        except Exception as error:
            self._board.fail(
                SinkError(
                    "HF-K020",
                    "SinkRaised",
                    f"sink {self.sink.name!r} raised {type(error).__name__}: {error}",
                    where=self.sink.line,
                    effect="the frame was not written; it and those after it wait sealed in the state folder; "
                    "nothing is lost",
                    do="mend the sink and run again: it goes on with that frame",
                )
            )
        finally:
            self._open.close()

    def give_back(self) -> None:
        """The target, if the run ended before this thread began."""
        if self.ident is None:
            self._open.close()

    def _write(self, batch: list) -> list[bool] | None:
        """Until the target has the frames; None if the run ends first."""
        since, tries = 0.0, 0
        while True:
            try:
                written = self._open.write(batch)
            except Exception as error:
                if not isinstance(error, SinkAway) and not is_full(error):
                    raise
                why = (getattr(error, "why", "") or str(error)).splitlines()[0]
                since, tries = since or self._clock(), tries + 1
                pause = _RETRY.pause_s(min(tries, _DOUBLINGS_MAX), self._chance())
                self._say_away(AwaySink(since, tries, self._clock() + pause, why))
                if tries == 1:
                    _log.warning("sink %s is away, its frames wait sealed: %s", self.sink.name, why)
                if self._wait(pause):
                    return None
                continue
            if not tries:
                return written
            _log.warning("sink %s is back after %.0f s", self.sink.name, self._clock() - since)
            self._say_away(None)
            # A frame that is there already got there by the commit whose answer was lost.
            return [True] * len(batch)

    def _say_away(self, away: AwaySink | None) -> None:
        with self._board.changed:
            if away is None:
                self._board.sinks_away.pop(self.sink.name, None)
            else:
                self._board.sinks_away[self.sink.name] = away
            self._board.changed.notify_all()

    def halt(self) -> None:
        self._halted.set()
        with self._board.changed:
            self._board.changed.notify_all()

    def _are_lost(self, frames: list, error: Exception) -> bool:
        """Whether the queue has other files for them now, or will have, since their host is gone or they cannot be read."""
        with self._board.changed:
            queue = self._board.streams[self.sink.stream]
            if not queue.keeps_unacked:
                return False
            self._board.found_unreadable(self.sink.name, error)
            made_again = self._board.changed.wait_for(
                lambda: any(queue.frames.get(frame.n) is not frame for frame in frames), timeout=_LOST_WAIT_S
            )
            self._board.found_unreadable(self.sink.name, None)
            return made_again

    def _next_frames(self) -> list | None:
        with self._board.changed:
            while True:
                queue = self._board.streams[self.sink.stream]
                _, written = self._board.sinks[self.sink.name]
                if queue.shown > written:
                    frames, size = [], 0
                    # Who cannot tell a frame it has from a new one is asked to acknowledge each.
                    many = _FRAMES_AT_ONCE if self.sink.writer.idempotent else 1
                    for n in range(written + 1, min(queue.shown, written + many) + 1):
                        frames.append(queue.frames[n])
                        size += frames[-1].bytes
                        if size > _BYTES_AT_ONCE:
                            break
                    return frames
                if self._halted.is_set():
                    return None
                self._board.changed.wait(timeout=1.0)


def rows_refused(outlets: Sequence[Outlet], on_error: str) -> dict[str, int]:
    """Rows that targets refused and that were left out under this declaration, by sink."""
    found: dict[str, int] = {}
    for outlet in outlets:
        if outlet.refused is not None:
            found |= outlet.refused.rows(on_error)
    return found
