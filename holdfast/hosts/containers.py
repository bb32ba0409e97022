"""Checkpoints as files: what a unit's pinned state adds to its backup, in one compressed container.

A checkpoint is a base, a container with the whole state, and the containers after it, each
with what changed since the one before: of a keyed operator the rows that are different
(`operators.deltas`), which make one more run after those of the base; of Spark's state the
changelogs (`hosts.changelogs`). When those since the base have cost as much as it did, the
next one is a base again and the older ones go. Sealed frames that go along lie in the
container of the first checkpoint that had them, and that one stays for as long as one of
them is needed. A head says only what is new in its container, and which frames of older
ones are not needed any more, so it stays small however long the list is.

Beside the containers lie links to the state runs they tell of (`near/`), to compare the next
checkpoint with, and which these are (`near.json`). Both are only for speed: without them,
and after a container was lost here, the next checkpoint is a base.

Touches the folder it is given; no Spark, no thread of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.hosts import packing
from holdfast.hosts.changelogs import put_together
from holdfast.hosts.increments import Found, Part, RunsPart, SparkPart
from holdfast.hosts.local_checkpoint import read_near
from holdfast.hosts.names import Unfit, checked_record, is_part, path_parts
from holdfast.hosts.sealed import PLAIN, Seal
from holdfast.journals.notes import as_note, note_in
from holdfast.protocols.messages import Manifest
from holdfast.protocols.wiring import EdgeId, Frame

__all__ = ["Container", "Packer", "read_container", "unpack", "vetted"]

# More containers than this are not worth their names in every manifest, nor the looks of the stores at them.
CHAIN_MAX = 256
# What a container costs each later checkpoint: its name in the manifest.
LISTED_BYTES = 48
# The share of what is kept for the sake of sealed frames that may be of no use before these are packed anew.
STALE_MAX = 0.6
# Below this that costs nothing worth counting.
STALE_BYTES_MIN = 64 * 1024
_HEAD_BYTES = 1000  # about
_NEAR, _NOTE = "near", "near.json"


@dataclass(frozen=True, slots=True)
class Container:
    head: dict[str, Any]
    files: dict[str, bytes]


def _packed(head: dict[str, Any], files: Mapping[str, bytes]) -> tuple[bytes, int]:
    """The container, and how many bytes it holds when it is not compressed."""
    head = head | {"own": [[name, len(content)] for name, content in files.items()]}
    words = json.dumps(head, separators=(",", ":")).encode()
    raw = b"".join([struct.pack("<Q", len(words)), words, *files.values()])
    return packing.pack(raw), len(raw)


def read_container(content: bytes) -> Container:
    raw = packing.unpack(content)
    at = 8 + struct.unpack_from("<Q", raw)[0]
    head = json.loads(raw[8:at])
    files = {}
    for name, length in head["own"]:
        files[name] = raw[at : at + length]
        at += length
    return Container(head, files)


def unpack(manifest: Manifest, contents: Mapping[str, bytes]) -> Container:
    """The whole checkpoint: the head of its own container, with the state's runs in the record, and every file."""
    return _joined([read_container(contents[name]) for name in reversed(manifest.files)])


def _joined(opened: list[Container]) -> Container:
    """Oldest first."""
    newest = opened[-1].head
    base = max(at for at, each in enumerate(opened) if each.head["base"])
    gone = {*newest["gone"]}
    files: dict[str, bytes] = {}
    state: dict[str, dict[str, list]] = {}
    for at, each in enumerate(opened):
        files |= {name: own for name, own in each.files.items() if name not in gone if at >= base or _is_frame(name)}
        for operator, shards in each.head["runs"].items() if at >= base else ():
            for shard, runs in shards.items():
                state.setdefault(operator, {}).setdefault(shard, []).extend(runs)
    record = newest["record"]
    if "state" in record:
        record = record | {"state": {operator: state.get(operator, {}) for operator in record["state"]}}
    return Container(newest | {"record": record}, put_together(SparkPart.with_logs(files)))


