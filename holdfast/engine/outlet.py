"""A sink in operation: one thread that takes sealed frames from the queue to the writer.

Frames wait in the queue, sealed, until the sink's own transaction has them; only
then are they acknowledged. After a restart the sink's ledger says where to go on,
and a frame it has already is not written twice.
"""

from __future__ import annotations

import threading
from pathlib import Path

from holdfast.engine.board import Board
from holdfast.errors import HoldfastError, SinkError
from holdfast.frames.files import read_frame
from holdfast.graph.model import Graph, Sink
from holdfast.graph.schemas import Schema
from holdfast.sinks.writer import SinkContext

__all__ = ["Outlet"]

# Frames in one transaction when behind: amortises the commit, bounds the memory.
_FRAMES_AT_ONCE = 64
_BYTES_AT_ONCE = 64 * 1024 * 1024


class Outlet(threading.Thread):
    def __init__(self, sink: Sink, graph: Graph, schema: Schema, *, board: Board, epoch: int) -> None:
        super().__init__(name=f"sink {sink.name}", daemon=True)
        self.sink, self._board = sink, board
        time = graph.time if isinstance(graph.time, str) and graph.time in schema else None
        self._open = sink.writer.open(
            SinkContext(graph.name, sink.name, schema, time, Path(graph.base), epoch)
        )
        self.rows = 0
        self._halted = threading.Event()

    def last(self) -> int:
        return self._open.last()

    def run(self) -> None:
        try:
            while (frames := self._next_frames()) is not None:
                batch = [read_frame(Path(frame.file)) for frame in frames]
                written = self._open.write(batch)
                self.rows += sum(r.rows for (r, _), fresh in zip(batch, written, strict=True) if fresh)
                last = batch[-1][0].n
                self._board.write(self.sink.name, last)
                self._board.acknowledge(self.sink.stream, f"sink {self.sink.name}", last)
        except HoldfastError as error:
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

    def halt(self) -> None:
        self._halted.set()
        with self._board.changed:
            self._board.changed.notify_all()

    def _next_frames(self) -> list | None:
        with self._board.changed:
            while True:
                queue = self._board.streams[self.sink.stream]
                _, written = self._board.sinks[self.sink.name]
                if queue.sealed > written:
                    frames, size = [], 0
                    # Who cannot tell a frame it has from a new one is asked to acknowledge each.
                    many = _FRAMES_AT_ONCE if self.sink.writer.idempotent else 1
                    for n in range(written + 1, min(queue.sealed, written + many) + 1):
                        frames.append(queue.frames[n])
                        size += frames[-1].bytes
                        if size > _BYTES_AT_ONCE:
                            break
                    return frames
                if self._halted.is_set():
                    return None
                self._board.changed.wait(timeout=1.0)
