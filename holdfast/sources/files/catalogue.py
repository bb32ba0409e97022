"""What a file source has used so far: files, digests, and where to take up again.

Frames depend on the list of files and on their bytes. The catalogue notices when
either has changed under frames already handed out: a file edited, grown, cut short,
replaced, gone, or a new one that sorts before the last. Of a text file it holds the
digest of the part that frames were made of, point by point; what lies behind is not
used yet, and after an error in it may be mended. Of a Parquet file it holds the digest
of the whole. It is synced before the first frame that depends on an entry is handed out.

After each file it also holds the cutter's state and the open frames, so a restart
indexes only what it has not yet cut. That part may be lost: it can be made again.

    files.jsonl   check word, JSON: {"setting"}, {"used"}, {"mend"}, {"cut"}; a torn tail is cut off

Cuts made under another setting (schema, frame, options) are void; what was used stands.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from holdfast import atomic
from holdfast.errors import SourceError
from holdfast.journals.lines import Bad, checked_line, read_lines
from holdfast.sources.identity import Identity, identity_of, prefix_digest, same_bytes, trusted
from holdfast.sources.reference import PUT_BACK

__all__ = ["Catalogue", "Entry", "Used"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, cut to its end."""

    path: str
    next: int  # the first frame still open after it
    cutter: dict | None
    open: list


@dataclass(slots=True)
class Used:
    """What frames were made of, of one file."""

    path: str
    identity: Identity
    first: int  # the lowest frame that may have rows of it
    whole: str = ""  # digest of the whole file; "" of text, which is used piece by piece
    points: list[tuple[int, str]] = field(default_factory=list)  # digest of the first bytes, ascending
    may_be_mended: bool = False  # an error was found behind the last point