def vetted(manifest: Manifest, contents: Mapping[str, bytes], streams: Collection[str]) -> Container:
    """The whole checkpoint, if it is one of the manifest's unit, which makes these streams; `Unfit` if not.

    Its bytes are what their names say; who wrote them may be anybody.
    """
    for name in manifest.files:
        if not is_part(name):
            raise Unfit(f"it names a container {name!r}")
    try:
        opened = [read_container(contents[name]) for name in manifest.files]
        for at, (name, each) in enumerate(zip(manifest.files, opened, strict=True)):
            head = each.head
            said = (head["unit"], head["epoch"], head["serial"], head["frame"])
            meant = (manifest.unit, manifest.epoch, manifest.serial, manifest.frame)
            if said[0] != meant[0] or (at == 0 and said != meant):
                raise Unfit(
                    f"container {name} is of unit {said[0]!r}, checkpoint {said[2]} of epoch {said[1]}, frame {said[3]}"
                )
        whole = _joined(opened[::-1])
    except Unfit:
        raise
    except Exception as error:  # made by anybody: there is no end to how it can be wrong
        raise Unfit(f"it cannot be read: {type(error).__name__}: {error}") from None
    for name in whole.files:
        path_parts(name, streams)
    checked_record(whole.head["record"], manifest.frame)
    return whole


def _is_frame(name: str) -> bool:
    return name.startswith("streams/")


