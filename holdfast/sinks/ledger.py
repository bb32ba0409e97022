"""The sink's ledger: which frames are in the target, in the target's own transaction.

Two small tables beside the user's. `_holdfast_ledger` has one row per frame
(number, kind, checksum); `_holdfast_epoch` has one row per sink: the highest
epoch that wrote, the highest frame written, and the table they went to. Rows of
the frame and row of the ledger are committed together, so after a crash either
both are there or none, and a frame sent again is recognised by its number. A run
with a lower epoch than the stored one is refused, so an orphan of an older run
cannot write behind the back of a newer one.

`judge_frame` is pure; `Ledger` speaks plain SQL through the function it is given
and never begins or commits: that belongs to whoever owns the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from holdfast.errors import FrameDiffers, SinkError
from holdfast.frames.identity import Kind

__all__ = ["Entry", "KEPT_FRAMES", "Ledger", "Numbered", "Verdict", "fenced", "frame_differs", "judge_frame"]

#: Ledger rows kept per sink. A frame further back than any queue or checkpoint
#: reaches is never sent again; if it is, it counts as written.
KEPT_FRAMES = 10_000

#: Rows of one multi-row insert: 8 parameters each stay below SQLite's old limit of 999.
_ROWS_AT_ONCE = 100

_CREATE = (
    """create table if not exists _holdfast_ledger (
    process varchar(255) not null, sink varchar(255) not null, frame bigint not null,
    kind varchar(16) not null, checksum varchar(64) not null, epoch bigint not null,
    "rows" bigint not null, primary key (process, sink, frame))""",
    """create table if not exists _holdfast_epoch (
    process varchar(255) not null, sink varchar(255) not null, epoch bigint not null,
    frame bigint not null, target varchar(255) not null, primary key (process, sink))""",
)

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
        return Verdict.SKIP if record.n <= last - KEPT_FRAMES else Verdict.WRITE
    if entry.checksum == record.checksum and entry.kind == record.kind:
        return Verdict.SKIP
    if entry.kind == Kind.TENTATIVE and record.kind == Kind.STABLE:
        return Verdict.REPLACE
    if entry.kind == Kind.STABLE and record.kind == Kind.TENTATIVE:
        return Verdict.SKIP  # the guess came after the answer; nothing replaces stable
    raise frame_differs(record, entry, where)


class Ledger:
    """The ledger rows of one sink, through `run(sql with ?, values) -> rows`."""

    def __init__(self, run: Run, process: str, sink: str) -> None:
        self._run, self._process, self._sink = run, process, sink

    @property
    def where(self) -> str:
        return f"stream process {self._process!r}, sink {self._sink!r}"

    def create(self) -> None:
        for statement in _CREATE:
            self._run(statement, ())

    def others_at(self, target: str) -> list[tuple[str, str]]:
        """Other sinks that wrote to this target: (process, sink)."""
        rows = self._run("select process, sink from _holdfast_epoch where target = ? order by 1, 2", (target,))
        return [(process, sink) for process, sink in rows if (process, sink) != (self._process, self._sink)]

    def fence(self, epoch: int, *, target: str = "") -> int:
        """Refuses an old epoch, raises the stored one, returns the highest frame written."""
        rows = self._run(
            "select epoch, frame, target from _holdfast_epoch where process = ? and sink = ?",
            (self._process, self._sink),
        )
        if not rows:
            self._run(
                "insert into _holdfast_epoch (process, sink, epoch, frame, target) values (?, ?, ?, 0, ?)",
                (self._process, self._sink, epoch, target),
            )
            return 0
        [(stored, last, known_target)] = rows
        if epoch < stored:
            raise fenced(epoch, stored, self.where)
        if epoch > stored or target != known_target:
            self._run(
                "update _holdfast_epoch set epoch = ?, target = ? where process = ? and sink = ?",
                (epoch, target, self._process, self._sink),
            )
        return int(last)

    def last(self) -> int:
        rows = self._run(
            "select frame from _holdfast_epoch where process = ? and sink = ?", (self._process, self._sink)
        )
        return int(rows[0][0]) if rows else 0

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

    def enter(self, records: Sequence[Numbered], verdicts: Sequence[Verdict], *, last: int) -> None:
        """Ledger rows for what was written, the new high-water frame, and old rows away."""
        entered: dict[int, tuple] = {}
        replaced: set[int] = set()
        for record, verdict in zip(records, verdicts, strict=True):
            if verdict is Verdict.SKIP:
                continue
            if verdict is Verdict.REPLACE and record.n not in entered:
                replaced.add(record.n)
            entered[record.n] = (str(record.kind), record.checksum, record.epoch, record.rows)
        if not entered:
            return
        of_sink = (self._process, self._sink)
        for n in replaced:
            self._run(
                'update _holdfast_ledger set kind = ?, checksum = ?, epoch = ?, "rows" = ?'
                " where process = ? and sink = ? and frame = ?",
                (*entered[n], *of_sink, n),
            )
        fresh = [(*of_sink, n, *entered[n]) for n in sorted(entered) if n not in replaced]
        for start in range(0, len(fresh), _ROWS_AT_ONCE):
            part = fresh[start : start + _ROWS_AT_ONCE]
            marks = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * len(part))
            self._run(
                'insert into _holdfast_ledger (process, sink, frame, kind, checksum, epoch, "rows")'
                f" values {marks}",
                [value for row in part for value in row],
            )
        high = max(last, *entered)
        if high > last:
            self._run("update _holdfast_epoch set frame = ? where process = ? and sink = ?", (high, *of_sink))
        if high > KEPT_FRAMES:
            self._run(
                "delete from _holdfast_ledger where process = ? and sink = ? and frame <= ?",
                (*of_sink, high - KEPT_FRAMES),
            )


def fenced(epoch: int, stored: int, where: str) -> SinkError:
    return SinkError(
        "HF-K003",
        "Fenced",
        f"epoch {epoch} may not write any more.",
        where=where,
        why=f"a newer run, epoch {stored}, has taken over this sink",
        effect="this write was refused as a whole; the newer run writes the frame",
        do="stop this run; if it is the only one, its state folder is older than the target, or was deleted: restore the\n"
        "newer one, or begin anew with a target that has no frames yet (another table or folder)",
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
        do="an input or an operator changed, or an operator is not deterministic: holdfast check;"
        " to begin anew, give the sink another target",
    )
