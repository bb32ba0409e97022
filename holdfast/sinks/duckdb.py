"""DuckDB as a sink: columns stay columns, Arrow goes in without a row loop.

DuckDB lets one os_process hold a file, so the run holds it from start to stop and
others read it afterwards; a file still held by an orphan is waited for. That is a
stronger fence than the epoch, which is kept all the same.

Touches the database file it was given and nothing else. DuckDB is imported when
the sink is opened: `check` does not need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic

import pyarrow as pa

from holdfast.atomic import make_folder, sync_folder
from holdfast.errors import Finding, SinkError
from holdfast.frames.identity import FrameRecord
from holdfast.graph.schemas import Schema
from holdfast.quoting import quoted_sql
from holdfast.sinks.file_table import FileTableSink
from holdfast.sinks.writer import SinkContext, column_findings, refuse

__all__ = ["DuckdbWriter"]

#: How long to wait for a file that another os_process holds. An orphan of a killed
#: run is gone in less; a person with an open shell is not, and is told.
HELD_S_MAX = 10.0

_WIDER = (("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), ("FLOAT", "DOUBLE"))


@dataclass(frozen=True, slots=True)
class DuckdbWriter:
    path: Path
    table: str
    keys: tuple[str, ...] = ()
    new_columns: str = "fail"
    shared: bool = False
    idempotent: bool = True

    def describe(self) -> str:
        by = f", newest row per {', '.join(self.keys)}" if self.keys else ""
        return f"DuckDB {self.path}, table {self.table}{by}"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return column_findings(schema, self.keys, sink)

    def open(self, context: SinkContext) -> DuckdbSink:
        refuse(self.check(context.schema), context)
        try:
            import duckdb
        except ImportError as error:
            raise SinkError(
                "HF-K004",
                "SinkNotOpened",
                "DuckDB is not installed.",
                where=context.where,
                why=str(error),
                effect="nothing was written",
                do="pip install duckdb",
            ) from error
        DuckdbSink.errors = (duckdb.Error,)
        return DuckdbSink(context.base / self.path, self.table, self.keys, context, self.new_columns, self.shared)


class DuckdbSink(FileTableSink):
    held_s_max = HELD_S_MAX

    def is_away(self, error: Exception) -> bool:
        import duckdb

        # Once it was ours, whoever holds the file goes again; at a start a person is told.
        held = self._was_open and isinstance(error, duckdb.IOException) and "lock" in str(error).lower()
        return held or "no space left" in str(error).lower()

    def is_refusal(self, error: Exception) -> bool:
        import duckdb

        kinds = (duckdb.ConstraintException, duckdb.ConversionException, duckdb.OutOfRangeException)
        return isinstance(error, kinds) or super().is_refusal(error)

    def connect(self) -> object:
        import duckdb

        make_folder(self.path.parent, sync=True)
        until = monotonic() + self.held_s_max
        while True:
            try:
                return duckdb.connect(str(self.path))
            except duckdb.IOException as error:
                if "lock" not in str(error).lower() or monotonic() >= until:
                    raise
                Event().wait(0.05)

    def run(self, sql: str, values: Sequence[object] = ()) -> list[tuple]:
        found = self._connection.execute(sql, list(values)).fetchall()
        if sql == "commit":  # DuckDB syncs its log, and not the name it gave it
            sync_folder(self.path.parent)
        return found

    def table_exists(self) -> bool:
        return bool(
            self.run(
                "select 1 from information_schema.tables where table_schema = current_schema()"
                " and table_catalog = current_database() and lower(table_name) = lower(?)",
                (self.table,),
            )
        )

    def create_table(self) -> None:
        columns = [f"{quoted_sql(name)} {kind}" for name, kind in self.wanted().items()]
        if self.keys:
            columns.append(f"primary key ({', '.join(map(quoted_sql, self.keys))})")
        self.run(f"create table {quoted_sql(self.table)} ({', '.join(columns)})")

    def misfit(self) -> str:
        [(kind,)] = self.run(
            "select table_type from information_schema.tables where table_schema = current_schema()"
            " and table_catalog = current_database() and lower(table_name) = lower(?)",
            (self.table,),
        )
        if kind != "BASE TABLE":
            return f"it is a {kind.lower()}"
        there = {name.lower(): (kind, nullable, default) for name, kind, nullable, default in self._info()}
        wanted = self.wanted()
        for name, kind in wanted.items():
            if name.lower() not in there:
                return f"it has no column {name!r} ({kind.lower()})"
            declared = there[name.lower()][0]
            if not _holds(declared, kind):
                return f"its column {name!r} is {declared.lower()}, the stream needs {kind.lower()}"
        ours = {name.lower() for name in wanted}
        for name, (_, nullable, default) in there.items():
            if name not in ours and not nullable and default is None:
                return f"its column {name!r} must not be null, and the stream has nothing for it"
        if self.keys and not self._unique_by_keys():
            return f"no primary key or unique constraint over exactly {', '.join(self.keys)}, which keys= needs"
        return ""

    def _info(self) -> list[tuple]:
        return self.run(
            "select column_name, data_type, is_nullable, column_default from duckdb_columns()"
            " where database_name = current_database() and schema_name = current_schema()"
            " and lower(table_name) = lower(?)",
            (self.table,),
        )

    def there(self) -> list[str]:
        return [name for name, *_ in self._info()]

    def wanted(self) -> dict[str, str]:
        """Column -> type, in DuckDB's own words for our Arrow schema."""
        self._connection.register("_holdfast_rows", self.context.schema.arrow.empty_table())
        try:
            rows = self.run("describe select * from _holdfast_rows")
        finally:
            self._connection.unregister("_holdfast_rows")
        wanted = {name: kind for name, kind, *_ in rows} | {"_frame": "BIGINT"}
        return wanted if self.keys else wanted | {"_i": "BIGINT"}

    def _unique_by_keys(self) -> bool:
        keys = {key.lower() for key in self.keys}
        rows = self.run(
            "select constraint_column_names from duckdb_constraints()"
            " where database_name = current_database() and schema_name = current_schema()"
            " and lower(table_name) = lower(?) and constraint_type in ('PRIMARY KEY', 'UNIQUE')",
            (self.table,),
        )
        return any({name.lower() for name in names} == keys for (names,) in rows)

    def insert(self, frames: Sequence[tuple[FrameRecord, pa.Table]]) -> None:
        """All frames as one Arrow table in one statement."""
        rows = pa.concat_tables(
            [_with_stream_time(record, table, self.places(record, table)) for record, table in frames]
        )
        names = [*self.context.schema.names, "_frame"]
        if not self.keys:
            names.append("_i")
        columns = ", ".join(map(quoted_sql, names))
        self._connection.register("_holdfast_rows", rows)
        try:
            [(taken,)] = self.run(
                f"insert into {quoted_sql(self.table)} ({columns})"
                f" select {columns} from _holdfast_rows{self._on_conflict()}"
            )
            handed = rows.num_rows
            if taken != handed and self.keys:
                keys = ", ".join(map(quoted_sql, self.keys))
                [(handed,)] = self.run(f"select count(*) from (select distinct {keys} from _holdfast_rows)")
        except self.errors:
            with suppress(*self.errors):  # the transaction is aborted, and it says so to that too
                self._connection.unregister("_holdfast_rows")
            raise
        self._connection.unregister("_holdfast_rows")
        self.refuse_fewer(frames, taken, handed)

    def _on_conflict(self) -> str:
        """The last row of a key in the newest frame; a statement may touch a key only once."""
        if not self.keys:
            return ""
        keys = ", ".join(map(quoted_sql, self.keys))
        rest = [name for name in self.context.schema.names if name not in self.keys]
        changes = ", ".join(f"{quoted_sql(name)} = excluded.{quoted_sql(name)}" for name in [*rest, "_frame"])
        return (
            f' qualify row_number() over (partition by {keys} order by "_frame" desc, "_i" desc) = 1'
            f" on conflict ({keys}) do update set {changes}"
            f' where excluded."_frame" >= {quoted_sql(self.table)}."_frame"'
        )


def _with_stream_time(record: FrameRecord, table: pa.Table, places: Sequence[int]) -> pa.Table:
    n, rows = record.n, table.num_rows
    return table.append_column("_frame", pa.repeat(pa.scalar(n, pa.int64()), rows)).append_column(
        "_i", pa.array(places, pa.int64())
    )


def _holds(declared: str, wanted: str) -> bool:
    if declared == wanted:
        return True
    return any(
        declared in kinds and wanted in kinds and kinds.index(declared) >= kinds.index(wanted) for kinds in _WIDER
    )
