"""What a checkpoint's state adds to the one packed before it, for each way of keeping state.

`RunsPart` is of keyed operators: the rows that are different, as one run. `SparkPart` is
of Spark's state stores: the changelogs that were not packed yet, as long as they lead back
to the base that was; else the newest snapshot and what came after it.

Driven by `hosts.containers`. Touches the folder of links it is given, reads pinned files.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from holdfast.errors import StateRefused
from holdfast.hosts.changelogs import Item, base_of, lineage, snapshot_files, store_of, stripped, version_of
from holdfast.hosts.local_checkpoint import read_near
from holdfast.operators.deltas import Incomparable, changed_rows
from holdfast.operators.runs import RunRef, open_run_file, run_file

__all__ = ["Found", "Part", "RunsPart", "SparkPart"]

State = Mapping[str, Mapping[str, Sequence[list]]]  # operator -> shard -> runs, oldest first
# A lineage is a string of at most 65,535 bytes, and an item has 76.
_WAY_MAX = 800
_LOGS = "spark/logs"


@dataclass(frozen=True)
class Found:
    files: dict[str, bytes] = field(default_factory=dict)
    runs: dict[str, dict[str, list[list]]] = field(default_factory=dict)


class Part(Protocol):
    def has_new_base(self, files: Mapping[str, Path]) -> bool:
        """Whether `whole` would give something better than what was packed and since."""

    def since(self, frame: int, record: Mapping[str, Any], files: Mapping[str, Path]) -> Found | None:
        """What is new after the checkpoint packed last; None if that cannot be told."""

    def whole(self, frame: int, record: Mapping[str, Any], files: Mapping[str, Path]) -> Found: ...

    def packed(self, record: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        """What was asked for last is in a container now."""

    def adopt(self, near: State | None, record: Mapping, packed: Sequence[Mapping[str, bytes]], unit: Path) -> None:
        """Go on after a checkpoint: `packed` are its containers from the base on, `near` the runs it told of."""


class RunsPart:
    def __init__(self, links: Path) -> None:
        self._links = links
        self.near: State | None = None  # the state packed last

    def has_new_base(self, files: Mapping[str, Path]) -> bool:
        return True

    def since(self, frame: int, record: Mapping[str, Any], files: Mapping[str, Path]) -> Found | None:
        state = record.get("state", {})
        if self.near is None or self.near.keys() - state.keys():
            return None
        return self._difference(frame, self.near, state, files)

    def whole(self, frame: int, record: Mapping[str, Any], files: Mapping[str, Path]) -> Found:
        state = record.get("state", {})
        found = self._difference(frame, {}, state, files)
        if found is not None:
            return found
        own = {name: read_near(name, path) for name, path in files.items() if name.startswith("runs/")}
        return Found(
            own, {operator: {shard: list(runs) for shard, runs in own.items()} for operator, own in state.items()}
        )

    def _difference(self, frame: int, old: State, new: State, files: Mapping[str, Path]) -> Found | None:
        """None: it cannot be told, as rows are not comparable or what they are to be compared with is gone."""
        own: dict[str, bytes] = {}
        runs: dict[str, dict[str, list[list]]] = {}
        for operator, shards in new.items():
            before = old.get(operator, {})
            opened: dict[str, pa.Table] = {}

            def rows_of(run: RunRef, operator: str = operator, opened: dict = opened) -> pa.Table:
                if run.file not in opened:
                    opened[run.file] = self._opened(f"{operator}/{run.file}", files)
                return opened[run.file].slice(run.start, run.rows)

            parts = []
            for shard in sorted({*before, *shards}, key=int):
                try:
                    then, now = ([RunRef.from_json(run) for run in some.get(shard, ())] for some in (before, shards))
                    rows = changed_rows(then, now, rows_of)
                except (Incomparable, StateRefused):
                    return None
                if rows is not None and rows.num_rows:
                    parts.append((shard, rows))
            if not parts:
                continue
            table = pa.concat_tables([rows for _, rows in parts]).combine_chunks()
            name, content = run_file(frame, table)
            own[f"runs/{operator}/{name}"] = content.to_pybytes()
            start = 0
            runs[operator] = {}
            for shard, rows in parts:
                stop = start + rows.num_rows
                size = content.size * rows.num_rows // table.num_rows
                runs[operator][shard] = [RunRef(name, int(shard), start, stop, size).to_json()]
                start = stop
        return Found(own, runs)

    def _opened(self, name: str, files: Mapping[str, Path]) -> pa.Table:
        """A run that was damaged since it was written is none: it must not become a backup."""
        pinned = files.get(f"runs/{name}")
        if pinned is None:
            return open_run_file(self._links / name)
        try:
            return open_run_file(pinned)
        except StateRefused as error:
            raise FileNotFoundError(errno.ENOENT, "it is not what was written under its name", str(pinned)) from error

    def packed(self, record: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        self.near = record.get("state", {})
        for name, path in files.items():
            if name.startswith("runs/"):
                self._link(path, name.removeprefix("runs/"))

    def _link(self, path: Path, name: str) -> None:
        link = self._links / name
        link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):  # never changed under one name
            os.link(path, link)

    def adopt(self, near: State | None, record: Mapping, packed: Sequence[Mapping[str, bytes]], unit: Path) -> None:
        restored = record.get("state", {})
        if all((unit / "runs" / name).exists() for name in _named(restored)):
            for name in _named(restored):
                self._link(unit / "runs" / name, name)
            self.near = restored
        elif near is not None and all((self._links / name).exists() for name in _named(near)):
            self.near = near


def _named(state: State) -> set[str]:
    return {f"{operator}/{run[0]}" for operator, shards in state.items() for runs in shards.values() for run in runs}


class SparkPart:
    def __init__(self) -> None:
        self._lineages: dict[str, list[Item]] = {}  # of changelogs in containers from the base on
        self._zips: dict[str, set[Item]] = {}  # likewise, by store
        self._others: set[str] = set()
        self._asked: tuple[bool, dict[str, list[Item]], dict[str, set[Item]], set[str]] | None = None

    def has_new_base(self, files: Mapping[str, Path]) -> bool:
        stores = _Stores.of(files)
        return all(own.zips and max(own.zips) not in self._zips.get(store, ()) for store, own in stores.items())

    def since(self, frame: int, record: Mapping[str, Any], files: Mapping[str, Path]) -> Found | None:
        return self._found(files, self._zips, self._lineages, is_whole=False)

    def whole(self, frame: int, record: Mapping[str, Any], files: Mapping[str, Path]) -> Found:
        zips = {store: own.zips for store, own in _Stores.of(files).items()}
        found = self._found(files, zips, {}, is_whole=True)
        if found is not None:
            return found
        # Of a form we do not know: everything, as it is.
        self._asked = True, {}, {}, set()
        own = {name: path.read_bytes() for name, path in files.items() if name.startswith("spark/state/")}
        return Found(_logs(files) | own)

    def _found(
        self,
        files: Mapping[str, Path],
        zips: Mapping[str, set[Item]],
        known: Mapping[str, list[Item]],
        *,
        is_whole: bool,
    ) -> Found | None:
        own: dict[str, bytes] = {}
        bases: dict[str, set[Item]] = defaultdict(set)
        lineages: dict[str, list[Item]] = {}
        belonging: set[str] | None = set()
        for store, each in _Stores.of(files).items():

            def before(item: Item, store: str = store) -> list[Item] | None:
                name = _changelog(store, item)
                if name in known:
                    return known[name]
                if name not in lineages:
                    if name not in files:
                        return None
                    content = files[name].read_bytes()
                    said = lineage(content)
                    if said is None:
                        return None
                    lineages[name], own[name] = said, stripped(content)
                return lineages[name]

            for version, identity in each.newest:
                way = base_of(version, identity, before, zips.get(store, ()))
                if way is None or len(way) > _WAY_MAX:
                    return None
                for item in way:  # every changelog on the way has to be there, not only those that were asked
                    if item in zips.get(store, ()):
                        bases[store].add(item)
                    elif before(item) is None:
                        return None
        if is_whole:
            for store, items in bases.items():
                for version, identity in items:
                    name = f"{store}{version}_{identity}.zip"
                    own[name] = files[name].read_bytes()
                    named = snapshot_files(own[name])
                    belonging = (
                        None
                        if named is None or belonging is None
                        else belonging | {store + "SSTs/" + each for each in named}
                    )
        others = {name for name in files if name.startswith("spark/state/") and store_of(name) is None}
        if is_whole:
            others = {name for name in others if "/SSTs/" not in name or belonging is None or name in belonging}
        else:
            others = {name for name in others if "/SSTs/" not in name} - self._others
        own |= {name: files[name].read_bytes() for name in others}
        self._asked = is_whole, lineages, bases, others
        return Found(_logs(files) | own)

    def packed(self, record: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        if self._asked is None:
            return
        is_whole, lineages, bases, others = self._asked
        if is_whole:
            self._lineages, self._zips, self._others = {}, dict(bases), set()
        self._lineages |= lineages
        self._others |= others

    def adopt(self, near: State | None, record: Mapping, packed: Sequence[Mapping[str, bytes]], unit: Path) -> None:
        for files in packed:
            for name, content in files.items():
                store = store_of(name)
                if store is None:
                    self._others.add(name)
                    continue
                version, identity, kind = version_of(name)
                if kind == "zip":
                    self._zips.setdefault(store, set()).add((version, identity))
                elif (said := lineage(content)) is not None:
                    self._lineages[name] = said

    @staticmethod
    def with_logs(files: Mapping[str, bytes]) -> dict[str, bytes]:
        """Files of a checkpoint, its entries of Spark's logs each as a file again."""
        logs = json.loads(files[_LOGS]) if _LOGS in files else {}
        return {name: own for name, own in files.items() if name != _LOGS} | {
            name: text.encode() for name, text in logs.items()
        }


@dataclass
class _Stores:
    """The versioned files of one state store."""

    newest: list[Item] = field(default_factory=list)  # of the newest version; two if a task was tried twice
    zips: set[Item] = field(default_factory=set)

    @staticmethod
    def of(names: Iterable[str]) -> dict[str, _Stores]:
        found: dict[str, _Stores] = {}
        for name in names:
            store = store_of(name)
            if store is None:
                continue
            version, identity, kind = version_of(name)
            own = found.setdefault(store, _Stores())
            if kind == "zip":
                own.zips.add((version, identity))
            elif not own.newest or own.newest[0][0] < version:
                own.newest = [(version, identity)]
            elif own.newest[0][0] == version:
                own.newest.append((version, identity))
        return found


def _changelog(store: str, item: Item) -> str:
    return f"{store}{item[0]}_{item[1]}.changelog"


def _logs(files: Mapping[str, Path]) -> dict[str, bytes]:
    """The entries of Spark's offset and commit logs, under one name: the newest ones are what counts."""
    logs = {
        name: path.read_text() for name, path in files.items() if name.startswith(("spark/offsets/", "spark/commits/"))
    }
    return {_LOGS: json.dumps(logs).encode()} if logs else {}
