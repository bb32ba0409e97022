"""Run files: the changed rows of a keyed operator's state, one file per commit.

A run is a slice of a file: the rows of one shard that one commit (or one fold of
several) wrote, sorted by key. Newer runs cover older ones, so a shard is its runs
read in order. Files are written under a temporary name and renamed, never changed,
and named by version, attempt and content hash: two attempts at one frame cannot
tread on each other, and a damaged or missing file is found when it is read.

What must survive a power cut is synced by the backup, not here.
Touches only the directory it is given.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from holdfast.atomic import write_whole
from holdfast.errors import StateRefused

__all__ = [
    "FOLD_FROM", "KEYS", "RunRef", "fold", "is_whole", "open_run_file", "read_run_file", "run_file", "sweep", "write_run_file",
]  # fmt: skip

# In a file's own metadata: how many of its first columns are the key.
KEYS = b"holdfast.keys"

# A shard's deltas are folded into its base when they hold this share of the
# base's rows, up to twice the share: each shard has its own point in between, so
# shards of one size do not fold in the same frame and make it slow.
FOLD_FROM = 0.25
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, slots=True)
class RunRef:
    """Rows [start, stop) of a run file; all belong to one shard."""

    file: str
    shard: int
    start: int
    stop: int
    bytes: int

    @property
    def rows(self) -> int:
        return self.stop - self.start

    def to_json(self) -> list:
        return [self.file, self.shard, self.start, self.stop, self.bytes]

    @classmethod
    def from_json(cls, fields: list) -> RunRef:
        return cls(*fields)


def fold(runs: list[np.ndarray], changed: np.ndarray, shard: int) -> tuple[int, np.ndarray]:
    """How many of a shard's oldest runs stay, and the slots of the run that follows.

    `runs` are the slots of its runs, oldest first. Sizes at least halve from run to
    run, so runs are few and a row is rewritten a few times only. 0 means that all
    became a new base. It depends on content alone: a replay folds as the first did.
    """
    kept = len(runs)
    while kept and len(runs[kept - 1]) < 2 * len(changed):
        kept -= 1
        changed = np.union1d(runs[kept], changed)
    deltas = sum(len(run) for run in runs[1:kept]) + len(changed)
    if kept and deltas >= FOLD_FROM * (1 + shard * _GOLDEN % 1) * len(runs[0]):
        return 0, np.unique(np.concatenate([*runs[:kept], changed]))
    return kept, changed


def run_file(version: int, table: pa.Table) -> tuple[str, pa.Buffer]:
    """The name and content of a new file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    content = sink.getvalue()
    digest = xxhash.xxh3_64_hexdigest(content)
    return f"{version:08d}-{uuid.uuid4().hex[:12]}-{digest}.arrow", content


def write_run_file(directory: str | os.PathLike, version: int, table: pa.Table) -> tuple[str, int]:
    """Writes a new file; returns its name and size."""
    name, content = run_file(version, table)
    write_whole(Path(directory, name), content)  # synced by the run, before anything rests on it
    return name, content.size


def open_run_file(path: Path) -> pa.Table:
    """The rows of a run file, mapped into memory after its hash was compared."""
    try:
        with pa.memory_map(str(path)) as file:
            content = file.read_buffer()
    except OSError as error:
        raise _damaged(path, f"it cannot be read: {error}") from error
    if not is_whole(path.name, content):
        raise _damaged(path, f"its hash is {xxhash.xxh3_64_hexdigest(content)}, its name says {_said(path.name)}")
    return pa.ipc.open_file(content).read_all()


def read_run_file(directory: str | os.PathLike, name: str, schema: pa.Schema) -> pa.Table:
    """The rows of a run file that must have these columns."""
    path = Path(directory, name)
    table = open_run_file(path)
    if not table.schema.equals(schema):
        raise StateRefused(
            "HF-O011",
            "StateDoesNotFit",
            f"state file {path.name} has other columns than the operator declares.",
            where=str(path),
            why=f"stored {_columns(table.schema)}; declared {_columns(schema)}",
            effect="the state and all sealed frames are as they were",
            do="run with --fresh OPERATOR to start it with empty state, or undo the change",
        )
    return table


def is_whole(name: str, content: bytes | pa.Buffer) -> bool:
    """Whether this is what was written under the name."""
    return xxhash.xxh3_64_hexdigest(content) == _said(name)


def _said(name: str) -> str:
    return name.removesuffix(".arrow").rpartition("-")[2]


def sweep(directory: str | os.PathLike[str], kept: Iterable[RunRef], *, up_to: int) -> int:
    """Deletes files of versions up to `up_to` that no kept run names; returns how many.

    Later versions may belong to an attempt that is still under way.
    """
    named = {run.file for run in kept}
    gone = 0
    for entry in os.scandir(os.fspath(directory)):
        stem = entry.name.removeprefix(".")
        if entry.name in named or not stem[:8].isdigit():
            continue
        if int(stem.partition("-")[0]) <= up_to:
            try:
                os.unlink(entry.path)
            except FileNotFoundError:  # an attempt renamed or another sweep deleted it
                continue
            gone += 1
    return gone


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _damaged(path: Path, why: str) -> StateRefused:
    return StateRefused(
        "HF-O010",
        "StateDamaged",
        f"state file {path.name} is missing or damaged.",
        where=str(path),
        why=why,
        effect="the frame was not processed; sealed frames and sink tables are as they were",
        do="restore the state folder from a copy, or run with --fresh OPERATOR to start it empty",
    )
