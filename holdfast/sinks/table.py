"""A table as a sink: rows, ledger and fence in one transaction.

The order inside the transaction: fence (an old epoch is refused and an own one
raised), judge every frame by the ledger, write the rows, enter the frames into
the ledger, commit. A crash anywhere before the commit leaves nothing; a crash
after it leaves everything, and the frame sent again is skipped.

Without keys, rows are appended with their stream time (`_frame`, `_i`). With
keys, a row replaces the one with its key unless that one is of a newer frame.

A connection that dies while it commits leaves the question open whether it did:
the next one asks the ledger, which is why a write is simply sent again.

A subclass speaks to one database; this module names none. A connection is used by
one thread at a time, whichever it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SinkAway, SinkError, SinkRefused
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.quoting import quoted_sql
from holdfast.sinks.comparing import Difference, changed, differing, newest_frames
from holdfast.sinks.ledger import Ledger, Verdict
from holdfast.sinks.owners import Claim, Taken, Taking, taken
from holdfast.sinks.refusing import key_is_null, ranges_of, refused_rows, rows_at, rows_in, too_many
from holdfast.sinks.writer import RESERVED, SinkContext, fitted, frames_named, numbered

__all__ = ["TableSink"]


#: A value that has no form in the database: raised while it is turned into one, before the database sees it.
BAD_VALUES = (ValueError, OverflowError, pa.ArrowInvalid)


class TableSink(ABC):
    """Opens at once: a target that cannot take the stream is refused before the run begins."""

    #: What the database's own module raises.
    errors: tuple[type[Exception], ...]
    #: Names of tables are the same whatever their case, though they are quoted.
    folds_names = False

    def __init__(
        self,
        table: str,
        keys: tuple[str, ...],
        context: SinkContext,
        *,
        lock: AbstractContextManager,
        new_columns: str = "fail",
        shared: bool = False,
    ) -> None:
        self.table, self.keys, self.context = table, keys, context
        self.new_columns, self.shared = new_columns, shared
        self.taken: Taken | None = None
        self._lock = lock
        self._connection: Any = None
        self._was_open = False
        self._newest = 0  # the highest frame in the target before the write that is on its way
        self._out: dict[int, frozenset[int]] = {}  # rows left out, by the frame's number in its folder
        self._ledger = Ledger(self.run, context.process, context.sink, self.columns_of)
        with self._lock:
            self._connected()

    # What a database adds.

    #: Where the table is, in words.
    place: str

    @abstractmethod
    def connect(self) -> Any: ...

    @abstractmethod
    def advice(self, error: Exception) -> str:
        """What a person can do about a target that was not opened, or did not take a frame."""

    @abstractmethod
    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple]: ...

    @abstractmethod
    def table_exists(self) -> bool: ...

    @abstractmethod
    def create_table(self) -> None: ...

    @abstractmethod
    def wanted(self) -> dict[str, str]:
        """Column -> type, in the database's words, of a table that takes the stream."""

    @abstractmethod
    def there(self) -> list[str]:
        """Names of the columns of the table that is there."""

    @abstractmethod
    def misfit(self) -> str:
        """Why the table that is there cannot take the stream; '' if it can."""

    @abstractmethod
    def insert(self, frames: Sequence[tuple[FrameRecord, pa.Table]]) -> None:
        """Rows of frames in ascending order of number."""

    def begin(self) -> None:
        self.run("begin")

    def create_ledger(self) -> None:
        self._ledger.create()

    def columns_of(self, table: str) -> list[str]:
        return [column[0] for column in self._connection.execute(f"select * from {table} where 1 = 0").description]

    def is_away(self, error: Exception) -> bool:
        """Whether it is the server that is missing, so that the same write may succeed later."""
        return False

    def away_advice(self) -> str:
        return "see that the server runs and can be reached; a sink that runs goes on by itself when it is back"

    def said(self, error: Exception) -> str:
        """What the database said, without what nobody may read."""
        return str(error)

    # What holds for every table.

    @property
    def where(self) -> str:
        return f"{self.context.where}, table {self.table!r} of {self.place}"

    @property
    def quoted_table(self) -> str:
        return quoted_sql(self.table)

    def last(self) -> int:
        with self._lock:
            self._connected()
            try:
                self.begin()
                last = self._ledger.last()
                self.run("commit")
            except self.errors as error:
                self._roll_back()
                raise self._failed(error, "nothing was written") from error
        return last

    def write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        if not batch:
            return []
        batch = [(record, fitted(record, table, self.context)) for record, table in batch]
        if self.keys:
            for record, _ in batch:
                self._refuse_tentative(record)
        self._out.clear()
        if self.context.aside is None:
            for record, table in batch:
                self._refuse_null_keys(record, table)
            return self._write(batch)
        try:
            return self._write([self._without(*frame) for frame in batch])
        except SinkRefused as error:
            if len(batch) > 1:  # one by one: a row may be refused because of one of another frame
                return [written for frame in batch for written in self.write([frame])]
            self._set_aside(*batch[0], error)
        return self._write([self._without(*batch[0])])

    def _write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        """All of it in one transaction."""
        named = frames_named(batch)
        with self._lock:
            self._connected()
            effect = f"{named}: rolled back as a whole; the sealed frames are kept"
            try:
                self.begin()
                last = self._newest = self._claim()
                batch = [(numbered(record, self._ledger.base), table) for record, table in batch]
                records = [record for record, _ in batch]
                verdicts = self._ledger.judge(records, last=last)
                self._store(batch, verdicts)
                left_out = {
                    record.n: record.rows - table.num_rows for record, table in batch if record.kind != Kind.LOST
                }
                self._ledger.enter(records, verdicts, last=last, left_out=left_out)
                effect = f"{named}: the ledger will tell whether the commit came through; the sealed frames are kept"
                self.run("commit")
            except (*self.errors, *BAD_VALUES) as error:
                self._roll_back()
                raise self._failed(error, effect) from error
            except BaseException:
                self._roll_back()
                raise
        return [verdict is not Verdict.SKIP for verdict in verdicts]

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self.keys and self._was_open and not self.shared:
                self._count()
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _count(self) -> None:
        """Of a table with keys, for the next start; whoever has taken over meanwhile counts himself."""
        try:
            self.begin()
            if self._ledger.total() is None:
                self._claim()
                [(total,)] = self.run(f"select count(*) from {self.quoted_table}")
                self._ledger.count_total(total)
            self.run("commit")
        except (*self.errors, SinkError):  # type: ignore[misc]
            self._roll_back()

    def _store(self, batch: Sequence[tuple[FrameRecord, pa.Table]], verdicts: Sequence[Verdict]) -> None:
        pending: dict[int, tuple[FrameRecord, pa.Table]] = {}
        for (record, table), verdict in zip(batch, verdicts, strict=True):
            if verdict is Verdict.REPLACE and record.n not in pending:
                self.run(f'delete from {self.quoted_table} where "_frame" = ?', (record.n,))
            if verdict is not Verdict.SKIP:
                pending[record.n] = (record, table)
        frames = [pending[n] for n in sorted(pending) if pending[n][1].num_rows]
        for record, table in frames:
            if self.keys and (
                null := key_is_null(table, self.keys)
            ):  # a database takes null keys, each beside the other
                raise ValueError(
                    f"{next(iter(null.values()))} in {len(null)} of {record.rows} rows of frame {record.n}"
                )
        if frames:
            self.insert(frames)

    def refuse_fewer(self, frames: Sequence[tuple[FrameRecord, pa.Table]], taken: int, handed: int) -> None:
        """The database took fewer rows than it was handed, and called that a success.

        Of frames that come behind newer ones, rows with keys may rightly be left out.
        """
        if taken >= handed or (self.keys and frames[0][0].n <= self._newest):
            return
        if not self.keys:  # a trigger may have sent them to a table that is part of this one
            numbers = [record.n for record, _ in frames]
            marks = ", ".join("?" * len(numbers))
            [(taken,)] = self.run(f'select count(*) from {self.quoted_table} where "_frame" in ({marks})', numbers)
            if taken == handed:
                return
        raise ValueError(
            f"it took {taken} of {handed} rows: a trigger or a rule of the table leaves rows out"
            + (", or rows that are there have a higher number in _frame" if self.keys else "")
        )

    def _connected(self) -> None:
        """A connection whose table fits and whose epoch is claimed, so older runs are out."""
        if self._connection is not None:
            return
        nothing = "nothing was written"
        try:
            self._connection = self.connect()
        except (*self.errors, OSError) as error:  # type: ignore[misc]
            if self.is_away(error):
                raise self._away(error, nothing) from error
            raise SinkError(
                "HF-K004",
                "SinkNotOpened",
                f"{self.place!r} cannot be opened.",
                where=self.where,
                why=self.said(error),
                effect=nothing,
                do=self.advice(error),
            ) from error
        try:
            self.begin()
            self.create_ledger()
            if self.context.taking is not None:
                self.taken = self._take_over(self.context.taking)
            else:
                self._prepare()
            self.run("commit")
            self._was_open = True
        except self.errors as error:
            self._roll_back()
            raise self._failed(error, nothing) from error
        except BaseException:
            self._roll_back()
            raise

    def _prepare(self) -> None:
        """The table is ours, takes the stream, and has the rows that were written."""
        self._refuse_taken()
        wrote = self._ledger.target()
        last = self._claim()
        if not self.table_exists():
            if last:
                raise self._gone(last, wrote)
            self.create_table()
            return
        if self.new_columns == "add":
            self._add_columns()
        if why := self.misfit():
            raise self._unfit(why)
        if last and not self._was_open and not self.shared and (found := self._differences()):
            raise changed(f"table {self.table!r}", found, self.where)

    def _differences(self) -> list[Difference]:
        counts = self._ledger.counts()
        if self.keys:
            total, [(there,)] = self._ledger.total(), self.run(f"select count(*) from {self.quoted_table}")
            if total is None:
                # Written and not counted since: a run before this one was killed. Nothing at all is noticed still.
                total = there or min(1, sum(rows for _, rows in counts))
            return [Difference(None, total, there)] if there != total else []
        expected = newest_frames(counts)
        rows = self.run(
            f'select "_frame", count(*) from {self.quoted_table} where "_frame" >= ? group by 1',
            (min(expected, default=self._ledger.base + 1),),
        )
        return differing(expected, {int(n): int(count) for n, count in rows})

    def _take_over(self, taking: Taking) -> Taken:
        """The target is this state folder's from now on, as it is."""
        context, claim = self.context, self._ledger.claim()
        if claim is None or context.owner is None or not self.table_exists():
            raise self._nothing_to_take(claim)
        [(newest,)] = self.run(f'select max("_frame") from {self.quoted_table}')

        def checksum(n: int) -> str | None:
            entry = self._ledger.entry(n)
            return None if entry is None else entry.checksum

        found = taken(
            claim, context.owner, taking, is_known=context.is_known, newest=int(newest or 0), checksum=checksum
        )
        accepted = []
        for each in self._differences():
            place = "the table" if each.frame is None else f"frame {each.frame}"
            accepted.append(f"{place} has {each.there:,} rows, {each.expected:,} were written")
            if each.frame is not None:
                self._ledger.accept(each.frame, each.there)
        self._ledger.take(context.owner, context.epoch, self.table, found)
        if self.keys:
            [(total,)] = self.run(f"select count(*) from {self.quoted_table}")
            self._ledger.count_total(total)
        return replace(found, accepted=tuple(accepted))

    def _nothing_to_take(self, claim: Claim | None) -> SinkError:
        return SinkError(
            "HF-K038",
            "NothingToAdopt",
            f"table {self.table!r} has no frames that could be taken over.",
            where=self.where,
            why="it is not there" if claim is not None else "no run has written to it under this process and sink",
            effect="nothing was changed",
            do="run the process: holdfast run FILE"
            if claim is None
            else "bring the table back, then holdfast adopt-table FILE SINK",
        )

    def _claim(self) -> int:
        context = self.context
        return self._ledger.fence(
            context.epoch, target=self.table, owner=context.owner, is_known=context.is_known, opening=not self._was_open
        )

    def _add_columns(self) -> None:
        """What the stream has and the table lacks; rows that are there get null.

        Keys and our own columns are not added: a table without them is not of this sink.
        """
        there = {name.lower() for name in self.there()}
        for name, kind in self.wanted().items():
            if name.lower() not in there and name not in self.keys and name not in RESERVED:
                self.run(f"alter table {self.quoted_table} add column {quoted_sql(name)} {kind}")

    def _refuse_taken(self) -> None:
        others = self._ledger.others_at(self.table, folds=self.folds_names)
        if others and self.table_exists():
            process, sink = others[0]
            raise SinkError(
                "HF-K006",
                "TargetTaken",
                f"table {self.table!r} belongs to another sink.",
                where=self.where,
                why=f"stream process {process!r}, sink {sink!r} writes to it; their frame numbers would mix",
                effect="nothing was written",
                do="give this sink a table of its own, or drop the table if the other is gone for good",
            )

    # Rows that the target refuses.

    def places(self, record: FrameRecord, table: pa.Table) -> Sequence[int]:
        """Where each row stands in its frame, also when others were left out."""
        out = self._out.get(record.n - self._ledger.base)
        return range(table.num_rows) if not out else [row for row in range(record.rows) if row not in out]

    def _without(self, record: FrameRecord, table: pa.Table) -> tuple[FrameRecord, pa.Table]:
        """The frame as it was decided to be written."""
        return record, self._only(record, table, frozenset(self._decided(record)))

    def _decided(self, record: FrameRecord) -> list[int]:
        """Rows of exactly this content that are left out."""
        return rows_in(self.context.aside.at(record.n).get(record.checksum, ()))

    def _only(self, record: FrameRecord, table: pa.Table, out: frozenset[int]) -> pa.Table:
        self._out[record.n] = out
        return rows_at(table, [row for row in range(table.num_rows) if row not in out]) if out else table

    def _set_aside(self, record: FrameRecord, table: pa.Table, error: SinkRefused) -> None:
        """Find the rows, and write down that the frame is written without them."""
        context = self.context
        told = key_is_null(table, self.keys)
        tried: list[str] = []

        def fits(rows: Sequence[int]) -> bool:
            chosen = frozenset(range(table.num_rows)) - frozenset(rows)
            why = self._try(record, self._only(record, table, chosen))
            tried.extend([why] * bool(why))
            return not why

        decided = self._decided(record)
        found = refused_rows(table.num_rows, fits, frozenset(told) | frozenset(decided))
        if found is None:
            raise too_many(record.n, record.rows, error.why, self.where)
        reasons = list(dict.fromkeys([*told.values(), *(each.splitlines()[0] for each in tried)]))
        rows = sorted({*found} - {*decided})
        kept = {context.stream: rows_at(table, rows)} if context.on_error == "quarantine" else {}
        decision = {
            "operator": f"sink {context.sink}",
            "stream": context.stream,
            "on_error": context.on_error,
            "rows": len(rows),
            "error": "; ".join(reasons[:3]),
        }
        ranges = {**context.aside.at(record.n), record.checksum: ranges_of(found)}
        if rows:
            context.aside.decide(record.n, ranges, kept, decision)

    def _try(self, record: FrameRecord, table: pa.Table) -> str:
        """Why the target refuses these rows; '' if it takes them. Nothing is kept."""
        with self._lock:
            self._connected()
            try:
                self.begin()
                last = self._newest = self._claim()
                record = numbered(record, self._ledger.base)
                verdicts = self._ledger.judge([record], last=last)
                self._store([(record, table)], verdicts)
                self.settle()
            except (*self.errors, *BAD_VALUES) as error:
                if not self.is_refusal(error):
                    self._roll_back()
                    raise self._failed(error, "nothing was written") from error
                return self.said(error) or type(error).__name__
            finally:
                if self._connection is not None:
                    self.run("rollback")
        return ""

    def settle(self) -> None:  # noqa: B027 (most targets have none)
        """Have constraints that wait for the commit looked at now."""

    def is_refusal(self, error: Exception) -> bool:
        """Whether it is about a row's values, not about the target as a whole."""
        return isinstance(error, BAD_VALUES)

    def _refuse_tentative(self, record: FrameRecord) -> None:
        if record.kind == Kind.TENTATIVE:
            raise SinkError(
                "HF-K009",
                "TentativeRefused",
                f"frame {record.n} is tentative, and a table with keys cannot take it back.",
                where=self.where,
                why="a row that replaced another by key is gone when the stable frame comes",
                effect="nothing of this write was kept",
                do="leave out keys= for this sink, or let its operators wait for stable input",
            )

    def _refuse_null_keys(self, record: FrameRecord, table: pa.Table) -> None:
        for key in self.keys:
            column = table.column(key)
            if pa.types.is_floating(column.type):
                column = pc.if_else(pc.is_nan(column), None, column)
            if column.null_count:
                raise SinkError(
                    "HF-K008",
                    "KeyIsNull",
                    f"key {key!r} is null in {column.null_count} of {record.rows} rows of frame {record.n}.",
                    where=self.where,
                    why="a null equals nothing, so the next row with it would stand beside it, not replace it",
                    effect="nothing of this write was kept; the sealed frame is kept",
                    do="let the sink set such rows aside: process.sink(..., on_error='quarantine'), and run again;\n"
                    f"or filter or fill {key!r} before the sink, holdfast remake {record.stream} {record.n}, and run again;\n"
                    "or leave out keys=",
                )

    def _roll_back(self) -> None:
        # The next write starts from a new connection: whatever state this one is in, it is gone.
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.close()
        except self.errors:
            pass

    def _failed(self, error: Exception, effect: str) -> SinkError:
        if self.is_away(error):
            return self._away(error, effect)
        if self.is_refusal(error):
            return SinkRefused(
                "HF-K005",
                "SinkFailed",
                f"table {self.table!r} refuses a row.",
                where=self.where,
                why=self.said(error) or type(error).__name__,
                effect=effect,
                do="alter the table so that it takes the row, and run again;\n"
                "or let the sink set such rows aside: process.sink(..., on_error='quarantine'), and run again;\n"
                "or mend the operator, holdfast remake STREAM FRAME, and run again",
            )
        return SinkError(
            "HF-K005",
            "SinkFailed",
            f"table {self.table!r} could not be written.",
            where=self.where,
            why=self.said(error),
            effect=effect,
            do=self.advice(error),
        )

    def _away(self, error: Exception, effect: str) -> SinkAway:
        return SinkAway(
            "HF-K013",
            "SinkAway",
            f"{self.place} does not answer.",
            where=self.where,
            why=self.said(error),
            effect=effect,
            do=self.away_advice(),
        )

    def _unfit(self, why: str) -> SinkError:
        return SinkError(
            "HF-K001",
            "TableDoesNotFit",
            f"table {self.table!r} cannot take the stream.",
            where=self.where,
            why=why,
            effect="nothing was written; the table is as it was",
            do="name another table, or alter this one"
            + ("; new_columns='add' adds what is missing" if why.startswith("it has no column") else ""),
        )

    def _gone(self, last: int, wrote: str | None) -> SinkError:
        return SinkError(
            "HF-K007",
            "TargetGone",
            f"table {self.table!r} is not there, but frames up to {last} were written.",
            where=self.where,
            why=f"they went to table {wrote!r}"
            + (", which was dropped" if wrote == self.table else "; the sink names another one now"),
            effect="nothing was written; going on would leave a table without its first frames",
            do="bring the table back, or rename the old one; or, to begin anew with a fresh state folder:\n"
            + self._ledger.forgetting(),
        )
