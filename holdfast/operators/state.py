"""The state of a keyed operator: shards of runs on disk, decoded once in memory.

A commit writes one file with the rows of the touched keys, so what is written
follows what changed. Each shard is a list of runs, oldest first; a forgotten key is
a row that says so until it is folded into a base. `runs.fold` decides about that.

A worker keeps the decoded state of the operators it served last. Which runs a
shard's memory stands for is known by file name, and a file is never changed, so
`load` can tell exactly what is missing: nothing after its own commit, the newest run
when another worker made the last commit, everything when the lineage differs (the
other attempt at a frame won, or the run was set back). The result never depends on
which of these it was.

Touches its directory and this process's memory. Driven by `operators.keyed`.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.errors import invariant
from holdfast.graph.schemas import Schema
from holdfast.operators.index import KeyIndex, normal, sorted_by
from holdfast.operators.runs import KEYS, RunRef, fold, read_run_file, write_run_file
from holdfast.operators.slots import slot_column

__all__ = ["NotTouched", "Runs", "Store", "Touched", "drop_cache", "open_store"]

Runs = Mapping[int, tuple[RunRef, ...]]
FORGOTTEN = "_forgotten"
WAKE = "wake"
# A worker serves the keyed operators of one process, rarely more than a handful;
# each costs the memory of its whole state.
STORES_MAX = 8
# Below this many, slots of forgotten keys are not worth a reload.
DEAD_MIN = 10_000

_stores: OrderedDict[tuple, Store] = OrderedDict()


def open_store(directory: str | os.PathLike, keys: Schema, values: Schema) -> Store:
    """The store this worker has for the directory, or a new one."""
    name = (os.path.abspath(directory), keys, values)
    store = _stores.pop(name, None)
    if store is None or store.worn:
        store = Store(directory, keys, values)
    _stores[name] = store
    while len(_stores) > STORES_MAX:
        _stores.popitem(last=False)
    return store


def drop_cache() -> None:
    """Forgets all decoded state, as a new worker would."""
    _stores.clear()


class NotTouched(LookupError):
    """A row of new state has a key that was not touched, or one that came before."""

    def __init__(self, key: dict, twice: bool) -> None:
        self.key, self.twice = key, twice
        super().__init__(f"{key} {'came twice' if twice else 'was not touched'}")


@dataclass(frozen=True, slots=True)
class Touched:
    """Keys of a frame, each once, in order; `rows` are those known before."""

    keys: pa.Table
    slots: np.ndarray
    rows: pa.Table


class Store:
    """State of one operator: after `load` and `commit`, that of one version."""

    def __init__(self, directory: str | os.PathLike, keys: Schema, values: Schema) -> None:
        self._directory = os.path.abspath(directory)
        self._keys, self._values = list(keys.names), list(values.names)
        self._schema = pa.schema([*keys.arrow, *values.arrow])
        self._file_schema = self._schema.append(pa.field(FORGOTTEN, pa.bool_()))
        self._index = KeyIndex(keys.arrow)
        self._columns = {field.name: slot_column(field.type) for field in self._schema}
        self._alive = np.empty(0, dtype=bool)
        self._shard = np.empty(0, dtype=np.int32)
        self._runs: dict[int, list[tuple[RunRef, np.ndarray]]] = {}  # with the slots of its rows
        self.worn = False  # not to be used again: half read, half written, or mostly dead

    def load(self, runs: Runs) -> None:
        """Brings these shards to the state the runs say; others are left alone."""
        self.worn = True
        files: dict[str, pa.Table] = {}
        missing: list[tuple[RunRef, ...]] = []
        dropped: dict[int, tuple[int, np.ndarray]] = {}
        for shard, wanted in runs.items():
            have = self._runs.setdefault(shard, [])
            same = 0
            while same < min(len(have), len(wanted)) and have[same][0] == wanted[same]:
                same += 1
            if same == 0:
                self._empty(shard)
            elif same < len(have):
                dropped[shard] = same, np.concatenate([slots for _, slots in have[same:]])
                del have[same:]
            missing.append(tuple(wanted[same:]))
        self._read(missing, files)
        missing = []
        for shard, (same, slots) in dropped.items():
            # What the dropped runs said must be said anew by those that came instead.
            # If it is not, they were of another lineage: this shard starts over.
            said = [np.empty(0, np.int64), *(own for _, own in self._runs[shard][same:])]
            if not np.isin(slots, np.concatenate(said)).all():
                self._empty(shard)
                missing.append(tuple(runs[shard]))
        self._read(missing, files)
        self.worn = False

    def touch(self, keys: pa.Table, shards: np.ndarray) -> Touched:
        """Hands out these distinct keys, which live in these shards."""
        keys = normal(keys.select(self._keys)).combine_chunks()
        slots = self._add(keys, shards)
        return Touched(keys, slots, self._rows(slots[self._alive[slots]]))

    def due(self, boundary_us: int, shards: tuple[int, ...]) -> tuple[pa.Table, np.ndarray]:
        """Keys whose `wake` is not after the boundary, and their shards."""
        slots = np.empty(0, dtype=np.int64)
        if WAKE in self._values:
            slots = self._columns[WAKE].at_most(boundary_us)  # type: ignore[union-attr]
            slots = slots[self._alive[slots] & np.isin(self._shard[slots], shards)]
        return self._rows(slots, self._keys), self._shard[slots]

    def rows(self, shards: tuple[int, ...]) -> pa.Table:
        """All that is known in these shards, by key."""
        slots = np.flatnonzero(self._alive & np.isin(self._shard, shards))
        return self._rows(slots[sorted_by(self._rows(slots, self._keys))])

    def commit(self, version: int, rows: pa.Table, touched: Touched) -> Runs:
        """Makes `rows` the state of the touched keys; returns the runs of changed shards.

        A touched key without a row is forgotten.
        """
        slots = self._place(rows, touched)
        self.worn = True
        left = np.zeros(len(self._alive), dtype=bool)
        left[touched.slots] = self._alive[touched.slots]
        left[slots] = False
        forgotten = touched.slots[left[touched.slots]]
        for name in self._values:
            self._columns[name].put(slots, rows.column(name))
            self._columns[name].clear(forgotten)
        self._alive[slots] = True
        self._alive[forgotten] = False
        runs = self._write(version, np.concatenate([slots, forgotten]))
        dead = self._index.size - int(self._alive.sum())
        self.worn = dead > DEAD_MIN and 2 * dead > self._index.size
        return runs

    def _place(self, rows: pa.Table, touched: Touched) -> np.ndarray:
        keys = rows.select(self._keys)
        if keys.num_rows == touched.keys.num_rows and keys.equals(touched.keys):
            return touched.slots
        slots = self._index.find(keys)
        handed = np.zeros(len(self._alive) + 1, dtype=bool)  # the last is for unknown keys
        handed[touched.slots] = True
        strange = np.flatnonzero(~handed[slots])
        if len(strange):
            raise NotTouched(keys.slice(strange[0], 1).to_pylist()[0], twice=False)
        at = np.zeros(len(self._alive), dtype=np.int64)
        at[slots] = np.arange(len(slots))
        again = np.flatnonzero(at[slots] != np.arange(len(slots)))
        if len(again):
            raise NotTouched(keys.slice(again[0], 1).to_pylist()[0], twice=True)
        return slots

    def _write(self, version: int, changed: np.ndarray) -> Runs:
        if not len(changed):
            return {}
        shards = self._shard[changed]
        order = np.argsort(shards.astype(np.uint16), kind="stable")
        starts = np.flatnonzero(np.diff(shards[order]))
        new: dict[int, tuple[int, np.ndarray]] = {}  # runs that stay, slots of the one after
        for slots in np.split(changed[order], starts + 1):
            shard = int(self._shard[slots[0]])
            have = [own for _, own in self._runs.setdefault(shard, [])]
            kept, slots = fold(have, slots, shard)
            new[shard] = kept, slots if kept else slots[self._alive[slots]]
        slots = np.concatenate([own for _, own in new.values()])
        slots = slots[sorted_by(self._rows(slots, self._keys), self._shard[slots])]
        name, size = "", 0
        if len(slots):
            table = self._rows(slots).append_column(FORGOTTEN, pa.array(~self._alive[slots]))
            table = table.replace_schema_metadata({KEYS: str(len(self._keys))})
            name, size = write_run_file(self._directory, version, table)
        start = 0
        for shard, (kept, own) in new.items():  # in order of shards, as the rows are
            stop = start + len(own)
            del self._runs[shard][kept:]
            if len(own):
                run = RunRef(name, shard, start, stop, size * len(own) // len(slots))
                self._runs[shard].append((run, slots[start:stop]))
            start = stop
        return {shard: tuple(run for run, _ in self._runs[shard]) for shard in new}

    def _read(self, missing: list[tuple[RunRef, ...]], files: dict[str, pa.Table]) -> None:
        """Takes in the oldest missing run of every shard at once, then the next."""
        for depth in range(max(map(len, missing), default=0)):
            runs = [some[depth] for some in missing if depth < len(some)]
            for run in runs:
                if run.file not in files:
                    files[run.file] = read_run_file(self._directory, run.file, self._file_schema)
            table = pa.concat_tables([files[run.file].slice(run.start, run.rows) for run in runs])
            counts = [run.rows for run in runs]
            shards = np.repeat(np.array([run.shard for run in runs], np.int32), counts)
            slots = self._add(table.select(self._keys), shards)
            for name in self._values:
                self._columns[name].put(slots, table.column(name))
            self._alive[slots] = ~table.column(FORGOTTEN).to_numpy()
            for run, own in zip(runs, np.split(slots, np.cumsum(counts)[:-1]), strict=True):
                self._runs[run.shard].append((run, own))

    def _empty(self, shard: int) -> None:
        if self._runs[shard]:
            self._alive[self._shard == shard] = False
        self._runs[shard] = []

    def _rows(self, slots: np.ndarray, names: list[str] | None = None) -> pa.Table:
        names = self._schema.names if names is None else names
        return pa.table({name: self._columns[name].take(slots) for name in names})

    def _add(self, keys: pa.Table, shards: np.ndarray) -> np.ndarray:
        """Slots of distinct keys, new ones included."""
        slots = self._index.add(keys)
        room = self._index.size - len(self._alive)
        if room > 0:
            room = max(room, len(self._alive), 1024)  # doubling keeps growth cheap
            self._alive = np.concatenate([self._alive, np.zeros(room, bool)])
            self._shard = np.concatenate([self._shard, np.full(room, -1, np.int32)])
            for column in self._columns.values():
                column.grow(len(self._alive))
        known = self._shard[slots]
        invariant(
            bool(((known == shards) | (known < 0)).all()),
            f"a key of the state in {self._directory} came in another shard than before",
        )
        fresh = np.flatnonzero(known < 0)
        if len(fresh):
            for name in self._keys:
                self._columns[name].put(slots[fresh], keys.column(name).take(pa.array(fresh)))
            self._shard[slots] = shards
        return slots
