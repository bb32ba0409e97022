"""What a growing source has handed out: how far it was in each file, and where the rows of each frame lie.

Chance enters here as it does with a live source: which rows were there when a file was
looked at, and when a frame was closed. So a closed frame is written down, with the
places of its rows, and synced before it is handed out; nothing is copied. One line
holds the frames that were closed together, where cutting goes on after them, and how
far those files are that were read since the line before. What was read after the last
line is read again.

    grown.jsonl   check word, JSON (`journals.lines`); a torn end is cut off, any other damage is an error

A line takes about 400 bytes a frame and 800 a file that was read for it. Frames are
forgotten when no restart needs them; a file is remembered, in 800 bytes, as long as it
is there, and its name some time longer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdfast import atomic
from holdfast.errors import SourceError
from holdfast.journals.lines import checked_line, read_lines
from holdfast.sources.reader import SourceFrame
from holdfast.sources.reference import Reference
from holdfast.sources.sealed import check_kept

__all__ = ["GrownLog", "Watched", "first_kept"]

# The file is written anew when this many lines more than needed lie in it.
SPARE_MAX = 4096
# Names of files that are gone, kept so that another file under such a name is noticed.
GONE_MAX = 10_000


@dataclass(slots=True)
class Watched:
    """One file of a growing source."""

    no: int
    path: str
    ino: int
    dev: int
    format: str
    options: list = field(default_factory=list)  # [name, value], how text is to be read
    pos: int = 0  # bytes used; of a file taken whole 0
    rows: int = 0  # rows used
    head: str = ""  # digests of the first and the last bytes used
    tail: str = ""
    row: str = ""  # digest of the first row
    whole: str = ""  # digest of a file that is taken whole
    length: int = 0  # bytes that a .gz file inflates to, of which head, tail and row are then
    size: int = 0  # when it was last looked at
    mtime_ns: int = 0
    ctime_ns: int = 0
    done: bool = False  # taken whole, to its end
    gone: bool = False


class GrownLog:
    def __init__(self, directory: Path) -> None:
        self._file = directory / "grown.jsonl"
        self._frames: list[dict] = []
        self._lines = 0
        self.files: dict[int, Watched] = {}
        self.next_no = 1
        self.state: dict | None = None
        atomic.make_folder(directory, sync=True)
        self._read()

    @property
    def last_n(self) -> int:
        return self._frames[-1]["n"] if self._frames else 0

    def check_reaches(self, n: int) -> None:
        """Frames up to n were handed out: an end of the list that was cut off is missed."""
        if self._frames and n > self.last_n:  # else it is new: the source of that name was of another kind before
            raise self._damaged(f"frame {n} was handed out, and the list ends with frame {self.last_n}")

    def seal(self, frames: Sequence[SourceFrame], state: dict, touched: Sequence[Watched]) -> None:
        """Durable on return: the frames may be handed out."""
        made = [_to_json(frame) for frame in frames]
        record = {"frames": made, "state": state, "files": [asdict(each) for each in touched]}
        new = not self._file.exists()
        with open(self._file, "ab") as file:
            file.write(checked_line(record))
            file.flush()
            os.fsync(file.fileno())
        if new:
            atomic.sync_folder(self._file.parent)
        self._frames += made
        self.state = state
        self._lines += 1

    def sealed(
        self, from_n: int, empty: Callable[[int], SourceFrame], here: Callable[[Reference], Reference]
    ) -> Iterator[SourceFrame]:
        """Frames sealed earlier, from `from_n` on. `empty` makes one without rows, `here` finds a file that was renamed."""
        check_kept(from_n, self._frames[0]["n"] if self._frames else 1, self._file)
        for fields in list(self._frames):
            if fields["n"] >= from_n:
                yield empty(fields["n"]) if len(fields) == 1 else _from_json(fields, here)

    def needed(self, from_n: int) -> dict[int, list[int]]:
        """number of a file -> frames from `from_n` on, sealed or open, that have rows of it."""
        found: dict[int, list[int]] = {}
        for fields in self._frames:
            if fields["n"] >= from_n:
                for each in (*fields.get("references", ()), *fields.get("quarantined", ())):
                    found.setdefault(each["no"], []).append(fields["n"])
        for fields in (self.state or {}).get("open", ()):
            for each in (*fields["references"], *fields["apart"]):
                found.setdefault(each["no"], []).append(fields["n"])
        return found

    def trim(self, before_n: int) -> None:
        # The last frame stays: the state follows it.
        kept = [fields for fields in self._frames[:-1] if fields["n"] >= before_n] + self._frames[-1:]
        self._frames = kept
        if self.state is not None and self._lines > len(kept) + SPARE_MAX:
            self.rewrite()

    def rewrite(self) -> None:
        gone = [each.no for each in self.files.values() if each.gone]
        for no in gone[:-GONE_MAX]:
            del self.files[no]
        files = [asdict(each) for each in self.files.values()]
        record = {"frames": self._frames, "state": self.state, "files": files, "next_no": self.next_no}
        atomic.write_whole(self._file, checked_line(record), sync=True)
        self._lines = 1

    def _read(self) -> None:
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return
        found = read_lines(data)
        for bad in found.bad:
            raise self._damaged(bad.sentence(lambda record: f"frame {record['frames'][-1]['n']}"))
        for record in found.entries:
            self._frames += record["frames"]
            self.state = record["state"]
            for fields in record["files"]:
                self.files[fields["no"]] = Watched(**fields)
            self.next_no = max(record.get("next_no", 1), max(self.files, default=0) + 1, self.next_no)
            self._lines += 1
        whole = data[: found.ends[-1]] + b"\n" if found.entries else b""
        if whole != data:  # torn: nothing of it was handed out
            atomic.write_whole(self._file, whole, sync=True)

    def _damaged(self, why: str) -> SourceError:
        return SourceError(
            "HF-S009",
            "LogDamaged",
            "the list of frames of a growing source cannot be read.",
            where=str(self._file),
            why=why,
            effect="nothing was read or deleted; frames already handed on stand",
            do="restore the folder from a copy; begin with a fresh state folder if there is none",
        )


def _to_json(frame: SourceFrame) -> dict:
    if not frame.rows and not frame.late_rows:
        return {"n": frame.n}
    return {
        "n": frame.n,
        "rows": frame.rows,
        "bytes": frame.bytes,
        "checksum": frame.checksum,
        "late_rows": frame.late_rows,
        "references": [reference.to_json() for reference in frame.references],
        "quarantined": [reference.to_json() for reference in frame.quarantined],
    }


def _from_json(fields: dict, here: Callable[[Reference], Reference]) -> SourceFrame:
    return SourceFrame(
        n=fields["n"],
        references=tuple(here(Reference.from_json(each)) for each in fields["references"]),
        rows=fields["rows"],
        bytes=fields["bytes"],
        checksum=fields["checksum"],
        late_rows=fields["late_rows"],
        quarantined=tuple(here(Reference.from_json(each)) for each in fields["quarantined"]),
    )


def first_kept(directory: Path) -> int:
    """The first frame that is still in the list of a source's folder; 1 without a list. Looks, and touches nothing."""
    file = directory / "grown.jsonl"
    records = read_lines(file.read_bytes()).entries if file.exists() else []
    return min((fields["n"] for record in records for fields in record.get("frames", ())), default=1)
