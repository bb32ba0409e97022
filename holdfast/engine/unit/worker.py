"""What runs in Spark's Python workers: load a port's frame, seal a unit's outputs.

A unit's plan is built once and executed for every frame. Which frame, is told
by a local property of the job (`holdfast.frame`, JSON), so nothing in the plan
changes from frame to frame:

    {"epoch": 3, "staging": DIR, "state": {"average": {...}},
     "frames": [{"n": 12, "boundary_us": ..., "since_us": ..., "params": {...},
                 "ports": {"probes": {"references": [...]}, "last": {"file": PATH}}}]}

A unit whose operators are all frame-aware may be handed several frames at once when
it is behind; rows then carry their frame in `_n`, and every frame is sealed as if it
had come alone.

A task may run twice; every file it writes has a name of its own and means
nothing until the driver renames it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.failpoints import strike_here
from holdfast.frames.content import canonical, checksum
from holdfast.frames.files import read_frame, write_frame
from holdfast.frames.identity import Kind
from holdfast.frames.layout import one_chunk, plain
from holdfast.frames.order import total_order
from holdfast.graph.schemas import Schema
from holdfast.operators.builtin import FRAME
from holdfast.protocols.taint import Mark
from holdfast.sources.reference import Reference, load

__all__ = ["BOUNDARY", "FRAME_PROPERTY", "SEALED_SCHEMA", "Load", "Seal", "Then", "current_frames"]

FRAME_PROPERTY = "holdfast.frame"
# Marks the one row per port and frame that carries the boundary into Spark's watermark.
BOUNDARY = "_holdfast_boundary"
SEALED_SCHEMA = "out int, n long, rows long, bytes long, checksum string, file string"

# Rows per Arrow batch on the way to the JVM: large enough to amortise the header,
# small enough that two of them fit beside each other in the worker.
_BATCH_ROWS = 65_536


def current_frames() -> dict:
    from pyspark import TaskContext

    return json.loads(TaskContext.get().getLocalProperty(FRAME_PROPERTY))


@dataclass(frozen=True)
class Load:
    """Rows of one port of the current frame; one call per chunk."""

    port: str
    schema: Schema
    chunks: int
    time: str | None = None
    boundary_row: bool = False
    many: bool = False  # rows carry the number of their frame
    columns: tuple[str, ...] | None = None  # those somebody uses; None: all
    ordered: bool = False  # in canonical order: what ties in an operator is then decided by values alone

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            frames = current_frames()["frames"]
            for chunk in batch.column(0).to_pylist():
                for frame in frames:
                    # The streaming part counts frames, not chunks: it has one chunk.
                    port = frame["ports"][self.port]
                    for rows in (
                        self._in_order(port) if self.ordered else self._kept(port, chunk if self.chunks > 1 else 0)
                    ):
                        yield self._marked(rows, frame["n"])
                    if self.boundary_row:
                        yield self._boundary(frame["boundary_us"])

    def _kept(self, port: dict, chunk: int) -> Iterator[pa.RecordBatch]:
        found = self.rows(port, chunk)
        return _without(found, port["without"]) if "without" in port else found

    def _in_order(self, port: dict) -> Iterator[pa.RecordBatch]:
        """By time, then by all columns of the stream, whichever of them are used: all plans of a unit see one order."""
        if "file" in port:  # sealed so
            yield from self._kept(port, 0)
            return
        names = self.columns or self.schema.names
        first = [self.time] if self.time in self.schema else []
        found = list(replace(self, columns=tuple({*names, *first}))._kept(port, 0))
        if not (first and _rises([rows.column(self.time) for rows in found])):
            found = list(replace(self, columns=None)._kept(port, 0))
            table = pa.Table.from_batches(found, self.schema.arrow)
            rest = [name for name in self.schema.names if name != self.time]
            order = total_order([plain(one_chunk(table.column(name))) for name in first + rest])
            if order is not None:
                table = table.select(names).take(pa.array(order))
            found = table.to_batches(max_chunksize=_BATCH_ROWS)
        for rows in found:
            yield rows.select(names)

    @property
    def read_schema(self) -> Schema:
        if self.columns is None:
            return self.schema
        return Schema(tuple(column for column in self.schema.columns if column.name in self.columns))

    def rows(self, port: dict, chunk: int) -> Iterator[pa.RecordBatch]:
        if "file" in port:
            if port["file"]:
                _, table = read_frame(Path(port["file"]))
                table = table if self.columns is None else table.select(list(self.columns))
                size = -(-table.num_rows // self.chunks)
                part = table.slice(chunk * size, size)
                yield from part.to_batches(max_chunksize=_BATCH_ROWS)
        else:
            for found in port["references"]:
                reference = Reference.from_json(found)
                # Columns of a text file go by place or are parsed anyway: it is read whole.
                schema = self.read_schema if reference.format in ("parquet", "arrow") else self.schema
                for rows in load(reference, schema, chunk, self.chunks):
                    yield rows if self.columns is None else rows.select(list(self.columns))

    def _marked(self, rows: pa.RecordBatch, n: int) -> pa.RecordBatch:
        if self.many:
            number = pa.repeat(pa.scalar(n, pa.int64()), rows.num_rows)
            return pa.RecordBatch.from_arrays([*rows.columns, number], [*rows.schema.names, FRAME])
        if not self.boundary_row:
            return rows
        flag = pa.repeat(pa.scalar(False), rows.num_rows)
        return pa.RecordBatch.from_arrays([*rows.columns, flag], [*rows.schema.names, BOUNDARY])

    def _boundary(self, boundary_us: int) -> pa.RecordBatch:
        columns = []
        for field in self.schema.arrow:
            at = field.name == self.time
            value = pa.array([boundary_us], pa.int64()).cast(field.type) if at else pa.nulls(1, field.type)
            columns.append(value)
        return pa.RecordBatch.from_arrays([*columns, pa.array([True])], [*self.schema.names, BOUNDARY])


def _rises(times: list[pa.Array]) -> bool:
    """Whether each time is later than the one before, and none is null: the order is known then."""
    last = None
    for array in times:
        numbers = array.cast(pa.int64())
        if numbers.null_count:
            return False
        values = numbers.to_numpy()
        if len(values) and ((last is not None and values[0] <= last) or (values[1:] <= values[:-1]).any()):
            return False
        last = values[-1] if len(values) else last
    return True


def _without(found: Iterator[pa.RecordBatch], left_out: list[list[int]]) -> Iterator[pa.RecordBatch]:
    """All rows but those in the ranges [from, to), counted from the first of the port."""
    at = 0
    for rows in found:
        keep = np.ones(rows.num_rows, dtype=bool)
        for first, end in left_out:
            keep[max(0, first - at) : max(0, end - at)] = False
        at += rows.num_rows
        if keep.any():
            yield rows if keep.all() else rows.filter(pa.array(keep))


@dataclass(frozen=True)
class Seal:
    """All outputs of the current frame: sorted, summed, written to staging."""

    outputs: tuple[tuple[str, Schema], ...]
    time: str | None
    tagged: bool = False  # rows of several streams: `_out`, `o{i}_{column}`

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task = current_frames()
        found = list(batches)
        for frame in task["frames"]:
            if "strike" in frame:
                strike_here(frame["strike"])
        rows = pa.Table.from_batches(found) if found else None
        columns: dict[str, list] = {name: [] for name in ("out", "n", "rows", "bytes", "checksum", "file")}
        for out, (stream, schema) in enumerate(self.outputs):
            own = self._rows_of(out, schema, rows)
            time = self.time if self.time in schema else None
            for frame, part in zip(task["frames"], self._by_frame(own, task["frames"]), strict=True):
                table = canonical(part, schema, time)
                total = checksum(table, n=frame["n"], boundary_us=frame["boundary_us"], kind=Kind.STABLE)
                path = write_frame(
                    Path(task["staging"]),
                    table,
                    stream=stream,
                    n=frame["n"],
                    kind=Kind.STABLE,
                    epoch=task["epoch"],
                    boundary_us=frame["boundary_us"],
                    checksum=total,
                    **Mark.fields(frame.get("marks", {}).get(stream)),
                )
                values = (out, frame["n"], table.num_rows, path.stat().st_size, total, str(path))
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
        if columns["out"]:
            yield pa.RecordBatch.from_pydict({**columns, "out": pa.array(columns["out"], pa.int32())})

    def _rows_of(self, out: int, schema: Schema, rows: pa.Table | None) -> pa.Table:
        """One stream's rows, with `_n` where they carry it."""
        if rows is None:
            return schema.arrow.empty_table()
        if not self.tagged:
            return rows
        mine = rows if len(self.outputs) == 1 else rows.filter(pc.equal(rows["_out"], out))
        names = [*schema.names, *([FRAME] if FRAME in rows.column_names else [])]
        columns = [mine[name if name == FRAME else f"o{out}_{name}"] for name in names]
        return pa.Table.from_arrays(columns, names)

    def _by_frame(self, rows: pa.Table, frames: list[dict]) -> Iterator[pa.Table]:
        if len(frames) == 1 or not rows.num_rows:
            yield from (rows for _ in frames)
            return
        numbers = rows[FRAME].to_numpy()
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(pa.array(order)), numbers[order]
        for frame in frames:
            start, stop = np.searchsorted(numbers, [frame["n"], frame["n"] + 1])
            yield rows.slice(start, stop - start)


@dataclass(frozen=True)
class Then:
    """Two steps in one worker, the second on what the first yields."""

    first: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    second: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.second(self.first(batches))
