"""A folder of Parquet files, one per frame: the rename is the transaction.

    out/frame-00000012.parquet      the rows of frame 12 in canonical order
    out/_holdfast/ledger.jsonl      head line: whose folder; then a line per frame. It is also the
                                    manifest for readers without us: docs/howto/parquet.md
    out/_holdfast/epoch             the highest epoch that wrote
    out/_holdfast/lock              held (flock) while a run checks the epoch and writes

A file appears whole or not at all and carries its checksum, so a crash between
the rename and the ledger line is healed by the same frame sent again: it replaces
its equal. The epoch is compared under the lock, so an orphan cannot slip between
check and rename. Frames without rows leave a line and no file. Several frames in
one call are not one transaction: a reader may see the first before the last.
Their lines are synced together. When the machine went down meanwhile, some of them may
be there and others zeros: what stands from the first such line on was never acknowledged,
and is cut off; its frames come again.

Readers (Spark, DuckDB, pandas) leave out names that begin with an underscore.
Touches the folder it was given and nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any

import pyarrow as pa
import xxhash

from holdfast.atomic import make_folder, sweep, sync_folder, write_whole
from holdfast.errors import Finding, SinkError
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.graph.schemas import Schema
from holdfast.journals.notes import as_note, as_word, note_in, word_in
from holdfast.sinks.comparing import Difference, changed
from holdfast.sinks.ledger import KEPT_FRAMES, Entry, Verdict, fenced, judge_frame
from holdfast.sinks.owners import Claim, Taken, Taking, judge_owner, taken
from holdfast.sinks.writer import SinkContext, fitted, frames_named, numbered

__all__ = ["ParquetWriter"]

#: What stands in a line of the ledger; said in its head, for readers without us.
_LINE = ["frame", "kind", "checksum", "epoch", "rows", "mark", "left_out", "bytes", "check"]
#: What a line of an earlier version lacks: no mark, nothing left out, the file's size not known.
_LACKING = ["", 0, None]
_ROWS, _LEFT_OUT, _BYTES = 4, 6, 7

#: Lines that one call adds, at most: so many frames a sink is handed at once.
_TOGETHER = 64

_FILE = re.compile(r"frame-(\d{8,})\.parquet")

_CHECKSUM, _KIND = b"holdfast.checksum", b"holdfast.kind"
_FROM_A_COPY = "put the file back from a copy"


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    folder: Path
    shared: bool = False
    idempotent: bool = True

    def describe(self) -> str:
        return f"Parquet folder {self.folder}, a file per frame"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return []

    def open(self, context: SinkContext) -> ParquetSink:
        return ParquetSink(context.base / self.folder, context, self.shared)


class ParquetSink:
    def __init__(self, folder: Path, context: SinkContext, shared: bool = False) -> None:
        self.folder, self.context, self.shared = folder, context, shared
        self.taken: Taken | None = None
        self._own = folder / "_holdfast"
        self._thread_lock = RLock()
        self._entries: dict[int, Entry] = {}
        self._of_frame: dict[int, list] = {}  # the line of each frame
        self._last = 0
        self._whose: dict[str, Any] = {"folder": "", "start_id": "", "base": 0}  # as the columns of `_holdfast_epoch`
        self._read_to = 0  # bytes of the ledger that `_entries` covers
        self._lines = 0
        self._may_be_torn = context.owner is not None and context.owner.may_be_torn
        with self._failing_as("HF-K004", "SinkNotOpened", "cannot be opened"):
            self._refuse_strangers()
            if context.taking is not None and not (self._own / "ledger.jsonl").exists():
                raise self._nothing_to_take()
            make_folder(self._own, sync=True)
            with self._locked():
                self._open_ledger()
                self._catch_up()
                if context.taking is not None:
                    self.taken = self._take_over(context.taking)
                else:
                    self._take()
        self._may_be_torn = False  # from now on what is there was written by who runs

    def last(self) -> int:
        with self._failing_as("HF-K005", "SinkFailed", "could not be read"), self._locked():
            self._catch_up()
            return max(0, self._last - self._whose["base"])

    def write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        if not batch:
            return []
        batch = [(record, fitted(record, table, self.context)) for record, table in batch]
        doing = f"{frames_named(batch)} could not be written"
        with self._failing_as("HF-K005", "SinkFailed", doing), self._locked():
            self._claim()
            self._catch_up()
            batch = [(numbered(record, self._whose["base"]), table) for record, table in batch]
            # All verdicts come before the first rename: a frame that differs stops the whole call.
            known = dict(self._entries)
            verdicts = []
            for record, _ in batch:
                entry = known.get(record.n) or self._entry_of_file(record.n)
                unentered = record.n not in known and entry is not None
                verdict = judge_frame(record, entry, last=self._last, where=self._where)
                if unentered and verdict is Verdict.SKIP:
                    verdict = Verdict.WRITE  # renamed, then killed before the ledger line: heal it
                if verdict is not Verdict.SKIP:
                    known[record.n] = Entry(record.kind, record.checksum)
                verdicts.append(verdict)
            todo = [frame for frame, verdict in zip(batch, verdicts, strict=True) if verdict is not Verdict.SKIP]
            for record, table in todo:
                self._put(record, table)
            if todo:
                sync_folder(self.folder)
                self._enter([record for record, _ in todo])
        return [verdict is not Verdict.SKIP for verdict in verdicts]

    def close(self) -> None:
        self._entries.clear()
        self._of_frame.clear()
        self._read_to = 0

    # Files.

    def _path_of(self, n: int) -> Path:
        return self.folder / f"frame-{n:08d}.parquet"

    def _put(self, record: FrameRecord, table: pa.Table) -> None:
        final = self._path_of(record.n)
        if not table.num_rows:
            final.unlink(missing_ok=True)  # a tentative one that had rows
            return
        import pyarrow.parquet as pq

        tmp = self._own / f"{final.name}.{os.getpid()}.tmp"
        marked = table.replace_schema_metadata({_CHECKSUM: record.checksum, _KIND: str(record.kind)})
        with open(tmp, "wb") as file:
            pq.write_table(marked, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, final)

    def _entry_of_file(self, n: int) -> Entry | None:
        import pyarrow.parquet as pq

        if n <= self._last - KEPT_FRAMES:
            return None
        try:
            metadata = pq.read_schema(self._path_of(n)).metadata or {}
        except FileNotFoundError:
            return None
        if _KIND not in metadata or _CHECKSUM not in metadata:
            raise self._refused("TargetTaken", f"{self._path_of(n).name} was not written by Holdfast")
        return Entry(Kind(metadata[_KIND].decode()), metadata[_CHECKSUM].decode())

    # Epoch and ledger; all of it under the lock.

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._thread_lock, open(self._own / "lock", "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _claim(self) -> None:
        path = self._own / "epoch"
        stored = self._epoch_in(path) if path.exists() else -1
        if self.context.epoch < stored:
            raise fenced(self.context.epoch, stored, self._where)
        if self.context.epoch > stored:
            write_whole(path, as_word(self.context.epoch), sync=True)

    def _epoch_in(self, path: Path) -> int:
        try:
            return int(word_in(path.read_text()))
        except ValueError as error:
            raise self._damaged(
                path, str(error), f"write the epoch of this run into it: echo {self.context.epoch} > {path}"
            ) from None

    def _take(self) -> None:
        """At the start of a run: the folder is ours and as we left it, and says so."""
        owner, claim = self.context.owner, self._found()
        if owner is not None:
            judge_owner(claim, owner, is_known=self.context.is_known, where=self._where)
        self._claim()
        if not self.shared and (found := self._differences()):
            raise changed(f"folder {self.folder.name!r}", found, self._where)
        if owner is not None and (claim.folder, claim.start_id) != (owner.folder, owner.start_id):
            self._whose |= {"folder": owner.folder, "start_id": owner.start_id}
            self._rewrite()

    def _found(self) -> Claim:
        path = self._own / "epoch"
        return Claim(self._epoch_in(path) if path.exists() else 0, self._last, "", **self._whose)

    def _files(self) -> dict[int, int]:
        """Number and size of the files that are there and may be compared: of frames in the ledger, or after it."""
        found = {}
        oldest = min(self._entries, default=self._last + 1)
        with os.scandir(self.folder) as entries:
            for each in entries:
                if (name := _FILE.fullmatch(each.name)) and int(name[1]) >= oldest:
                    found[int(name[1])] = each.stat().st_size
        return found

    def _differences(self) -> list[Difference]:
        """Files that are missing, have another size, or that no line of the ledger names."""
        there, found = self._files(), []
        for n, line in sorted(self._of_frame.items()):
            rows, size = line[_ROWS] - line[_LEFT_OUT], line[_BYTES]
            expected = there.get(n, bool(rows)) if size is None else size
            if there.get(n, 0) != expected:
                found.append(Difference(n, rows if expected else 0, self._rows_in(n) if n in there else 0))
        # A file after the last line was renamed and not noted when somebody was killed: its frame comes again.
        strange = [n for n in there if n not in self._of_frame and n <= self._last]
        return found + [Difference(n, 0, self._rows_in(n)) for n in sorted(strange)]

    def _rows_in(self, n: int) -> int:
        import pyarrow.parquet as pq

        try:
            return pq.read_metadata(self._path_of(n)).num_rows
        except (OSError, pa.ArrowException):
            return 0

    def _take_over(self, taking: Taking) -> Taken:
        owner, claim = self.context.owner, self._found()
        if owner is None or not self._entries:
            raise self._nothing_to_take()

        def checksum(n: int) -> str | None:
            return self._entries[n].checksum if n in self._entries else None

        newest = max(self._files(), default=0)
        found = taken(claim, owner, taking, is_known=self.context.is_known, newest=newest, checksum=checksum)
        accepted, there = [], self._files()
        for each in self._differences():
            accepted.append(f"frame {each.frame} has {each.there:,} rows, {each.expected:,} were written")
            line = self._of_frame.setdefault(each.frame, [each.frame, str(Kind.STABLE), "", 0, each.there, "", 0, 0])
            line[_BYTES] = there.get(each.frame, 0)
        self._whose |= {"folder": owner.folder, "start_id": owner.start_id, "base": found.base}
        self._last = found.last
        self._rewrite()
        write_whole(self._own / "epoch", as_word(self.context.epoch), sync=True)
        return replace(found, accepted=tuple(accepted))

    def _rewrite(self) -> None:
        """The ledger with its head as it is now."""
        lines = [_checked(line) for _, line in sorted(self._of_frame.items())]
        write_whole(self._own / "ledger.jsonl", self._head() + "".join(lines), sync=True)
        self._read_to = 0

    def _refuse_strangers(self) -> None:
        if not (self._own / "ledger.jsonl").exists():
            for stranger in sorted(self.folder.glob("*.parquet")):
                raise self._refused("TargetTaken", f"it holds {stranger.name} and no ledger of ours")

    def _open_ledger(self) -> None:
        ledger = self._own / "ledger.jsonl"
        if not ledger.exists():
            write_whole(ledger, self._head(), sync=True)
        head = self._head_in(ledger.read_bytes().partition(b"\n")[0])
        self._whose |= {name: head[name] for name in self._whose if name in head}
        if (head["process"], head["sink"]) != (self.context.process, self.context.sink):
            whose = f"stream process {head['process']!r}, sink {head['sink']!r}"
            raise self._refused("TargetTaken", f"{whose} writes to it; their frame numbers would mix")
        if self.context.taking is None and head["schema"] != self.context.schema.ddl:
            why = f"its files have {head['schema']}, the stream has {self.context.schema.ddl}"
            raise self._refused("TableDoesNotFit", why)
        for left in self._own.glob("*.tmp"):
            left.unlink(missing_ok=True)
        sweep(self._own)
        if head.get("lines") != _LINE:  # of an earlier version: its head and lines get what they lack
            self._catch_up()
            self._rewrite()

    def _head(self) -> str:
        context = self.context
        line = {"process": context.process, "sink": context.sink, "schema": context.schema.ddl, "last": self._last}
        return as_note(line | self._whose | {"lines": _LINE}) + "\n"

    def _head_in(self, line: bytes) -> dict:
        try:
            return note_in(line)
        except ValueError as error:
            raise self._damaged(self._own / "ledger.jsonl", f"line 1, the head: {error}", _FROM_A_COPY) from None

    def _catch_up(self) -> None:
        """Reads what was added since; a torn last line (killed while adding) is cut off, and after a loss of power the
        lines of one call. Any other that is not what was written is an error: a frame that is not known would be
        written again, one that is believed would not."""
        ledger = self._own / "ledger.jsonl"
        if ledger.stat().st_size == self._read_to:
            return
        content = ledger.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(ledger, whole)
        first, *lines = content[:whole].split(b"\n")[:-1]
        head = self._head_in(first)
        self._entries.clear()
        self._of_frame.clear()
        self._last = head["last"]
        for number, line in enumerate(lines, 2):
            try:
                self._know(_whole(_fields(line, is_checked="check" in head.get("lines", ()))))
            except (ValueError, TypeError) as error:
                if self._may_be_torn and _is_torn(lines[number - 2 :]):
                    lines = lines[: number - 2]
                    whole = len(b"\n".join([first, *lines])) + 1
                    _cut(ledger, whole)
                    break
                do = f"{_FROM_A_COPY}; without one delete the line, sed -i {number}d {ledger}\nand take the folder over as it is: holdfast adopt-table FILE SINK"
                raise self._damaged(ledger, f"line {number}: {error}", do) from None
        self._read_to, self._lines = whole, len(lines)

    def _know(self, line: list) -> None:
        n, kind, checksum, *_ = line
        self._entries[n], self._of_frame[n] = Entry(Kind(kind), checksum), line
        self._last = max(self._last, n)

    def _enter(self, records: Sequence[FrameRecord]) -> None:
        lines = [self._line(record) for record in records]
        with open(self._own / "ledger.jsonl", "a") as file:
            file.writelines(_checked(line) for line in lines)
            file.flush()
            os.fsync(file.fileno())
            self._read_to = file.tell()
        self._lines += len(lines)
        for line in lines:
            self._know(line)
        if self._lines > 2 * KEPT_FRAMES:
            self._fold()

    def _line(self, record: FrameRecord) -> list:
        path = self._path_of(record.n)
        size = path.stat().st_size if path.exists() else 0
        said = [record.n, str(record.kind), record.checksum, record.epoch, record.rows]
        return [*said, getattr(record, "mark", ""), 0, size]

    def _fold(self) -> None:
        """Old lines away: the ledger stays below twice the frames it must know."""
        oldest = self._last - KEPT_FRAMES
        for known in (self._entries, self._of_frame):
            for n in [n for n in known if n <= oldest]:
                del known[n]
        self._rewrite()
        self._catch_up()

    # Errors.

    @property
    def _where(self) -> str:
        return f"{self.context.where}, folder {self.folder.name!r}"

    @contextmanager
    def _failing_as(self, code: str, name: str, what: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise SinkError(
                code,
                name,
                f"folder {self.folder.name!r}: {what}.",
                where=self._where,
                why=str(error),
                effect="frames without a ledger line are not counted as written; the sealed frames are kept",
                do=f"see that {self.folder} is a folder that can be written and the disk has room",
            ) from error

    def _nothing_to_take(self) -> SinkError:
        return SinkError(
            "HF-K038",
            "NothingToAdopt",
            f"folder {self.folder.name!r} has no frames that could be taken over.",
            where=self._where,
            why="no run has written to it",
            effect="nothing was changed",
            do="run the process: holdfast run FILE",
        )

    def _damaged(self, path: Path, why: str, do: str) -> SinkError:
        return SinkError(
            "HF-R044",
            "LedgerDamaged",
            f"folder {self.folder.name!r}: what is noted of its frames is not what was written.",
            where=str(path),
            why=why,
            effect="nothing was written; the sealed frames are kept",
            do=do,
        )

    def _refused(self, name: str, why: str) -> SinkError:
        code = {"TargetTaken": "HF-K006", "TableDoesNotFit": "HF-K001"}[name]
        return SinkError(
            code,
            name,
            f"folder {self.folder.name!r} cannot take the stream.",
            where=self._where,
            why=why,
            effect="nothing was written; the folder is as it was",
            do="give this sink a folder of its own",
        )


def _is_torn(rest: list[bytes]) -> bool:
    """Whether lines from the first that is not whole on are what a loss of power leaves of one call's: of its pages any may
    be missing, which read as zeros, or the end. A line that has changed, with whole ones behind it, is damage."""
    return len(rest) <= _TOGETHER and (b"\0" in rest[0] or not any(map(_is_line, rest)))


def _is_line(line: bytes) -> bool:
    try:
        return bool(_fields(line, is_checked=True))
    except (ValueError, TypeError):
        return False


def _cut(path: Path, size: int) -> None:
    with open(path, "r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def _whole(line: list) -> list:
    known = len(_LINE) - 1  # the check is added as it is written
    return line + _LACKING[len(line) - known :] if len(line) < known else line


def _checked(line: list) -> str:
    """JSON of the line with its hash as the last item."""
    return json.dumps([*line, xxhash.xxh32_hexdigest(json.dumps(line).encode())]) + "\n"


def _fields(line: bytes, *, is_checked: bool) -> list:
    fields = json.loads(line)
    if not isinstance(fields, list):
        raise ValueError("it is no list")
    if not is_checked:
        return fields
    *fields, check = fields
    found = xxhash.xxh32_hexdigest(json.dumps(fields).encode())
    if check != found:
        raise ValueError(f"it hashes to {found}, at its end stands {check!r}")
    return fields
