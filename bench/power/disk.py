"""A disk as POSIX promises it, no kinder: what a recorded run wrote, and what is left of it at a cut.

A file that was synced has the content it had then. A name is there if its folder was synced after it
was made. Of everything else any part may be there, in any order: a name without the content, content
without the name, some pages of a write and not those before them, zeros where data was to be, a file under
its old name and its new one. ext4 and its like are kinder; nobody should count on that.

The model knows inodes and folders. `Disk.play` takes one record of the log after the other; `image` writes
a folder as it may be found afterwards.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Disk", "Record", "records", "told", "whole"]

_HEAD = struct.Struct("<IIIIQQQQ")
_MAGIC = 0x48464C31
CREATE, WRITE, TRUNCATE, RENAME, LINK, UNLINK, MKDIR, RMDIR, SYNC, MAPPED, SYNCALL, SYMLINK = range(1, 13)
_PAGE = 4096
#: Written by the soak itself: what somebody outside was told at this moment.
TOLD = 100
# Shared memory between SQLite's readers; it is made anew by the first that opens the database.
MAPPED_OK = ("-shm",)


@dataclass(frozen=True, slots=True)
class Record:
    kind: int
    first: str
    second: str
    inode: int
    other: int
    offset: int
    data: bytes


def records(log: Path) -> Iterator[Record]:
    data = memoryview(log.read_bytes())
    at = 0
    while at < len(data):
        magic, kind, first, second, inode, other, offset, size = _HEAD.unpack_from(data, at)
        if magic != _MAGIC:
            raise SystemExit(f"the log is damaged at byte {at}")
        at += _HEAD.size
        parts = []
        for length in (first, second, size):
            parts.append(bytes(data[at : at + length]))
            at += length
        yield Record(kind, parts[0].decode(), parts[1].decode(), inode, other, offset, parts[2])


def told(log: int, what: bytes) -> None:
    """Add to the log that somebody outside was told something."""
    os.write(log, _HEAD.pack(_MAGIC, TOLD, 0, 0, 0, 0, 0, len(what)) + what)


@dataclass
class _File:
    now: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)  # since the last sync, in order

    def write(self, offset: int, data: bytes) -> None:
        if len(self.now) < offset:
            self.now.extend(bytes(offset - len(self.now)))
        self.now[offset : offset + len(data)] = data
        self.pending.append(("write", offset, data))

    def truncate(self, size: int) -> None:
        if size < len(self.now):
            del self.now[size:]
        else:
            self.now.extend(bytes(size - len(self.now)))
        self.pending.append(("truncate", size, b""))

    def sync(self) -> None:
        self.synced, self.pending = bytes(self.now), []

    def left(self, chance: random.Random, way: str) -> bytes:
        if not self.pending or way == "all":
            return bytes(self.now)
        if way == "none":
            return self.synced
        if way == "zeros":  # the size got there, the data did not
            return self.synced[: len(self.now)] + bytes(max(0, len(self.now) - len(self.synced)))
        content = bytearray(self.synced)
        ops = self.pending if way == "pages" else self.pending[: chance.randrange(len(self.pending) + 1)]
        for place, (kind, offset, data) in enumerate(ops):
            if kind == "truncate":
                if way == "pages" and chance.random() < 0.5:
                    continue
                content[offset:] = bytes(max(0, offset - len(content)))
                continue
            torn = way == "prefix" and place == len(ops) - 1
            end = chance.randrange(len(data) + 1) if torn else len(data)
            for start in range(0, end, _PAGE):
                part = data[start : min(start + _PAGE, end)]
                if way == "pages" and chance.random() < 0.5:
                    continue  # left as it was, or zeros if it was not there
                at = offset + start
                if len(content) < at:
                    content.extend(bytes(at - len(content)))
                content[at : at + len(part)] = part
        return bytes(content)


@dataclass
class _Folder:
    now: dict[str, int] = field(default_factory=dict)  # name -> inode
    synced: dict[str, int] = field(default_factory=dict)
    since: dict[str, list[int | None]] = field(default_factory=dict)  # by name, what it was since the last sync

    def set(self, name: str, inode: int | None) -> None:
        if inode is None:
            self.now.pop(name, None)
        else:
            self.now[name] = inode
        self.since.setdefault(name, []).append(inode)

    def sync(self) -> None:
        self.synced, self.since = dict(self.now), {}

    def left(self, chance: random.Random, way: str) -> dict[str, int]:
        found = dict(self.synced)
        for name, values in self.since.items():
            if way == "none":
                continue
            if way == "all":
                value = values[-1]
            else:
                value = chance.choice([self.synced.get(name), *values])
            if value is None:
                found.pop(name, None)
            else:
                found[name] = value
        return found


class Disk:
    def __init__(self, roots: list[Path]) -> None:
        """What lies below the roots now is synced."""
        self.roots = [str(root) for root in roots]
        self._files: dict[int, _File] = {}
        self._folders: dict[int, _Folder] = {}
        self._top: dict[str, int] = {}
        self.mapped: set[str] = set()
        self.told: list[bytes] = []
        self.syncs = 0
        self._made = 0
        for root in self.roots:
            self._top[root] = self._take_in(Path(root))

    def _take_in(self, path: Path) -> int:
        inode = self._fresh()
        if path.is_dir():
            folder = self._folders[inode] = _Folder()
            for entry in path.iterdir():
                folder.now[entry.name] = self._take_in(entry)
            folder.sync()
        else:
            file = self._files[inode] = _File(bytearray(path.read_bytes()))
            file.sync()
        return inode

    def _fresh(self) -> int:
        self._made += 1
        return self._made

    # ---- names ----

    def _at(self, path: str) -> tuple[_Folder | None, str]:
        """The folder a path lies in, and its name there."""
        for root, inode in self._top.items():
            if path == root:
                return None, root
            if path.startswith(root + "/"):
                *way, name = path[len(root) + 1 :].split("/")
                folder = self._folders[inode]
                for part in way:
                    inode = folder.now.get(part, 0)
                    if inode not in self._folders:
                        return None, ""
                    folder = self._folders[inode]
                return folder, name
        return None, ""

    def _inode(self, path: str) -> int | None:
        if path in self._top:
            return self._top[path]
        folder, name = self._at(path)
        return None if folder is None else folder.now.get(name)

    def _file(self, path: str) -> _File | None:
        inode = self._inode(path)
        return None if inode is None else self._files.get(inode)

    # ---- what was done ----

    def play(self, record: Record) -> None:
        path = record.first
        folder, name = self._at(path)
        match record.kind:
            case 1 if folder is not None and name not in folder.now:  # CREATE
                inode = self._fresh()
                self._files[inode] = _File()
                folder.set(name, inode)
            case 2:
                if (file := self._file(path)) is not None:
                    file.write(record.offset, record.data)
            case 3:
                if (file := self._file(path)) is not None and len(file.now) != record.offset:
                    file.truncate(record.offset)
            case 4:
                self._rename(path, record.second)
            case 5:
                inode = self._inode(path)
                to, to_name = self._at(record.second)
                if inode is not None and to is not None:
                    to.set(to_name, inode)
            case 6 | 8 if folder is not None:
                folder.set(name, None)
            case 7 if folder is not None:
                inode = self._fresh()
                self._folders[inode] = _Folder()
                folder.set(name, inode)
            case 9:
                self.syncs += 1
                inode = self._inode(path)
                if inode in self._folders:
                    self._folders[inode].sync()
                elif inode in self._files:
                    self._files[inode].sync()
            case 10:
                if not path.endswith(MAPPED_OK):
                    self.mapped.add(path)
            case 100:
                self.told.append(record.data)

    def _rename(self, source: str, target: str) -> None:
        inode = self._inode(source)
        from_folder, from_name = self._at(source)
        to_folder, to_name = self._at(target)
        if from_folder is not None:
            from_folder.set(from_name, None)
        if to_folder is not None and inode is not None:
            to_folder.set(to_name, inode)

    # ---- what is left ----

    def image(self, chance: random.Random | None) -> None:
        """Make the roots what is left of them; None: as if the power had stayed."""
        for root, inode in self._top.items():
            before = None if chance is None else chance.getstate()
            for left in range(50, -1, -1):
                _emptied(Path(root))
                try:
                    self._lay_out(Path(root), inode, chance)
                    break
                except FileExistsError:  # by Spark's maintenance, of the run before: the same image once more
                    if not left:
                        raise
                    if chance is not None:
                        chance.setstate(before)

    def _lay_out(self, path: Path, inode: int, chance: random.Random | None) -> None:
        whole_way = "all" if chance is None else chance.choices(("none", "all", "each"), (3, 2, 5))[0]
        folder = self._folders[inode]
        for name, other in sorted((folder.now if chance is None else folder.left(chance, whole_way)).items()):
            target = path / name
            if other in self._folders:
                target.mkdir(mode=0o700)
                self._lay_out(target, other, chance)
            else:
                way = (
                    "all"
                    if chance is None
                    else chance.choices(("none", "all", "zeros", "pages", "prefix"), (3, 2, 1, 2, 2))[0]
                )
                target.write_bytes(self._files[other].left(chance or random, way))


def _emptied(folder: Path) -> None:
    """Of a run that is over; Spark's maintenance of its state may still be writing a last file."""
    for entry in folder.iterdir():
        for left in range(50, -1, -1):
            try:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
                break
            except OSError:
                if not left:
                    raise
                time.sleep(0.1)


def whole(disk: Disk) -> list[str]:
    """Where the model of an undisturbed run differs from the folders as they really are: must be nothing."""
    wrong = []

    def compare(path: Path, inode: int) -> None:
        folder = disk._folders[inode]
        there = {entry.name for entry in path.iterdir()}
        for name in sorted(there ^ set(folder.now)):
            if not name.endswith(MAPPED_OK):
                wrong.append(f"{path / name}: {'not in the log' if name in there else 'only in the log'}")
        for name in sorted(there & set(folder.now)):
            other, target = folder.now[name], path / name
            if other in disk._folders and target.is_dir():
                compare(target, other)
            elif other in disk._files and target.is_file():
                if not name.endswith(MAPPED_OK) and target.read_bytes() != bytes(disk._files[other].now):
                    wrong.append(f"{target}: other content")
            elif not target.is_socket():
                wrong.append(f"{target}: file or folder")

    for root, inode in disk._top.items():
        compare(Path(root), inode)
    return wrong
