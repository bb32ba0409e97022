"""Frames by hand: real records and tables, no run around them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.frames.identity import FrameRecord, Kind
from holdfast.graph.schemas import Schema
from holdfast.sinks.writer import SinkContext

SCHEMA = Schema.of("zone int, ts timestamp, mean double")


def make_table(rows, schema: Schema = SCHEMA) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema.names)
    return pa.table(
        [pa.array(list(values), field.type) for values, field in zip(columns, schema.arrow, strict=True)],
        schema=schema.arrow,
    )


def make_frame(n, rows=(), *, kind=Kind.STABLE, checksum=None, epoch=1, schema=SCHEMA):
    """Rows are (zone, ts in microseconds, mean) unless another schema is given."""
    table = make_table(list(rows), schema)
    record = FrameRecord(
        stream="average",
        n=n,
        kind=kind,
        epoch=epoch,
        boundary_us=n * 1_000_000,
        rows=table.num_rows,
        bytes=table.nbytes,
        checksum=checksum or f"{kind}-{n}-{list(rows)!r}"[:64],
    )
    return record, table


@pytest.fixture
def context(tmp_path: Path):
    def make(epoch=1, schema=SCHEMA, process="kiln", sink="average") -> SinkContext:
        return SinkContext(process, sink, schema, "ts" if "ts" in schema else None, tmp_path, epoch)

    return make
