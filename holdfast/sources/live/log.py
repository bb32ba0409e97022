"""The source log: where elements that cannot be read again become durable.

Chance enters a stream process only here: what arrived, in which order, and when
a frame was closed. So both are written down before anything is made of them:
elements in chunk files (one per ingest batch, idempotent by its number), closed
frames in seal records. Each is synced before it counts; a frame is handed out
only after its seal is on disk. After a crash the sealed frames come out as they
were, and elements logged after the last seal are cut again from the state that
seal carries, so nothing is lost and nothing comes twice.

    log/000000000007.arrow   ingest batch 7: Arrow IPC and its hash (`frames.sums`), renamed into place; in its
                             metadata the feed's mark (of the last delivery so far) and a note on the batch itself
    log/chunks.jsonl         one line per batch that is on disk, with its digest: a batch that is gone is missed
    log/staged               small deliveries that will be the next batch (`staged`)
    log/seals.jsonl          one line per frame

Lines have a check word (`journals.lines`); a torn end is cut off, any other damage is an error. The line of a batch
is not synced: it is written after the batch is, and where a power cut takes it, the batch is there all the same.

One writer: the thread that runs the source.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.atomic import make_folder, put_in_place, sync_folder, write_whole
from holdfast.errors import SourceError, invariant
from holdfast.frames.sums import checked_bytes, write_arrow
from holdfast.graph.schemas import Schema
from holdfast.journals.lines import checked_line, gap_in, read_lines
from holdfast.sources.index import IndexedFile
from holdfast.sources.live.staged import Staged
from holdfast.sources.parse.fit import grown
from holdfast.sources.reader import SourceFrame
from holdfast.sources.reference import Reference, digest_of, stat_of
from holdfast.sources.sealed import check_kept

__all__ = ["Chunk", "SourceLog", "first_kept"]

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
        self._chunks_file = self._directory / "chunks.jsonl"
        self._chunk_lines: dict[int, dict] = {}
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
        digest = write_arrow(tmp, table.replace_schema_metadata(schema.metadata))
        put_in_place(tmp, path, sync=True)
        chunk = self._chunks[batch] = self._chunk(batch, table.num_rows, first, mark, note, digest)
        self._chunk_lines[batch] = {"n": batch, "rows": table.num_rows, "digest": chunk.file.digest}
        with open(self._chunks_file, "ab") as file:
            file.write(checked_line(self._chunk_lines[batch]))
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
        try:
            return grown(pa.ipc.open_file(checked_bytes(chunk.file.path)[0]).read_all(), self._schema, chunk.file.path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(chunk.file.path, str(error).splitlines()[0]) from error

    def read(self, chunk: Chunk, column: str) -> pa.ChunkedArray:
        return self.table(chunk).column(column)

    # -- frames --------------------------------------------------------------

    def seal(self, frames: Sequence[SourceFrame], state: dict) -> None:
        """Close frames; `state` is where cutting goes on after the last of them."""
        records = [{"frame": self._frame_to_json(frame)} for frame in frames]
        records[-1]["state"] = state
        is_new = not self._seals_file.exists()
        with open(self._seals_file, "ab") as file:
            file.writelines(checked_line(record) for record in records)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self._directory)  # a file without a name is none
        self._seals.extend(records)
        self.state = state

    def sealed(self, from_n: int) -> Iterator[SourceFrame]:
        """Frames sealed earlier, from `from_n` on."""
        check_kept(from_n, self._seals[0]["frame"]["n"] if self._seals else 1, self._directory)
        for record in list(self._seals):
            if record["frame"]["n"] >= from_n:
                yield self._frame_from_json(record["frame"])

    def check_reaches(self, n: int) -> None:
        """Frames up to n were handed out: an end of the seals that was cut off is missed."""
        # A log in which nothing ever was is a new one: the source of that name was of another kind before.
        if n > self.last_n and (self._seals or self._chunks):
            raise self._damaged(
                str(self._seals_file), f"frame {n} was handed out, and the seals end with frame {self.last_n}"
            )

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
            self._chunk_lines.pop(batch, None)
            self._path(batch).unlink(missing_ok=True)
        if doomed:
            write_whole(self._chunks_file, b"".join(map(checked_line, self._chunk_lines.values())))
        return len(doomed)

    # -- after a crash -------------------------------------------------------

    def recover(self) -> None:
        """Read what is on disk; half-written chunks and a torn seal are cleared away."""
        make_folder(self._directory, sync=True)
        for left in self._directory.glob("*.tmp"):
            left.unlink()
        self._chunks = {_batch_of(path.name): None for path in sorted(self._directory.glob("*.arrow"))}
        self.next_batch = max(self._chunks, default=0) + 1
        self._seals = self._untrimmed(self._read_seals())
        self.state = self._seals[-1]["state"] if self._seals else None
        self._read_chunk_lines()
        self._staged.recover()
        if any(record.batch > self.next_batch for record in self._staged.records):
            raise self._gone(self.next_batch)
        # Others are in their chunk already: the file was not cleared in time.
        self._staged.records = [record for record in self._staged.records if record.batch == self.next_batch]
        self.settle()
        (self._directory / "staged").unlink(missing_ok=True)

    def _read_seals(self) -> list[dict]:
        try:
            data = self._seals_file.read_bytes()
        except FileNotFoundError:
            return []
        found = read_lines(data)
        for bad in found.bad:
            raise self._damaged(str(self._seals_file), bad.sentence(lambda record: f"frame {record['frame']['n']}"))
        if (gap := gap_in(found, lambda record: record["frame"]["n"])) is not None:
            raise self._damaged(str(self._seals_file), f"frames {gap.first} to {gap.last} are missing")
        # Frames of one `seal` come together: the last of them carries the state.
        good = max((at + 1 for at, record in enumerate(found.entries) if "state" in record), default=0)
        whole = data[: found.ends[good - 1]] + b"\n" if good else b""
        if whole != data:
            write_whole(self._seals_file, whole, sync=True)
        return found.entries[:good]

    def _read_chunk_lines(self) -> None:
        """Batches that were logged and are gone, before anybody waits for them."""
        data = self._chunks_file.read_bytes() if self._chunks_file.exists() else b""
        found = read_lines(data)
        for bad in found.bad:
            raise self._damaged(str(self._chunks_file), bad.sentence(lambda line: f"batch {line['n']}"))
        self._chunk_lines = {line["n"]: line for line in found.entries if line["n"] in self._chunks}
        cut = self.state["batch"] if self.state is not None else 0
        last = max([self.next_batch - 1, *(line["n"] for line in found.entries)])
        for batch in range(cut + 1, last + 1):
            if batch not in self._chunks:
                raise self._gone(batch)
            self.chunk(batch)  # and whole: it is about to be cut into frames
        write_whole(self._chunks_file, b"".join(map(checked_line, self._chunk_lines.values())))

    def _untrimmed(self, records: list[dict]) -> list[dict]:
        """Without the seals whose chunks were trimmed; they are rewritten only now and then."""
        self._spare = _trimmed(records, self._chunks)
        return records[self._spare :]

    def _rewrite_seals(self) -> None:
        tmp = self._seals_file.with_suffix(".tmp")
        with open(tmp, "wb") as file:
            file.writelines(checked_line(record) for record in self._seals)
        put_in_place(tmp, self._seals_file, sync=True)
        self._spare = 0

    # -- forms ---------------------------------------------------------------

    def _chunk(self, batch: int, rows: int, first: int, mark: dict | None, note: dict, digest: str = "") -> Chunk:
        path = str(self._path(batch))
        size, mtime_ns = stat_of(path)
        file = IndexedFile(path, "arrow", size, mtime_ns, digest or digest_of(path), (), rows)
        return Chunk(batch, first, file, mark, note)

    def _looked_at(self, batch: int) -> Chunk:
        path = str(self._path(batch))
        try:
            with pa.ipc.open_file(checked_bytes(path)[0]) as reader:
                about = reader.schema.metadata
                first = int(about[b"first"])
                mark = json.loads(about.get(b"mark", b"null"))
                note = json.loads(about.get(b"note", b"{}"))
                rows = sum(reader.get_batch(at).num_rows for at in range(reader.num_record_batches))
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise self._damaged(path, str(error).splitlines()[0]) from error
        chunk = self._chunk(batch, rows, first, mark, note)
        said = self._chunk_lines.get(batch, {"digest": chunk.file.digest})["digest"]
        if chunk.file.digest != said:
            raise self._damaged(path, f"its digest is {chunk.file.digest}, it was {said} when it was logged")
        return chunk

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

    def _gone(self, batch: int) -> SourceError:
        return self._damaged(str(self._path(batch)), "it was logged and is gone; its elements are in no frame yet")

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


def _trimmed(records: list[dict], chunks: Container[int]) -> int:
    """How many of the first seals belong to frames that are no longer in the log."""
    first = 0
    for at, record in enumerate(records[:-1]):
        items = record["frame"]["references"] + record["frame"]["quarantined"]
        if any(item["batch"] not in chunks for item in items):
            first = at + 1
    return first


def first_kept(directory: Path) -> int:
    """The first frame that is still in the log of a source's folder; 1 without a log. Looks, and touches nothing."""
    log = directory / "log"
    if not (log / "seals.jsonl").exists():
        return 1
    records = read_lines((log / "seals.jsonl").read_bytes()).entries
    chunks = {_batch_of(path.name) for path in log.glob("*.arrow")}
    return records[_trimmed(records, chunks)]["frame"]["n"] if records else 1
