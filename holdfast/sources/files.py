"""Files as a source: read again from where they are, cut by what is in them.

Elements come in the order of file names, then rows. Which frame an element is in
depends on the files alone, so every host that can read them makes the same
frames, and none of them is copied. With no element time (ARRIVAL), each file is
one frame.
"""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from holdfast.errors import SourceError, UsageError, invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import Cutter
from holdfast.sources.assembly import Assembly, earliest
from holdfast.sources.catalogue import Catalogue, Entry
from holdfast.sources.index import IndexedFile, Piece, index_file
from holdfast.sources.pace import Pace
from holdfast.sources.reader import SourceContext, SourceFrame

__all__ = ["FileReader"]

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}


class FileReader:
    """Made by `hf.read.files`. Declares; opens nothing."""

    bounded = True
    reliable = True

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        format: str | None = None,
        rate: object = None,
        options: dict[str, object] | None = None,
    ) -> None:
        self.pattern = os.fspath(pattern)
        self.rate = rate  # the engine releases frames at this pace
        self._pace = Pace.of(rate)
        self.options = dict(options or {})
        self.format = format
        if format is not None and format not in ("parquet", "csv", "json"):
            raise UsageError(
                "HF-C031",
                "NotAFormat",
                f"format {format!r} is not one Holdfast reads.",
                effect="nothing was declared",
                do="write 'parquet', 'csv' or 'json', or leave it to the suffix",
            )

    def describe(self) -> str:
        return f"files {self.pattern}, {self._pace}"

    def open(self, context: SourceContext) -> OpenFiles:
        return OpenFiles(self, context, self._list(context))

    def _list(self, context: SourceContext) -> list[tuple[str, str]]:
        """(path, format) in name order."""
        whole = os.path.join(context.base, self.pattern)
        if os.path.isdir(whole):
            # As Spark does: names that begin with . or _ are not data.
            found = [
                str(path)
                for path in Path(whole).rglob("*")
                if path.is_file()
                and not any(part[0] in "._" for part in path.relative_to(whole).parts)
                and (self.format or _format_of(str(path)))
            ]
        elif glob.has_magic(whole):
            found = [path for path in glob.glob(whole, recursive=True) if os.path.isfile(path)]
        else:
            found = [whole] if os.path.isfile(whole) else []
        if not found:
            raise SourceError(
                "HF-S001",
                "SourceMissing",
                f"no file matches {self.pattern!r}.",
                where=f"source {context.name!r}, looked in {context.base}",
                effect="nothing was read",
                do="correct the pattern; it starts at the folder of the process's file",
            )
        pairs = []
        for path in sorted(found, key=lambda path: Path(path).parts):
            format = self.format or _format_of(path)
            if format is None:
                raise SourceError(
                    "HF-S005",
                    "Unreadable",
                    "the file's name does not say what format it has.",
                    where=path,
                    effect="nothing was read",
                    do="name the format: read.files(..., format='csv')",
                )
            pairs.append((os.path.abspath(path), format))
        return pairs

    def options_for(self, path: str, format: str) -> dict[str, object]:
        if format == "parquet":
            return {}
        if format == "json":
            return {"missing": self.options.get("missing", "error")}
        tabs = path.removesuffix(".gz").endswith(".tsv")
        return {
            "header": self.options.get("header", True),
            "delimiter": self.options.get("delimiter") or ("\t" if tabs else ","),
            "quote": self.options.get("quote", '"'),
            "null": self.options.get("null", ""),
        }


def _format_of(path: str) -> str | None:
    name = path.removesuffix(".gz")
    found = _FORMATS.get(os.path.splitext(name)[1].lower())
    return None if found == "parquet" and name != path else found


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

    def _index(self, at: int, digest) -> tuple[IndexedFile, Iterator[Piece]]:
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
