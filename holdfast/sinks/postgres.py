"""PostgreSQL as a sink: rows by COPY, ledger and fence in the same transaction.

Without keys, rows are copied into the table itself; with keys, into a table of the
transaction's own, and from there one statement inserts or replaces. One advisory
lock per sink orders the transactions of two runs, so an orphan cannot read the
epoch before and commit after a newer run has raised it; `read committed`, because
a snapshot taken before the lock was ours would show the old epoch. A commit is
synced by the server whatever its default is: what it has, upstream may forget.

A server that does not answer is `SinkAway`: the same write may succeed later. One
that died during the commit may have it or not; its ledger is asked when it is back.

Touches the table, the ledger beside it in the same schema, and nothing else. The
password stays in the connection: `conninfo.py` sees to what is shown. psycopg is
imported when the sink is opened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import RLock
from typing import ClassVar

import pyarrow as pa

from holdfast.errors import Finding, SinkError
from holdfast.frames.identity import FrameRecord
from holdfast.graph.reaching import BEFORE_1, NUL
from holdfast.graph.schemas import Schema
from holdfast.graph.secrets import Secret
from holdfast.quoting import quoted_sql
from holdfast.sinks.conninfo import password_in, shown, without_password
from holdfast.sinks.pgtypes import as_csv, holds, refuse_altered, type_of
from holdfast.sinks.table import TableSink
from holdfast.sinks.writer import SinkContext, column_findings, json_key_findings, refuse

__all__ = ["NAME_BYTES_MAX", "PostgresSink", "PostgresWriter"]

#: PostgreSQL cuts longer names off without an error, and two could become one.
NAME_BYTES_MAX = 63

#: How long a transaction waits for a lock of somebody else before it is tried again.
_LOCK_S_MAX = 10
#: A run that is stopped (SIGSTOP) in the middle of a transaction must not hold its lock for ever.
_IDLE_S_MAX = 60

#: A dead host is noticed within half a minute, not after TCP's two hours.
_REACHING = {
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}

#: The same statement may succeed later: connection lost or refused (08), server stopping or
#: starting (57P0x), out of connections, memory or disk (53), deadlock and serialization (40),
#: lock not got in time (55P03), a standby that will be promoted (25006).
_PASSING = ("08", "53", "40001", "40P01", "55P03", "57P01", "57P02", "57P03", "25006")


@dataclass(frozen=True, slots=True)
class PostgresWriter:
    url: str | Secret = field(repr=False)
    table: str = ""
    keys: tuple[str, ...] = ()
    schema: str | None = None
    new_columns: str = "fail"
    shared: bool = False
    idempotent: bool = True

    #: No type of PostgreSQL holds a NUL in a text; years before 1 are written another way than ours.
    cannot_hold: ClassVar[tuple[str, ...]] = (NUL, BEFORE_1)

    @property
    def name(self) -> str:
        return quoted_names(self.schema, self.table)

    def describe(self) -> str:
        by = f", newest row per {', '.join(self.keys)}" if self.keys else ""
        return f"{shown(self.url)}, table {self.name}{by}"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        found = column_findings(schema, self.keys, sink) + json_key_findings(schema, self.keys, sink)
        where = f"sink {sink!r}" if sink else ""
        for name in schema.names:
            if len(name.encode()) > NAME_BYTES_MAX:
                found.append(
                    Finding(
                        "HF-K001",
                        "TableDoesNotFit",
                        f"column {name!r} has a name of {len(name.encode())} bytes.",
                        where=where,
                        why=f"PostgreSQL keeps {NAME_BYTES_MAX} bytes of a name and drops the rest",
                        effect="nothing was opened, nothing was written",
                        do="rename the column in the operator that makes the stream",
                    )
                )
        if isinstance(self.url, str) and password_in(self.url):
            found.append(
                Finding(
                    "HF-K014",
                    "PasswordInFile",
                    "the password of a database stands in the program.",
                    where=where,
                    why="whoever may read the file may read it; Holdfast shows it nowhere",
                    effect="none on the data",
                    do="hf.write.postgres(hf.secret('PG_URL'), ...), and export PG_URL=... in the shell",
                    warning=True,
                )
            )
        return found

    def open(self, context: SinkContext) -> PostgresSink:
        refuse([finding for finding in self.check(context.schema) if not finding.warning], context)
        try:
            import psycopg
        except ImportError as error:
            raise SinkError(
                "HF-K004",
                "SinkNotOpened",
                "psycopg is not installed.",
                where=context.where,
                why=str(error),
                effect="nothing was written",
                do="pip install 'psycopg[binary]'",
            ) from error
        PostgresSink.errors = (psycopg.Error,)
        return PostgresSink(self, context)


class PostgresSink(TableSink):
    def __init__(self, writer: PostgresWriter, context: SinkContext) -> None:
        self._url, self._given_schema = writer.url, writer.schema
        self._schema = writer.schema or ""
        self._conninfo = ""
        self._declared: dict[str, str] = {}  # types of a table that was there before us
        self._lacking: list[str] = []  # statements that a ledger of an earlier version needs
        self.place = shown(writer.url)
        super().__init__(
            writer.table, writer.keys, context, lock=RLock(), new_columns=writer.new_columns, shared=writer.shared
        )

    # The connection.

    def connect(self) -> object:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        # Read anew each time: a secret may have been changed while the server was away.
        self._conninfo = self._url.open() if isinstance(self._url, Secret) else self._url
        try:
            options = conninfo_to_dict(self._conninfo)
            # A password with @ or / in it, not written as %40 or %2F, spills into host or port.
            readable = "@" not in str(options.get("host")) and re.fullmatch(r"[\d,]*", str(options.get("port", "")))
        except psycopg.ProgrammingError:
            readable = False
        if not readable:
            # Not what libpq says of it: that may hold half the password.
            raise psycopg.ProgrammingError(
                "it is no address of a server: postgresql://user:password@host:5432/database, where other signs than"
                " letters and digits are written as %40 (@), %2F (/), %3A (:); or 'host=... dbname=...'"
            )
        name = f"holdfast {self.context.process}.{self.context.sink}"
        options = _REACHING | {"application_name": name[:NAME_BYTES_MAX]} | options  # type: ignore[operator]
        options["client_encoding"] = "utf8"  # what COPY is handed, whatever the database keeps
        # No prepared statements: a pooler between us may give each transaction another server process.
        return psycopg.connect(**options, autocommit=True, prepare_threshold=None)

    def begin(self) -> None:
        self.run("begin isolation level read committed")
        self.run(
            "select set_config('lock_timeout', ?, true), set_config('idle_in_transaction_session_timeout', ?, true),"
            " case when current_setting('synchronous_commit') = 'off'"
            " then set_config('synchronous_commit', 'on', true) end,"
            " case when ?::text is not null"
            " then set_config('search_path', quote_ident(?) || ', ' || current_setting('search_path'), true) end",
            (f"{_LOCK_S_MAX}s", f"{_IDLE_S_MAX}s", self._given_schema, self._given_schema),
        )
        if not self._was_open:
            # Two that create the ledger at once would both find it missing.
            self.run("select pg_advisory_xact_lock(?)", (_lock_number("ledger"),))
        self.run(
            "select pg_advisory_xact_lock(?)",
            (_lock_number("sink", self.context.process, self.context.sink),),
        )

    def run(self, sql: str, values: Sequence[object] = ()) -> list[tuple]:
        cursor = self._connection.execute(marked(sql) if values else sql, tuple(values) or None)
        return cursor.fetchall() if cursor.description else []

    # What a server says when it does not do it.

    def is_away(self, error: Exception) -> bool:
        import psycopg

        state = getattr(error, "sqlstate", None)
        if state is not None:
            return state.startswith(_PASSING)
        if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return False
        # No server said this, or libpq hides its code: a wrong password and a server that starts
        # up look alike. Who was let in before waits; who was not is told at once.
        return self._was_open or "FATAL" not in str(error)

    def is_refusal(self, error: Exception) -> bool:
        # 22: a value that does not fit, 23: a constraint of the table's.
        return (getattr(error, "sqlstate", None) or "").startswith(("22", "23")) or super().is_refusal(error)

    def settle(self) -> None:
        self.run("set constraints all immediate")

    def said(self, error: Exception) -> str:
        return without_password(str(error), self._conninfo)

    def advice(self, error: Exception) -> str:
        state = getattr(error, "sqlstate", None) or ""
        if state == "42501" and self._lacking:
            where = f"alter table {quoted_sql(self._schema)}."
            told = [f"{each.replace('alter table ', where, 1)};" for each in self._lacking]
            return "the owner of the ledger, which an earlier version made, runs this; then run again:\n" + "\n".join(
                told
            )
        if state == "42501":
            return (
                f"grant usage, create on schema {self._schema or 'public'} to this user, "
                "or name a schema= of its own; Holdfast keeps its ledger beside the table"
            )
        if not self._was_open:
            return "see that host, database, user and password are right: psql with the same address must get in"
        return "see what the server's log says; once the cause is gone, run again: the frame is then written"

    # The table.

    @property
    def quoted_table(self) -> str:
        return quoted_names(self._schema, self.table)

    def create_ledger(self) -> None:
        """In the table's schema. Only if it is not there: whoever may write need not be allowed to create."""
        [(first,)] = self.run("select current_schema()")
        if not first or (self._given_schema and first != self._given_schema):
            raise self._unfit(
                f"schema {self._given_schema!r} is not there: create schema {quoted_sql(self._given_schema)}"
                if self._given_schema
                else "the user has no schema to create a table in: its search_path names none that exists"
            )
        self._schema = first
        names = [quoted_names(first, name) for name in ("_holdfast_ledger", "_holdfast_epoch")]
        there = None not in self.run("select to_regclass(?), to_regclass(?)", names)[0]
        self._lacking = self._ledger.missing() if there else []
        if self._lacking or not there:
            super().create_ledger()
            self._lacking = []

    def table_exists(self) -> bool:
        return bool(self._kind())

    def _kind(self) -> str:
        """r: table, p: partitioned table, v: view ...; '' if there is nothing of that name."""
        rows = self.run(
            "select c.relkind::text from pg_class c join pg_namespace s on s.oid = c.relnamespace"
            " where s.nspname = ? and c.relname = ?",
            (self._schema, self.table),
        )
        return rows[0][0] if rows else ""

    def wanted(self) -> dict[str, str]:
        wanted = {f.name: type_of(f.type) for f in self.context.schema.arrow} | {"_frame": "bigint"}
        return wanted if self.keys else wanted | {"_i": "bigint"}

    def create_table(self) -> None:
        columns = [f"{quoted_sql(name)} {kind}" for name, kind in self.wanted().items()]
        unique = ", ".join(map(quoted_sql, self.keys or ("_frame", "_i")))
        self.run(f"create table {self.quoted_table} ({', '.join(columns)}, primary key ({unique}))")

    def there(self) -> list[str]:
        return [name for name, *_ in self._columns()]

    def _columns(self) -> list[tuple]:
        return self.run(
            "select a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,"
            " a.atthasdef or a.attidentity <> '', a.attgenerated <> '' or a.attidentity = 'a'"
            " from pg_attribute a where a.attrelid = to_regclass(?) and a.attnum > 0 and not a.attisdropped"
            " order by a.attnum",
            (self.quoted_table,),
        )

    def misfit(self) -> str:
        kind = self._kind()
        if kind not in ("r", "p"):
            kinds = {"v": "view", "m": "materialized view", "f": "foreign table", "i": "index", "S": "sequence"}
            return f"it is a {kinds.get(kind, 'thing of another kind')}"
        there = {
            name: (declared, needs and not filled, made) for name, declared, needs, filled, made in self._columns()
        }
        self._declared = {name: declared for name, (declared, *_) in there.items()}
        wanted = self.wanted()
        for name, kind in wanted.items():
            if name not in there:
                other = next((each for each in there if each.lower() == name.lower()), None)
                case = f"; it has {other!r}, and names differ by case in PostgreSQL" if other else ""
                return f"it has no column {name!r} ({kind}){case}"
            declared, _, made = there[name]
            if made:
                return f"its column {name!r} is generated by the database"
            if not holds(declared, kind):
                return f"its column {name!r} is {declared}, the stream needs {kind}"
        for name, (_, needs, _) in there.items():
            if name not in wanted and needs:
                return f"its column {name!r} must not be null, and the stream has nothing for it"
        if self.keys and (folding := self._folding()):
            return f"its column {folding!r} has a collation by which different texts are equal: two keys would be one"
        if self.keys and not self._unique_by_keys():
            return f"no primary key or unique index over exactly {', '.join(self.keys)}, which keys= needs"
        return ""

    def _unique_by_keys(self) -> bool:
        rows = self.run(
            "select (select array_agg(a.attname::text) from pg_attribute a where a.attrelid = i.indrelid"
            "  and a.attnum = any (i.indkey)), i.indnkeyatts"
            " from pg_index i where i.indrelid = to_regclass(?) and i.indisunique and i.indisvalid"
            " and i.indimmediate and i.indpred is null and i.indexprs is null and i.indnatts = i.indnkeyatts",
            (self.quoted_table,),
        )
        return any(set(names) == set(self.keys) for names, _ in rows)

    def _folding(self) -> str:
        """A key column that compares, by itself or in a unique index, so that different texts are equal; '' if none does."""
        rows = self.run(
            "select a.attname::text from pg_attribute a where a.attrelid = to_regclass(?) and a.attname = any (?)"
            " and exists (select 1 from pg_collation c where not c.collisdeterministic and (c.oid = a.attcollation"
            "  or c.oid in (select unnest(i.indcollation) from pg_index i where i.indrelid = a.attrelid"
            "  and i.indisunique and a.attnum = any (i.indkey)))) order by a.attnum",
            (self.quoted_table, list(self.keys)),
        )
        return rows[0][0] if rows else ""

    # Rows.

    def insert(self, frames: Sequence[tuple[FrameRecord, pa.Table]]) -> None:
        names = [*self.context.schema.names, "_frame"]
        columns = ", ".join(map(quoted_sql, names))
        if not self.keys:
            self._copy(f"{self.quoted_table} ({columns}, _i)", frames)
            return
        self.run(
            f"create temporary table _holdfast_rows on commit drop as"
            f" select {columns}, 0::bigint as _i from {self.quoted_table} with no data"
        )
        self._copy(f"pg_temp._holdfast_rows ({columns}, _i)", frames)
        # The last row of a key in the newest frame: a statement may touch a key only once.
        keys = ", ".join(map(quoted_sql, self.keys))
        rest = [name for name in self.context.schema.names if name not in self.keys]
        changes = ", ".join(f"{quoted_sql(name)} = excluded.{quoted_sql(name)}" for name in [*rest, "_frame"])
        taken = self._connection.execute(
            f"insert into {self.quoted_table} as there ({columns})"
            f" select distinct on ({keys}) {columns} from pg_temp._holdfast_rows order by {keys}, _frame desc, _i desc"
            f" on conflict ({keys}) do update set {changes} where excluded._frame >= there._frame"
        ).rowcount
        handed = sum(table.num_rows for _, table in frames)
        if taken != handed:
            [(handed,)] = self.run(f"select count(*) from (select distinct {keys} from pg_temp._holdfast_rows) as each")
        self.refuse_fewer(frames, taken, handed)

    def _copy(self, target: str, frames: Sequence[tuple[FrameRecord, pa.Table]]) -> None:
        for _, table in frames:
            refuse_altered(table, self._declared)
        with self._connection.cursor() as cursor:
            with cursor.copy(f"copy {target} from stdin (format csv)") as copy:
                for record, table in frames:
                    copy.write(as_csv(table, record.n, self.places(record, table), self._declared))
            self.refuse_fewer(frames, cursor.rowcount, sum(table.num_rows for _, table in frames))


def quoted_names(*names: str | None) -> str:
    return ".".join(quoted_sql(name) for name in names if name)


def marked(sql: str) -> str:
    """Our ? as psycopg's %s. Names stand in double quotes and may hold either."""
    parts = sql.replace("%", "%%").split('"')
    return '"'.join(part if at % 2 else part.replace("?", "%s") for at, part in enumerate(parts))


def _lock_number(*names: str) -> int:
    """A number for PostgreSQL's advisory locks, the same in every run."""
    text = "\0".join(("holdfast", *names))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)
