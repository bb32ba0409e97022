"""A journal: checked JSON lines, appended, kept for a bounded number of entries.

Entries are numbered by their field `n` and come in order. A line torn by a crash is
not an entry and is cut off. Any other line that is not what was written is an error
that names it (`lines`); so is a number that is left out, where numbers are without a
gap. Old segments are removed as new ones fill, so a journal's size on disk does not
grow with the length of a run.

Used for what a unit has done (commits), may do (permits), and what sources have
sealed. It survives the death of the process. What has to outlast a loss of power is synced
entry by entry (`sync=True`: parameters), or by the run before anything rests on it (`engine.protect.durable`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.atomic import make_folder, sync_folder, write_whole
from holdfast.errors import StateRefused
from holdfast.journals.lines import Bad, Gap, Read, checked_line, gap_in, read_lines
from holdfast.journals.notes import as_word, read_word

__all__ = ["Journal"]

# A segment is read whole at start; 512 entries of about 1 KB read in a few ms.
_SEGMENT_ENTRIES = 512


class Journal:
    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        keep: int | None = 2048,
        sync: bool = False,
        gapless: bool = True,
        counted: bool = False,
        vital: bool = True,
    ) -> None:
        """`gapless`: a number that is left out is an error. `counted`: how many there are is written down beside it, so
        that an end which was cut off is missed. Not `vital`: a damaged line is passed over and told in `damage`."""
        self._directory, self._name, self._keep, self._sync = directory, name, keep, sync
        self._gapless, self._counted, self._vital = gapless, counted, vital
        make_folder(directory, sync=sync)
        self._file: int | None = None
        self._entries_in_segment = 0
        self._last_n: int | None = None
        self.damage: list[StateRefused] = []

    def append(self, entry: dict) -> None:
        """There on return. Half a line of a killed process is no entry; on a full disk none is left behind."""
        n = int(entry["n"])
        if self._file is None or self._entries_in_segment >= _SEGMENT_ENTRIES:
            self._open_segment(n)
        if self._gapless and self._last_n is not None and n > self._last_n + 1:
            entry = {**entry, "skipped": n - self._last_n}
        line = memoryview(checked_line(entry))
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
        self._last_n = n
        if self._counted:
            write_whole(self._count_file, as_word(n), sync=self._sync)

    def entries(self) -> Iterator[dict]:
        last, is_free, given_up = 0, True, False
        for segment in self._segments():
            found = self._read(segment, None if is_free else last)
            yield from found.entries
            # One without entries was begun for the number in its name, and torn: that is written next.
            last = found.entries[-1]["n"] if found.entries else max(last, int(segment.name.split(".")[1]) - 1)
            given_up = len(found.entries) in found.breaks
            # What follows a line that was given up may have any number; so may the first that is kept.
            is_free = given_up
        if self._counted and not given_up:
            self._check_count(last)

    def last(self) -> dict | None:
        for segment in reversed(self._segments()):
            entries = self._read(segment).entries
            if entries:
                return entries[-1]
        return None

    def tail(self, count: int) -> list[dict]:
        """The newest entries, oldest first."""
        found: list[dict] = []
        for segment in reversed(self._segments()):
            found = self._read(segment).entries + found
            if len(found) >= count:
                break
        return found[-count:]

    def cut_after(self, n: int) -> None:
        """Forget the entries above n: they describe work that is to be done again."""
        self.close()
        for segment in reversed(self._segments()):
            entries = self._read(segment).entries
            kept = [entry for entry in entries if entry["n"] <= n]
            if len(kept) == len(entries) and kept:
                return
            if kept:
                write_whole(segment, b"".join(checked_line(entry) for entry in kept), sync=self._sync)
                return
            segment.unlink()

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _segments(self) -> list[Path]:
        return sorted(self._directory.glob(f"{self._name}.*.jsonl"))

    @property
    def _count_file(self) -> Path:
        return self._directory / f"{self._name}.last"

    def _open_segment(self, first: int) -> None:
        self.close()
        if self._gapless and self._last_n is None:
            last = self.last()
            self._last_n = None if last is None else last["n"]
        path = self._directory / f"{self._name}.{first:012d}.jsonl"
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        if self._sync:
            sync_folder(self._directory)  # a file without a name is none
        if os.fstat(self._file).st_size:
            found = self._read(path)
            if not found.bad:
                os.ftruncate(self._file, found.whole)  # a torn line goes
                if found.needs_newline:
                    os.write(self._file, b"\n")
        self._entries_in_segment = 0
        if self._keep is not None:
            newer = 0  # counted: every restart begins a segment, and some hold a single entry
            for old in reversed([segment for segment in self._segments() if segment != path]):
                if newer >= self._keep:
                    old.unlink(missing_ok=True)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        newer += old.read_bytes().count(b"\n")

    def _read(self, segment: Path, before: int | None = None) -> Read:
        try:
            found = read_lines(segment.read_bytes())
        except FileNotFoundError:
            return Read()
        self._tell([_damaged(segment, self._name, bad) for bad in found.bad])
        if self._gapless and (gap := gap_in(found, _number, before)) is not None:
            self._tell([_gap(segment, self._name, gap)])
        return found

    def _check_count(self, last: int) -> None:
        if self._count_file.exists():
            count = read_word(
                self._count_file,
                int,
                effect="nothing was started or changed",
                do=f"see that {self._name} is whole, then delete this file: it is made again with the next entry",
            )
            if last < count:
                self._tell([_gap(self._directory, self._name, Gap(last + 1, count))])

    def _tell(self, errors: list[StateRefused]) -> None:
        if errors and self._vital:
            raise errors[0]
        self.damage += errors


def _number(entry: Any) -> int:
    return entry["n"]


def _damaged(segment: Path, name: str, bad: Bad) -> StateRefused:
    return StateRefused(
        "HF-R040",
        "JournalDamaged",
        f"line {bad.line} of the journal of {name} is not what was written.",
        where=f"{segment}, line {bad.line}",
        why=bad.sentence(lambda entry: f"entry {entry.get('n', '?')}" if isinstance(entry, dict) else "an entry"),
        effect="nothing of it was used; sealed frames and sink tables are as they were",
        do="put the file back from a copy; under hf.ecoc or hf.uncoordinated a unit is put back by itself. Without either, "
        f"give the entry up: sed -i '{bad.line}s/.*/# given up/' {segment}; docs/errors.md says what that costs",
    )


def _gap(segment: Path, name: str, gap: Gap) -> StateRefused:
    many = f"entries {gap.first} to {gap.last} are" if gap.last > gap.first else f"entry {gap.first} is"
    return StateRefused(
        "HF-R041",
        "JournalGap",
        f"{many} missing in the journal of {name}.",
        where=str(segment),
        why="its numbers are without a gap: a line, the end of a file or a file of it is gone",
        effect="nothing of it was used; sealed frames and sink tables are as they were",
        do="put the file back from a copy; under hf.ecoc or hf.uncoordinated a unit is put back by itself. Without either, "
        "give the entries up: write a line '# given up' in their place; docs/errors.md says what that costs",
    )
