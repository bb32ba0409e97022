"""Which frames a sink has, asked of its own ledger without writing there.

A sink is opened by a run with an epoch that it claims; whoever only looks must not.
So the place of each sink is kept in the deployment (never a secret), and its ledger
is read through a connection that cannot write. A target that cannot be looked at
(held by a run, another server, a callback) is said to be so; then the run itself
or the queue knows how far it is.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["LedgerEntry", "entry_in", "target_of"]

_QUERY = (
    'select kind, checksum, epoch, "rows" from _holdfast_ledger where process = ? and sink = ? and frame = ?',
    "select * from _holdfast_epoch where process = ? and sink = ?",
)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """`has` is None where nobody can tell; `why` then says the reason."""

    has: bool | None
    checksum: str = ""
    epoch: int = 0
    rows: int = 0
    why: str = ""


def target_of(writer: Any, base: str) -> dict[str, Any]:
    """Where a writer writes, as the deployment keeps it: kind, path and table; no addresses, no secrets."""
    kind = type(writer).__name__.removesuffix("Writer").lower()
    found: dict[str, Any] = {"kind": kind}
    for name in ("path", "folder"):
        if isinstance(value := getattr(writer, name, None), Path):
            found["path"] = str((Path(base) / value).absolute())
    if isinstance(table := getattr(writer, "table", None), str):
        found["table"] = table
    return found


def entry_in(target: Mapping[str, Any], process: str, sink: str, n: int) -> LedgerEntry:
    """What the sink's ledger says about frame n."""
    path = Path(target.get("path", ""))
    kind = target.get("kind", "")
    if kind not in ("sqlite", "duckdb", "parquet"):
        return LedgerEntry(None, why=f"a {kind or 'foreign'} sink has no ledger that can be read from here")
    if not path.exists():
        return LedgerEntry(False, why=f"{path.name} is not there")
    try:
        if kind == "parquet":
            return _in_folder(path, n)
        rows = _in_sqlite(path, process, sink, n) if kind == "sqlite" else _in_duckdb(path, process, sink, n)
    except Exception as error:
        return LedgerEntry(None, why=f"{path.name} cannot be read now: {str(error).splitlines()[0][:120]}")
    entry, last = rows
    if entry is not None:
        return LedgerEntry(True, entry[1], int(entry[2]), int(entry[3]))
    if last is not None and n <= last:
        return LedgerEntry(True, why="older than the ledger keeps")
    return LedgerEntry(False)


def _in_sqlite(path: Path, process: str, sink: str, n: int) -> tuple[tuple | None, int | None]:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2)
    try:
        return _asked(connection, process, sink, n)
    finally:
        connection.close()


def _in_duckdb(path: Path, process: str, sink: str, n: int) -> tuple[tuple | None, int | None]:
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        return _asked(connection, process, sink, n)


def _asked(connection: Any, process: str, sink: str, n: int) -> tuple[tuple | None, int | None]:
    """The ledger's row of the state folder's frame n, and the folder's last frame that is written."""
    found = connection.execute(_QUERY[1], [process, sink])
    names = [column[0] for column in found.description]
    row = found.fetchone()
    if row is None:
        return None, None
    epoch = dict(zip(names, row, strict=True))
    base = epoch.get("base") or 0  # a ledger of an earlier version has none
    return connection.execute(_QUERY[0], [process, sink, n + base]).fetchone(), epoch["frame"] - base


def _in_folder(path: Path, n: int) -> LedgerEntry:
    lines = (path / "_holdfast" / "ledger.jsonl").read_text().splitlines()
    head = json.loads(lines[0]) if lines else {"last": 0}
    last, n = head["last"], n + head.get("base", 0)
    for line in reversed(lines[1:]):
        try:
            frame, _, checksum, epoch, rows, *_ = json.loads(line)
        except ValueError:
            continue  # torn: a run is writing it now, or was killed doing so
        last = max(last, frame)
        if frame == n:
            return LedgerEntry(True, checksum, epoch, rows)
    return LedgerEntry(n <= last, why="older than the ledger keeps" if n <= last else "")
