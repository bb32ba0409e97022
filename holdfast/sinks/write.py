"""`hf.write`: what a sink may be. Declaring one opens nothing.

    ward.sink("alarms", hf.write.sqlite("ward.db", "alarms", keys=["patient", "ts"]))

Relative paths are found from the folder of the file that declares the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.graph.secrets import Secret
from holdfast.sinks.batches import ForeachBatchWriter
from holdfast.sinks.callback import CallbackWriter, takes_table_and_frame, takes_two
from holdfast.sinks.console import ConsoleWriter
from holdfast.sinks.duckdb import DuckdbWriter
from holdfast.sinks.parquet import ParquetWriter
from holdfast.sinks.postgres import NAME_BYTES_MAX, PostgresWriter
from holdfast.sinks.sqlite import SqliteWriter
from holdfast.sinks.writer import declared_flag, declared_keys, declared_new_columns, unusable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["callback", "console", "duckdb", "foreach_batch", "parquet", "postgres", "sqlite"]


def sqlite(
    path: str | os.PathLike[str],
    table: str,
    keys: str | Sequence[str] | None = None,
    *,
    new_columns: str = "fail",
    shared: bool = False,
) -> SqliteWriter:
    """A table of a SQLite file. With `keys`, a row replaces the one with its key.

    `new_columns="add"` adds columns that the stream has and the table lacks. `shared=True`: others delete and
    add rows there too, so a start does not compare their number with what was written.
    """
    if _table(table).lower().startswith("sqlite_"):
        raise unusable(
            f"table {table!r}",
            "SQLite keeps names that begin with sqlite_ for itself",
            f"hf.write.sqlite('out.db', 'of_{table}')",
        )
    return SqliteWriter(
        _path(path, "hf.write.sqlite('out.db', 'alarms')"),
        _table(table),
        declared_keys(keys),
        declared_new_columns(new_columns),
        declared_flag(shared, "shared"),
    )


def duckdb(
    path: str | os.PathLike[str],
    table: str,
    keys: str | Sequence[str] | None = None,
    *,
    new_columns: str = "fail",
    shared: bool = False,
) -> DuckdbWriter:
    """A table of a DuckDB file, which the run holds while it lasts. Options as for sqlite."""
    return DuckdbWriter(
        _path(path, "hf.write.duckdb('out.duckdb', 'alarms')"),
        _table(table),
        declared_keys(keys),
        declared_new_columns(new_columns),
        declared_flag(shared, "shared"),
    )


def postgres(
    url: str | Secret,
    table: str,
    keys: str | Sequence[str] | None = None,
    *,
    schema: str | None = None,
    new_columns: str = "fail",
    shared: bool = False,
) -> PostgresWriter:
    """A table of a PostgreSQL server: see docs/howto/postgres.md.

    `url` is hf.secret("PG_URL"), or an address without a password. Without `schema`
    the first one of the user's search_path is taken. Other options as for sqlite.
    """
    example = "hf.write.postgres(hf.secret('PG_URL'), 'alarms', keys=['patient', 'ts'])"
    if not isinstance(url, Secret) and (not isinstance(url, str) or not url.strip()):
        raise unusable("this address", "it is a text or hf.secret(NAME)", example)
    for name in (_table(table), schema):
        if name is not None and (
            not isinstance(name, str) or not name or "\0" in name or len(name.encode()) > NAME_BYTES_MAX
        ):
            raise unusable(f"name {name!r}", f"PostgreSQL's names have 1 to {NAME_BYTES_MAX} bytes", example)
    return PostgresWriter(
        url, table, declared_keys(keys), schema, declared_new_columns(new_columns), declared_flag(shared, "shared")
    )


def parquet(folder: str | os.PathLike[str], *, shared: bool = False) -> ParquetWriter:
    """A folder with one Parquet file per frame that has rows.

    `shared=True`: others delete and add files there too, so a start does not compare them with what was written.
    """
    return ParquetWriter(_path(folder, "hf.write.parquet('alarms')"), declared_flag(shared, "shared"))


def callback(function: Callable[[pa.Table, int], object]) -> CallbackWriter:
    """`function(table, frame)` for every frame, at least once: see docs/howto/once.md."""
    return CallbackWriter(takes_table_and_frame(function))


def foreach_batch(function: Callable[[DataFrame, int], object]) -> ForeachBatchWriter:
    """`function(df, batch_id)` as Structured Streaming calls it; `batch_id` is the frame's number for ever."""
    return ForeachBatchWriter(takes_two(function, "(df, batch_id)", "hf.write.foreach_batch(upsert)"))


def console(rows: int = 20) -> ConsoleWriter:
    """The first rows of every frame on stdout."""
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise unusable(f"console(rows={rows!r})", "rows is a whole number, 1 or more", "hf.write.console(rows=20)")
    return ConsoleWriter(rows)


def _path(path: object, example: str) -> Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or os.fspath(path) == ":memory:":
        raise unusable(f"path {path!r}", "a sink outlives the run, so it needs a path", example)
    return Path(path)


def _table(table: object) -> str:
    if not isinstance(table, str) or not table or "\0" in table or table.lower().startswith("_holdfast_"):
        raise unusable(f"table {table!r}", "a table needs a name of its own", "hf.write.sqlite('out.db', 'alarms')")
    return table
