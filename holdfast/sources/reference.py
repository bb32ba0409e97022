"""Where the rows of a source frame lie, and reading them from there.

A source frame is a list of references, never a copy: a file, row ranges in the
file's own row order, and the digest the file had when it was cut. Whoever holds
the reference reads the same rows, or is told that the file has changed
(HF-S004); so a replay needs no second store of data that is already on disk.

`load` runs in Spark's Python workers, once per frame, reference and chunk. The
chunks are fixed by the reference, never by the host's cores. It keeps decoded
row groups and text blocks of files that several frames share; a frame that
takes a whole row group streams it through and keeps nothing.

No Spark, no thread, no clock. Driven by `engine`; made by `files` and `log`.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources import text
from holdfast.sources.fit import fit, grown

__all__ = ["Range", "Reference", "check_unchanged", "digest_of", "load", "stat_of"]

# Spark's Arrow path is flat from some tens of thousands of rows a batch on;
# larger batches only delay the JVM, which works on one while we decode the next.
BATCH_ROWS_MAX = 250_000
# Decoded parts kept per worker. Two are kept whatever they weigh, for a process
# with two sources would otherwise decode both anew in every frame.
KEPT_BYTES_MAX = 256 * 1024 * 1024
KEPT_PARTS_MIN = 2
KEPT_FILES_MAX = 16
# Below this, handing columns to pyarrow's threads costs more than it gains.
THREADED_ROWS_MIN = 100_000

Range = tuple[int, int]  # rows [start, stop)


@dataclass(frozen=True, slots=True)
class Reference:
    path: str
    format: str  # "parquet" | "csv" | "json" | "arrow"
    ranges: tuple[Range, ...]  # ascending, disjoint, none empty
    size: int
    mtime_ns: int
    digest: str  # of the whole file, hex
    options: tuple[tuple[str, object], ...] = ()  # how text is to be read
    # Text has no index of its own: (first row, end row, first byte, end byte) of
    # the blocks the ranges touch, cut at row ends when the file was indexed.
    blocks: tuple[tuple[int, int, int, int], ...] = ()

    @property
    def rows(self) -> int:
        return sum(stop - start for start, stop in self.ranges)

    def to_json(self) -> dict[str, object]:
        return {
            "path": self.path,
            "format": self.format,
            "ranges": [list(rows) for rows in self.ranges],
            "size": self.size,
            "mtime_ns": self.mtime_ns,
            "digest": self.digest,
            "options": [list(option) for option in self.options],
            "blocks": [list(block) for block in self.blocks],
        }

    @classmethod
    def from_json(cls, fields: dict) -> Reference:
        return cls(
            path=fields["path"],
            format=fields["format"],
            ranges=_tuples(fields["ranges"]),
            size=fields["size"],
            mtime_ns=fields["mtime_ns"],
            digest=fields["digest"],
            options=_tuples(fields.get("options", ())),
            blocks=_tuples(fields.get("blocks", ())),
        )


def load(
    reference: Reference, schema: Schema, chunk: int = 0, chunks: int = 1
) -> Iterator[pa.RecordBatch]:
    """The rows of chunk `chunk` of `chunks`, in file order, cast to `schema`."""
    if not reference.ranges:
        return iter(())
    now = check_unchanged(reference)
    if reference.format == "parquet":
        return _load_parquet(reference, now, schema, chunk, chunks)
    if reference.format == "arrow":
        return _load_arrow(reference, _part(reference.ranges, chunk, chunks), schema)
    return _load_text(reference, schema, chunk, chunks)


# -- identity of a file ------------------------------------------------------


def stat_of(path: str) -> tuple[int, int]:
    """(size, mtime_ns), or HF-S001."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise SourceError(
            "HF-S001",
            "SourceMissing",
            "a file of this source cannot be opened.",
            where=path,
            why=error.strerror or str(error),
            effect="its rows are not read; frames sealed before stand",
            do="put the file back, or run from a fresh state folder without it",
        ) from error
    return found.st_size, found.st_mtime_ns


