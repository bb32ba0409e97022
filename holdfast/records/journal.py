"""A journal: JSON lines, appended, kept for a bounded number of entries.

Entries are numbered by their field `n` and come in order. A line torn by a
crash is not an entry. Old segments are removed as new ones fill, so a journal's
size on disk does not grow with the length of a run.

Used for what a unit has done (commits), may do (permits), and what sources have
sealed. It survives the death of the process; power loss is the backup's matter,
except where `sync=True` (source log, parameters).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Journal"]

# A segment is read whole at start; 512 entries of about 1 KB read in a few ms.
_SEGMENT_ENTRIES = 512


class Journal:
    def __init__(self, directory: Path, name: str, *, keep: int | None = 2048, sync: bool = False) -> None:
        self._directory, self._name, self._keep, self._sync = directory, name, keep, sync
        directory.mkdir(parents=True, exist_ok=True)
        self._file = None
        self._entries_in_segment = 0

    def append(self, entry: dict) -> None:
        """There on return. Half a line of a killed process is no entry; on a full disk none is left behind."""
        if self._file is None or self._entries_in_segment >= _SEGMENT_ENTRIES:
            self._open_segment(int(entry["n"]))
        line = memoryview(json.dumps(entry, separators=(",", ":"), default=str).encode() + b"\n")
        size = os.fstat(self._file).st_size
        try:
            while line:  # a disk that fills up takes a part, and says so only by the count
                line = line[os.write(self._file, line) :]
            if self._sync:
                os.fsync(self._file)
        except OSError:
            # The next entry would be added to half a line, and both would be none.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            raise
        self._entries_in_segment += 1

    def entries(self) -> Iterator[dict]:
        for segment in self._segments():
            yield from _lines(segment)

    def last(self) -> dict | None:
        for segment in reversed(self._segments()):
            lines = list(_lines(segment))
            if lines:
                return lines[-1]
        return None

    def tail(self, count: int) -> list[dict]:
        """The newest entries, oldest first."""
        found: list[dict] = []
        for segment in reversed(self._segments()):
            found = list(_lines(segment)) + found
            if len(found) >= count:
                break
        return found[-count:]

    def cut_after(self, n: int) -> None:
        """Forget the entries above n: they describe work that is to be done again."""
        self.close()
        for segment in reversed(self._segments()):
            lines = list(_lines(segment))
            kept = [line for line in lines if line["n"] <= n]
            if len(kept) == len(lines) and kept:
                return
            if kept:
                text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in kept)
                whole = segment.with_suffix(".tmp")
                whole.write_text(text)
                os.replace(whole, segment)
                return
            segment.unlink()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _segments(self) -> list[Path]:
        return sorted(self._directory.glob(f"{self._name}.*.jsonl"))

    def _open_segment(self, first: int) -> None:
        self.close()
        path = self._directory / f"{self._name}.{first:012d}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if os.fstat(self._file).st_size and not path.read_bytes().endswith(b"\n"):
            os.write(self._file, b"\n")  # ends a torn line, which then reads as no entry
        self._entries_in_segment = 0
        if self._keep is not None:
            newer = 0  # counted: every restart begins a segment, and some hold a single entry
            for old in reversed([segment for segment in self._segments() if segment != path]):
                if newer >= self._keep:
                    old.unlink(missing_ok=True)
                else:
                    newer += sum(1 for _ in _lines(old))


def _lines(segment: Path) -> Iterator[dict]:
    try:
        data = segment.read_bytes()
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        if not line:
            continue
        try:
            yield json.loads(line)
        except ValueError:
            continue
