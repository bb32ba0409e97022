"""`hf.once`: the ledger row in the user's own transaction.

    with hf.once(connection, frame) as fresh:
        if fresh:
            cursor.executemany("insert into sales values (?, ?)", rows)

The row that says "frame n is written" and the rows of frame n commit together, so
a frame that comes again finds its row and is left out. Works with any DB-API
connection (sqlite3, psycopg, duckdb, ...) and without the rest of Holdfast.

A transaction that is already open stays the caller's to commit; otherwise the
`with` block is the transaction: committed at its end, rolled back if it raises.
(A driver that does not show whether one is open counts as having none.)
`if hf.once(connection, frame):` without `with` leaves the commit to the caller.

Touches the connection it was given: the two tables of the ledger, nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from holdfast.errors import SinkError, UsageError
from holdfast.frames.identity import Kind
from holdfast.sinks.ledger import Ledger, Verdict
from holdfast.sinks.owners import current_owner, current_sink

__all__ = ["Once", "once"]

_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s"}


def once(
    connection: Any,
    frame: int,
    *,
    process: str = "default",
    sink: str = "default",
    checksum: str = "",
    epoch: int = 0,
) -> Once:
    """True, or entered as True, if frame `frame` was not written by this process and sink yet.

    Give `checksum` (any text that stands for the content) to have a frame that
    comes again with other content refused, and `epoch` to have old runs refused.
    """
    return Once(connection, frame, process, sink, checksum, epoch)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame of anybody's: unlike ours its number may be 0, as Spark's batch_id is."""

    n: int
    checksum: str
    epoch: int
    kind: Kind = Kind.STABLE
    rows: int = 0


class Once:
    def __init__(self, connection: Any, frame: int, process: str, sink: str, checksum: str, epoch: int) -> None:
        if isinstance(frame, bool) or not isinstance(frame, int) or frame < 0:
            raise _unusable(f"frame={frame!r}", "a frame has a whole number, 0 or more")
        self._connection = connection
        self._driver, self._mark = _driver_of(connection)
        self._mine = self._begin()
        try:
            self.fresh = self._enter(_Frame(frame, checksum, epoch), Ledger(self._run, process, sink, self._columns_of))
        except BaseException:
            self._finish("rollback")
            raise

    def __bool__(self) -> bool:
        return self.fresh

    def __enter__(self) -> bool:
        return self.fresh

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish("rollback" if kind else "commit")

    def _enter(self, frame: _Frame, ledger: Ledger) -> bool:
        self._create(ledger)
        last = self._fence(frame, ledger)
        frame = replace(frame, n=frame.n + ledger.base)
        entry = ledger.entry(frame.n)
        if entry is not None and not (entry.checksum and frame.checksum):
            return False  # one of the two says nothing about content: the number decides
        verdicts = ledger.judge([frame], last=last)
        ledger.enter([frame], verdicts, last=last)
        return verdicts != [Verdict.SKIP]

    def _fence(self, frame: _Frame, ledger: Ledger) -> int:
        """In a function that a run calls, the ledger belongs to the run's state folder."""
        owner, target = current_owner(), self._caller(ledger)
        try:
            return ledger.fence(
                frame.epoch, target=target, owner=owner, is_known=owner is None or bool(owner.sinks), opening=True
            )
        except SinkError as error:
            if error.code not in ("HF-K030", "HF-K031"):
                raise
            said = error.finding
            raise SinkError(
                said.code, said.name, said.what, where=said.where, why=said.why, effect="nothing was written",
                do="go on with the state folder that wrote the frames that are there; or, if that one is gone, let the ledger\n"
                f"begin anew:\n{ledger.forgetting()}\nor give hf.once another sink=",
            ) from None  # fmt: skip

    def _caller(self, ledger: Ledger) -> str:
        """Who counts frames here. Two functions of a run under one name: the frames of the second would all seem written."""
        claim = ledger.claim()
        there = "" if claim is None else claim.target
        sink = current_sink()
        mine = f"function of sink {sink}" if sink else there
        if there and there != mine:
            raise SinkError(
                "HF-K006",
                "TargetTaken",
                f"another sink's function has used hf.once under this name: the {there}.",
                where=f"{ledger.where}, called by the {mine}",
                why="a frame that one of them wrote would seem to be written for the other too",
                effect="nothing was written",
                do=f"give each a name of its own: hf.once(connection, frame, sink={sink!r});\n"
                f"or, if the sink was renamed:\n{ledger.renaming(mine)}",
            )
        return mine

    def _create(self, ledger: Ledger) -> None:
        """PostgreSQL asks for the right to create even if the tables are there, and two that create clash."""
        if self._is_postgres:
            there = "select to_regclass('_holdfast_ledger'), to_regclass('_holdfast_epoch')"
            if None not in self._run(there)[0] and not ledger.missing():
                return
            self._run("select pg_advisory_xact_lock(hashtext('holdfast ledger'))")
        ledger.create()

    def _columns_of(self, table: str) -> list[str]:
        cursor = self._connection if self._driver == "duckdb" else self._connection.cursor()
        try:
            cursor.execute(f"select * from {table} where 1 = 0")
            return [column[0] for column in cursor.description]
        finally:
            if cursor is not self._connection:
                cursor.close()

    @property
    def _is_postgres(self) -> bool:
        return self._driver in ("psycopg", "psycopg2")

    def _begin(self) -> bool:
        """Opens a transaction unless one is open; True if it is ours to end."""
        if self._driver == "sqlite3":
            if self._connection.in_transaction:
                return False
            # The write lock at once: two that both read first could not both go on.
            self._run("begin immediate")
            return True
        if self._driver == "duckdb":
            # It does not say whether a transaction is open, and a second "begin" would abort the
            # first. Two statements have one number only inside a transaction.
            if self._run("select txid_current()") == self._run("select txid_current()"):
                return False
            self._run("begin transaction")
            return True
        info = getattr(self._connection, "info", None)
        if hasattr(info, "transaction_status"):  # psycopg, psycopg2
            if int(info.transaction_status) != 0:  # 0 is idle
                return False
            if getattr(self._connection, "autocommit", False):
                self._run("begin")
        return True

    def _finish(self, verb: str) -> None:
        mine, self._mine = self._mine, False
        if mine:
            getattr(self._connection, verb)()

    def _run(self, sql: str, values: Sequence[object] = ()) -> list[tuple]:
        if self._driver == "duckdb":  # a cursor of DuckDB is another connection
            return self._connection.execute(sql, list(values)).fetchall()
        cursor = self._connection.cursor()
        try:
            # psycopg reads '%' in a statement only when values come with it; ours hold none.
            cursor.execute(sql.replace("?", self._mark), tuple(values))
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()


def _driver_of(connection: object) -> tuple[str, str]:
    """Name of the driver's module, and the mark it puts where a value goes."""
    for kind in type(connection).__mro__:
        name = kind.__module__.partition(".")[0].lstrip("_")
        style = getattr(sys.modules.get(name), "paramstyle", None)
        if style in _MARKS and hasattr(connection, "commit"):
            return name, _MARKS[style]
    raise _unusable(
        f"a connection of type {type(connection).__name__!r}",
        "it is no DB-API connection whose driver marks values with ? or %s",
    )


def _unusable(value: str, why: str) -> UsageError:
    return UsageError(
        "HF-K012",
        "OnceNotUsable",
        f"hf.once cannot work with {value}.",
        why=why,
        effect="nothing was written",
        do="with hf.once(sqlite3.connect('out.db'), 12) as fresh: ...",
    )
