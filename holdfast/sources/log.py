"""The source log: where elements that cannot be read again become durable.

Chance enters a stream process only here: what arrived, in which order, and when
a frame was closed. So both are written down before anything is made of them:
elements in chunk files (one per ingest batch, idempotent by its number), closed
frames in seal records. Each is synced before it counts; a frame is handed out
only after its seal is on disk. After a crash the sealed frames come out as they
were, and elements logged after the last seal are cut again from the state that
seal carries, so nothing is lost and nothing comes twice.

    log/000000000007.arrow   ingest batch 7: Arrow IPC, renamed into place; in its metadata the feed's mark
                             (of the last delivery so far) and a note on the batch itself
    log/staged               small deliveries that will be the next batch (`staged`)
    log/seals.jsonl          one line per frame: check word, JSON; a torn tail is cut off

One writer: the thread that runs the source.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash

from holdfast.errors import SourceError, invariant
from holdfast.graph.schemas import Schema
from holdfast.sources.fit import grown
from holdfast.sources.index import IndexedFile
from holdfast.sources.reader import SourceFrame
from holdfast.sources.reference import Reference, digest_of, stat_of
from holdfast.sources.staged import Staged

__all__ = ["Chunk", "SourceLog"]

# Seal records are rewritten when this many more than needed lie in the file.
SPARE_SEALS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Chunk:
    batch: int
    first: int  # elements logged before it, ever
    file: IndexedFile
    mark: dict[str, Any] | None = None  # the feed's, of the last delivery up to here
    note: dict[str, Any] = field(default_factory=dict)  # about this batch: where it came from


class SourceLog:
    def __init__(self, directory: Path, schema: Schema) -> None:
        """`schema`: of the rows as logged (declared columns, and the arrival if logged)."""
        self._directory, self._schema = Path(directory), schema
        self._seals_file = self._directory / "seals.jsonl"
        self._seals: list[dict] = []
        self._spare = 0
        self._chunks: dict[int, Chunk | None] = {}  # None: not looked at yet; a day's log has many
        self._staged = Staged(self._directory / "staged")
        self.next_batch = 1
        self.state: dict | None = None  # what the last seal says about open frames
        self.recover()

    # -- elements ------------------------------------------------------------

    @property
    def logged(self) -> int:
        """Elements logged so far, those already trimmed included."""
        last = self.chunk(self.next_batch - 1)
        return (last.first + last.file.rows if last is not None else 0) + self._staged.rows

    @property
    def mark(self) -> dict[str, Any] | None:
        """The feed's mark of the last delivery logged; the chunk that has it is never trimmed."""
        for record in reversed(self._staged.records):
            if record.mark is not None:
                return record.mark
        last = self.chunk(self.next_batch - 1)
        return last.mark if last is not None else None

    def append(
        self, batch: int, table: pa.Table, mark: dict[str, Any] | None = None, note: dict[str, Any] | None = None
    ) -> Chunk:
        """Durable on return. A batch already there is left as it is."""
        if (there := self.chunk(batch)) is not None:
            return there
        invariant(batch == self.next_batch, f"batch {batch} after batch {self.next_batch - 1}")
        invariant(not self._staged.records, f"batch {batch} would overtake what is staged for it")
        first = self.logged
        path = self._path(batch)
        tmp = path.with_suffix(".tmp")
        mark, note = self.mark if mark is None else mark, note or {}
        about = {"first": str(first), "mark": json.dumps(mark), "note": json.dumps(note)}
        schema = self._schema.arrow.with_metadata(about)
        with open(tmp, "wb") as file:
            with pa.ipc.new_file(file, schema) as writer:
                writer.write_table(table.replace_schema_metadata(schema.metadata))
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, path)
        _sync_folder(self._directory)
        chunk = self._chunks[batch] = self._chunk(batch, table.num_rows, first, mark, note)
        self.next_batch = batch + 1
        return chunk

    def stage(self, table: pa.Table, mark: dict[str, Any] | None, note: dict[str, Any]) -> None:
        """Durable on return; part of the next batch, which `settle` makes of all that is staged."""
        self._staged.add(self.next_batch, table, mark, note)

    @property
    def staged_rows(self) -> int:
        return self._staged.rows

    def settle(self) -> Chunk | None:
        """One chunk of all that is staged, if anything is."""
        records = list(self._staged.records)
        if not records:
            return None
        where = str(self._directory / "staged")
        table = pa.concat_tables([grown(record.table, self._schema, where) for record in records])
        mark = self.mark
        note: dict[str, Any] = {"deliveries": sum(record.note.get("deliveries", 0) for record in records)}
        if keys := [key for record in records for key in record.note.get("keys", ())]:
            note["keys"] = keys
        self._staged.records.clear()  # in memory only: the file goes when the chunk is there
        try:
            chunk = self.append(self.next_batch, table, mark, note)
        except BaseException:
            self._staged.records += records
            raise
        self._staged.clear()
        return chunk

    def close(self) -> None:
        self._staged.close()

    def chunk(self, batch: int) -> Chunk | None:
        found = self._chunks.get(batch)
        if found is None and batch in self._chunks:
            found = self._chunks[batch] = self._looked_at(batch)
        return found

    def chunks(self) -> list[Chunk]:
        return [self.chunk(batch) for batch in self.batches]

    @property
    def batches(self) -> list[int]:
        return sorted(self._chunks)

    def table(self, chunk: Chunk) -> pa.Table:
        with pa.memory_map(chunk.file.path) as source:
            return grown(pa.ipc.open_file(source).read_all(), self._schema, chunk.file.path)

    def read(self, chunk: Chunk, column: str) -> pa.ChunkedArray:
        return self.table(chunk).column(column)

    # -- frames --------------------------------------------------------------

    def seal(self, frames: Sequence[SourceFrame], state: dict) -> None:
        """Close frames; `state` is where cutting goes on after the last of them."""
        records = [{"frame": self._frame_to_json(frame)} for frame in frames]
        records[-1]["state"] = state
        with open(self._seals_file, "a", encoding="utf-8") as file:
            file.writelines(_line(record) for record in records)
            file.flush()
            os.fsync(file.fileno())
        self._seals.extend(records)
        self.state = state

    def sealed(self, from_n: int) -> Iterator[SourceFrame]:
        """Frames sealed earlier, from `from_n` on."""
        first = self._seals[0]["frame"]["n"] if self._seals else 1
        if from_n < first:
            raise SourceError(
                "HF-S010",
                "LogTrimmed",
                f"frame {from_n} is no longer in the source log; it begins at frame {first}.",
                where=str(self._directory),
                effect="nothing was read; later frames are still there",
                do="keep more: source(..., keep='1 day'), or begin with a fresh state folder",
            )
        for record in list(self._seals):
            if record["frame"]["n"] >= from_n:
                yield self._frame_from_json(record["frame"])

    @property
    def last_n(self) -> int:
        return self._seals[-1]["frame"]["n"] if self._seals else 0

    def trim(self, before_n: int, before_deleting: Callable[[set[int]], None] = lambda batches: None) -> int:
        """Forget frames below `before_n`; how many files were deleted. `before_deleting` is told which, if any."""
        if not self._seals:
            return 0
        # The last seal stays: it carries the state.
        kept = [r for r in self._seals[:-1] if r["frame"]["n"] >= before_n] + self._seals[-1:]
        self._spare += len(self._seals) - len(kept)
        self._seals = kept
        needed = {self.next_batch - 1}
        for record in kept:
            for part in ("references", "quarantined"):
                needed.update(item["batch"] for item in record["frame"][part])
        for frame in self.state["open"]:
            for part in ("references", "apart"):
                needed.update(_batch_of(item["path"]) for item in frame[part])
        if self._spare > SPARE_SEALS_MAX:
            self._rewrite_seals()
        doomed = {batch for batch in self._chunks if batch <= self.state["batch"] and batch not in needed}
        if doomed:
            before_deleting(doomed)
        for batch in doomed:
            del self._chunks[batch]
            self._path(batch).unlink(missing_ok=True)
        return len(doomed)

    # -- after a crash -------------------------------------------------------

    def recover(self) -> None:
        """Read what is on disk; half-written chunks and a torn seal are cleared away."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for left in self._directory.glob("*.tmp"):
            left.unlink()
        self._chunks = {_batch_of(path.name): None for path in sorted(self._directory.glob("*.arrow"))}
        self.next_batch = max(self._chunks, default=0) + 1
        self._seals = self._untrimmed(self._read_seals())
        self.state = self._seals[-1]["state"] if self._seals else None
        self._staged.recover()
        # Others are in their chunk already: the file was not cleared in time.
        self._staged.records = [record for record in self._staged.records if record.batch == self.next_batch]
        self.settle()
        (self._directory / "staged").unlink(missing_ok=True)

    def _read_seals(self) -> list[dict]:
        try:
            data = self._seals_file.read_bytes()
        except FileNotFoundError:
            return []
        records, good = [], 0
        lines = data.split(b"\n")
        for at, line in enumerate(lines):
            record = _record(line)
            if record is None:
                # Only the end of the file can be torn: a seal is written after
                # the one before it was synced. Frames of one `seal` come together.
                if any(_record(later) is not None for later in lines[at + 1 :]):
                    raise self._damaged(str(self._seals_file), f"line {at + 1} is damaged")
                break
            records.append(record)
            if "state" in record:
                good = len(records)
        whole = sum(len(line) + 1 for line in lines[:good])
        if whole < len(data):
            with open(self._seals_file, "r+b") as file:
                file.truncate(whole)
                os.fsync(file.fileno())
        return records[:good]

    def _untrimmed(self, records: list[dict]) -> list[dict]:
        """Without the seals whose chunks were trimmed; they are rewritten only now and then."""
        first = 0
        for at, record in enumerate(records[:-1]):
            items = record["frame"]["references"] + record["frame"]["quarantined"]
            if any(item["batch"] not in self._chunks for item in items):
                first = at + 1
        self._spare = first
        return records[first:]

    def _rewrite_seals(self) -> None:
        tmp = self._seals_file.with_suffix(".tmp")
        with open(tmp, "w", encoding="utf-8") as file:
            file.writelines(_line(record) for record in self._seals)
            file.flush()
            os.fsync(file.fileno())
        os.replace(tmp, self._seals_file)
        _sync_folder(self._directory)
        self._spare = 0

    # -- forms ---------------------------------------------------------------

    def _chunk(self, batch: int, rows: int, first: int, mark: dict | None, note: dict) -> Chunk:
        path = str(self._path(batch))
        size, mtime_ns = stat_of(path)
        file = IndexedFile(path, "arrow", size, mtime_ns, digest_of(path), (), rows)
        return Chunk(batch, first, file, mark, note)

    def _looked_at(self, batch: int) -> Chunk:
        path = str(self._path(batch))
        try:
            with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
                about = reader.schema.metadata
                first = int(about[b"first"])
                mark = json.loads(about.get(b"mark", b"null"))
                note = json.loads(about.get(b"note", b"{}"))
                rows = sum(reader.get_batch(at).num_rows for at in range(reader.num_record_batches))
        except (pa.ArrowInvalid, OSError, KeyError, TypeError) as error:
            raise self._damaged(path, str(error).splitlines()[0]) from error
        return self._chunk(batch, rows, first, mark, note)

    def _path(self, batch: int) -> Path:
        return self._directory / f"{batch:012d}.arrow"

    def _frame_to_json(self, frame: SourceFrame) -> dict:
        return {
            "n": frame.n,
            "rows": frame.rows,
            "bytes": frame.bytes,
            "checksum": frame.checksum,
            "late_rows": frame.late_rows,
            "references": [_brief(reference) for reference in frame.references],
            "quarantined": [_brief(reference) for reference in frame.quarantined],
        }

    def _frame_from_json(self, fields: dict) -> SourceFrame:
        return SourceFrame(
            n=fields["n"],
            references=tuple(self._whole(item) for item in fields["references"]),
            rows=fields["rows"],
            bytes=fields["bytes"],
            checksum=fields["checksum"],
            late_rows=fields["late_rows"],
            quarantined=tuple(self._whole(item) for item in fields["quarantined"]),
        )

    def _whole(self, brief: dict) -> Reference:
        chunk = self.chunk(brief["batch"])
        path = str(self._path(brief["batch"]))
        if chunk is None or chunk.file.digest != brief["digest"]:
            raise self._damaged(path, "a sealed frame refers to it; it is gone or has changed")
        file = chunk.file
        ranges = tuple((a, b) for a, b in brief["ranges"])
        return Reference(path, "arrow", ranges, file.size, file.mtime_ns, file.digest)

    def here(self, reference: Reference) -> Reference:
        """A saved reference as it is in this folder now, should that have moved."""
        return replace(reference, path=str(self._path(_batch_of(reference.path))))

    def _damaged(self, path: str, why: str) -> SourceError:
        return SourceError(
            "HF-S009",
            "LogDamaged",
            "the source log cannot be read.",
            where=path,
            why=why,
            effect="nothing was read or deleted; frames already handed on stand",
            do="restore the folder from a copy; begin with a fresh state folder if there is none",
        )


def _brief(reference: Reference) -> dict:
    return {
        "batch": _batch_of(reference.path),
        "ranges": [list(rows) for rows in reference.ranges],
        "digest": reference.digest,
    }


def _batch_of(path: str) -> int:
    return int(os.path.basename(path).split(".")[0])


def _line(record: dict) -> str:
    body = json.dumps(record, separators=(",", ":"))
    return f"{xxhash.xxh32_hexdigest(body.encode())} {body}\n"


def _record(line: bytes) -> dict | None:
    check, _, body = line.partition(b" ")
    if not body or xxhash.xxh32_hexdigest(body).encode() != check:
        return None
    return json.loads(body)


def _sync_folder(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
