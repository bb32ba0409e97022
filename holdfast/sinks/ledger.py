"""The sink's ledger: which frames are in the target, in the target's own transaction.

Two small tables beside the user's. `_holdfast_ledger` has one row per frame
(number, kind, checksum, mark, rows left out); `_holdfast_epoch` has one row per sink:
the state folder it belongs to, the highest epoch that wrote, the highest frame written,
and the table they went to. Rows of the frame and row of the ledger are committed
together, so after a crash either both are there or none, and a frame sent again is
recognised by its number. A run with a lower epoch than the stored one is refused, so an
orphan of an older run cannot write behind the back of a newer one.

Tables made by an earlier version get the columns they lack (`create`).

`judge_frame` is pure; `Ledger` speaks plain SQL through the function it is given
and never begins or commits: that belongs to whoever owns the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from holdfast.errors import FrameDiffers, SinkError
from holdfast.frames.identity import Kind
from holdfast.sinks.owners import Claim, Owner, Taken, judge_owner

__all__ = ["KEPT_FRAMES", "Entry", "Ledger", "Numbered", "Verdict", "fenced", "frame_differs", "judge_frame"]

#: Ledger rows kept per sink. A frame further back than any queue or checkpoint
#: reaches is never sent again; if it is, nobody can tell whether it is the same, and it is refused.
KEPT_FRAMES = 10_000

#: Rows of one multi-row insert: 9 parameters each stay below SQLite's old limit of 999.
_ROWS_AT_ONCE = 100

_CREATE = {
    "_holdfast_ledger": """create table if not exists _holdfast_ledger (
    process varchar(255) not null, sink varchar(255) not null, frame bigint not null,
    kind varchar(16) not null, checksum varchar(64) not null, epoch bigint not null,
    "rows" bigint not null, {added}, primary key (process, sink, frame))""",
    "_holdfast_epoch": """create table if not exists _holdfast_epoch (
    process varchar(255) not null, sink varchar(255) not null, epoch bigint not null,
    frame bigint not null, target varchar(255) not null, {added}, primary key (process, sink))""",
}

#: Columns that came after the first version. Without "not null": DuckDB adds no column with a constraint.
_ADDED = {
    "_holdfast_ledger": {
        "mark": "varchar(16) default ''",  # of the frame: '' or 'tainted'
        "left_out": "bigint default 0",  # rows that the target refused and on_error= left out
        "stored": "bigint",  # rows of it in the target as a person accepted them; null: as written
    },
    "_holdfast_epoch": {
        "folder": "varchar(64) default ''",  # identity of the state folder it belongs to; '': of none yet
        "start_id": "varchar(64) default ''",  # the start of that folder which claimed it last
        "base": "bigint default 0",  # a number in the target is the frame's number in its folder plus this
        "total": "bigint",  # rows of a table with keys after the last write; null: not counted
    },
}

Run = Callable[[str, Sequence[object]], list[tuple]]


class Numbered(Protocol):
    """What the ledger wants to know of a frame; a FrameRecord has it all."""

    @property
    def n(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def epoch(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def checksum(self) -> str: ...


class Verdict(Enum):
    WRITE = "write"  # not there yet
    REPLACE = "replace"  # there as TENTATIVE, and this is the STABLE one
    SKIP = "skip"  # there already


@dataclass(frozen=True, slots=True)
class Entry:
    kind: Kind
    checksum: str


def judge_frame(record: Numbered, entry: Entry | None, *, last: int, where: str) -> Verdict:
    """What to do with a frame, given what the ledger knows of its number."""
    if entry is None:
        if record.n <= last - KEPT_FRAMES:
            raise _too_far_back(record, last, where)
        return Verdict.WRITE
    if entry.checksum == record.checksum and entry.kind == record.kind:
        return Verdict.SKIP
    if entry.kind == Kind.TENTATIVE and record.kind == Kind.STABLE:
        return Verdict.REPLACE
    if entry.kind == Kind.STABLE and record.kind == Kind.TENTATIVE:
        return Verdict.SKIP  # the guess came after the answer; nothing replaces stable
    raise frame_differs(record, entry, where)


class Ledger:
    """The ledger rows of one sink, through `run(sql with ?, values) -> rows`."""

    def __init__(
        self, run: Run, process: str, sink: str, columns: Callable[[str], Sequence[str]] | None = None
    ) -> None:
        """`columns` names the columns of a table that is there; without it nothing is migrated."""
        self._run, self._process, self._sink, self._columns = run, process, sink, columns
        self.base = 0  # as the last `fence` found it

    @property
    def where(self) -> str:
        return f"stream process {self._process!r}, sink {self._sink!r}"

    def forgetting(self) -> str:
        """What a person runs to have the ledger begin anew."""
        of_sink = f"process = {_literal(self._process)} and sink = {_literal(self._sink)}"
        return f"delete from _holdfast_ledger where {of_sink};\ndelete from _holdfast_epoch where {of_sink};"

    def renaming(self, target: str) -> str:
        """What a person runs to have the ledger belong to another writer."""
        of_sink = f"process = {_literal(self._process)} and sink = {_literal(self._sink)}"
        return f"update _holdfast_epoch set target = {_literal(target)} where {of_sink};"

    def create(self) -> None:
        for table, statement in _CREATE.items():
            added = ", ".join(f"{name} {kind}" for name, kind in _ADDED[table].items())
            self._run(statement.format(added=added), ())
        for statement in self.missing():
            self._run(statement, ())

    def missing(self) -> list[str]:
        """Statements that bring tables of an earlier version up to this one."""
        if self._columns is None:
            return []
        return [
            f"alter table {table} add column {name} {kind}"
            for table, added in _ADDED.items()
            for there in [set(self._columns(table))]
            for name, kind in added.items()
            if name not in there
        ]

    def others_at(self, target: str, *, folds: bool = False) -> list[tuple[str, str]]:
        """Other sinks that wrote to this target: (process, sink). `folds`: SEEN and seen are one table."""
        same = "lower(target) = lower(?)" if folds else "target = ?"
        rows = self._run(f"select process, sink from _holdfast_epoch where {same} order by 1, 2", (target,))
        return [(process, sink) for process, sink in rows if (process, sink) != (self._process, self._sink)]

    def claim(self) -> Claim | None:
        """What the ledger says of its owner; None if nobody has come yet."""
        rows = self._run(
            "select epoch, frame, target, folder, start_id, base from _holdfast_epoch where process = ? and sink = ?",
            (self._process, self._sink),
        )
        return (
            Claim(*(each or empty for each, empty in zip(rows[0], (0, 0, "", "", "", 0), strict=True)))  # type: ignore[arg-type]
            if rows
            else None
        )

    def fence(
        self, epoch: int, *, target: str = "", owner: Owner | None = None, is_known: bool = True, opening: bool = False
    ) -> int:
        """Refuses another state folder and an old epoch, takes the ledger, returns the highest number in the target.

        `opening`: at the first claim of a start a foreign one is told as such; later it is a newer run's.
        """
        claim = self.claim()
        mine = (owner.folder, owner.start_id) if owner is not None else ("", "")
        if claim is None:
            self._run(
                "insert into _holdfast_epoch (process, sink, epoch, frame, target, folder, start_id, base)"
                " values (?, ?, ?, 0, ?, ?, ?, 0)",
                (self._process, self._sink, epoch, target, *mine),
            )
            self.base = 0
            return 0
        if epoch < claim.epoch and not (opening and owner is not None):
            raise fenced(epoch, claim.epoch, self.where)
        if owner is not None:
            judge_owner(claim, owner, is_known=is_known, where=self.where)
        else:
            mine = (claim.folder, claim.start_id)
        if epoch < claim.epoch:
            raise fenced(epoch, claim.epoch, self.where)
        if (epoch, target, *mine) != (claim.epoch, claim.target, claim.folder, claim.start_id):
            self._run(
                "update _holdfast_epoch set epoch = ?, target = ?, folder = ?, start_id = ? where process = ? and sink = ?",
                (epoch, target, *mine, self._process, self._sink),
            )
        self.base = claim.base
        return claim.frame

    def last(self) -> int:
        """The highest frame of its state folder that is written, in that folder's numbers."""
        claim = self.claim()
        return 0 if claim is None else claim.last

    def take(self, owner: Owner, epoch: int, target: str, taken: Taken) -> None:
        """The ledger is this folder's from now on, and its numbers go on above those that are there."""
        self._run(
            "update _holdfast_epoch set epoch = ?, frame = ?, target = ?, folder = ?, start_id = ?, base = ?"
            " where process = ? and sink = ?",
            (epoch, taken.last, target, owner.folder, owner.start_id, taken.base, self._process, self._sink),
        )
        self.base = taken.base

    def counts(self) -> list[tuple[int, int]]:
        """(number, rows that should be in the target), newest first."""
        return self._run(
            'select frame, coalesce(stored, "rows" - coalesce(left_out, 0)) from _holdfast_ledger'
            " where process = ? and sink = ? order by frame desc",
            (self._process, self._sink),
        )

    def accept(self, n: int, there: int) -> None:
        """So many rows of a frame are in the target, and that is right."""
        if self.entry(n) is None:  # rows under a number that no frame has; none will get it
            self._run(
                'insert into _holdfast_ledger (process, sink, frame, kind, checksum, epoch, "rows", stored)'
                " values (?, ?, ?, ?, '', 0, 0, ?)",
                (self._process, self._sink, n, str(Kind.STABLE), there),
            )
            return
        self._run(
            "update _holdfast_ledger set stored = ? where process = ? and sink = ? and frame = ?",
            (there, self._process, self._sink, n),
        )

    def total(self) -> int | None:
        """Rows of the whole table when they were counted last; None if it was written since."""
        rows = self._run(
            "select total from _holdfast_epoch where process = ? and sink = ?", (self._process, self._sink)
        )
        return None if not rows or rows[0][0] is None else int(rows[0][0])

    def count_total(self, total: int) -> None:
        self._run(
            "update _holdfast_epoch set total = ? where process = ? and sink = ?", (total, self._process, self._sink)
        )

    def target(self) -> str | None:
        """Where this sink wrote so far, None if it never did."""
        rows = self._run(
            "select target from _holdfast_epoch where process = ? and sink = ? and frame > 0",
            (self._process, self._sink),
        )
        return str(rows[0][0]) if rows else None

    def entry(self, n: int) -> Entry | None:
        rows = self._run(
            "select kind, checksum from _holdfast_ledger where process = ? and sink = ? and frame = ?",
            (self._process, self._sink, n),
        )
        return Entry(Kind(rows[0][0]), rows[0][1]) if rows else None

    def judge(self, records: Sequence[Numbered], *, last: int) -> list[Verdict]:
        """One verdict per frame; the same frame twice in `records` is written once."""
        numbers = [record.n for record in records]
        rows = self._run(
            "select frame, kind, checksum from _holdfast_ledger"
            " where process = ? and sink = ? and frame between ? and ?",
            (self._process, self._sink, min(numbers), max(numbers)),
        )
        known = {int(n): Entry(Kind(kind), checksum) for n, kind, checksum in rows}
        verdicts = []
        for record in records:
            verdict = judge_frame(record, known.get(record.n), last=last, where=self.where)
            if verdict is not Verdict.SKIP:
                known[record.n] = Entry(record.kind, record.checksum)
            verdicts.append(verdict)
        return verdicts

    def enter(
        self,
        records: Sequence[Numbered],
        verdicts: Sequence[Verdict],
        *,
        last: int,
        left_out: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        """Ledger rows for what was written, the new high-water frame, and old rows away."""
        entered: dict[int, tuple] = {}
        replaced: set[int] = set()
        for record, verdict in zip(records, verdicts, strict=True):
            if verdict is Verdict.SKIP:
                continue
            if verdict is Verdict.REPLACE and record.n not in entered:
                replaced.add(record.n)
            mark = getattr(record, "mark", "")
            entered[record.n] = (
                str(record.kind),
                record.checksum,
                record.epoch,
                record.rows,
                mark,
                left_out.get(record.n, 0),
            )
        if not entered:
            return
        of_sink = (self._process, self._sink)
        for n in replaced:
            self._run(
                'update _holdfast_ledger set kind = ?, checksum = ?, epoch = ?, "rows" = ?, mark = ?, left_out = ?'
                " where process = ? and sink = ? and frame = ?",
                (*entered[n], *of_sink, n),
            )
        fresh = [(*of_sink, n, *entered[n]) for n in sorted(entered) if n not in replaced]
        for start in range(0, len(fresh), _ROWS_AT_ONCE):
            part = fresh[start : start + _ROWS_AT_ONCE]
            marks = ", ".join([f"({', '.join('?' * len(part[0]))})"] * len(part))
            self._run(
                'insert into _holdfast_ledger (process, sink, frame, kind, checksum, epoch, "rows", mark, left_out)'
                f" values {marks}",
                [value for row in part for value in row],
            )
        high = max(last, *entered)
        if high > last:
            self._run(
                "update _holdfast_epoch set frame = ?, total = null where process = ? and sink = ?", (high, *of_sink)
            )
        if high > KEPT_FRAMES:
            self._run(
                "delete from _holdfast_ledger where process = ? and sink = ? and frame <= ?",
                (*of_sink, high - KEPT_FRAMES),
            )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def fenced(epoch: int, stored: int, where: str) -> SinkError:
    return SinkError(
        "HF-K003",
        "Fenced",
        f"epoch {epoch} may not write any more.",
        where=where,
        why=f"a newer run, epoch {stored}, has taken over this sink",
        effect="this write was refused as a whole; the newer run writes the frame",
        do="stop this run",
    )


def frame_differs(record: Numbered, entry: Entry, where: str) -> FrameDiffers:
    return FrameDiffers(
        "HF-F001",
        "FrameDiffers",
        f"frame {record.n} was written before with other content.",
        where=where,
        why=f"the ledger has {entry.kind} {entry.checksum or '(no checksum)'},"
        f" this one is {record.kind} {record.checksum or '(no checksum)'}",
        effect="the frame written first stays; nothing of this write was kept",
        do="an input or an operator changed, or an operator is not deterministic: holdfast check;\n"
        "if the state folder was put back from an older copy, let it go on with numbers above those that are there:\n"
        "holdfast adopt-table FILE SINK --renumber\n"
        "or give the sink another target",
    )


def _too_far_back(record: Numbered, last: int, where: str) -> SinkError:
    return SinkError(
        "HF-K033",
        "FrameTooFarBack",
        f"frame {record.n} comes, and frames up to {last} were written.",
        where=where,
        why=f"the ledger knows the last {KEPT_FRAMES:,} frames; whether this one is there cannot be told. Numbers that begin"
        " anew are those of another run: a new checkpoint or state folder",
        effect="nothing of this write was kept; nothing in the target was changed",
        do="go on with the checkpoint or state folder that wrote the newer frames;\n"
        "or give the new one a ledger of its own: another sink=, or for a sink of a process holdfast adopt-table FILE SINK",
    )
