"""A file source in operation: index, cut, hand out frames by reference.

Files are indexed one after the other as frames are asked for; what is held in
memory is a piece of one file and the ranges of the open frames.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from holdfast.errors import invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import Cutter
from holdfast.sources.assembly import Assembly, earliest
from holdfast.sources.catalogue import Catalogue, Entry
from holdfast.sources.files import FileReader
from holdfast.sources.index import IndexedFile, Piece, index_file
from holdfast.sources.reader import SourceContext, SourceFrame

__all__ = ["OpenFiles"]


class OpenFiles:
    def __init__(
        self, reader: FileReader, context: SourceContext, files: list[tuple[str, str]]
    ) -> None:
        self._reader, self._context, self._files = reader, context, files
        self._clock = context.clock
        self._newest_us = 0

    def first_time_us(self) -> int | None:
        """See `earliest`; None if no row has a time, or the source has no element time."""
        if self._context.time_column is None:
            return None
        pieces = (
            piece
            for at in range(len(self._files))
            for piece in self._index(at, lambda *_: "")[1]
        )
        return earliest(pieces, self._context.grace_us + self._context.frame_us)

    def set_clock(self, clock: FrameClock) -> None:
        self._clock = clock

    def seen_until(self) -> int:
        return self._newest_us

    def extent(self) -> int:
        """Files: those there were may not have changed, or the catalogue would have refused them."""
        return len(self._files)

    def trim(self, before_n: int) -> None:
        """Nothing to forget: the files are the user's."""

    def close(self) -> None:
        """Nothing is held open between frames."""

    def frames(self, stop: threading.Event) -> Iterator[SourceFrame]:
        invariant(self._clock is not None, f"source {self._context.name!r} has no clock yet")
        for frame in self._sealed():
            if stop.is_set():
                return
            if frame.n >= self._context.from_n:
                yield frame

    def _sealed(self) -> Iterator[SourceFrame]:
        context, clock = self._context, self._clock
        timed = context.time_column is not None
        catalogue = self._catalogue()
        catalogue.check([path for path, _ in self._files])
        cutter = Cutter(clock, context.grace_us)
        assembly = Assembly(context, clock)
        done = catalogue.resume_at(context.from_n)
        if done:
            entry = catalogue.entries[done - 1]
            assembly.next = entry.next
            assembly.restore(entry.open)
            if timed:
                cutter = Cutter.restored(entry.cutter)
        for at in range(done, len(self._files)):
            file, pieces = self._index(at, catalogue.digest)
            if timed:
                yield from self._cut(file, pieces, cutter, assembly)
            else:
                for piece in pieces:
                    file.rows = piece.start + piece.rows
                assembly.add_whole(file, at + 1)
                yield from assembly.take(at + 1)
            if at >= len(catalogue.entries):
                state = cutter.state() if timed else None
                same = (file.path, file.size, file.mtime_ns, file.digest)
                catalogue.add(Entry(*same, assembly.next, state, assembly.saved()))
        if timed:
            yield from assembly.take(cutter.finish())

    def _cut(
        self, file: IndexedFile, pieces: Iterator[Piece], cutter: Cutter, assembly: Assembly
    ) -> Iterator[SourceFrame]:
        for piece in pieces:
            closed = assembly.add(file, piece, cutter)
            self._newest_us = cutter.newest_us or 0
            yield from assembly.take(closed)
            assembly.check()

    def _index(
        self, at: int, digest: Callable[[str, int, int], str]
    ) -> tuple[IndexedFile, Iterator[Piece]]:
        path, format = self._files[at]
        context = self._context
        options = self._reader.options_for(path, format)
        return index_file(path, format, options, context.schema, context.time_column, digest)

    def _catalogue(self) -> Catalogue:
        context = self._context
        context.directory.mkdir(parents=True, exist_ok=True)
        setting = {
            "base": str(context.base),
            "schema": context.schema.ddl,
            "time": context.time_column,
            "late": context.late,
            "grace_us": context.grace_us,
            "t0_us": self._clock.t0_us,
            "frame_us": self._clock.frame_us,
            "options": {"format": self._reader.format, **self._reader.options},
        }
        return Catalogue(context.directory / "files.jsonl", setting)