class Catalogue:
    def __init__(self, file: Path, setting: dict, base: Path) -> None:
        """`setting`: what else decides the cuts. `base`: files below it may move with it."""
        self._file, self._base = file, os.path.join(os.path.abspath(base), "")
        self._setting = json.loads(json.dumps(setting))
        self.used: dict[str, Used] = {}  # in the order of the files
        self.entries: list[Entry] = []
        self._unsynced = False
        if not self._read():
            self._append({"setting": self._setting})

    # -- before frames are made ------------------------------------------------

    def check(self, paths: list[str]) -> None:
        """Raise HF-S004 unless the files already used are still the first and, as far as stamps can tell, the same.

        Text that was not cut to its end is read again from its start; it is compared point by point then.
        """
        cut = {entry.path for entry in self.entries}
        for at, used in enumerate(self.used.values()):
            if at >= len(paths) or paths[at] != used.path:
                if used.path in paths:
                    raise self._changed(paths[at], f"it is new and comes before {used.path}", used)
                raise self._changed(used.path, "it is gone", used)
            now = identity_of(used.path)
            if used.identity.matches(now):
                continue
            if now.size != used.identity.size and not used.may_be_mended:
                raise self._changed(used.path, f"it had {used.identity.size:,} bytes and has {now.size:,}", used)
            if not used.whole and used.path not in cut:
                continue  # not yet known: it is read again
            stamps = trusted(now)  # as they were before its bytes are read
            if used.whole:
                same = same_bytes(used.path, used.identity, used.whole, now)
            else:
                same = not used.points or prefix_digest(used.path, used.points[-1][0]) == used.points[-1][1]
            if not same:
                raise self._changed(used.path, "it has other content", used)
            self.use(used.path, stamps, used.first, whole=used.whole)  # the next start need not read it again

    def points(self, path: str) -> list[tuple[int, str]]:
        used = self.used.get(path)
        return list(used.points) if used is not None else []

    def whole(self, path: str, now: Identity) -> str | None:
        """The digest of a file that has not been touched since it was taken."""
        used = self.used.get(path)
        return used.whole if used is not None and used.identity.matches(now) else None

    def changed(self, path: str, why: str) -> SourceError:
        return self._changed(path, why, self.used.get(path))

    # -- while frames are made -------------------------------------------------

    def use(
        self, path: str, identity: Identity, first: int, *, whole: str = "", point: tuple[int, str] | None = None
    ) -> None:
        """Frames from `first` on depend on this; told again, it is written down only where it says more."""
        used = self.used.get(path)
        if used is None:
            used = self.used[path] = Used(path, identity, first, whole)
        elif used.identity == identity and used.whole == whole and (point is None or point in used.points):
            return
        used.identity, used.whole, used.may_be_mended = identity, whole, False
        if point is not None and (not used.points or point[0] > used.points[-1][0]):
            used.points.append(point)
        fields = {
            "path": self._named(path),
            "identity": asdict(identity),
            "first": used.first,
            "whole": whole,
            "point": point,
        }
        self._append({"used": fields})
        self._unsynced = True

    def sync(self) -> None:
        """What was said is durable on return. Before a frame is handed out."""
        if self._unsynced:
            atomic.sync_file(self._file)
            self._unsynced = False

    def mend(self, path: str) -> None:
        """An error was found in it, behind all that was used: from there on it may be corrected."""
        used = self.used.get(path)
        if used is not None and not used.whole and not used.may_be_mended:
            used.may_be_mended = True
            self._append({"mend": self._named(path)})

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._append({"cut": asdict(entry) | {"path": self._named(entry.path)}})

    def resume_at(self, from_n: int) -> int:
        """How many files need not be looked at again to make frame `from_n`."""
        count = 0
        for entry in self.entries:
            if entry.next > from_n:
                break
            count += 1
        return count

    # -- forms -----------------------------------------------------------------

    def _append(self, record: dict) -> None:
        new = not self._file.exists()
        with self._file.open("ab") as file:
            file.write(checked_line(record))
        if new:
            atomic.sync_folder(self._file.parent)

    def _read(self) -> bool:
        """Whether the last setting there is this one."""
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return False
        is_ours, found = False, read_lines(data)
        for bad in found.bad:
            raise self._damaged(bad)
        for record in found.entries[found.checked_from :]:  # of the version before nothing is of use
            if "setting" in record:
                is_ours = record["setting"] == self._setting
                self.entries.clear()
            elif "used" in record:
                self._saw(record["used"])
            elif "mend" in record:
                self.used[self._path(record["mend"])].may_be_mended = True
            elif is_ours:
                fields = record["cut"]
                self.entries.append(Entry(**fields | {"path": self._path(fields["path"])}))
        if found.checked_from or not data.endswith(b"\n"):  # torn: it never was there
            atomic.write_whole(self._file, b"".join(map(checked_line, found.entries[found.checked_from :])), sync=True)
        return is_ours

    def _saw(self, fields: dict) -> None:
        path, identity = self._path(fields["path"]), Identity(**fields["identity"])
        used = self.used.setdefault(path, Used(path, identity, fields["first"]))
        used.identity, used.whole, used.may_be_mended = identity, fields["whole"], False
        if fields["point"] is not None:
            used.points.append(tuple(fields["point"]))

    def _named(self, path: str) -> str:
        return path.removeprefix(self._base)

    def _path(self, name: str) -> str:
        return os.path.join(self._base, name)

    def _damaged(self, bad: Bad) -> SourceError:
        return SourceError(
            "HF-S009",
            "LogDamaged",
            "the list of the files that frames were made of cannot be read.",
            where=f"{self._file}, line {bad.line}",
            why="the line does not have the check word it was written with",
            effect="nothing was read; frames already handed on stand",
            do="restore the folder from a copy; begin with a fresh state folder if there is none",
        )

    def _changed(self, path: str, why: str, used: Used | None) -> SourceError:
        made = ""
        if used is not None:
            ends = {entry.path: entry.next for entry in self.entries}
            to = f" to {ends[used.path]:,}" if used.path in ends else " on"
            made = f"; frames from {used.first:,}{to} were made of " + (
                "it" if path == used.path else os.path.basename(used.path)
            )
        return SourceError(
            "HF-S004",
            "SourceChanged",
            "the files of this source are not those its frames were cut from.",
            where=path,
            why=why + made,
            effect="no row of the new content was read; frames made before stand, a replay would differ from them",
            do=PUT_BACK,
        )
