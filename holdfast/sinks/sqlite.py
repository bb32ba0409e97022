"""SQLite, the default sink: one file, every frame in it once.

The file is in WAL mode, so others read while we write; a commit is synced to disk
(synchronous=full), because what the ledger has acknowledged upstream may forget.
Tables of ours are clustered by (`_frame`, `_i`), or by the keys.

Touches the database file it was given and nothing else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from holdfast.atomic import make_folder
from holdfast.errors import Finding
from holdfast.frames.identity import FrameRecord
from holdfast.graph.reaching import AFTER_9999, BEFORE_1
from holdfast.graph.schemas import Schema
from holdfast.quoting import quoted_sql
from holdfast.sinks.file_table import FileTableSink
from holdfast.sinks.values import affinity_of, sql_columns
from holdfast.sinks.writer import RESERVED, SinkContext, column_findings, json_key_findings, refuse

__all__ = ["SqliteWriter"]

#: How long a write waits for another program's transaction before it is an error.
BUSY_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class SqliteWriter:
    path: Path
    table: str
    keys: tuple[str, ...] = ()
    new_columns: str = "fail"
    shared: bool = False
    idempotent: bool = True

    #: Times are text of a fixed width, so that the order of text is that of time.
    cannot_hold: ClassVar[tuple[str, ...]] = (BEFORE_1, AFTER_9999)

    def describe(self) -> str:
        by = f", newest row per {', '.join(self.keys)}" if self.keys else ""
        return f"SQLite {self.path}, table {self.table}{by}"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return column_findings(schema, self.keys, sink) + json_key_findings(schema, self.keys, sink)

    def open(self, context: SinkContext) -> SqliteSink:
        refuse(self.check(context.schema), context)
        return SqliteSink(context.base / self.path, self.table, self.keys, context, self.new_columns, self.shared)


class SqliteSink(FileTableSink):
    errors = (sqlite3.Error,)

    def begin(self) -> None:
        # Takes the write lock at once: two transactions that both read first could not both go on.
        self.run("begin immediate")

    def is_away(self, error: Exception) -> bool:
        # Another program holds the file, or the disk is full: the same write succeeds when that is over.
        return getattr(error, "sqlite_errorcode", 0) & 0xFF in (
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
            sqlite3.SQLITE_FULL,
        )

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, sqlite3.IntegrityError | sqlite3.DataError) or super().is_refusal(error)

    def connect(self) -> sqlite3.Connection:
        make_folder(self.path.parent, sync=True)
        # Any thread may use it, one at a time: the sink's lock sees to that.
        connection = sqlite3.connect(self.path, timeout=BUSY_S_MAX, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("pragma journal_mode = wal").fetchall()
            connection.execute("pragma synchronous = full")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def run(self, sql: str, values: Sequence[object] = ()) -> list[tuple]:
        return self._connection.execute(sql, values).fetchall()

    def table_exists(self) -> bool:
        return bool(
            self.run(
                "select 1 from sqlite_master where type in ('table', 'view') and lower(name) = lower(?)",
                (self.table,),
            )
        )

    def create_table(self) -> None:
        columns = [
            f"{quoted_sql(name)} {kind}" + " NOT NULL" * (name in RESERVED) for name, kind in self.wanted().items()
        ]
        cluster = ", ".join(map(quoted_sql, self.keys or ("_frame", "_i")))
        self.run(f"create table {quoted_sql(self.table)} ({', '.join(columns)}, primary key ({cluster})) without rowid")

    def wanted(self) -> dict[str, str]:
        wanted = {f.name: affinity_of(f.type) for f in self.context.schema.arrow}
        return wanted | ({"_frame": "INTEGER"} if self.keys else {"_frame": "INTEGER", "_i": "INTEGER"})

    def there(self) -> list[str]:
        return [name for _, name, *_ in self._info()]

    def _info(self) -> list[tuple]:
        return self.run(f"pragma table_info({quoted_sql(self.table)})")

    def misfit(self) -> str:
        [(kind,)] = self.run("select type from sqlite_master where lower(name) = lower(?)", (self.table,))[:1]
        if kind != "table":
            return f"it is a {kind}"
        info = self._info()
        there = {name.lower(): (declared, notnull, default, pk) for _, name, declared, notnull, default, pk in info}
        wanted = self.wanted()
        moments = {
            f.name for f in self.context.schema.arrow if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type)
        }
        for name, affinity in wanted.items():
            if name.lower() not in there:
                return f"it has no column {name!r} ({affinity.lower()})"
            declared = there[name.lower()][0]
            if not _holds(declared, affinity, is_moment=name in moments):
                return f"its column {name!r} is {declared.lower()}, the stream needs {affinity.lower()}"
        ours = {name.lower() for name in wanted}
        for name, (_, notnull, default, pk) in there.items():
            if name not in ours and notnull and default is None and not pk:
                return f"its column {name!r} must not be null, and the stream has nothing for it"
        if self.keys and self._folds_keys():
            return "its unique index compares keys by a collation (nocase, rtrim): two different keys would be one"
        if self.keys and not self._unique_by_keys(info):
            return f"no primary key or unique index over exactly {', '.join(self.keys)}, which keys= needs"
        return ""

    def _folds_keys(self) -> bool:
        """Whether a unique index over exactly the keys takes different texts for equal."""
        keys = {key.lower() for key in self.keys}
        for _, index, unique, *_ in self.run(f"pragma index_list({quoted_sql(self.table)})"):
            columns = [each for each in self.run(f"pragma index_xinfo({quoted_sql(index)})") if each[5]]
            if unique and {str(name).lower() for _, _, name, *_ in columns} == keys:
                if any(collation.upper() != "BINARY" for *_, collation, _ in columns):
                    return True
        return False

    def _unique_by_keys(self, info: list[tuple]) -> bool:
        keys = {key.lower() for key in self.keys}
        if {name.lower() for _, name, *_, pk in info if pk} == keys:
            return True
        for _, index, unique, _, partial in self.run(f"pragma index_list({quoted_sql(self.table)})"):
            columns = self.run(f"pragma index_info({quoted_sql(index)})")
            if unique and not partial and {str(name).lower() for *_, name in columns} == keys:
                return True
        return False

    def insert(self, frames: Sequence[tuple[FrameRecord, pa.Table]]) -> None:
        names = [*self.context.schema.names, "_frame"]
        if not self.keys:
            names.append("_i")
        rows = chain.from_iterable(self._rows(record, table) for record, table in frames)
        # "or abort": a table may say that a row it does not take is left out, or replaces another.
        taken = self._connection.executemany(
            f"insert or abort into {quoted_sql(self.table)} ({', '.join(map(quoted_sql, names))})"
            f" values ({', '.join('?' * len(names))}){self._on_conflict()}",
            rows,
        ).rowcount
        self.refuse_fewer(frames, taken, sum(table.num_rows for _, table in frames))

    def _rows(self, record: FrameRecord, table: pa.Table):
        places = () if self.keys else (self.places(record, table),)
        return zip(*sql_columns(table), repeat(record.n, table.num_rows), *places, strict=True)

    def _on_conflict(self) -> str:
        """Row by row in canonical order: the newest frame wins, and in a frame the last row."""
        if not self.keys:
            return ""
        rest = [name for name in self.context.schema.names if name not in self.keys]
        changes = ", ".join(f"{quoted_sql(name)} = excluded.{quoted_sql(name)}" for name in [*rest, "_frame"])
        return (
            f" on conflict ({', '.join(map(quoted_sql, self.keys))}) do update set {changes}"
            f' where excluded."_frame" >= {quoted_sql(self.table)}."_frame"'
        )


def _holds(declared: str, wanted: str, *, is_moment: bool = False) -> bool:
    """Whether a column of a declared type keeps our values as they are (SQLite's affinity rules)."""
    text = declared.upper()
    if "INT" in text:
        affinity = "INTEGER"
    elif "CHAR" in text or "CLOB" in text or "TEXT" in text:
        affinity = "TEXT"
    elif "BLOB" in text or not text:
        return True
    elif "REAL" in text or "FLOA" in text or "DOUB" in text:
        affinity = "REAL"
    else:
        affinity = "NUMERIC"
    if affinity == "NUMERIC":
        # Text that looks like a number would become one: "12.30" loses its last digit. A moment never does.
        return wanted in ("INTEGER", "REAL", "BLOB") or (is_moment and ("DATE" in text or "TIME" in text))
    return affinity == wanted or wanted == "BLOB"
