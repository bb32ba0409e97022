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

import contextlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from holdfast.errors import SourceError
from holdfast.frames.sums import without_sum
from holdfast.graph.schemas import Schema
from holdfast.sources.identity import Identity, digest_of, identity_of, is_fresh, same_bytes, stat_of
from holdfast.sources.parse import text
from holdfast.sources.parse.fit import fit, grown

__all__ = ["PUT_BACK", "Block", "Range", "Reference", "check_unchanged", "digest_of", "load", "open_parquet", "stat_of"]

PUT_BACK = (
    "put the old content back under this name and run again (times do not matter); or run over the new files "
    "in a folder of their own: --state DIR; a file that only grows is declared so: hf.read.files(..., growing=True)"
)

# Spark's Arrow path is flat from some tens of thousands of rows a batch on;
# larger batches only delay the JVM, which works on one while we decode the next.
BATCH_ROWS_MAX = 250_000
# Decoded parts kept per worker. Two are kept whatever they weigh, for a process
# with two sources would otherwise decode both anew in every frame.
KEPT_BYTES_MAX = 256 * 1024 * 1024
KEPT_PARTS_MIN = 2
KEPT_FILES_MAX = 16
# Hashed within 0.3 ms, so for every frame; larger files once in a worker.
CHECKED_ALWAYS_BYTES = 1024 * 1024
# Below this, handing columns to pyarrow's threads costs more than it gains.
THREADED_ROWS_MIN = 100_000

Range = tuple[int, int]  # rows [start, stop)
Block = tuple[int, int, int, int, str]  # first row, end row, first byte, end byte, digest of the bytes


@dataclass(frozen=True, slots=True)
class Reference:
    path: str
    format: str  # "parquet" | "csv" | "json" | "arrow"
    ranges: tuple[Range, ...]  # ascending, disjoint, none empty
    size: int
    mtime_ns: int
    digest: str  # of the whole file, hex; of text, of the blocks
    options: tuple[tuple[str, object], ...] = ()  # how text is to be read
    # Text has no index of its own: the blocks the ranges touch, cut at row ends
    # when the file was indexed.
    blocks: tuple[Block, ...] = ()
    ctime_ns: int = 0  # 0: a file of ours, whose ctime says nothing
    ino: int = 0  # the file may have been renamed in its folder since; 0: it may not
    no: int = 0  # which file of a growing source
    grows: bool = False  # more may follow the blocks

    @property
    def identity(self) -> Identity:
        return Identity(self.size, self.mtime_ns, self.ctime_ns)

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
            "ctime_ns": self.ctime_ns,
            "ino": self.ino,
            "no": self.no,
            "grows": self.grows,
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
            ctime_ns=fields.get("ctime_ns", 0),
            ino=fields.get("ino", 0),
            no=fields.get("no", 0),
            grows=fields.get("grows", False),
        )


def load(reference: Reference, schema: Schema, chunk: int = 0, chunks: int = 1) -> Iterator[pa.RecordBatch]:
    """The rows of chunk `chunk` of `chunks`, in file order, cast to `schema`."""
    if not reference.ranges:
        return iter(())
    if reference.ino:
        reference = _located(reference)
    now = check_unchanged(reference)
    if reference.format == "parquet":
        return _load_parquet(reference, now, schema, chunk, chunks)
    if reference.format == "arrow":
        return _load_arrow(reference, _part(reference.ranges, chunk, chunks), schema)
    return _load_text(reference, now, schema, chunk, chunks)


# -- identity of a file ------------------------------------------------------


def check_unchanged(reference: Reference) -> Identity:
    """The file as it is now, or HF-S004. Of text, the blocks are checked when they are read."""
    now = identity_of(reference.path)
    if reference.grows and now.size >= reference.blocks[-1][3]:
        return now
    if reference.blocks:
        if now.size != reference.size:
            raise changed(reference.path, f"it had {reference.size:,} bytes and has {now.size:,}", reference.rows)
        return now
    recorded = reference.identity
    if reference.ctime_ns == 0:  # one of our own, written once: its ctime moves when it is linked
        recorded = replace(recorded, ctime_ns=now.ctime_ns)
    if not same_bytes(reference.path, recorded, reference.digest, now):
        grew = f"it had {reference.size:,} bytes and has {now.size:,}"
        raise changed(reference.path, grew if now.size != reference.size else "it has other content", reference.rows)
    return now


def _located(reference: Reference) -> Reference:
    """Where the file lies now: a log that was rotated has another name, in the same folder."""
    folder, name = os.path.split(reference.path)
    with contextlib.suppress(OSError):
        if os.stat(reference.path).st_ino == reference.ino:
            return reference
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if entry.inode() == reference.ino and entry.name != name:
                return replace(reference, path=entry.path)
    return reference  # copied, restored or gone: its bytes decide


