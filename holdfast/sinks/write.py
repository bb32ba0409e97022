"""`hf.write`: what a sink may be. Declaring one opens nothing.

    ward.sink("alarms", hf.write.sqlite("ward.db", "alarms", keys=["patient", "ts"]))

Relative paths are found from the folder of the file that declares the process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.sinks.sqlite import SqliteWriter
from holdfast.sinks.writer import declared_keys, unusable

__all__ = ["sqlite"]


def sqlite(path: str | os.PathLike[str], table: str, keys: str | Sequence[str] | None = None) -> SqliteWriter:
    """A table of a SQLite file. With `keys`, a row replaces the one with its key."""
    return SqliteWriter(_path(path, "out.db"), _table(table), declared_keys(keys))


def _path(path: object, example: str) -> Path:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path) or str(path) == ":memory:":
        raise unusable(
            repr(path), "a sink outlives the run, so it needs a path", f"hf.write.sqlite({example!r}, 'alarms')"
        )
    return Path(path)


def _table(table: object) -> str:
    if not isinstance(table, str) or not table or "\0" in table or table.lower().startswith("_holdfast_"):
        raise unusable(f"table {table!r}", "a table needs a name of its own", "hf.write.sqlite('out.db', 'alarms')")
    return table
