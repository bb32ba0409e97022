"""Backup stores: the `BackupStore` machine on a disk that forgets what is not synced.

A crash loses every write since the last sync of its kind, or keeps it: chance
decides per write, as a real disk does. Files may rot (a wrong hash when read). A
lost folder leaves an empty disk; the store then learns from its peers before it
takes part again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from holdfast.protocols.messages import ClaimSent, Manifest, StoreSent
from holdfast.protocols.storing import (
    BackupStore,
    DeleteFiles,
    FilesVerified,
    KeepKnowledge,
    KeepLife,
    Kept,
    ManifestSynced,
    PeerJoins,
    PeerKnowledge,
    RegisterSynced,
    Reply,
    RequestReceived,
    StoreEvent,
    SyncManifest,
    SyncRegister,
    VerifyFiles,
    WriteFiles,
)
from holdfast.simulation.world import ScheduleBroken, World

__all__ = ["Disk", "SimulatedStore"]


@dataclass(slots=True)
class Disk:
    """What survives: synced entries. `fresh` entries survive a crash by luck only."""

    files: set[str] = field(default_factory=set)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    prepared: dict[str, Manifest] = field(default_factory=dict)
    registers: dict[str, int] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    rotten: set[str] = field(default_factory=set)
    lives: dict[str, int] = field(default_factory=dict)


class SimulatedStore:
    """One store host: up or away, with its machine and its disk."""

    def __init__(
        self,
        world: World,
        name: str,
        units: Iterable[str],
        peers_needed: int,
        machine: type[BackupStore],
        answer: Callable[[object], None],
        kept: Callable[[SimulatedStore, Manifest], None],
    ) -> None:
        self.world = world
        self.name = name
        self.units = tuple(units)
        self.disk = Disk()
        self.up = True
        self.joined_before = True
        # Counts what changes which checkpoints a claim could find here.
        self.changes = 0
        self.life = 0
        self.folder = 0
        self.promised: dict[str, int] = {}
        self._peers_needed = peers_needed
        self._machine_type = machine
        self._answer = answer
        self._kept = kept
        self.machine = machine(name)
        self._unsynced: dict[str, Manifest] = {}
        self._found_whole: set[str] = set()

    # ---- requests --------------------------------------------------------------------

    def receive(self, request: StoreSent | ClaimSent, life: int) -> None:
        if not self.up or life != self.life:
            return
        self._handle(RequestReceived(request))

    def _handle(self, event: StoreEvent) -> None:
        world = self.world
        for instruction in self.machine.handle(event):
            match instruction:
                case WriteFiles(files):
                    # A file that is there with its hash is not written again.
                    disk = self.disk
                    new = [f for f in files if f not in disk.files or f in disk.rotten]
                    disk.files.update(new)
                    disk.rotten.difference_update(new)
                    disk.fresh.update(new)
                case VerifyFiles(unit, files):
                    world.after(world.between(0.1, 0.6), self._verify, self.life, unit, files)
                case SyncManifest(manifest, prepared):
                    if not prepared:
                        self._unsynced[manifest.unit] = manifest
                    world.after(world.between(0.1, 0.6), self._sync, self.life, manifest, prepared)
                case SyncRegister(unit, epoch):
                    world.after(world.between(0.05, 0.3), self._promise, self.life, unit, epoch)
                case KeepKnowledge(unit, epoch, known):
                    self.disk.registers[unit] = epoch
                    self.promised[unit] = max(self.promised.get(unit, 0), epoch)
                    if known is not None:
                        self.disk.manifests[unit] = known
                    self.changes += 1
                    world.touched.add(unit)
                case KeepLife(store, life):
                    self.disk.lives[store] = life
                case DeleteFiles(unit, keep):
                    gone = {f for f in self.disk.files if f.startswith(unit + "/") and f not in keep}
                    self.disk.files -= gone
                    self.disk.fresh -= gone
                    self._found_whole -= gone
                case Reply(answer):
                    self._answer(answer)

    def _verify(self, life: int, unit: str, files: tuple[str, ...]) -> None:
        if life != self.life or not self.up:
            return
        disk = self.disk
        disk.fresh.clear()
        good = frozenset(f for f in files if f in disk.files and f not in disk.rotten)
        self._found_whole.difference_update(files)
        self._found_whole |= good
        self._handle(FilesVerified(unit, good))

    def _sync(self, life: int, manifest: Manifest, prepared: bool) -> None:
        if life != self.life or not self.up:
            return
        self.disk.fresh.clear()
        if not self._found_whole.issuperset(manifest.files):
            raise ScheduleBroken(manifest.unit, f"store {self.name} keeps {manifest.frame} without whole files")
        if prepared:
            self.disk.prepared[manifest.unit] = manifest
        else:
            self._unsynced.pop(manifest.unit, None)
            self.disk.prepared.pop(manifest.unit, None)
            self._keep(manifest)
        self._handle(ManifestSynced(manifest.unit))

    def _keep(self, manifest: Manifest) -> None:
        unit = manifest.unit
        if manifest.epoch < self.promised.get(unit, 0):
            raise ScheduleBroken(
                unit,
                f"store {self.name} promised epoch {self.promised[unit]} "
                f"and took a checkpoint of epoch {manifest.epoch}",
            )
        self.promised[unit] = manifest.epoch
        self.disk.manifests[unit] = manifest
        self.changes += 1
        self.world.note(unit, f"store {self.name} keeps {manifest.frame} of {manifest.epoch}")
        self.world.touched.add(unit)
        self._kept(self, manifest)

    def _promise(self, life: int, unit: str, epoch: int) -> None:
        if life != self.life or not self.up:
            return
        self.disk.registers[unit] = epoch
        self.promised[unit] = max(self.promised.get(unit, 0), epoch)
        self._handle(RegisterSynced(unit))

    # ---- faults ----------------------------------------------------------------------

    def crash(self) -> None:
        """Power failure: unsynced writes survive by luck."""
        self.up = False
        self.life += 1
        rng = self.world.rng
        for name in sorted(self.disk.fresh):
            if rng.random() < 0.5:
                self.disk.files.discard(name)
        self.disk.fresh.clear()
        for manifest in self._unsynced.values():
            if rng.random() < 0.5:
                self._keep(manifest)
        self._unsynced.clear()

    def lose_folder(self) -> None:
        self.up = False
        self.life += 1
        self.folder += 1
        self.disk = Disk(lives={self.name: self.folder})
        self._unsynced.clear()
        self.promised.clear()
        self.joined_before = False
        self.changes += 1
        self.world.touched.update(self.units)

    def restart(self) -> None:
        self.up = True
        kept = [
            Kept(
                unit,
                max(
                    self.disk.registers.get(unit, 0),
                    self.disk.manifests[unit].epoch if unit in self.disk.manifests else 0,
                ),
                self.disk.manifests.get(unit),
                self._still_prepared(unit),
            )
            for unit in self.units
        ]
        needed = 0 if self.joined_before else self._peers_needed
        lives = self.disk.lives.items()
        self.machine = self._machine_type(self.name, kept, needed, lives)

    def _still_prepared(self, unit: str) -> Manifest | None:
        """What phase one left on the disk, if it is whole; chance may have torn it."""
        disk, prepared = self.disk, self.disk.prepared.get(unit)
        if prepared is None or self.world.rng.random() < 0.5:
            return None
        held = disk.manifests.get(unit)
        whole = all(f in disk.files and f not in disk.rotten for f in prepared.files)
        newest = prepared.epoch >= disk.registers.get(unit, 0)
        return prepared if whole and newest and (held is None or held.key < prepared.key) else None

    def learn_from(self, peer: SimulatedStore) -> None:
        """Ask a peer that is up and has joined; its answer is what is on its disk."""
        peer.hear_of(self.name, self.folder)
        for unit in self.units:
            manifest = peer.machine.manifests.get(unit)
            register = peer.machine.registers.get(unit)
            epoch = 0 if register is None else register.current
            self._handle(PeerKnowledge(peer.name, unit, epoch, manifest))
        self.joined_before = all(self.machine.joined(unit) for unit in self.units)
        self.changes += 1

    def hear_of(self, peer: str, life: int) -> None:
        self._handle(PeerJoins(peer, life))

    def holds(self, manifest: Manifest) -> bool:
        """Whether it has this checkpoint, with every file; one may rot unseen."""
        held = self.disk.manifests.get(manifest.unit)
        return held == manifest and self.disk.files.issuperset(manifest.files)

    def reads_well(self, manifest: Manifest) -> bool:
        """Whether a fetch of this checkpoint finds it here and every file whole."""
        disk = self.disk
        held = self.disk.manifests.get(manifest.unit)
        return self.up and held == manifest and all(f in disk.files and f not in disk.rotten for f in manifest.files)
