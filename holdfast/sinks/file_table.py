"""A table in a database file: one lock per file, and what to do when it will not open.

All sinks of this os_process that write to one file take turns instead of failing;
a file's folder is made when it is missing. Names no database.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock, RLock
from weakref import WeakValueDictionary

from holdfast.sinks.table import TableSink
from holdfast.sinks.writer import SinkContext

__all__ = ["FileTableSink"]


class _FileLock:
    """A lock that lives as long as a sink of its file does."""

    def __init__(self) -> None:
        self.held = RLock()

    def __enter__(self) -> None:
        self.held.acquire()

    def __exit__(self, *_: object) -> None:
        self.held.release()


_locks: WeakValueDictionary[Path, _FileLock] = WeakValueDictionary()
_locks_guard = Lock()


def _lock_of(path: Path) -> _FileLock:
    with _locks_guard:
        return _locks.setdefault(path.resolve(), _FileLock())


class FileTableSink(TableSink):
    folds_names = True

    def __init__(
        self,
        path: Path,
        table: str,
        keys: tuple[str, ...],
        context: SinkContext,
        new_columns: str = "fail",
        shared: bool = False,
    ) -> None:
        self.path, self.place = path, path.name
        super().__init__(table, keys, context, lock=_lock_of(path), new_columns=new_columns, shared=shared)

    def away_advice(self) -> str:
        return (
            "another program holds the database, or the disk is full: end its transaction, or make room;"
            " a sink that runs goes on by itself then"
        )

    def advice(self, error: Exception) -> str:
        if self._connection is None and not self._was_open:
            return f"see that {self.path} is a database of this kind, may be written and is not held open elsewhere"
        return f"see that {self.path} can be written; the frame is then written"