def digest_of(path: str) -> str:
    """xxh3 of the bytes, 128 bits: it finds change, it does not fend off forgers."""
    seen = xxhash.xxh3_128()
    with open(path, "rb", buffering=0) as file:
        buffer = memoryview(bytearray(1 << 20))
        while count := file.readinto(buffer):
            seen.update(buffer[:count])
    return seen.hexdigest()


# A file with a new mtime and the old bytes (copied, touched) is the same file.
_redigested: dict[tuple[str, int, int], str] = {}


def check_unchanged(reference: Reference) -> tuple[int, int]:
    """(size, mtime_ns) of the file as it is now, or HF-S004."""
    size, mtime_ns = stat_of(reference.path)
    if (size, mtime_ns) == (reference.size, reference.mtime_ns):
        return size, mtime_ns
    key = (reference.path, size, mtime_ns)
    if size == reference.size and key not in _redigested:
        if len(_redigested) > 10_000:
            _redigested.clear()
        _redigested[key] = digest_of(reference.path)
    if _redigested.get(key) != reference.digest:
        raise SourceError(
            "HF-S004",
            "SourceChanged",
            "a file was changed after frames had been cut from it.",
            where=reference.path,
            why=f"{reference.size} bytes when indexed, {size} now, other content",
            effect="the frame is not made; a replay would differ from what was sealed",
            do="put the old file back; add new data as a new file with a later name",
        )
    return size, mtime_ns


# -- reading -----------------------------------------------------------------


def _load_parquet(
    reference: Reference, now: tuple[int, int], schema: Schema, chunk: int, chunks: int
) -> Iterator[pa.RecordBatch]:
    file, starts = _parquet_file(reference.path, *now)
    ranges = _part(reference.ranges, chunk, chunks, snap_to=starts)
    names = list(schema.names)
    whole: list[int] = []  # row groups that are streamed through together
    for group, inside in _per_part(ranges, starts):
        rows = int(starts[group + 1] - starts[group])
        key = (reference.path, reference.digest, group, schema)
        if inside == [(0, rows)] and key not in _kept:
            whole.append(group)
            continue
        yield from _stream(file, whole, starts, schema, reference.path)
        whole = []
        part = _kept.get(key)
        if part is None:
            read = file.read_row_group(
                group, columns=names, use_threads=rows >= THREADED_ROWS_MIN
            )
            part = _kept.keep(key, fit(read, schema, reference.path))
        yield from _batches(part, inside)
    yield from _stream(file, whole, starts, schema, reference.path)


def _stream(
    file: pq.ParquetFile, groups: list[int], starts: np.ndarray, schema: Schema, path: str
) -> Iterator[pa.RecordBatch]:
    if not groups:
        return
    rows = int(starts[groups[-1] + 1] - starts[groups[0]])
    for batch in file.iter_batches(
        min(rows, BATCH_ROWS_MAX),
        row_groups=groups,
        columns=list(schema.names),
        use_threads=rows >= THREADED_ROWS_MIN,
    ):
        yield from fit(pa.Table.from_batches([batch]), schema, path).to_batches()


def _load_arrow(
    reference: Reference, ranges: list[Range], schema: Schema
) -> Iterator[pa.RecordBatch]:
    # Our own files: written once, renamed into place, so mapping them is safe.
    with pa.memory_map(reference.path) as source:
        table = pa.ipc.open_file(source).read_all()
    yield from _batches(grown(table, schema, reference.path), ranges)


def _load_text(
    reference: Reference, schema: Schema, chunk: int, chunks: int
) -> Iterator[pa.RecordBatch]:
    starts = np.array([block[0] for block in reference.blocks] + [reference.blocks[-1][1]])
    ranges = _part(reference.ranges, chunk, chunks, snap_to=starts)
    for at, inside in _per_part(ranges, starts):
        first, end, byte, byte_end = reference.blocks[at]
        key = (reference.path, reference.digest, byte, schema)
        part = _kept.get(key)
        if part is None:
            block = text.read_bytes(reference.path, byte, byte_end)
            part = text.parse(
                block, reference.format, reference.options, schema, reference.path, byte
            )
            if inside != [(0, end - first)]:
                _kept.keep(key, part)
        yield from _batches(part, inside)


