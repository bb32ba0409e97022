"""Files that grow and folders that are watched: which are new, which go on, which are not what they were.

A look at the folder costs one stat per file and reads no bytes of files whose stamps
are as they were. A file is known by its inode, so one that was renamed (a log that was
rotated) goes on under its new name, also where the pattern does not reach, in the same
folder. A file that was copied or restored has another inode: it is known by the bytes
that were used of it, of which the first and the last are compared (`HEAD_BYTES`,
`TAIL_BYTES`) whenever stamps have moved. Bytes between are compared when they are read
again: every block that a frame is made of has a digest of its own.

What does not fit stops the source before anything new is taken: a file cut short
(HF-S060), one that is gone and not used up (HF-S061), another one under a known name
(HF-S004), the same rows in a second file (HF-S062).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator

import xxhash

from holdfast.errors import SourceError
from holdfast.sources.files.grown import Watched
from holdfast.sources.identity import Identity, same_bytes, trusted
from holdfast.sources.parse import text

__all__ = ["Folder", "Look", "Seen", "found_twice", "gone", "is_whole", "mark_inflated", "mark_used", "since"]

HEAD_BYTES = 4096
TAIL_BYTES = 16384

Listed = list[tuple[str, os.stat_result]]
Look = list[Watched]  # files that may have more, in the order in which they were met


def is_whole(path: str, format: str) -> bool:
    """Taken when it is complete, and not before: it cannot be read from the middle."""
    return format == "parquet" or path.endswith(".gz")


class Folder:
    """What is watched, and what is known of it."""

    def __init__(
        self, listing: Callable[[], Iterable[tuple[str, str]]], files: dict[int, Watched], next_no: Callable[[], int]
    ) -> None:
        """`listing`: (path, format) of what matches now. `files`: by number; kept up to date here."""
        self._listing, self.files, self._next_no = listing, files, next_no
        self._by_inode = {(each.dev, each.ino): each for each in files.values() if not each.gone}
        self._gone: dict[str, list[Watched]] = {}
        for each in files.values():
            if each.gone:
                self._gone.setdefault(each.path, []).append(each)
        self._formats: dict[str, str] = {}
        self.moved: dict[int, Watched] = {}  # whose path or inode is not what was written down last

    def look(self, needed: Callable[[Watched], list[int]]) -> Look:
        """Files that may have more than was taken. `needed`: frames that have rows of a file and are not made yet."""
        listed = self._list()
        at_path = {path: (found.st_dev, found.st_ino) for path, found in listed}
        seen: set[int] = set()
        ready: list[Watched] = []
        new: Listed = []
        for path, found in listed:
            known = self._by_inode.get((found.st_dev, found.st_ino))
            if known is None:
                new.append((path, found))
                continue
            if path == known.path and (found.st_size, found.st_mtime_ns, found.st_ctime_ns) == (
                known.size, known.mtime_ns, known.ctime_ns
            ):  # fmt: skip
                seen.add(known.no)
                if _has_more(known):
                    ready.append(known)
                continue
            if known.no in seen or (path != known.path and at_path.get(known.path) == (known.dev, known.ino)):
                continue  # a second name of the same file
            if not self._goes_on(known, path, found):
                if path == known.path:
                    raise _not_as_it_was(known, found)
                # An inode that was freed and given to another file.
                del self._by_inode[(known.dev, known.ino)]
                new.append((path, found))
                continue
            seen.add(known.no)
            self._is_at(known, path, found)
            ready.append(known)
        for known in [each for each in self.files.values() if not each.gone and each.no not in seen]:
            if self._found_again(known, new):
                ready.append(known)
            else:
                self._lost(known, at_path, needed)
        # As they were met, and by name what is met together: a log that was rotated comes before the new one.
        ready = sorted(ready, key=lambda known: known.no) + [self._met(path, found) for path, found in new]
        return [known for known in ready if _has_more(known)]

    # -- one file --------------------------------------------------------------

    def _goes_on(self, known: Watched, path: str, found: os.stat_result) -> bool:
        """Whether what was used of it is still there, at its start."""
        now = Identity(found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if Identity(known.size, known.mtime_ns, known.ctime_ns).matches(now):
            return True
        if known.whole:
            return same_bytes(path, Identity(known.size, known.mtime_ns, known.ctime_ns), known.whole, now)
        return not known.pos or _holds(known, path, found)

    def _is_at(self, known: Watched, path: str, found: os.stat_result) -> None:
        """Remember what it is like now."""
        now = trusted(Identity(found.st_size, found.st_mtime_ns, found.st_ctime_ns))
        if known.ctime_ns != now.ctime_ns and (known.pos or known.whole):
            self.moved[known.no] = known  # the next start need not compare it again
        known.size, known.mtime_ns, known.ctime_ns = now.size, now.mtime_ns, now.ctime_ns
        if (known.path, known.dev, known.ino) == (path, found.st_dev, found.st_ino):
            return
        if known.ino != found.st_ino:
            self._by_inode.pop((known.dev, known.ino), None)
        known.path, known.dev, known.ino = path, found.st_dev, found.st_ino
        self._by_inode[(known.dev, known.ino)] = known
        if known.pos or known.whole:
            self.moved[known.no] = known

    def _found_again(self, known: Watched, new: Listed) -> bool:
        """It was renamed out of sight; or copied: then it is among the new ones, and no more new."""
        folder = os.path.dirname(known.path)
        for path, found in _beside(folder):
            if (found.st_dev, found.st_ino) == (known.dev, known.ino) and self._goes_on(known, path, found):
                self._is_at(known, path, found)
                return True
        if not known.pos and not known.whole:
            return False
        listed = {path for path, _ in new}
        others = [*new, *((path, found) for path, found in _beside(folder) if path not in listed)]
        for path, found in others:
            if (found.st_dev, found.st_ino) not in self._by_inode and self._is_same_file(known, path, found):
                new[:] = [each for each in new if each[0] != path]
                self._is_at(known, path, found)
                return True
        return False

    def _is_same_file(self, known: Watched, path: str, found: os.stat_result) -> bool:
        if known.whole:
            return found.st_size == known.size and is_whole(path, known.format) and self._goes_on(known, path, found)
        return _holds(known, path, found)

    def _lost(self, known: Watched, at_path: dict, needed: Callable[[Watched], list[int]]) -> None:
        if not known.pos and not known.whole:
            # Nothing was made of it: it was still being written, or was not what it seemed.
            del self.files[known.no]
        elif known.path in at_path:
            raise _replaced(known, "it was replaced by another file; the old one is not in the folder any more")
        elif frames := needed(known):
            raise gone(known, frames)
        elif not known.done and known.size > known.pos:
            raise gone(known, [])
        else:
            known.gone = True
            self._gone.setdefault(known.path, []).append(known)
            self.moved[known.no] = known
        self._by_inode.pop((known.dev, known.ino), None)

    def _met(self, path: str, found: os.stat_result) -> Watched:
        """A file nobody knows, or one that was gone and is back."""
        for before in self._gone.get(path, ()):
            if not before.gone:
                continue
            if not self._is_same_file(before, path, found):
                raise _replaced(before, "a file of this name was read and is gone; this is another one")
            before.gone = False
            self._is_at(before, path, found)
            return before
        made = Watched(self._next_no(), path, found.st_ino, found.st_dev, self._formats[path])
        self.files[made.no] = self._by_inode[(made.dev, made.ino)] = made
        self._is_at(made, path, found)
        return made

    def _list(self) -> Listed:
        found: Listed = []
        for path, format in self._listing():
            try:
                found.append((path, os.stat(path)))
            except OSError:
                continue  # gone since it was listed
            self._formats[path] = format
        return found


def _has_more(known: Watched) -> bool:
    return not known.done if is_whole(known.path, known.format) else known.size > known.pos


def _beside(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The files of a folder, whatever their names."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        try:
            if entry.is_file():
                yield entry.path, os.stat(entry.path)
        except OSError:
            continue


# -- what was used of a file ---------------------------------------------------


def mark_used(known: Watched, pos: int) -> None:
    """The first `pos` bytes are used from now on."""
    known.pos = pos
    known.head, known.tail = _ends(known.path, pos)


def _holds(known: Watched, path: str, found: os.stat_result) -> bool:
    """Whether the file begins with what was used of the known one."""
    return found.st_size >= known.pos and _ends(path, known.pos) == (known.head, known.tail)


def _ends(path: str, pos: int) -> tuple[str, str]:
    """Digests of the first and the last bytes of the text up to `pos`; empty if it is shorter or cannot be read."""
    try:
        head = text.read_bytes(path, 0, min(pos, HEAD_BYTES))
        tail = text.read_bytes(path, max(0, pos - TAIL_BYTES), pos)
    except (OSError, SourceError):
        return "", ""
    if len(head) < min(pos, HEAD_BYTES) or len(tail) < min(pos, TAIL_BYTES):
        return "", ""
    return xxhash.xxh3_64_hexdigest(head), xxhash.xxh3_64_hexdigest(tail)


def mark_inflated(known: Watched, length: int, row: str) -> None:
    """What a .gz file says, so that it is known again where it is not compressed, and the other way round."""
    known.length, known.row = length, row
    known.head, known.tail = _ends(known.path, length)


class Seen:
    """Files by their first row, or whole: a copy is found among ten thousand without looking at each."""

    def __init__(self, files: Iterable[Watched]) -> None:
        self._by: dict[str, list[Watched]] = {}
        for known in files:
            self.add(known)

    def add(self, known: Watched) -> None:
        for mark in filter(None, (known.whole, known.row)):
            self._by.setdefault(mark, []).append(known)

    def copied(self, known: Watched) -> tuple[Watched, bool] | None:
        """The file whose used rows this one holds as well, compressed or not: a copy, as `copytruncate` makes one before it
        cuts the original. And whether it has all of them: one that is being copied has some, and no others."""
        some: Watched | None = None
        for mark in filter(None, (known.whole, known.row)):
            for other in self._by.get(mark, ()):
                if other.no == known.no:
                    continue
                if mark == known.whole:
                    return other, True
                there, used = known.length or known.size, other.length or other.pos
                if there >= used:
                    if _ends(known.path, used) == (other.head, other.tail):
                        return other, True
                elif not other.gone and any(ends := _ends(known.path, there)) and ends == _ends(other.path, there):
                    some = other
        return None if some is None else (some, False)


# -- what is said --------------------------------------------------------------

_RENAME = (
    "mv it to a name that the pattern finds and that was not used yet: it is then a new file, and ALL its rows are read, so "
    "take out those that were read before: they would come twice. If the old content was not "
    "used up, have it in the same folder too, under any name. Then run again; or read it in a folder of its own: --state DIR."
)


def _not_as_it_was(known: Watched, found: os.stat_result) -> SourceError:
    if found.st_size < known.pos:
        return SourceError(
            "HF-S060",
            "FileCutShort",
            "a file that only grows was cut short.",
            where=known.path,
            why=f"{known.pos:,} bytes of it were used and it has {found.st_size:,}; logrotate's copytruncate does this",
            effect=f"its first {known.rows:,} rows are in frames, which stand; nothing of its new content was read",
            do=f"{_RENAME} Rotate by renaming: logrotate's create, not copytruncate",
        )
    return _replaced(known, f"{known.pos:,} bytes of it were used, and they are not what they were")


def _replaced(known: Watched, why: str) -> SourceError:
    return SourceError(
        "HF-S004",
        "SourceChanged",
        "a file that only grows is not the one that frames were made of.",
        where=known.path,
        why=why,
        effect=f"{known.rows:,} rows of the old one are in frames, which stand; no row of the new content was read",
        do=_RENAME,
    )


def gone(known: Watched, frames: list[int]) -> SourceError:
    why = f"{known.size - known.pos:,} bytes of it were not read yet"
    if frames:
        span = f"frame {frames[0]:,}" if frames[0] == frames[-1] else f"frames {frames[0]:,} to {frames[-1]:,}"
        why = f"{span} have rows of it and may have to be made again"
    return SourceError(
        "HF-S061",
        "FileGone",
        "a file that is still needed is gone.",
        where=known.path,
        why=why,
        effect=f"its first {known.rows:,} rows are in frames; those made before stand, the others are not made",
        do="put it back, under any name in its folder, and run again",
    )


def found_twice(known: Watched, other: Watched) -> SourceError:
    return SourceError(
        "HF-S062",
        "FileTwice",
        "a new file begins with rows that were read from another one.",
        where=known.path,
        why=f"it is a copy of {other.path}, of which {other.rows:,} rows were used"
        + (": compressed, or the other way round" if bool(known.length) != bool(other.length) else ""),
        effect="nothing of it was read: its rows would be there twice; frames made before stand",
        do="move it out of the folder and run again; a copy belongs where the pattern does not find it",
    )


def since(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))