def changed(path: str, why: str, rows: int) -> SourceError:
    return SourceError(
        "HF-S004",
        "SourceChanged",
        "a file was changed after frames had been cut from it.",
        where=path,
        why=f"{why}; this frame has {rows:,} rows of it",
        effect="the frame is not made, and no row of the new content was read; frames made before stand",
        do=PUT_BACK,
    )


# -- reading -----------------------------------------------------------------


def _load_parquet(
    reference: Reference, now: Identity, schema: Schema, chunk: int, chunks: int
) -> Iterator[pa.RecordBatch]:
    file, starts = _parquet_file(reference.path, now)
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
            read = file.read_row_group(group, columns=names, use_threads=rows >= THREADED_ROWS_MIN)
            check_unchanged(reference)  # what is kept is never read again
            part = _kept.keep(key, fit(read, schema, reference.path))
        yield from _batches(part, inside)
    yield from _stream(file, whole, starts, schema, reference.path)
    check_unchanged(reference)  # under our hands: nothing was made of the rows yet


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


def _load_arrow(reference: Reference, ranges: list[Range], schema: Schema) -> Iterator[pa.RecordBatch]:
    # Our own files: written once, renamed into place, so mapping them is safe once their bytes are checked.
    try:
        with pa.memory_map(reference.path) as source:
            whole = source.read_buffer()
        _check_bytes(reference, whole)
        table = pa.ipc.open_file(without_sum(whole)).read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _log_damaged(reference.path, str(error).splitlines()[0]) from error
    yield from _batches(grown(table, schema, reference.path), ranges)


# Files of our log whose bytes this worker has checked: many frames may be cut from one large file.
_checked: set[tuple] = set()


def _check_bytes(reference: Reference, content: pa.Buffer) -> None:
    key = (reference.path, reference.size, reference.mtime_ns, reference.digest)
    if key in _checked:
        return
    found = xxhash.xxh3_128_hexdigest(content)
    if found != reference.digest:
        raise ValueError(f"its bytes hash to {found}, to {reference.digest} when it was logged")
    if content.size > CHECKED_ALWAYS_BYTES:
        if len(_checked) > 10_000:
            _checked.clear()
        _checked.add(key)


def _log_damaged(path: str, why: str) -> SourceError:
    return SourceError(
        "HF-S009",
        "LogDamaged",
        "a file of the source log is not what was logged.",
        where=path,
        why=why,
        effect="none of its rows was used; frames sealed before stand",
        do="put the file back from a copy; begin with a fresh state folder if there is none",
    )


def _load_text(
    reference: Reference, now: Identity, schema: Schema, chunk: int, chunks: int
) -> Iterator[pa.RecordBatch]:
    is_settled = reference.grows or reference.identity.matches(now)
    starts = np.array([block[0] for block in reference.blocks] + [reference.blocks[-1][1]])
    ranges = _part(reference.ranges, chunk, chunks, snap_to=starts)
    for at, inside in _per_part(ranges, starts):
        first, end, byte, byte_end, seen = reference.blocks[at]
        key = (reference.path, seen, byte, schema)
        part = _kept.get(key)
        if part is not None and not is_settled and (now, *key) not in _same_blocks:
            # The rows are at hand, but a replay would read the file: a change is told now, not at the next start.
            _read_block(reference, byte, byte_end, seen)
            if not is_fresh(now):
                if len(_same_blocks) > 10_000:
                    _same_blocks.clear()
                _same_blocks.add((now, *key))
        if part is None:
            block = _read_block(reference, byte, byte_end, seen)
            part = text.parse(block, reference.format, reference.options, schema, reference.path, byte)
            if inside != [(0, end - first)]:
                _kept.keep(key, part)
        yield from _batches(part, inside)


# Kept blocks whose bytes were found the same again, under the stamps the file had then.
_same_blocks: set[tuple] = set()


def _read_block(reference: Reference, byte: int, byte_end: int, seen: str) -> bytes:
    block = text.read_bytes(reference.path, byte, byte_end)
    if text.digest(block) != seen:
        raise changed(reference.path, f"it has other content from byte {byte:,} on", reference.rows)
    return block


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
    return [(max(start, low), min(stop, high)) for start, stop in ranges if max(start, low) < min(stop, high)]


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


def open_parquet(path: str) -> pq.ParquetFile:
    """As the indexer and the workers open it. Of old writers' times (INT96) Arrow makes nanoseconds unless
    told otherwise: 9999-12-31 would be a day in 1816.
    """
    try:
        return pq.ParquetFile(path, coerce_int96_timestamp_unit="us")
    except (pa.ArrowInvalid, OSError) as error:
        raise text.unreadable(path, "Parquet", error) from error


@lru_cache(maxsize=KEPT_FILES_MAX)
def _parquet_file(path: str, now: Identity) -> tuple[pq.ParquetFile, np.ndarray]:
    """The open file and the first row of each row group (and the end)."""
    file = open_parquet(path)
    found = file.metadata
    rows = [found.row_group(at).num_rows for at in range(found.num_row_groups)]
    return file, np.concatenate(([0], np.cumsum(rows, dtype=np.int64)))
