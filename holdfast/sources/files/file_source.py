"""A file source in operation: index, cut, hand out frames by reference.

Files are indexed one after the other as frames are asked for; what is held in
memory is a piece of one file and the ranges of the open frames.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from holdfast.atomic import make_folder
from holdfast.errors import SourceError, invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import Cutter
from holdfast.sources.assembly import Assembly, earliest
from holdfast.sources.files.catalogue import Catalogue, Entry
from holdfast.sources.files.files import FileReader
from holdfast.sources.identity import UNTRUSTED, Identity, identity_of, prefix_digest, same_bytes
from holdfast.sources.index import Before, IndexedFile, Piece, index_file
from holdfast.sources.reader import SourceContext, SourceFrame

__all__ = ["OpenFiles", "other_kind"]


class OpenFiles:
    def __init__(self, reader: FileReader, context: SourceContext, files: list[tuple[str, str]]) -> None:
        self._reader, self._context, self._files = reader, context, files
        if (context.directory / "grown.jsonl").exists():
            raise other_kind(context, "files that grow", "files that end")
        self._clock = context.clock
        self._newest_us = 0

    def first_time_us(self) -> int | None:
        """See `earliest`; None if no row has a time, or the source has no element time."""
        if self._context.time_column is None:
            return None
        pieces = (piece for at in range(len(self._files)) for piece in self._index(at, _Nothing())[1])
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
            file, pieces = self._index(at, catalogue)
            try:
                if timed:
                    for piece in pieces:
                        closed = assembly.add(file, piece, cutter)
                        self._newest_us = cutter.newest_us or 0
                        self._use(file, piece, assembly, catalogue)
                        yield from _handed(assembly.take(closed), catalogue)
                        assembly.check()
                else:
                    for piece in pieces:
                        file.rows = piece.start + piece.rows
                        self._use(file, piece, assembly, catalogue)
                    assembly.add_whole(file, at + 1)
                if file.path not in catalogue.used:  # there is no row in it
                    catalogue.use(file.path, file.identity, assembly.next, whole=file.digest)
                if not timed:
                    yield from _handed(assembly.take(at + 1), catalogue)
            except SourceError as error:
                if error.code != "HF-S004":
                    catalogue.mend(file.path)
                raise
            if at >= len(catalogue.entries):
                state = cutter.state() if timed else None
                catalogue.add(Entry(file.path, assembly.next, state, assembly.saved()))
        if timed:
            yield from _handed(assembly.take(cutter.finish()), catalogue)

    def _use(self, file: IndexedFile, piece: Piece, assembly: Assembly, catalogue: Catalogue) -> None:
        """Frames may be made of this piece; it came out of the file as that was when it was opened, or HF-S004."""
        now, point = identity_of(file.path), None
        if not file.identity.matches(now):
            self._check_moved(file, now, catalogue)
        if file.prefix is not None:
            # Frames before a row that stops the source do not depend on it: it may be corrected.
            failed = assembly.failed_at
            byte = None if failed is None else file.prefix.byte_of(failed - piece.start, piece.rows)
            point = file.prefix.point(byte)
        catalogue.use(file.path, file.identity, assembly.next, whole=file.digest, point=point)

    def _check_moved(self, file: IndexedFile, now: Identity, catalogue: Catalogue) -> None:
        """The stamps say nothing for it: the bytes have to."""
        if now.size != file.size:
            raise catalogue.changed(file.path, f"it had {file.size:,} bytes and has {now.size:,}")
        if file.prefix is None:
            same = same_bytes(file.path, file.identity, file.digest, now)
        else:
            byte, digest = file.prefix.point()
            same = (file.ctime_ns == UNTRUSTED and file.mtime_ns == now.mtime_ns) or prefix_digest(
                file.path, byte
            ) == digest
        if not same:
            raise catalogue.changed(file.path, "it has other content")

    def _index(self, at: int, before: Before) -> tuple[IndexedFile, Iterator[Piece]]:
        path, format = self._files[at]
        context = self._context
        options = self._reader.options_for(path, format)
        return index_file(path, format, options, context.schema, context.time_column, before)

    def _catalogue(self) -> Catalogue:
        context = self._context
        make_folder(context.directory, sync=True)
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
        return Catalogue(context.directory / "files.jsonl", setting, context.base)


def _handed(frames: Iterator[SourceFrame], catalogue: Catalogue) -> Iterator[SourceFrame]:
    """What the frames were made of is on disk before anybody can use them."""
    for frame in frames:
        catalogue.sync()
        yield frame


def other_kind(context: SourceContext, was: str, now: str) -> SourceError:
    return SourceError(
        "HF-S063",
        "OtherKindOfFiles",
        f"source {context.name!r} was begun as {was} and is declared as {now}.",
        where=str(context.directory),
        why="which rows a frame has is decided in another way",
        effect="nothing was read; frames made before stand",
        do="declare growing= as it was, or begin with a fresh state folder: --state DIR",
    )


class _Nothing:
    """Before anything is made of the files: nothing is known of them, nothing need be."""

    def whole(self, path: str, now: Identity) -> str:
        return "not needed"

    def points(self, path: str) -> list[tuple[int, str]]:
        return []

    def changed(self, path: str, why: str) -> SourceError:
        raise AssertionError(path)
