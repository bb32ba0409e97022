"""Where a backup store is kept: a folder of this machine, or a URL that fsspec can reach.

Both write a file whole or not at all and only then return. A folder does it by a
temporary file, fsync, rename and fsync of the folder; other file systems put whole
objects, which is atomic there. A folder can lock out other os_processes (flock); a URL
cannot, so `stores` asks it to `create`: one of two who do so at once succeeds.

Every failure becomes `StoreAway` with the reason. A missing file is not a failure.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from holdfast.atomic import sync_way

__all__ = ["LOCK_S_MAX", "Folder", "Place", "StoreAway", "UrlPlace", "place_at"]

# A request takes milliseconds to seconds. A longer wait means a frozen holder: try elsewhere.
LOCK_S_MAX = 10.0
# File systems tell times in steps, of up to two seconds: within one, a file can change and look the same.
SETTLED_NS = 3_000_000_000


class StoreAway(Exception):
    """The store cannot be reached now; worth trying again."""


class Place(Protocol):
    exclusive: bool  # whether `locked` holds against other os_processes

    def read(self, path: str) -> bytes | None: ...
    def write(self, path: str, content: bytes) -> None: ...
    def create(self, path: str, content: bytes) -> bool: ...
    def delete(self, path: str) -> None: ...
    def listed(self, path: str) -> dict[str, str]: ...
    def size(self, path: str) -> int: ...
    def make(self, path: str) -> None: ...
    def begin(self) -> None: ...
    def locked(self, path: str) -> contextlib.AbstractContextManager[None]: ...


def place_at(url: str) -> Place:
    parts = urlsplit(url)
    if parts.scheme == "file":
        return Folder(Path(unquote(parts.path)))
    if "://" not in url:
        return Folder(Path(url))
    return UrlPlace(url)


_threads: dict[tuple[str, str], threading.Lock] = {}
_threads_guard = threading.Lock()


@contextlib.contextmanager
def _among_threads(place: str, path: str) -> Iterator[None]:
    with _threads_guard:
        lock = _threads.setdefault((place, path), threading.Lock())
    if not lock.acquire(timeout=LOCK_S_MAX):
        raise StoreAway(f"{place}: {path} has been locked for {LOCK_S_MAX:g} s")
    try:
        yield
    finally:
        lock.release()


class Folder:
    """Plain os calls. Folders 0700, files 0600; what `write` returned from is on the disk."""

    exclusive = True

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._named: set[str] = set()  # folders whose names are synced: whoever made them may have died before that

    def __str__(self) -> str:
        return str(self.root)

    def begin(self) -> None:
        """Make the folder itself; nothing else ever does, so that a lost one is not taken for an empty one."""
        with self._told(""):
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with contextlib.suppress(PermissionError):  # somebody else's folder that we may write to stays as it is
                self.root.chmod(0o700)
            sync_way(self.root)
            self._named.clear()

    def make(self, path: str) -> None:
        folder = self.root / path
        with self._told(path):
            if folder.is_symlink():  # what we write and delete would be somebody else's
                raise StoreAway(f"{folder} is a symbolic link, and none is ours")
            is_there = folder.is_dir()
            if not is_there:
                with contextlib.suppress(FileExistsError):  # made by another unit's thread at this moment
                    folder.mkdir(mode=0o700)
            if not is_there or path not in self._named:
                self._sync(folder.parent)
                self._named.add(path)

    def read(self, path: str) -> bytes | None:
        with self._told(path):
            try:
                return (self.root / path).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, path: str, content: bytes) -> None:
        final = self.root / path
        with self._told(path):
            tmp = final.with_name(f"{final.name}.{os.getpid()}.tmp")
            with contextlib.suppress(FileNotFoundError):
                tmp.unlink()
            self._put(tmp, content)
            self._rename(tmp, final)
            self._sync(final.parent)

    def create(self, path: str, content: bytes) -> bool:
        with self._told(path):
            try:
                self._put(self.root / path, content)
            except FileExistsError:
                return False
            self._sync((self.root / path).parent)
            return True

    def delete(self, path: str) -> None:
        with self._told(path), contextlib.suppress(FileNotFoundError):
            (self.root / path).unlink()

    def listed(self, path: str) -> dict[str, str]:
        """Names in a folder, and what the file system says about each: other words, another content.

        Of a file that changed a moment ago it says nothing that could be relied on: "".
        """
        with self._told(path):
            settled = time.time_ns() - SETTLED_NS
            found = {}
            try:
                entries = list(os.scandir(self.root / path))
            except FileNotFoundError:
                return {}
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    of = entry.stat(follow_symlinks=False)
                    is_settled = max(of.st_mtime_ns, of.st_ctime_ns) < settled
                    said = f"{of.st_ino} {of.st_size} {of.st_mtime_ns} {of.st_ctime_ns}"
                    found[entry.name] = said if is_settled else ""
            return found

    def size(self, path: str) -> int:
        with self._told(path):
            return sum(entry.stat().st_size for entry in (self.root / path).rglob("*") if entry.is_file())

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        with _among_threads(str(self), path):
            with self._told(path):
                handle = os.open(self.root / path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._lock(handle, path)
                yield
            finally:
                os.close(handle)

    def _lock(self, handle: int, path: str) -> None:
        deadline = time.monotonic() + LOCK_S_MAX
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
                    raise StoreAway(f"{self.root / path}: process {holder} has held it for {LOCK_S_MAX:g} s") from None
                time.sleep(0.005)
        os.pwrite(handle, f"{os.getpid():<20}\n".encode(), 0)

    def _put(self, path: Path, content: bytes) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        finally:
            os.close(handle)

    def _rename(self, tmp: Path, final: Path) -> None:
        os.replace(tmp, final)

    def _sync(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _told(self, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreAway(f"{self.root / path}: {error.strerror or error}") from error


class UrlPlace:
    """Any fsspec file system; its listings are never taken from a cache."""

    exclusive = False

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._opened: tuple[Any, str] | None = None

    def __str__(self) -> str:
        return self.url

    def begin(self) -> None:
        self.make("")

    def make(self, path: str) -> None:
        with self._reached(path) as (fs, full):
            fs.makedirs(full, exist_ok=True)

    def read(self, path: str) -> bytes | None:
        with self._reached(path) as (fs, full):
            try:
                return fs.cat_file(full)
            except FileNotFoundError:
                return None

    def write(self, path: str, content: bytes) -> None:
        with self._reached(path) as (fs, full):
            fs.pipe_file(full, content)
            if fs.cat_file(full) != content:
                raise OSError("it reads back otherwise than it was written")

    def create(self, path: str, content: bytes) -> bool:
        with self._reached(path) as (fs, full):
            try:
                fs.pipe_file(full, content, mode="create")
            except FileExistsError:
                return False
            return True

    def delete(self, path: str) -> None:
        with self._reached(path) as (fs, full), contextlib.suppress(FileNotFoundError):
            fs.rm_file(full)

    def listed(self, path: str) -> dict[str, str]:
        """Names in a folder, and what the file system says about each: other words, another content."""
        with self._reached(path) as (fs, full):
            fs.invalidate_cache(full)
            try:
                entries = fs.ls(full, detail=True)
            except FileNotFoundError:
                return {}
            named = {entry["name"].rstrip("/").rpartition("/")[2]: entry for entry in entries}
            return {name: repr(sorted(entry.items(), key=str)) for name, entry in named.items()}

    def size(self, path: str) -> int:
        with self._reached(path) as (fs, full):
            fs.invalidate_cache(full)
            return sum(entry["size"] or 0 for entry in fs.find(full, detail=True).values())

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        with _among_threads(self.url, path):
            yield

    @contextlib.contextmanager
    def _reached(self, path: str) -> Iterator[tuple[Any, str]]:
        try:
            if self._opened is None:
                from fsspec.core import url_to_fs

                self._opened = url_to_fs(self.url, use_listings_cache=False)
            fs, root = self._opened
            yield fs, f"{root}/{path}".rstrip("/")
        except Exception as error:  # drivers of object stores raise what they like
            raise StoreAway(f"{self.url}/{path}: {type(error).__name__}: {error}") from error
