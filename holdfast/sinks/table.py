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

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SinkAway, SinkError
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.sinks.ledger import Ledger, Verdict
from holdfast.sinks.writer import RESERVED, SinkContext, fitted, frames_named

__all__ = ["TableSink", "quoted"]


def quoted(name: str) -> str:
    """A name as SQL reads it back, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


class TableSink(ABC):
    """Opens at once: a target that cannot take the stream is refused before the run begins."""

    #: What the database's own module raises.
    errors: tuple[type[Exception], ...]

    def __init__(
        self,
        table: str,
        keys: tuple[str, ...],
        context: SinkContext,
        *,
        lock: AbstractContextManager,
        new_columns: str = "fail",
    ) -> None:
        self.table, self.keys, self.context = table, keys, context
        self.new_columns = new_columns
        self._lock = lock
        self._connection = None
        self._was_open = False
        self._ledger = Ledger(self.run, context.process, context.sink)
        with self._lock:
            self._connected()

    # What a database adds.

    #: Where the table is, in words.
    place: str

    @abstractmethod
    def connect(self) -> object: ...

    @abstractmethod
    def advice(self, error: Exception) -> str:
        """What a person can do about a target that was not opened, or did not take a frame."""

    @abstractmethod
    def run(self, sql: str, values: Sequence[object] = ()) -> list[tuple]: ...

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

    def is_away(self, error: Exception) -> bool:
        """Whether it is the server that is missing, so that the same write may succeed later."""
        return False

    def said(self, error: Exception) -> str:
        """What the database said, without what nobody may read."""
        return str(error)

    # What holds for every table.

    @property
    def where(self) -> str:
        return f"{self.context.where}, table {self.table!r} of {self.place}"

    @property
    def quoted_table(self) -> str:
        return quoted(self.table)

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
            for record, table in batch:
                self._check_keyed(record, table)
        records = [record for record, _ in batch]
        named = frames_named(batch)
        with self._lock:
            self._connected()
            effect = f"{named}: rolled back as a whole; the sealed frames are kept"
            try:
                self.begin()
                last = self._ledger.fence(self.context.epoch, target=self.table)
                verdicts = self._ledger.judge(records, last=last)
                self._store(batch, verdicts)
                self._ledger.enter(records, verdicts, last=last)
                effect = f"{named}: the ledger will tell whether the commit came through; the sealed frames are kept"
                self.run("commit")
            except self.errors as error:
                self._roll_back()
                raise self._failed(error, effect) from error
            except BaseException:
                self._roll_back()
                raise
        return [verdict is not Verdict.SKIP for verdict in verdicts]

    def close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _store(self, batch: Sequence[tuple[FrameRecord, pa.Table]], verdicts: Sequence[Verdict]) -> None:
        pending: dict[int, tuple[FrameRecord, pa.Table]] = {}
        for (record, table), verdict in zip(batch, verdicts, strict=True):
            if verdict is Verdict.REPLACE and record.n not in pending:
                self.run(f'delete from {self.quoted_table} where "_frame" = ?', (record.n,))
            if verdict is not Verdict.SKIP:
                pending[record.n] = (record, table)
        frames = [pending[n] for n in sorted(pending) if pending[n][1].num_rows]
        if frames:
            self.insert(frames)

    def _connected(self) -> None:
        """A connection whose table fits and whose epoch is claimed, so older runs are out."""
        if self._connection is not None:
            return
        nothing = "nothing was written"
        try:
            self._connection = self.connect()
        except (*self.errors, OSError) as error:
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
            self._refuse_taken()
            wrote = self._ledger.target()
            last = self._ledger.fence(self.context.epoch, target=self.table)
            if not self.table_exists():
                if last:
                    raise self._gone(last, wrote)
                self.create_table()
            else:
                if self.new_columns == "add":
                    self._add_columns()
                if why := self.misfit():
                    raise self._unfit(why)
            self.run("commit")
            self._was_open = True
        except self.errors as error:
            self._roll_back()
            raise self._failed(error, nothing) from error
        except BaseException:
            self._roll_back()
            raise

    def _add_columns(self) -> None:
        """What the stream has and the table lacks; rows that are there get null.

        Keys and our own columns are not added: a table without them is not of this sink.
        """
        there = {name.lower() for name in self.there()}
        for name, kind in self.wanted().items():
            if name.lower() not in there and name not in self.keys and name not in RESERVED:
                self.run(f"alter table {self.quoted_table} add column {quoted(name)} {kind}")

    def _refuse_taken(self) -> None:
        others = self._ledger.others_at(self.table)
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

    def _check_keyed(self, record: FrameRecord, table: pa.Table) -> None:
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
                    do=f"filter or fill {key!r} before the sink, or leave out keys=",
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
            do="see that the server runs and can be reached; a sink that runs goes on by itself when it is back",
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
        of_sink = f"process = '{self.context.process}' and sink = '{self.context.sink}'"
        return SinkError(
            "HF-K007",
            "TargetGone",
            f"table {self.table!r} is not there, but frames up to {last} were written.",
            where=self.where,
            why=f"they went to table {wrote!r}"
            + (", which was dropped" if wrote == self.table else "; the sink names another one now"),
            effect="nothing was written; going on would leave a table without its first frames",
            do=f"bring the table back, or rename the old one; or, to begin anew with a fresh state folder:\n"
            f"delete from _holdfast_ledger where {of_sink};\ndelete from _holdfast_epoch where {of_sink};",
        )
