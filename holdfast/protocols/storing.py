"""One backup store: content-addressed files, manifest last, one lock per unit.

Promise: a checkpoint is called stored only when every file of it is on disk, whole,
and its manifest after them; it stays so until a newer checkpoint of the unit is
stored here. An instance that has been replaced changes nothing.

Why it holds. Files are written and synced before the manifest is; so a crash leaves
either the old manifest or a new one whose files are all there. Presence and hash of
every file are verified under the lock under which files are deleted, so no file can
vanish between the check and the manifest that names it. The lock is this machine: it
works on one request of a unit at a time, claims included, so a claim sees every
manifest that was acknowledged before it, and after it the register refuses lower
epochs. Old files go only after the new manifest is synced.

A store that lost its folder grants and stores nothing until it has learnt from
`copies - needed + 1` other stores what it must not forget. They note its new life and
name it in every answer from then on, so a unit does not count an answer that the store
gave in its former life together with one that a peer gives afterwards.

Pure: no clock, randomness, thread, file or socket.
Driven by `hosts` (a folder or an fsspec URL) and by `simulation.stores`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from holdfast.protocols.fencing import EpochRegister
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.messages import (
    ClaimGranted,
    ClaimRefused,
    ClaimSent,
    Manifest,
    Stage,
    StoreAnswered,
    StoreSent,
    Verdict,
)
from holdfast.protocols.wiring import UnitId

__all__ = [
    "BackupStore",
    "DeleteFiles",
    "FilesVerified",
    "KeepKnowledge",
    "KeepLife",
    "Kept",
    "ManifestSynced",
    "PeerJoins",
    "PeerKnowledge",
    "RegisterSynced",
    "Reply",
    "RequestReceived",
    "StoreEvent",
    "StoreInstruction",
    "SyncManifest",
    "SyncRegister",
    "VerifyFiles",
    "WriteFiles",
]


@dataclass(frozen=True, slots=True)
class RequestReceived:
    request: StoreSent | ClaimSent


@dataclass(frozen=True, slots=True)
class FilesVerified:
    """All writes are synced; of the files asked for, `good` are there with their hash."""

    unit: UnitId
    good: frozenset[str]


@dataclass(frozen=True, slots=True)
class ManifestSynced:
    unit: UnitId


@dataclass(frozen=True, slots=True)
class RegisterSynced:
    unit: UnitId


@dataclass(frozen=True, slots=True)
class PeerJoins:
    """Another store lost its folder and asks what it must not forget."""

    peer: str
    life: int


@dataclass(frozen=True, slots=True)
class PeerKnowledge:
    """What another store of the same unit holds; only a store that lost all asks."""

    peer: str
    unit: UnitId
    epoch: int
    manifest: Manifest | None


StoreEvent: TypeAlias = RequestReceived | FilesVerified | ManifestSynced | RegisterSynced | PeerJoins | PeerKnowledge


@dataclass(frozen=True, slots=True)
class WriteFiles:
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VerifyFiles:
    """Sync what is written, then read back and hash these files: `FilesVerified`."""

    unit: UnitId
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SyncManifest:
    """Write and sync: `ManifestSynced`. A prepared one stands beside the one in force."""

    manifest: Manifest
    prepared: bool


@dataclass(frozen=True, slots=True)
class SyncRegister:
    """Write and sync: `RegisterSynced`."""

    unit: UnitId
    epoch: int


@dataclass(frozen=True, slots=True)
class KeepKnowledge:
    """Write and sync both before anything else is handled."""

    unit: UnitId
    epoch: int
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class KeepLife:
    """Write and sync before anything else is handled."""

    store: str
    life: int


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Delete the unit's files that are not among these."""

    unit: UnitId
    keep: frozenset[str]


@dataclass(frozen=True, slots=True)
class Reply:
    answer: StoreAnswered | ClaimGranted | ClaimRefused


