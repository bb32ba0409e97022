"""Checkpoints as files: what a unit's pinned state adds to its backup, in one compressed container.

A container holds the files of the near checkpoint that no earlier container has, and says
in its head where every file of the checkpoint lies, in itself or in which earlier one, so
the newest container and those it names are the whole checkpoint. Near files are never
changed under one name, so a name that was packed once need not travel again. When most of
what the containers hold is no longer part of the checkpoint, the next one takes in
everything and the older ones go.

Containers lie beside the near checkpoint too, so a store that lost its folder gets them
again without the state being read.

Touches the folder it is given; no Spark, no thread.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import invariant
from holdfast.hosts.near import read_near
from holdfast.hosts.stores import file_name
from holdfast.protocols.messages import Manifest
from holdfast.protocols.wiring import EdgeId, Frame

__all__ = ["Container", "Packer", "read_container", "unpack"]

MAGIC = b"holdfast checkpoint 1\n"
# The share of packed bytes that may be out of date before everything is packed anew: a copy
# of the state is then as large as what all the deltas since the last one were.
STALE_MAX = 0.6
# Below this a full copy costs nothing worth counting.
STALE_BYTES_MIN = 64 * 1024


@dataclass(frozen=True, slots=True)
class Container:
    head: dict[str, Any]
    files: dict[str, bytes]


def _packed(head: dict[str, Any], files: Mapping[str, bytes]) -> bytes:
    head = head | {"own": [[name, len(content)] for name, content in files.items()]}
    words = json.dumps(head, separators=(",", ":")).encode()
    raw = b"".join([struct.pack("<Q", len(words)), words, *files.values()])
    return MAGIC + struct.pack("<Q", len(raw)) + pa.compress(raw, codec="zstd", asbytes=True)


def read_container(content: bytes) -> Container:
    invariant(content.startswith(MAGIC), "a container of a backup does not begin as one")
    size = struct.unpack_from("<Q", content, len(MAGIC))[0]
    raw = pa.decompress(memoryview(content)[len(MAGIC) + 8 :], size, codec="zstd", asbytes=True)
    at = 8 + struct.unpack_from("<Q", raw)[0]
    head = json.loads(raw[8:at])
    files = {}
    for name, length in head["own"]:
        files[name] = raw[at : at + length]
        at += length
    return Container(head, files)


def unpack(manifest: Manifest, contents: Mapping[str, bytes]) -> Container:
    """The whole checkpoint: the head of its own container, and every file from where it lies."""
    newest = read_container(contents[manifest.files[0]])
    opened = {manifest.files[0]: newest}
    files = {}
    for name, where in newest.head["live"].items():
        where = where or manifest.files[0]
        if where not in opened:
            opened[where] = read_container(contents[where])
        files[name] = opened[where].files[name]
    return Container(newest.head, files)


@dataclass
class Packer:
    """Of one instance of a unit. `folder` is where its containers lie."""

    unit: str
    epoch: int
    folder: Path
    _where: dict[str, str] = field(default_factory=dict)  # near file -> container
    _size: dict[str, int] = field(default_factory=dict)  # near file -> bytes
    _held: dict[str, int] = field(default_factory=dict)  # container -> bytes of all it holds, of use or not
    bytes_packed: int = 0

    def adopt(self, manifest: Manifest) -> None:
        """Go on after this checkpoint if its containers are here; else the next one is whole."""
        if any(not (self.folder / name).exists() for name in manifest.files):
            return
        head = self.read(manifest.files[0])
        for name, where in head.head["live"].items():
            self._where[name] = where or manifest.files[0]
        for container in manifest.files:
            own = dict(read_container((self.folder / container).read_bytes()).head["own"])
            self._held[container] = sum(own.values())
            self._size |= {name: own[name] for name, where in self._where.items() if where == container}

    def read(self, name: str) -> Container:
        return read_container(self.content(name))

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
        live = {name: self._where[name] for name in files if name in self._where}
        if self._is_stale(live):
            live = {}
        own = {name: read_near(name, path) for name, path in files.items() if name not in live}
        head = {"unit": self.unit, "epoch": self.epoch, "serial": serial, "frame": frame, **about}
        # Its own name is not known before it is packed: "" stands for it in the head.
        content = _packed(head | {"live": live | dict.fromkeys(own, "")}, own)
        name = file_name(f"{self.epoch:06d}-{serial:06d}", content)
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = self.folder / f".{name}.tmp"
        whole.write_bytes(content)
        os.replace(whole, self.folder / name)
        self.bytes_packed += len(content)
        self._where = live | dict.fromkeys(own, name)
        self._size = {each: self._size[each] for each in live} | {each: len(own[each]) for each in own}
        self._held[name] = sum(map(len, own.values()))
        older = sorted({*live.values()}, reverse=True)
        return Manifest(self.unit, self.epoch, serial, frame, queues, (name, *older))

    def _is_stale(self, live: Mapping[str, str]) -> bool:
        """Whether what is still of use in the containers it needs is the smaller part of them."""
        held = sum(self._held[container] for container in {*live.values()})
        used = sum(self._size[name] for name in live)
        return held > STALE_BYTES_MIN and used < (1 - STALE_MAX) * held

    def stored(self, manifest: Manifest) -> None:
        """Containers that the checkpoint in force does not name are of no use any more."""
        kept = {*manifest.files, *self._where.values()}
        for name in [name for name in self._held if name not in kept]:
            del self._held[name]
        for path in self.folder.glob("*"):
            if path.name not in kept and not path.name.startswith("."):
                path.unlink(missing_ok=True)
