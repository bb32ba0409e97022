"""A table as a sink: rows, ledger and fence in one transaction.

The order inside the transaction: fence (an old epoch is refused and an own one
raised), judge every frame by the ledger, write the rows, enter the frames into
the ledger, commit. A crash anywhere before the commit leaves nothing; a crash
after it leaves everything, and the frame sent again is skipped.

Without keys, rows are appended with their stream time (`_frame`, `_i`). With
keys, a row replaces the one with its key unless that one is of a newer frame.

A subclass speaks to one database; this module names none. One lock per file, for
all sinks of this os_process that write to it: a connection is used by one thread
at a time, whichever it is, and two sinks of a file take turns instead of failing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from threading import Lock, RLock
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import SinkError
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.sinks.ledger import Ledger, Verdict
from holdfast.sinks.writer import SinkContext, fitted, frames_named

__all__ = ["TableSink", "quoted"]


def quoted(name: str) -> str:
    """A name as SQL reads it back, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


class _FileLock:
    """A lock that lives as long as a sink of its file does."""

    def __init__(self) -> None:
        self.held = RLock()

    def __enter__(self) -> None:
        self.held.acquire()

    def __exit__(self, *_: object) -> None:
        self.held.release()


_locks: WeakValueDictionary[Path, _FileLock] = WeakValueDictionary()
_locks_guard = Lock()


def _lock_of(path: Path) -> _FileLock:
    with _locks_guard:
        return _locks.setdefault(path.resolve(), _FileLock())


class TableSink(ABC):
    """Opens at once: a target that cannot take the stream is refused before the run begins."""

    #: What the database's own module raises.
    errors: tuple[type[Exception], ...]

    def __init__(self, path: Path, table: str, keys: tuple[str, ...], context: SinkContext) -> None:
        self.path, self.table, self.keys, self.context = path, table, keys, context
        self._lock = _lock_of(path)
        self._connection = None
        self._ledger = Ledger(self.run, context.process, context.sink)
        with self._lock:
            self._connected()

    # What a database adds.

    @abstractmethod
    def connect(self) -> object: ...

    @abstractmethod
    def run(self, sql: str, values: Sequence[object] = ()) -> list[tuple]: ...

    @abstractmethod
    def table_exists(self) -> bool: ...

    @abstractmethod
    def create_table(self) -> None: ...

    @abstractmethod
    def misfit(self) -> str:
        """Why the table that is there cannot take the stream; '' if it can."""

    @abstractmethod
    def insert(self, frames: Sequence[tuple[FrameRecord, pa.Table]]) -> None:
        """Rows of frames in ascending order of number."""

    begin = "begin"

    # What holds for every table.

    @property
    def where(self) -> str:
        return f"{self.context.where}, table {self.table!r} of {self.path.name}"

    def last(self) -> int:
        with self._lock:
            self._connected()
            try:
                return self._ledger.last()
            except self.errors as error:
                raise self._failed(error, "nothing was written") from error

    def write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        if not batch:
            return []
        batch = [(record, fitted(record, table, self.context.schema)) for record, table in batch]
        if self.keys:
            for record, table in batch:
                self._check_keyed(record, table)
        records = [record for record, _ in batch]
        named = frames_named(batch)
        with self._lock:
            self._connected()
            try:
                self.run(self.begin)
                last = self._ledger.fence(self.context.epoch, target=self.table)
                verdicts = self._ledger.judge(records, last=last)
                self._store(batch, verdicts)
                self._ledger.enter(records, verdicts, last=last)
                self.run("commit")
            except self.errors as error:
                self._roll_back()
                raise self._failed(error, f"{named}: rolled back as a whole; the sealed frames are kept") from error
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
                self.run(f'delete from {quoted(self.table)} where "_frame" = ?', (record.n,))
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
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self.connect()
        except (*self.errors, OSError) as error:
            raise SinkError(
                "HF-K004",
                "SinkNotOpened",
                f"{self.path.name!r} cannot be opened.",
                where=self.where,
                why=str(error),
                effect=nothing,
                do=f"see that {self.path} is a database of this kind, may be written and is not held open elsewhere",
            ) from error
        try:
            self.run(self.begin)
            self._ledger.create()
            self._refuse_taken()
            wrote = self._ledger.target()
            last = self._ledger.fence(self.context.epoch, target=self.table)
            if not self.table_exists():
                if last:
                    raise self._gone(last, wrote)
                self.create_table()
            elif why := self.misfit():
                raise self._unfit(why)
            self.run("commit")
        except self.errors as error:
            self._roll_back()
            raise self._failed(error, nothing) from error
        except BaseException:
            self._roll_back()
            raise

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
        return SinkError(
            "HF-K005",
            "SinkFailed",
            f"table {self.table!r} could not be written.",
            where=self.where,
            why=str(error),
            effect=effect,
            do=self.remedy(error),
        )

    def remedy(self, error: Exception) -> str:
        text = str(error).lower()
        if "lock" in text or "busy" in text:
            return "another program holds the database: end its transaction; the frame is then written"
        if "full" in text or "space" in text:
            return "make room on the disk; the frame is then written"
        return f"see that {self.path} can be written; the frame is then written"

    def _unfit(self, why: str) -> SinkError:
        return SinkError(
            "HF-K001",
            "TableDoesNotFit",
            f"table {self.table!r} cannot take the stream.",
            where=self.where,
            why=why,
            effect="nothing was written; the table is as it was",
            do="name another table, or alter this one",
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
