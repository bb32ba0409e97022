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

Readers (Spark, DuckDB, pandas) leave out names that begin with an underscore.
Touches the folder it was given and nothing else.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

import pyarrow as pa

from holdfast.errors import Finding, SinkError
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.graph.schemas import Schema
from holdfast.sinks.ledger import KEPT_FRAMES, Entry, Verdict, fenced, judge_frame
from holdfast.sinks.writer import SinkContext, fitted, frames_named

__all__ = ["ParquetWriter"]

#: What stands in a line of the ledger; said in its head, for readers without us.
_LINE = ["frame", "kind", "checksum", "epoch", "rows"]

_CHECKSUM, _KIND = b"holdfast.checksum", b"holdfast.kind"


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    folder: Path
    idempotent: bool = True

    def describe(self) -> str:
        return f"Parquet folder {self.folder}, a file per frame"

    def check(self, schema: Schema, *, sink: str = "") -> list[Finding]:
        return []

    def open(self, context: SinkContext) -> ParquetSink:
        return ParquetSink(context.base / self.folder, context)


class ParquetSink:
    def __init__(self, folder: Path, context: SinkContext) -> None:
        self.folder, self.context = folder, context
        self._own = folder / "_holdfast"
        self._thread_lock = RLock()
        self._entries: dict[int, Entry] = {}
        self._last = 0
        self._read_to = 0  # bytes of the ledger that `_entries` covers
        self._lines = 0
        with self._failing_as("HF-K004", "SinkNotOpened", "cannot be opened"):
            self._refuse_strangers()
            self._own.mkdir(parents=True, exist_ok=True)
            with self._locked():
                self._open_ledger()
                self._claim()
                self._catch_up()

    def last(self) -> int:
        with self._failing_as("HF-K005", "SinkFailed", "could not be read"), self._locked():
            self._catch_up()
            return self._last

    def write(self, batch: Sequence[tuple[FrameRecord, pa.Table]]) -> list[bool]:
        if not batch:
            return []
        batch = [(record, fitted(record, table, self.context)) for record, table in batch]
        doing = f"{frames_named(batch)} could not be written"
        with self._failing_as("HF-K005", "SinkFailed", doing), self._locked():
            self._claim()
            self._catch_up()
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
                _sync_folder(self.folder)
                self._enter([record for record, _ in todo])
        return [verdict is not Verdict.SKIP for verdict in verdicts]

    def close(self) -> None:
        self._entries.clear()

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
        stored = int(path.read_text()) if path.exists() else -1
        if self.context.epoch < stored:
            raise fenced(self.context.epoch, stored, self._where)
        if self.context.epoch > stored:
            _write_whole(path, f"{self.context.epoch}\n")

    def _refuse_strangers(self) -> None:
        if not (self._own / "ledger.jsonl").exists():
            for stranger in sorted(self.folder.glob("*.parquet")):
                raise self._refused("TargetTaken", f"it holds {stranger.name} and no ledger of ours")

    def _open_ledger(self) -> None:
        ledger = self._own / "ledger.jsonl"
        if not ledger.exists():
            _write_whole(ledger, self._head())
        with open(ledger) as file:
            head = json.loads(file.readline())
        if (head["process"], head["sink"]) != (self.context.process, self.context.sink):
            whose = f"stream process {head['process']!r}, sink {head['sink']!r}"
            raise self._refused("TargetTaken", f"{whose} writes to it; their frame numbers would mix")
        if head["schema"] != self.context.schema.ddl:
            why = f"its files have {head['schema']}, the stream has {self.context.schema.ddl}"
            raise self._refused("TableDoesNotFit", why)
        for left in self._own.glob("*.tmp"):
            left.unlink(missing_ok=True)

    def _head(self) -> str:
        context = self.context
        line = {"process": context.process, "sink": context.sink, "schema": context.schema.ddl, "last": self._last}
        return json.dumps(line | {"lines": _LINE}) + "\n"

    def _catch_up(self) -> None:
        """Reads what was added since; a torn last line (killed while adding) is cut off."""
        ledger = self._own / "ledger.jsonl"
        if ledger.stat().st_size == self._read_to:
            return
        content = ledger.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(ledger, whole)
        head, *lines = content[:whole].splitlines()
        self._entries.clear()
        self._last = json.loads(head)["last"]
        for line in lines:
            n, kind, checksum, _epoch, _rows = json.loads(line)
            self._entries[n] = Entry(Kind(kind), checksum)
            self._last = max(self._last, n)
        self._read_to, self._lines = whole, len(lines)

    def _enter(self, records: Sequence[FrameRecord]) -> None:
        lines = [json.dumps([r.n, str(r.kind), r.checksum, r.epoch, r.rows]) + "\n" for r in records]
        with open(self._own / "ledger.jsonl", "a") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
            self._read_to = file.tell()
        self._lines += len(lines)
        for record in records:
            self._entries[record.n] = Entry(record.kind, record.checksum)
            self._last = max(self._last, record.n)
        if self._lines > 2 * KEPT_FRAMES:
            self._fold()

    def _fold(self) -> None:
        """Old lines away: the ledger stays below twice the frames it must know."""
        ledger, oldest = self._own / "ledger.jsonl", self._last - KEPT_FRAMES
        _, *lines = ledger.read_text().splitlines(keepends=True)
        lines = [line for line in lines if json.loads(line)[0] > oldest]
        self._entries = {n: entry for n, entry in self._entries.items() if n > oldest}
        content = self._head() + "".join(lines)
        _write_whole(ledger, content)
        self._read_to, self._lines = len(content.encode()), len(lines)

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


def _write_whole(path: Path, text: str) -> None:
    tmp = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(tmp, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(tmp, path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
