"""What the keyed machine is told: the operator once, the frames of each call.

`KeyedSpec` is fixed when the plan is built and pickled into it; `FrameContext`
changes with every call and travels as JSON. Notes are what a task leaves for the
driver: which runs its shards have after each frame. A task tried twice leaves two
notes that say the same in other files; the driver takes either.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.atomic import write_whole
from holdfast.errors import invariant
from holdfast.graph.schemas import Schema
from holdfast.journals.notes import as_note, read_note
from holdfast.operators.runs import RunRef
from holdfast.operators.state import Runs

__all__ = ["FrameContext", "FrameStep", "KeyedSpec", "Note", "read_notes", "write_note"]


@dataclass(frozen=True)
class KeyedSpec:
    """A keyed operator. `function(state, *ports, **params) -> (state, out)`."""

    name: str
    keys: tuple[str, ...]
    ports: tuple[tuple[str, Schema], ...]  # in the order of the function's parameters
    state: Schema  # without the keys
    emits: tuple[tuple[str, Schema], ...]  # name as the function returns it, columns
    function: Callable[..., Any]
    time: str | None = None  # rows are sorted by it first, where a port has it
    exact: bool = False  # hand in Arrow's types instead of numpy's
    where: str = ""  # file:line of the declaration
    too_late: str = "drop"  # rows for windows that are closed: "drop" counts them, anything else raises

    @cached_property
    def key_schema(self) -> Schema:
        first = self.ports[0][1]
        return Schema(tuple(c for name in self.keys for c in first.columns if c.name == name))

    @cached_property
    def input_schema(self) -> pa.Schema:
        """What `run_keyed` reads: `_n` may be left out when there is one frame."""
        tags = [("_n", pa.int64()), ("_shard", pa.int32()), ("_port", pa.int32())]
        return pa.schema([*tags, *_tagged("p", [schema for _, schema in self.ports])])

    @cached_property
    def output_schema(self) -> pa.Schema:
        """What `run_keyed` yields: stream i in the columns `o{i}_...` of the rows with `_out` i."""
        tags = [("_n", pa.int64()), ("_out", pa.int32())]
        return pa.schema([*tags, *_tagged("o", [schema for _, schema in self.emits])])


@dataclass(frozen=True)
class FrameStep:
    """One frame: its number, its boundary, that of the frame before, parameters."""

    n: int
    boundary_us: int
    since_us: int | None = None
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FrameContext:
    """The frames of one call, in order, and the state before the first of them."""

    steps: tuple[FrameStep, ...]
    shards: tuple[int, ...]  # of this task
    runs: Runs  # after the frame before; shards without state may be missing
    runs_dir: str
    notes_dir: str
    epoch: int = 0

    def to_json(self) -> dict:
        return {
            "steps": [[s.n, s.boundary_us, s.since_us, dict(s.params)] for s in self.steps],
            "shards": list(self.shards),
            "runs": _runs_to_json(self.runs),
            "runs_dir": self.runs_dir,
            "notes_dir": self.notes_dir,
            "epoch": self.epoch,
        }

    @classmethod
    def from_json(cls, fields: dict) -> FrameContext:
        return cls(
            steps=tuple(FrameStep(*step) for step in fields["steps"]),
            shards=tuple(fields["shards"]),
            runs=_runs_from_json(fields["runs"]),
            runs_dir=fields["runs_dir"],
            notes_dir=fields["notes_dir"],
            epoch=fields["epoch"],
        )

    def of_task(self, partition: int, partitions: int) -> FrameContext:
        """The shards of one task when shard s goes to partition s modulo partitions."""
        return replace(self, shards=tuple(s for s in self.shards if s % partitions == partition))


@dataclass(frozen=True)
class Note:
    """What one task did in one frame. `runs` are those of shards that changed."""

    n: int
    epoch: int
    shards: tuple[int, ...]
    runs: Runs
    keys: int = 0  # touched
    rows: int = 0  # read
    counts: Mapping[str, int] = field(default_factory=dict)  # e.g. late_rows


def write_note(directory: str | os.PathLike, note: Note) -> str:
    name = f"{note.n:08d}.{_span(note.shards)}.{uuid.uuid4().hex[:12]}.json"
    text = as_note(
        {
            "n": note.n,
            "epoch": note.epoch,
            "shards": list(note.shards),
            "runs": _runs_to_json(note.runs),
            "keys": note.keys,
            "rows": note.rows,
            "counts": dict(note.counts),
        }
    )
    write_whole(os.path.join(directory, name), text)
    return name


def read_notes(directory: str | os.PathLike, n: int, shards: Iterable[int]) -> list[Note]:
    """One note for every task of frame n; together they cover all `shards`.

    Of several attempts the one with the highest epoch counts, then the first by name:
    they say the same in other files.
    """
    prefix = f"{n:08d}."
    found = []
    for name in sorted(os.listdir(directory)):
        if name.startswith(prefix) and name.endswith(".json"):
            path = Path(directory, name)
            fields = read_note(path, effect="the frame was not committed", do="run again: it is taken anew")
            fields["shards"] = tuple(fields["shards"])
            fields["runs"] = _runs_from_json(fields["runs"])
            found.append(Note(**fields))
    found.sort(key=lambda note: -note.epoch)
    wanted = frozenset(shards)
    taken = _cover(wanted, found)
    missing = sorted(wanted.difference(*(note.shards for note in found)))
    invariant(taken is not None, f"frame {n}: no task left a note about shards {missing or sorted(wanted)}")
    return taken


def _cover(shards: frozenset[int], notes: list[Note]) -> list[Note] | None:
    """Notes that speak of each shard once; attempts may have cut shards into tasks differently."""
    if not shards:
        return []
    for note in notes:
        if min(shards) in note.shards and shards.issuperset(note.shards):
            rest = _cover(shards.difference(note.shards), notes)
            if rest is not None:
                return [note, *rest]
    return None


def _tagged(letter: str, schemas: list[Schema]) -> list[pa.Field]:
    return [
        pa.field(f"{letter}{at}_{column.name}", column.type)
        for at, schema in enumerate(schemas)
        for column in schema.arrow
    ]


def _span(shards: tuple[int, ...]) -> str:
    return f"{min(shards)}-{max(shards)}x{len(shards)}" if shards else "none"


def _runs_to_json(runs: Runs) -> dict:
    return {str(shard): [run.to_json() for run in own] for shard, own in runs.items()}


def _runs_from_json(fields: dict) -> dict[int, tuple[RunRef, ...]]:
    return {int(shard): tuple(map(RunRef.from_json, own)) for shard, own in fields.items()}