StoreInstruction: TypeAlias = (
    WriteFiles | VerifyFiles | SyncManifest | SyncRegister | KeepKnowledge | KeepLife | DeleteFiles | Reply
)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a store finds on its disk for one unit when it starts.

    `prepared` only if its files are whole and nothing newer is promised or in force; a
    store that does not say asks for the files again.
    """

    unit: UnitId
    epoch: int
    manifest: Manifest | None
    prepared: Manifest | None = None


class BackupStore:
    """State changes only through `handle`."""

    register_type = EpochRegister

    def __init__(
        self,
        name: str,
        kept: Iterable[Kept] = (),
        peers_needed: int = 0,
        lives: Iterable[tuple[str, int]] = (),
    ) -> None:
        self.name = name
        self.lives = {name: 0, **dict(lives)}
        self.registers: dict[UnitId, EpochRegister] = {}
        self.manifests: dict[UnitId, Manifest] = {}
        self.prepared: dict[UnitId, Manifest] = {}
        self._work: dict[UnitId, deque[StoreSent | ClaimSent]] = {}
        self._before: dict[UnitId, int] = {}
        self._peers_needed = peers_needed
        self._learnt: dict[UnitId, set[str]] = {}
        for item in kept:
            self.registers[item.unit] = self.register_type(item.epoch)
            if item.manifest is not None:
                self.manifests[item.unit] = item.manifest
            if item.prepared is not None:
                self.prepared[item.unit] = item.prepared

    def joined(self, unit: UnitId) -> bool:
        return len(self._learnt.get(unit, ())) >= self._peers_needed

    def handle(self, event: StoreEvent) -> list[StoreInstruction]:
        match event:
            case RequestReceived(request):
                unit = request.manifest.unit if isinstance(request, StoreSent) else request.unit
                if not self.joined(unit):
                    return []
                work = self._work.setdefault(unit, deque())
                work.append(request)
                return self._begin(unit) if len(work) == 1 else []
            case FilesVerified(unit, good):
                return self._verified(unit, good)
            case ManifestSynced(unit):
                return self._finished(unit)
            case RegisterSynced(unit):
                return self._granted(unit)
            case PeerJoins(peer, life):
                self.lives[peer] = max(self.lives.get(peer, 0), life)
                return [KeepLife(peer, self.lives[peer])]
            case PeerKnowledge(peer, unit, epoch, manifest):
                return self._learn(peer, unit, epoch, manifest)
            case _:
                assert_never(event)

    def _register(self, unit: UnitId) -> EpochRegister:
        return self.registers.setdefault(unit, self.register_type())

    # ---- one request at a time ------------------------------------------------------

    def _begin(self, unit: UnitId) -> list[StoreInstruction]:
        work = self._work[unit]
        while work:
            request = work[0]
            if isinstance(request, ClaimSent):
                before = self._register(unit).current
                if self._register(unit).grants(request.epoch):
                    self._before[unit] = before
                    return [SyncRegister(unit, request.epoch)]
                refusal = ClaimRefused(self.name, unit, request.epoch, request.claimant, self._register(unit).current)
                work.popleft()
                return [Reply(refusal), *self._begin(unit)]
            if request.stamp.epoch < self._register(unit).current:
                work.popleft()
                return [self._answer(request, Verdict.REFUSED), *self._begin(unit)]
            # A claim that left this store out is heard of through its instance.
            self._register(unit).grants(request.stamp.epoch)
            if request.stage is Stage.COMMIT:
                return self._commit(unit, request)
            files = request.manifest.files
            return [WriteFiles(request.files), VerifyFiles(unit, files)]
        return []

    def _commit(self, unit: UnitId, request: StoreSent) -> list[StoreInstruction]:
        if self.prepared.get(unit) == request.manifest:
            return [SyncManifest(request.manifest, prepared=False)]
        if self.manifests.get(unit) == request.manifest:
            # It may know the manifest from its peers only, and have no file of it.
            return [VerifyFiles(unit, request.manifest.files)]
        # Phase one never reached this store, or it restarted since: start over.
        answer = self._answer(request, Verdict.MISSING, request.manifest.files)
        return self._next(unit, answer)

    def _verified(self, unit: UnitId, good: frozenset[str]) -> list[StoreInstruction]:
        request = self._at_work(unit)
        missing = tuple(f for f in request.manifest.files if f not in good)
        if missing:
            return self._next(unit, self._answer(request, Verdict.MISSING, missing))
        held = self.manifests.get(unit)
        if held is not None and held.key >= request.manifest.key:
            # A duplicate of a request already served, or an older one behind it.
            return self._next(unit, self._answer(request, Verdict.STORED))
        return [SyncManifest(request.manifest, prepared=request.stage is Stage.PREPARE)]

    def _finished(self, unit: UnitId) -> list[StoreInstruction]:
        request = self._at_work(unit)
        manifest = request.manifest
        if request.stage is Stage.PREPARE:
            self.prepared[unit] = manifest
        else:
            self.manifests[unit] = manifest
            self.prepared.pop(unit, None)
        keep = set(self.manifests[unit].files) if unit in self.manifests else set()
        if unit in self.prepared:
            keep |= set(self.prepared[unit].files)
        return [
            DeleteFiles(unit, frozenset(keep)),
            *self._next(unit, self._answer(request, Verdict.STORED)),
        ]

    def _granted(self, unit: UnitId) -> list[StoreInstruction]:
        request = self._work[unit][0]
        if not isinstance(request, ClaimSent):
            raise BrokenInvariant(f"store {self.name} synced a register while storing for {unit}")
        # What an instance of a lower epoch prepared will never be committed.
        self.prepared.pop(unit, None)
        grant = ClaimGranted(
            self.name,
            unit,
            request.epoch,
            request.claimant,
            self._before.pop(unit),
            self.manifests.get(unit),
        )
        return self._next(unit, Reply(grant))

    def _next(self, unit: UnitId, reply: StoreInstruction) -> list[StoreInstruction]:
        self._work[unit].popleft()
        return [reply, *self._begin(unit)]

    def _at_work(self, unit: UnitId) -> StoreSent:
        request = self._work[unit][0]
        if not isinstance(request, StoreSent):
            raise BrokenInvariant(f"store {self.name} works on a claim of {unit}")
        return request

    def _answer(self, request: StoreSent, verdict: Verdict, missing: tuple[str, ...] = ()) -> Reply:
        manifest = request.manifest
        answer = StoreAnswered(
            self.name,
            manifest.unit,
            request.stamp.epoch,
            manifest.serial,
            request.stage,
            verdict,
            missing,
            tuple(self.lives.items()),
        )
        return Reply(answer)

    # ---- a store that lost its folder -----------------------------------------------

    def _learn(self, peer: str, unit: UnitId, epoch: int, manifest: Manifest | None) -> list[StoreInstruction]:
        """Take over register and manifest; the unit itself brings the files again.

        Until it has, a claimant that picks this manifest finds the copy here broken
        and takes another one; what it never meets is an older manifest.
        """
        if self.joined(unit):
            return []
        self._learnt.setdefault(unit, set()).add(peer)
        self._register(unit).grants(epoch)
        held = self.manifests.get(unit)
        if manifest is not None and (held is None or held.key < manifest.key):
            self.manifests[unit] = manifest
        return [KeepKnowledge(unit, self._register(unit).current, self.manifests.get(unit))]
