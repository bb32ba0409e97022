"""Arrow tables as plain DataFrames: written to a Parquet file, read by Spark in a session of its own.

One file, one partition, rows in the order they had. Every table has a file of its own, so no
two plans have a leaf in common. `fresh` opens a session without views, caches or settings of another frame.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.frames.content import canonical
from holdfast.graph.schemas import Column, Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["N", "Tables", "by_frame", "fresh", "rows_of", "with_number"]

# The frame a row belongs to, beside the columns of the stream; no stream may have a column of this name.
N = "_n"


class Tables:
    """The files of one recomputation; no name is given twice."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._names = folder, itertools.count(1)
        self._made: list[Path] = []

    def forget(self) -> None:
        """Delete what was made so far: everything that reads it was collected."""
        while self._made:
            self._made.pop().unlink(missing_ok=True)

    def df(self, spark: SparkSession, table: pa.Table, schema: Schema) -> DataFrame:
        path = self._folder / f"{next(self._names)}.parquet"
        self._made.append(path)
        pq.write_table(table.select(list(schema.names)).cast(schema.arrow), path)
        # The files have the calendar of today, and one of them is never read in parts.
        reader = spark.read.schema(schema.ddl).option("datetimeRebaseMode", "CORRECTED")
        return reader.parquet(str(path)).coalesce(1)

    def numbered(self, spark: SparkSession, tables: Mapping[int, pa.Table], schema: Schema) -> DataFrame:
        """The rows of several frames with the number of theirs."""
        wide = Schema((*schema.columns, Column(N, "bigint")))
        parts = [
            with_number(table.select(list(schema.names)).cast(schema.arrow), n) for n, table in sorted(tables.items())
        ]
        return self.df(spark, pa.concat_tables(parts) if parts else wide.arrow.empty_table(), wide)


def with_number(table: pa.Table, n: int) -> pa.Table:
    return table.append_column(N, pa.repeat(pa.scalar(n, pa.int64()), table.num_rows))


def by_frame(table: pa.Table, frames: Sequence[int]) -> dict[int, pa.Table]:
    """A table with numbers, cut into those frames; one without rows is there too."""
    import pyarrow.compute as pc

    return {n: table.filter(pc.equal(table[N], n)).drop_columns([N]) for n in frames}


def rows_of(table: pa.Table, schema: Schema) -> list[tuple]:
    """Rows as values that can be compared: in the declared types, maps in one order."""
    return list(zip(*map(_values, canonical(table, schema, None).columns), strict=True))


def _values(column: pa.ChunkedArray) -> list:
    try:
        return column.to_pylist()
    except (OverflowError, ValueError):  # a time that Python has no word for: as microseconds
        if not pa.types.is_timestamp(column.type):
            raise
        return column.cast(pa.int64()).to_pylist()


@contextlib.contextmanager
def fresh(spark: SparkSession, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session nobody has used; it is the active one meanwhile, and what was cached in it is dropped."""
    sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
    mine, before = spark.newSession(), sessions.getActiveSession()
    for key, value in (conf or {}).items():
        mine.conf.set(key, value)
    sessions.setActiveSession(mine._jsparkSession)
    try:
        yield mine
    finally:
        mine.catalog.clearCache()
        sessions.setActiveSession(before.get()) if before.isDefined() else sessions.clearActiveSession()
