"""`hf.write`: what a sink may be. Declaring one opens nothing.

    ward.sink("alarms", hf.write.sqlite("ward.db", "alarms", keys=["patient", "ts"]))

Relative paths are found from the folder of the file that declares the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from holdfast.sinks.callback import CallbackWriter, takes_table_and_frame
from holdfast.sinks.console import ConsoleWriter
from holdfast.sinks.duckdb import DuckdbWriter
from holdfast.sinks.parquet import ParquetWriter
from holdfast.sinks.sqlite import SqliteWriter
from holdfast.sinks.writer import declared_keys, unusable

__all__ = ["callback", "console", "duckdb", "parquet", "sqlite"]


def sqlite(path: str | os.PathLike[str], table: str, keys: str | Sequence[str] | None = None) -> SqliteWriter:
    """A table of a SQLite file. With `keys`, a row replaces the one with its key."""
    return SqliteWriter(
        _path(path, "hf.write.sqlite('out.db', 'alarms')"), _table(table), declared_keys(keys)
    )


def duckdb(path: str | os.PathLike[str], table: str, keys: str | Sequence[str] | None = None) -> DuckdbWriter:
    """A table of a DuckDB file, which the run holds while it lasts."""
    return DuckdbWriter(
        _path(path, "hf.write.duckdb('out.duckdb', 'alarms')"), _table(table), declared_keys(keys)
    )


def parquet(folder: str | os.PathLike[str]) -> ParquetWriter:
    """A folder with one Parquet file per frame that has rows."""
    return ParquetWriter(_path(folder, "hf.write.parquet('alarms')"))


def callback(function: Callable[[pa.Table, int], object]) -> CallbackWriter:
    """`function(table, frame)` for every frame, at least once: see docs/howto/once.md."""
    return CallbackWriter(takes_table_and_frame(function))


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