def _batches(table: pa.Table, ranges: list[Range]) -> Iterator[pa.RecordBatch]:
    if len(ranges) == 1:
        start, stop = ranges[0]
        table = table.slice(start, stop - start)
    elif len(ranges) <= 16:
        table = pa.concat_tables(table.slice(start, stop - start) for start, stop in ranges)
        table = table.combine_chunks()
    else:
        table = table.take(pa.array(_rows_of(ranges)))
    for batch in table.to_batches(max_chunksize=BATCH_ROWS_MAX):
        if batch.num_rows:
            yield batch


# -- ranges ------------------------------------------------------------------


def _part(ranges: Iterable[Range], chunk: int, chunks: int, snap_to=None) -> list[Range]:
    """The `chunk`-th of `chunks` contiguous parts of the rows, as ranges."""
    ranges = list(ranges)
    if chunks == 1 or not ranges:
        return ranges
    total = sum(stop - start for start, stop in ranges)
    low = _cut_at(ranges, total, chunk, chunks, snap_to)
    high = _cut_at(ranges, total, chunk + 1, chunks, snap_to)
    return [
        (max(start, low), min(stop, high))
        for start, stop in ranges
        if max(start, low) < min(stop, high)
    ]


def _cut_at(ranges: list[Range], total: int, chunk: int, chunks: int, snap_to) -> int:
    """The row of the file where chunk `chunk` begins.

    A cut inside a row group makes two workers decode it, so it moves to a row
    group's edge when one is near: half a chunk on either side at most.
    """
    if chunk == 0 or chunk == chunks:
        return ranges[0][0] if chunk == 0 else ranges[-1][1]
    left = total * chunk // chunks
    for start, stop in ranges:
        if left < stop - start:
            break
        left -= stop - start
    row = start + left
    if snap_to is not None:
        near = int(snap_to[np.abs(snap_to - row).argmin()])
        if abs(near - row) * 2 < total // chunks:
            return near
    return row


def _per_part(ranges: list[Range], starts: np.ndarray) -> Iterator[tuple[int, list[Range]]]:
    """(part, ranges relative to the part's first row) for each part touched."""
    inside: list[Range] = []
    part = -1
    for start, stop in ranges:
        at = int(np.searchsorted(starts, start, side="right")) - 1
        while start < stop:
            first, end = int(starts[at]), int(starts[at + 1])
            if at != part:
                if inside:
                    yield part, inside
                part, inside = at, []
            inside.append((start - first, min(stop, end) - first))
            start = min(stop, end)
            at += 1
    if inside:
        yield part, inside


def _rows_of(ranges: list[Range]) -> np.ndarray:
    pairs = np.array(ranges, dtype=np.int64)
    lengths = pairs[:, 1] - pairs[:, 0]
    ends = lengths.cumsum()
    return np.arange(ends[-1]) + np.repeat(pairs[:, 0] - ends + lengths, lengths)


def _tuples(value):
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


# -- what a worker keeps -----------------------------------------------------


class _Kept:
    """Decoded parts, least recently used first out."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple, pa.Table] = OrderedDict()
        self._bytes = 0

    def __contains__(self, key: tuple) -> bool:
        return key in self._parts

    def get(self, key: tuple) -> pa.Table | None:
        part = self._parts.get(key)
        if part is not None:
            self._parts.move_to_end(key)
        return part

    def keep(self, key: tuple, part: pa.Table) -> pa.Table:
        # One chunk per column: slicing a thousand frames off it is then cheap.
        part = part.combine_chunks()
        self._parts[key] = part
        self._bytes += part.nbytes
        while self._bytes > KEPT_BYTES_MAX and len(self._parts) > KEPT_PARTS_MIN:
            self._bytes -= self._parts.popitem(last=False)[1].nbytes
        return part


_kept = _Kept()


@lru_cache(maxsize=KEPT_FILES_MAX)
def _parquet_file(path: str, size: int, mtime_ns: int) -> tuple[pq.ParquetFile, np.ndarray]:
    """The open file and the first row of each row group (and the end)."""
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise text.unreadable(path, "Parquet", error) from error
    found = file.metadata
    rows = [found.row_group(at).num_rows for at in range(found.num_row_groups)]
    return file, np.concatenate(([0], np.cumsum(rows, dtype=np.int64)))
