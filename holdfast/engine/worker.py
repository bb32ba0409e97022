"""What runs in Spark's Python workers: load a port's frame, seal a unit's outputs.

A unit's plan is built once and executed for every frame. Which frame, is told
by a local property of the job (`holdfast.frame`, JSON), so nothing in the plan
changes from frame to frame:

    {"n": 12, "boundary_us": ..., "epoch": 3, "staging": DIR,
     "ports": {"probes": {"references": [...]}, "last": {"file": PATH}},
     "params": {...}, "state": {"average": {"runs": {...}}}}

A task may run twice; every file it writes has a name of its own and means
nothing until the driver renames it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.frames.content import canonical, checksum
from holdfast.frames.files import read_frame, write_frame
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.sources.reference import Reference, load

__all__ = ["BOUNDARY", "FRAME_PROPERTY", "Load", "SEALED_SCHEMA", "Seal", "Then", "current_frame"]

FRAME_PROPERTY = "holdfast.frame"
# Marks the one row per port and frame that carries the boundary into Spark's watermark.
BOUNDARY = "_holdfast_boundary"
SEALED_SCHEMA = "out int, rows long, bytes long, checksum string, file string"

# Rows per Arrow batch on the way to the JVM: large enough to amortise the header,
# small enough that two of them fit beside each other in the worker.
_BATCH_ROWS = 65_536


def current_frame() -> dict:
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

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            frame = current_frame()
            port = frame["ports"][self.port]
            for chunk in batch.column(0).to_pylist():
                # The streaming part counts frames, not chunks: it has one chunk.
                for rows in self._rows(port, chunk if self.chunks > 1 else 0):
                    yield self._marked(rows)
                if self.boundary_row:
                    yield self._boundary(frame["boundary_us"])

    def _rows(self, port: dict, chunk: int) -> Iterator[pa.RecordBatch]:
        if "file" in port:
            if port["file"]:
                _, table = read_frame(Path(port["file"]))
                size = -(-table.num_rows // self.chunks)
                part = table.slice(chunk * size, size)
                yield from part.to_batches(max_chunksize=_BATCH_ROWS)
        else:
            for reference in port["references"]:
                yield from load(Reference.from_json(reference), self.schema, chunk, self.chunks)

    def _marked(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if not self.boundary_row:
            return rows
        flag = pa.array([False]).take(pa.array([0] * rows.num_rows, pa.int32()))
        return pa.RecordBatch.from_arrays([*rows.columns, flag], [*rows.schema.names, BOUNDARY])

    def _boundary(self, boundary_us: int) -> pa.RecordBatch:
        columns = []
        for field in self.schema.arrow:
            at = field.name == self.time
            value = pa.array([boundary_us], pa.int64()).cast(field.type) if at else pa.nulls(1, field.type)
            columns.append(value)
        return pa.RecordBatch.from_arrays([*columns, pa.array([True])], [*self.schema.names, BOUNDARY])


@dataclass(frozen=True)
class Seal:
    """All outputs of the current frame: sorted, summed, written to staging."""

    outputs: tuple[tuple[str, Schema], ...]
    time: str | None
    tagged: bool = False  # rows of several streams: `_out`, `o{i}_{column}`

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        frame = current_frame()
        found = list(batches)
        for out, (stream, schema) in enumerate(self.outputs):
            table = self._rows_of(out, schema, found)
            time = self.time if self.time in schema else None
            table = canonical(table, schema, time)
            total = checksum(table, n=frame["n"], boundary_us=frame["boundary_us"], kind=Kind.STABLE)
            path = write_frame(
                Path(frame["staging"]),
                table,
                stream=stream,
                n=frame["n"],
                kind=Kind.STABLE,
                epoch=frame["epoch"],
                boundary_us=frame["boundary_us"],
                checksum=total,
            )
            yield pa.RecordBatch.from_pydict(
                {
                    "out": pa.array([out], pa.int32()),
                    "rows": pa.array([table.num_rows]),
                    "bytes": pa.array([path.stat().st_size]),
                    "checksum": pa.array([total]),
                    "file": pa.array([str(path)]),
                }
            )

    def _rows_of(self, out: int, schema: Schema, batches: list[pa.RecordBatch]) -> pa.Table:
        if not batches:
            return schema.arrow.empty_table()
        table = pa.Table.from_batches(batches)
        if not self.tagged:
            return table
        mine = table.filter(pc.equal(table["_out"], out))
        columns = [mine[f"o{out}_{name}"] for name in schema.names]
        return pa.Table.from_arrays(columns, list(schema.names))


@dataclass(frozen=True)
class Then:
    """Two steps in one worker, the second on what the first yields."""

    first: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    second: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self.second(self.first(batches))
