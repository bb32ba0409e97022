"""Index of one file: its digests, its rows, and the time of each, piece by piece.

A piece is a row group (Parquet) or a block of rows (text), so memory follows the
piece, not the file. Of Parquet only the time column is decoded. Text is parsed
whole: a line that cannot be read must be found before a frame with it is handed
out, while correcting the file still helps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from holdfast.errors import SourceError, invariant
from holdfast.frames.cut import times_of
from holdfast.graph.schemas import Column, Schema
from holdfast.sources.identity import Identity, digest_of, identity_of, trusted
from holdfast.sources.parse import text
from holdfast.sources.parse.fit import NOTHING_READ, check_fits, fit, no_column
from holdfast.sources.parse.there import names_in
from holdfast.sources.reference import Block, Range, Reference, open_parquet

__all__ = ["Before", "IndexedFile", "Piece", "Prefix", "check_csv", "check_json_types", "index_file"]


class Prefix:
    """Digest of the bytes of a text file from its start to where it was indexed, as it was and as it is."""

    def __init__(
        self, points: list[tuple[int, str]], format: str = "json", options: Mapping[str, Any] | None = None
    ) -> None:
        """`points`: (bytes, digest) of an earlier run, ascending. `format`, `options`: how the file is read."""
        self._expected, self._format = points, format
        self._mark = text.csv_mark(format, dict(options or {}))
        self._seen, self._last = xxhash.xxh3_128(), b""  # all but the last block, and that
        self.bytes = 0

    def add(self, block: bytes) -> bool:
        """False if it does not end, or pass a point, as it did before."""
        self._seen.update(self._last)
        start, self._last = self.bytes, block
        self.bytes += len(block)
        while self._expected and self._expected[0][0] <= self.bytes:
            byte, digest = self._expected.pop(0)
            if byte < start or self._digest(byte - start) != digest:
                return False
        return True

    @property
    def is_short(self) -> bool:
        """A part that was there is not: told when the file has ended."""
        return bool(self._expected)

    def point(self, byte: int | None = None) -> tuple[int, str]:
        """(bytes, digest) up to here, or up to a place in the last block."""
        start = self.bytes - len(self._last)
        byte = self.bytes if byte is None else max(byte, start)
        return byte, self._digest(byte - start)

    def byte_of(self, row: int, rows: int) -> int:
        """Where the row begins, counted from the first of the last block, which has so many."""
        one_a_line = text.rows_in(self._last, self._format, self._mark) == rows
        start = text.row_start if one_a_line else text.row_start_anywhere
        return self.bytes - len(self._last) + start(self._last, row, self._format, self._mark)

    def _digest(self, length: int) -> str:
        seen = self._seen.copy()
        seen.update(self._last[:length])
        return seen.hexdigest()


@dataclass(slots=True)
class IndexedFile:
    path: str
    format: str
    size: int
    mtime_ns: int
    digest: str  # of the whole file; "" of text
    options: tuple[tuple[str, Any], ...] = ()
    rows: int = 0  # indexed so far
    blocks: list[Block] = field(default_factory=list)
    ctime_ns: int = 0
    prefix: Prefix | None = None  # of text
    ino: int = 0  # of a growing source: it may be renamed
    no: int = 0
    grows: bool = False

    @property
    def identity(self) -> Identity:
        return Identity(self.size, self.mtime_ns, self.ctime_ns)

    def reference(self, ranges: np.ndarray) -> Reference:
        """`ranges`: int64 (k, 2), ascending; neighbours that touch become one."""
        ranges = _joined(ranges)
        pairs: tuple[Range, ...] = tuple((int(a), int(b)) for a, b in ranges.tolist())
        blocks: tuple[Block, ...] = ()
        digest = self.digest
        if self.blocks:
            starts = np.array([block[0] for block in self.blocks])
            touched: set[int] = set()
            for a, b in pairs:
                first = int(np.searchsorted(starts, a, side="right")) - 1
                last = int(np.searchsorted(starts, b, side="left"))
                touched.update(range(first, last))
            blocks = tuple(self.blocks[at] for at in sorted(touched))
            # What lies behind the rows of a frame does not change the frame.
            digest = xxhash.xxh3_128_hexdigest(json.dumps(blocks).encode())
        return Reference(
            self.path,
            self.format,
            pairs,
            self.size,
            self.mtime_ns,
            digest,
            self.options,
            blocks,
            self.ctime_ns,
            self.ino,
            self.no,
            self.grows,
        )

    def weight(self, reference: Reference) -> int:
        """Bytes of the file these rows take, about."""
        if not self.blocks:
            return self.size * reference.rows // max(self.rows, 1)
        rows = sum(block[1] - block[0] for block in reference.blocks)
        size = sum(block[3] - block[2] for block in reference.blocks)
        return size * reference.rows // max(rows, 1)


class Piece:
    """Neighbouring rows of a file; their times are decoded when somebody asks."""

    def __init__(
        self,
        start: int,
        rows: int,
        decode: Callable[[], np.ndarray] | None = None,
        span_us: tuple[int, int] | None = None,
    ) -> None:
        self.start, self.rows = start, rows  # first row, and how many
        self.span_us = span_us  # least and greatest time, if known without decoding; no nulls
        self._decode = decode

    @cached_property
    def times_us(self) -> np.ndarray:
        """Epoch microseconds, NULL_US where there is none."""
        invariant(self._decode is not None, "times were asked of rows that have no time column")
        return self._decode()


def index_file(
    path: str,
    format: str,
    options: dict,
    schema: Schema,
    time: str | None,
    before: Before,
) -> tuple[IndexedFile, Iterator[Piece]]:
    """Open, check against the schema; then the pieces, lazily. A Parquet file is digested first."""
    now = trusted(identity_of(path))
    options = dict(options)
    stamps: dict[str, Any] = {"ctime_ns": now.ctime_ns}
    if format == "parquet":
        file = open_parquet(path)
        check_fits(file.schema_arrow, schema, path)
        digest = before.whole(path, now) or digest_of(path)
        found = IndexedFile(path, format, now.size, now.mtime_ns, digest, **stamps)
        found.rows = file.metadata.num_rows
        return found, _parquet_pieces(file, found, schema, time)
    if format == "csv":
        columns = text.csv_columns(path, options, schema)
        check_csv(columns, schema, path)
        options = {**options, "columns": columns}
    else:
        check_json_types(schema, path)
        if options.pop("missing", "error") != "null":
            _check_json(path, schema)
    stamps["prefix"] = Prefix(before.points(path), format, options)
    found = IndexedFile(path, format, now.size, now.mtime_ns, "", tuple(options.items()), **stamps)
    return found, _text_pieces(found, schema, time, before)


class Before(Protocol):
    """What an earlier run knew of the files: `catalogue.Catalogue`."""

    def whole(self, path: str, now: Identity) -> str | None: ...

    def points(self, path: str) -> list[tuple[int, str]]: ...

    def changed(self, path: str, why: str) -> SourceError: ...


def _parquet_pieces(file: pq.ParquetFile, found: IndexedFile, schema: Schema, time: str | None) -> Iterator[Piece]:
    if time is None:
        yield Piece(0, found.rows)
        return
    only_time = _only(schema, time)

    def decode(group: int) -> np.ndarray:
        try:
            read = file.read_row_group(group, columns=[time], use_threads=False)
        except (pa.ArrowInvalid, OSError) as error:
            raise text.unreadable(found.path, "Parquet", error) from error
        return times_of(fit(read, only_time, found.path).column(0))

    start, kind = 0, file.schema_arrow.field(time).type
    for group in range(file.metadata.num_row_groups):
        chunk = file.metadata.row_group(group)
        span_us = _span_us(chunk, time, kind)
        yield Piece(start, chunk.num_rows, partial(decode, group), span_us)
        start += chunk.num_rows


_PER_US = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}


def _span_us(chunk: pq.RowGroupMetaData, time: str, kind: pa.DataType) -> tuple[int, int] | None:
    """Least and greatest time of a row group, from what its writer noted."""
    if not pa.types.is_timestamp(kind) or kind.unit not in _PER_US:
        return None
    for at in range(chunk.num_columns):
        column = chunk.column(at)
        if column.path_in_schema != time or column.physical_type != "INT64":
            continue
        noted = column.statistics
        if noted is None or not noted.has_min_max or noted.null_count != 0:
            return None
        times, per = _PER_US[kind.unit]
        low, high = (raw * times // per for raw in (noted.min_raw, noted.max_raw))
        return (low, high) if 0 <= low <= high else None
    return None


def _text_pieces(found: IndexedFile, schema: Schema, time: str | None, before: Before) -> Iterator[Piece]:
    prefix = found.prefix
    for byte, block in text.cut_blocks(found.path, found.format, dict(found.options)):
        header = text.read_bytes(found.path, 0, byte) if byte and not prefix.bytes else b""
        if (header and not prefix.add(header)) or not prefix.add(block):
            raise before.changed(found.path, f"it has other content in its first {prefix.bytes:,} bytes")
        table = text.parse(block, found.format, found.options, schema, found.path, byte)
        if table.num_rows == 0:
            continue
        start, found.rows = found.rows, found.rows + table.num_rows
        found.blocks.append((start, found.rows, byte, byte + len(block), text.digest(block)))
        decode = partial(times_of, table.column(time)) if time else None
        yield Piece(start, table.num_rows, decode)
    if prefix.is_short:
        raise before.changed(found.path, f"it has {prefix.bytes:,} bytes of text and had more")


def _only(schema: Schema, name: str) -> Schema:
    return Schema((Column(name, schema.type_of(name)),))


def _joined(ranges: np.ndarray) -> np.ndarray:
    if len(ranges) < 2:
        return ranges
    opens = np.concatenate(([True], ranges[1:, 0] != ranges[:-1, 1]))
    closes = np.concatenate((opens[1:], [True]))
    return np.column_stack((ranges[opens, 0], ranges[closes, 1]))


def check_csv(columns: tuple[str, ...], schema: Schema, path: str) -> None:
    for column in schema.columns:
        if columns.count(column.name) != 1:
            twice = column.name in columns
            raise no_column(column.name, list(columns), path, twice=twice)
        if "<" in column.type:
            raise SourceError(
                "HF-S003",
                "TypesDiffer",
                f"column {column.name!r} is declared as {column.type}; CSV cannot hold it.",
                where=path,
                effect=NOTHING_READ,
                do="declare it as string and parse it in an operator, or use JSON or Parquet",
            )


def check_json_types(schema: Schema, path: str) -> None:
    for column in schema.columns:
        if "map<" in column.type:
            raise SourceError(
                "HF-S003",
                "TypesDiffer",
                f"column {column.name!r} is declared as {column.type}; maps are not read from JSON.",
                where=path,
                effect=NOTHING_READ,
                do="declare it as a struct of the fields you need, or use Parquet",
            )


def _check_json(path: str, schema: Schema) -> None:
    """A declared field that no row at the file's start has is most likely misspelt; inside of structs as well."""
    names: dict[str, dict[str, None]] = {}
    head = text.read_bytes(path, 0, 1 << 20)
    for line in head.splitlines()[:1000]:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue  # cut off at the end of the head, or a bad row: parsing names it
        if isinstance(row, dict):
            for place, name in names_in(row):
                names.setdefault(place, {})[name] = None
    _check_names("", schema.arrow, names, path)


def _check_names(place: str, declared: Iterable[pa.Field], names: dict[str, dict[str, None]], path: str) -> None:
    if place not in names:
        return
    for declares in declared:
        if declares.name not in names[place]:
            raise no_column(f"{place}{declares.name}", [f"{place}{each}" for each in names[place]], path)
        kind = declares.type
        while pa.types.is_list(kind):
            kind = kind.value_type
        if pa.types.is_struct(kind):
            _check_names(f"{place}{declares.name}.", kind, names, path)