@dataclass
class Packer:
    """Of one instance of a unit. `folder` is where its containers lie."""

    unit: str
    epoch: int
    folder: Path
    bytes_packed: int = 0
    seal: Seal = PLAIN
    _parts: tuple[Part, ...] = ()
    _chain: list[str] = field(default_factory=list)  # the base and the containers after it
    _held: dict[str, dict[str, int]] = field(default_factory=dict)  # container -> file -> bytes
    _where: dict[str, str] = field(default_factory=dict)  # sealed frame that is needed -> container
    _base_cost: float = 0.0
    _cost: float = 0.0  # of what came after the base
    _notes: dict[str, dict] = field(default_factory=dict)  # container -> runs of the near state it tells of
    _lock: threading.Lock = field(default_factory=threading.Lock)  # packed by one thread, stored said by others

    def __post_init__(self) -> None:
        self._runs = RunsPart(self.folder / _NEAR)
        self._parts = (self._runs, SparkPart())

    def adopt(self, manifest: Manifest) -> None:
        """Go on after this checkpoint if its containers are here, and whole; else the next one is a base."""
        try:
            contents = {name: self.content(name) for name in reversed(manifest.files)}
        except FileNotFoundError:
            return
        if not all(self.seal.is_whole(name, content) for name, content in contents.items()):
            return
        opened = {name: read_container(content) for name, content in contents.items()}
        names = list(opened)
        base = max(at for at, name in enumerate(names) if opened[name].head["base"])
        whole = unpack(manifest, contents)
        self._chain = names[base:]
        self._held = {name: {file: len(own) for file, own in each.files.items()} for name, each in opened.items()}
        self._where = {
            file: name for name, own in self._held.items() for file in own if file in whole.files and _is_frame(file)
        }
        for at, name in enumerate(self._chain):
            size = sum(self._held[name].values()) + _HEAD_BYTES
            self._count(name, size, len(contents[name]), is_base=at == 0)
        try:
            self._notes = note_in((self.folder / _NOTE).read_bytes())
        except (OSError, ValueError):
            self._notes = {}
        near = self._notes.get(manifest.files[0])
        for part in self._parts:
            part.adopt(near, whole.head["record"], [opened[name].files for name in self._chain], self.folder.parent)
        if self._runs.near is not None:
            self._notes[manifest.files[0]] = dict(self._runs.near)
            self._save_notes()

    def content(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()

    def pack(
        self,
        serial: int,
        frame: Frame,
        queues: tuple[tuple[EdgeId, Frame], ...],
        files: Mapping[str, Path],
        **about: Any,
    ) -> Manifest:
        """Write the container of a checkpoint; `about` is what a restore has to know beside the files."""
        record = about.get("record", {})
        state = {name: path for name, path in files.items() if not _is_frame(name)}
        whole = not self._chain or self._cost >= self._base_cost or len(self._chain) >= CHAIN_MAX
        own, runs, is_base = self._state(frame, record, state, whole)
        chain = [] if is_base else list(self._chain)
        live = {name: self._where[name] for name in files if name in self._where}
        if self._is_stale(live, chain):
            live = {}
        own |= {name: read_near(name, path) for name, path in files.items() if _is_frame(name) and name not in live}
        older = {*chain, *live.values()}
        gone = [
            name for each in sorted(older) for name in self._held[each] if _is_frame(name) and live.get(name) != each
        ]
        if "state" in record:
            about["record"] = record | {"state": dict.fromkeys(record["state"], 0)}
        head = {"unit": self.unit, "epoch": self.epoch, "serial": serial, "frame": frame, "base": is_base, "runs": runs}
        content, size = _packed(head | {"gone": gone} | about, own)
        name = self.seal.file_name(f"{self.epoch:06d}-{serial:06d}", content)
        self._write(name, content)
        with self._lock:
            self._chain = [*chain, name]
            self._held[name] = {each: len(own[each]) for each in own}
            self._where = live | {each: name for each in own if _is_frame(each)}
            self._count(name, size, len(content), is_base=is_base)
            self.bytes_packed += len(content)
            self._note(name, record, state)
        return Manifest(self.unit, self.epoch, serial, frame, queues, (name, *sorted(older, reverse=True)))

    def _state(self, frame: Frame, record: Mapping, files: Mapping[str, Path], whole: bool) -> tuple[dict, dict, bool]:
        """Files and runs of this container, and whether it is a base."""
        found: list[Found | None] = [None]
        if self._chain and not (whole and all(part.has_new_base(files) for part in self._parts)):
            found = [part.since(frame, record, files) for part in self._parts]
        is_base = None in found
        if is_base:
            found = [part.whole(frame, record, files) for part in self._parts]
        own: dict[str, Any] = {}
        runs: dict[str, Any] = {}
        for each in found:
            own |= each.files
            runs |= each.runs
        return own, runs, is_base

    def _write(self, name: str, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = self.folder / f".{name}.tmp"
        whole.write_bytes(content)
        with self._lock:  # from here on it must be known, or it is taken for one of no use
            self._held[name] = {}
            os.replace(whole, self.folder / name)

    def _count(self, name: str, size: int, packed: int, *, is_base: bool) -> None:
        """What of this container is state, by its share before compression."""
        cost = packed * sum(own for file, own in self._held[name].items() if not _is_frame(file)) / max(1, size)
        if is_base:
            self._base_cost, self._cost = cost, 0.0
        else:
            self._cost += cost + LISTED_BYTES * len(self._chain)

    def _is_stale(self, live: Mapping[str, str], chain: list[str]) -> bool:
        """Whether frames still of use are the smaller part of the containers kept for their sake."""
        beside = {*live.values()} - {*chain}
        held = sum(sum(self._held[container].values()) for container in beside)
        used = sum(self._held[container][name] for name, container in live.items() if container in beside)
        return held > STALE_BYTES_MIN and used < (1 - STALE_MAX) * held

    def _note(self, name: str, record: Mapping, files: Mapping[str, Path]) -> None:
        """Which near state this container tells of: known by its runs, kept by links."""
        self._notes[name] = record.get("state", {})
        for part in self._parts:
            with contextlib.suppress(OSError):  # what is not linked is not compared with
                part.packed(record, files)
        self._save_notes()

    def _save_notes(self) -> None:
        whole = self.folder / f".{_NOTE}.tmp"
        with contextlib.suppress(OSError):
            whole.write_text(as_note(self._notes))
            os.replace(whole, self.folder / _NOTE)

    def stored(self, manifest: Manifest) -> None:
        """Containers that the checkpoint in force does not name are of no use any more."""
        with self._lock:
            newer = {name for name in self._held if name > manifest.files[0]}
            kept = {*manifest.files, *self._chain, *self._where.values(), *newer}
            self._held = {name: own for name, own in self._held.items() if name in kept}
            self._notes = {name: own for name, own in self._notes.items() if name >= manifest.files[0]}
            named = {
                f"{operator}/{run[0]}"
                for near in self._notes.values()
                for operator, shards in near.items()
                for runs in shards.values()
                for run in runs
            }
            # Looked up while nothing can be added; what comes later is not among them.
            old = [path for path in self.folder.glob("[!.]*") if path.is_file() and path.name not in {*kept, _NOTE}]
            old += [
                path for path in (self.folder / _NEAR).glob("*/*") if f"{path.parent.name}/{path.name}" not in named
            ]
        for path in old:
            path.unlink(missing_ok=True)
