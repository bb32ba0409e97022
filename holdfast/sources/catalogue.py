"""What a file source has cut so far: files, digests, and where to take up again.

Frames depend on the list of files and their bytes. The catalogue notices when
either has changed under frames already cut: a file edited, gone, or a new one
that sorts before the last. It also holds, after each file, the cutter's state
and the open frames, so a restart indexes only what it has not yet cut.

It may be lost: everything in it can be made again from the files. So it is
appended without sync, and a torn last line is ignored.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast.errors import SourceError
from holdfast.sources.reference import digest_of, stat_of

__all__ = ["Catalogue", "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, cut to its end."""

    path: str
    size: int
    mtime_ns: int
    digest: str
    next: int  # the first frame still open after it
    cutter: dict | None
    open: list


class Catalogue:
    def __init__(self, file: Path, setting: dict) -> None:
        """`setting`: what else decides the cuts; entries under another one are void."""
        self._file = file
        self._setting = json.loads(json.dumps(setting))
        self.entries: list[Entry] = self._read()
        self._digests = {(e.path, e.size, e.mtime_ns): e.digest for e in self.entries}

    def digest(self, path: str, size: int, mtime_ns: int) -> str:
        return self._digests.get((path, size, mtime_ns)) or digest_of(path)

    def check(self, paths: list[str]) -> None:
        """Raise HF-S004 unless the files already cut are still the first and the same."""
        for at, entry in enumerate(self.entries):
            if at >= len(paths) or paths[at] != entry.path:
                if entry.path in paths:
                    raise _changed(paths[at], f"it is new and comes before {entry.path}")
                raise _changed(entry.path, "it is gone")
            size, mtime_ns = stat_of(entry.path)
            if (size, mtime_ns) != (entry.size, entry.mtime_ns):
                if size != entry.size or digest_of(entry.path) != entry.digest:
                    raise _changed(
                        entry.path, f"it had {entry.size} bytes and has {size}, other content"
                    )

    def resume_at(self, from_n: int) -> int:
        """How many files need not be looked at again to make frame `from_n`."""
        count = 0
        for entry in self.entries:
            if entry.next > from_n:
                break
            count += 1
        return count

    def add(self, entry: Entry) -> None:
        new = not self.entries
        self.entries.append(entry)
        with self._file.open("w" if new else "a", encoding="utf-8") as file:
            if new:
                file.write(json.dumps({"setting": self._setting}) + "\n")
            file.write(json.dumps(asdict(entry)) + "\n")

    def _read(self) -> list[Entry]:
        try:
            text = self._file.read_text(encoding="utf-8")
            lines = text.splitlines()
            if not lines or json.loads(lines[0])["setting"] != self._setting:
                return []
        except (OSError, ValueError, KeyError, TypeError):
            return []
        found = []
        for line in lines[1:]:
            try:
                found.append(Entry(**json.loads(line)))
            except (ValueError, TypeError):
                # Torn by a crash: what follows was never there.
                break
        if len(found) != len(lines) - 1 or not text.endswith("\n"):
            text = "\n".join(lines[: len(found) + 1]) + "\n"
            self._file.write_text(text, encoding="utf-8")
        return found


def _changed(path: str, why: str) -> SourceError:
    return SourceError(
        "HF-S004",
        "SourceChanged",
        "the files of this source are not those its frames were cut from.",
        where=path,
        why=why,
        effect="nothing was read; a replay would differ from what was sealed",
        do="put the old files back; add new data as new files with later names",
    )
