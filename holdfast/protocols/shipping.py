"""The way of one unit's checkpoints to its k backup copies.

Promise: `Shipped` comes only when `needed` stores have answered that the checkpoint
is on their disks, and comes in the end whenever that many stores can be reached.

Why it holds. One checkpoint travels at a time, to all stores at once, and is kept
until it is stored; a store that answers MISSING gets the files again, a store that
comes back gets the whole request again. What is stored twice is stored once: stores
know a manifest by its key. Only files that the last acknowledged manifest of that
store did not name travel at first; the store, not this machine, decides what is there.

A store may lose its folder after it answered. Peers that answer later name its new
life, and then its former answer no longer counts and it is sent the checkpoint again.

An answer that refuses our epoch means another instance runs the unit: `Superseded`.

Pure: no clock, randomness, thread, file or socket.
Driven by `hosts` and by `simulation.instances`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.protocols.messages import (
    Manifest,
    Stage,
    Stamp,
    StoreAnswered,
    StoreSent,
    Verdict,
)

__all__ = ["SendToStore", "Shipped", "Shipping", "ShippingInstruction", "Superseded"]


@dataclass(frozen=True, slots=True)
class SendToStore:
    store: str
    request: StoreSent


@dataclass(frozen=True, slots=True)
class Shipped:
    """Enough copies exist."""

    manifest: Manifest
    stage: Stage


@dataclass(frozen=True, slots=True)
class Superseded:
    """A store refused our epoch."""


ShippingInstruction: TypeAlias = SendToStore | Shipped | Superseded


class Shipping:
    """State changes only through its three methods."""

    def __init__(self, stamp: Stamp, stores: tuple[str, ...], needed: int) -> None:
        self._stamp = stamp
        self._stores = stores
        self._needed = needed
        self._known: dict[str, frozenset[str]] = {store: frozenset() for store in stores}
        self._waiting: deque[tuple[Manifest, Stage]] = deque()
        self._done: dict[str, int] = {}
        self._lives: dict[str, int] = {}
        self._last: Manifest | None = None

    @property
    def travelling(self) -> Manifest | None:
        return self._waiting[0][0] if self._waiting else None

    def ship(self, manifest: Manifest, stage: Stage) -> list[ShippingInstruction]:
        self._waiting.append((manifest, stage))
        return self._send_all() if len(self._waiting) == 1 else []

    def answered(self, answer: StoreAnswered) -> list[ShippingInstruction]:
        if answer.verdict is Verdict.REFUSED:
            return [Superseded()]
        manifest, stage = self._waiting[0] if self._waiting else (self._last, Stage.FINAL)
        if manifest is None or (answer.serial, answer.epoch) != (manifest.serial, self._stamp.epoch):
            return []
        if answer.verdict is Verdict.MISSING:
            if answer.stage is Stage.COMMIT:
                stage = Stage.FINAL
            request = StoreSent(self._stamp, manifest, stage, manifest.files)
            return [SendToStore(answer.store, request)]
        self._known[answer.store] = frozenset(manifest.files)
        if not self._waiting or not _fits(answer.stage, stage):
            return []
        lives = dict(answer.lives)
        self._done[answer.store] = lives.get(answer.store, 0)
        for store, life in lives.items():
            self._lives[store] = max(self._lives.get(store, 0), life)
        gone = [s for s, life in self._done.items() if life < self._lives.get(s, 0)]
        for store in gone:
            del self._done[store]
            self._known[store] = frozenset()
        if len(self._done) < self._needed:
            return [self._send(store, manifest, stage) for store in gone]
        self._waiting.popleft()
        self._done.clear()
        if stage is not Stage.PREPARE:
            self._last = manifest
        return [Shipped(manifest, stage), *self._send_all()]

    def store_found(self, store: str) -> list[ShippingInstruction]:
        """A store is back: whatever it was sent may be lost, and its disk may be empty."""
        self._known[store] = frozenset()
        if self._waiting:
            return [self._send(store, *self._waiting[0])]
        if self._last is not None:
            return [self._send(store, self._last, Stage.FINAL)]
        return []

    def _send_all(self) -> list[ShippingInstruction]:
        if not self._waiting:
            return []
        manifest, stage = self._waiting[0]
        return [self._send(store, manifest, stage) for store in self._stores]

    def _send(self, store: str, manifest: Manifest, stage: Stage) -> SendToStore:
        known = self._known[store]
        files = () if stage is Stage.COMMIT else tuple(f for f in manifest.files if f not in known)
        return SendToStore(store, StoreSent(self._stamp, manifest, stage, files))


def _fits(answered: Stage, stage: Stage) -> bool:
    """A final copy made because phase one was lost counts as committed."""
    return answered is stage or (answered is Stage.FINAL and stage is Stage.COMMIT)
