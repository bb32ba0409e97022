"""Checkpoints to store, and stores to put them into, for the tests of this folder."""

from __future__ import annotations

import shutil
from uuid import uuid4

from holdfast.graph.edge_ids import EdgeId
from holdfast.hosts.stores import OpenStore, file_name
from holdfast.protocols.messages import Manifest, Stage, Stamp, StoreSent, Verdict

UNIT = "jö in/1.2"


class Contents(dict[str, bytes]):
    """name -> content of every file made here; called, it gives a content."""

    def made(self, prefix: str, content: bytes) -> str:
        name = file_name(prefix, content)
        self[name] = content
        return name

    def __call__(self, name: str) -> bytes:
        return self[name]


def checkpoint(contents: Contents, serial: int, *, epoch: int = 1, unit: str = UNIT) -> Manifest:
    """The base stays from checkpoint to checkpoint, the delta is new."""
    files = (contents.made("base", b"base" * 50), contents.made("delta", f"{epoch}.{serial}".encode() * 20))
    return Manifest(unit, epoch, serial, serial * 4, ((EdgeId.parse("ecg>alarm"), serial),), files)


def request(manifest: Manifest, stage: Stage = Stage.FINAL, files: tuple[str, ...] | None = None) -> StoreSent:
    stamp = Stamp(manifest.unit, 0, manifest.epoch)
    return StoreSent(stamp, manifest, stage, manifest.files if files is None else files)


def three(base: str) -> list[OpenStore]:
    return [OpenStore(name, f"{base}/{name}") for name in "abc"]


def memory_url() -> str:
    return f"memory://{uuid4().hex}"


def stored(store, manifest, contents, stage=Stage.FINAL):
    answer = store.ask(request(manifest, stage), contents)
    assert answer.verdict is Verdict.STORED
    return answer


def wiped(store: OpenStore) -> None:
    """Its folder is gone, wherever it lies."""
    if "://" in store.url:
        fs, root = store._place._opened
        fs.rm(root, recursive=True)
    else:
        shutil.rmtree(store.url)
