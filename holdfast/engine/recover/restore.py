"""Where a unit goes on: from what its host has, from a backup, or from nothing.

Every instance claims its epoch at the unit's backup stores (`protocols.activation`), and
the claim tells it the newest checkpoint. What the host still has is used if the instance
that left it was the last one, and is not older; else the newest checkpoint is fetched
and put in its place. A copy that is damaged or gone is passed over and named.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.engine.flow.marking import Tally
from holdfast.engine.protect.checkpointer import Guards, Stores
from holdfast.engine.recover.skip_lost import Neighbours, Placed, go_on_after
from holdfast.engine.recover.torn import state_is_whole
from holdfast.engine.state_folder import StateFolder
from holdfast.engine.unit.state_files import RECORDS_KEPT
from holdfast.errors import StateRefused
from holdfast.frames.files import list_frames
from holdfast.graph.schemas import Schema
from holdfast.graph.units import Unit
from holdfast.hosts.activating import Activated, activate
from holdfast.hosts.containers import Container, vetted
from holdfast.hosts.hosts import Homes
from holdfast.hosts.keys import backup_seal
from holdfast.hosts.local_checkpoint import clear_unit, instance_epoch, put_back, write_instance
from holdfast.hosts.remembered import Remembered
from holdfast.hosts.store_answers import StoreLost
from holdfast.hosts.stores import OpenStore, StoreAway, who_know
from holdfast.journals.journal import Journal
from holdfast.protocols.activation import NearCheckpoint
from holdfast.protocols.messages import Manifest

__all__ = ["Begun", "Recovery"]

# Stores on folders answer in milliseconds; one behind a network may need a while to come back.
_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Begun:
    """An instance may start under this epoch; `frame` is where its folder stands."""

    epoch: int
    is_restored: bool  # from a backup, or from nothing: what the host had was not used
    is_empty: bool  # no checkpoint: its state begins anew
    sentences: tuple[str, ...]


class Recovery:
    def __init__(
        self,
        folder: StateFolder,
        homes: Homes,
        units: Sequence[Unit],
        guards: Guards,
        begun: Callable[[str], int],
        born: Callable[[str], int] = lambda unit: 0,
    ) -> None:
        """`begun`: by unit, the frame after which its state begins; `born`: the epoch in which it did. Older checkpoints are of another state."""
        self._folder, self._homes, self._guards, self._begun, self._born = folder, homes, guards, begun, born
        self._units = {unit.name: unit for unit in units}
        self._opened: dict[str, OpenStore] = {}
        self._seal = backup_seal(folder.root, homes.key, homes.identity)
        self._memory = Remembered(folder.root / "stores")
        guards.seal, guards.memory = self._seal, self._memory

    def open(self) -> list[str]:
        """See to the hosts; returns those that lost everything since the last run."""
        return self._homes.open()

    def stores(self, unit: str, *, has_near: bool = False) -> Stores:
        """`has_near`: its host has the unit, so stores that all lost their folders need not wait for one that knows."""
        if self._guards.keeps_nothing(unit):
            return Stores()
        opened = []
        for name, url in self._homes.stores_of(unit).items():
            if name not in self._opened:
                self._opened[name] = OpenStore(
                    name, url, life=self._homes.lives.get(name, 0), seal=self._seal, memory=self._memory
                )
            opened.append(self._opened[name])
        needed = min(self._homes.needed, len(opened))
        for store in opened:
            with contextlib.suppress(StoreAway):
                _noticed(store, unit)
        for store in opened:
            if store.life > 0:  # it lost its folder once: it takes part when it has learnt from the others
                peers = [other for other in opened if other is not store]
                enough = min(who_know(peers, unit) if has_near else len(peers), len(opened) - needed + 1)
                with contextlib.suppress(StoreAway):  # the claim meets the same, and says so
                    store.join(peers, [unit], enough)
        return Stores(tuple(opened), needed)

    def begin(self, name: str, epoch: int, *, near_is_good: bool = True, frames_are_gone: bool = False) -> Begun:
        """Claim an epoch for the unit, not below `epoch`, and make its folder that of the state it starts from.

        `frames_are_gone`: its state is good, but it has to go back and make frames again. Where no store can
        say to where, what its host has stays as it is.
        """
        unit, folder = self._units[name], self._homes.unit(name)
        for stream in unit.outputs:
            self._homes.stream(stream)
        self._folder.staging_of(name)
        stores = self.stores(name, has_near=near_is_good and instance_epoch(folder) is not None)
        if self._folder.may_be_torn and not self._is_whole(unit, folder):
            near_is_good = False
        said: list[str] = []
        near = self._near(folder, name, stores, said) if near_is_good and not frames_are_gone else None
        if not stores.opened:
            if near is None:
                clear_unit(folder)
                self._clear_frames(unit)
            self._guards.settle(name, stores, self._begun(name), None)
            return Begun(epoch, near is None, near is None, tuple(said))
        opened: dict[tuple[int, int], Container] = {}

        def vet(manifest: Manifest, contents: Mapping[str, bytes]) -> None:
            opened[manifest.key] = vetted(manifest, contents, unit.outputs)

        found = activate(
            name, stores.opened, needed=stores.needed, known_epoch=epoch - 1, near=near,
            claimant=f"{self._homes.host_of[name]}/{os.getpid()}", patience_s=_PATIENCE_S,
            vet=vet,
        )  # fmt: skip
        self._folder.raise_epoch_to(found.epoch)
        newest = found.manifest
        if newest is not None and (newest.frame <= self._begun(name) or newest.epoch < self._born(name)):
            newest = None
        said += [f"a copy of unit {name} was passed over: {reason}" for reason in found.bad]
        if found.near is None:
            self._compare(name, newest, stores, said)
        if found.near is None:
            if frames_are_gone and newest is None and any(store.life > 0 for store in stores.opened):
                raise _nowhere(name, self._homes.host_of[name])
            clear_unit(folder)
            if frames_are_gone:
                self._clear_frames(unit)
            if newest is not None:
                self._put_back(unit, folder, opened[newest.key], newest, found)
                said.append(f"unit {name} was put back to frame {newest.frame} from its backup")
            elif self._homes.lives.get(self._homes.host_of[name], 0) > 0:
                begun = self._begun(name)
                where = f"after frame {begun}, with empty state" if begun else "again with its first frame"
                said.append(f"unit {name} begins {where}: neither its host nor a store has anything of it")
        if found.near is not None or newest is not None:
            # Whoever claimed the epoch owns what lies here, also if it never comes to its first frame.
            write_instance(folder, found.epoch)
        self._memory.note_claim(name, found.epoch)
        self._guards.settle(name, stores, max(0 if newest is None else found.stored, self._begun(name)), newest)
        return Begun(found.epoch, found.near is None, found.near is None and newest is None, tuple(said))

    def stored(self, unit: str) -> int:
        """The frame of the newest checkpoint that is known to have been stored, whoever has it now."""
        return self._memory.stored(unit)[1]

    def _is_whole(self, unit: Unit, folder: Path) -> bool:
        """After the machine went down: whether what the host has can be used. Of Spark's files nobody can tell."""
        last = Journal(folder, "commits").last()
        return last is None or (not any(folder.glob("spark/*/state")) and state_is_whole(folder, last))

    def _clear_frames(self, unit: Unit) -> None:
        for stream in unit.outputs:
            for _, _, path in list_frames(self._homes.stream(stream)):
                path.unlink(missing_ok=True)

    def go_on(
        self, name: str, begun: Begun, around: Neighbours, schemas: Mapping[str, Schema], boundary_us: int,
        tallies: Mapping[str, Tally],
    ) -> Placed:  # fmt: skip
        """A unit that may lose was put back: find its place among its neighbours, and seal LOST what cannot be had."""
        unit, folder = self._units[name], self._homes.unit(name)
        last = Journal(folder, "commits").last()
        restored = max(self._begun(name), 0 if last is None else last["n"])
        return go_on_after(
            folder, self._guards.wirings[name], restored, around,
            [(self._homes.stream(stream), stream, schemas[stream]) for stream in unit.outputs],
            staging=self._folder.staging_of(name), epoch=begun.epoch, boundary_us=boundary_us,
            tallies=tallies,
        )  # fmt: skip

    def _compare(self, name: str, newest: Manifest | None, stores: Stores, said: list[str]) -> None:
        """Whether the stores have a checkpoint as new as the newest that they were known to hold."""
        key, frame = self._memory.stored(name)
        if newest is None or frame <= self._begun(name) or newest.key >= key:
            return
        if self._seal.key is not None:
            raise _older(name, newest, key, frame, stores)
        said.append(
            f"the stores of unit {name} hold checkpoint {newest.serial} of epoch {newest.epoch}, frame {newest.frame}, "
            f"and were known to hold {key[1]} of epoch {key[0]}, frame {frame}: one of them was lost, or set back to an older copy"
        )

    def _near(self, folder: Path, name: str, stores: Stores, said: list[str]) -> NearCheckpoint | None:
        epoch, begun = instance_epoch(folder), self._begun(name)
        try:
            last = next(reversed(Journal(folder, "commits").tail(RECORDS_KEPT)), None)
        except StateRefused as error:
            if not stores.opened:
                raise
            said.append(f"what the host has of unit {name} is not used: {error.code} {error.what}")
            return None
        if epoch is None and last is not None:  # it ran without a protection until now
            epoch = last["epoch"]
        if epoch is None:
            return None
        if epoch < (owner := self._memory.claimed(name)):
            said.append(
                f"what host {self._homes.host_of[name]} has of unit {name} is of epoch {epoch}, and epoch {owner} has run since: "
                "it is not used"
            )
            return None
        return NearCheckpoint(epoch, begun if last is None else max(last["n"], begun))

    def _put_back(self, unit: Unit, folder: Path, checkpoint: Container, manifest: Manifest, found: Activated) -> None:
        streams = {stream: self._homes.stream(stream) for stream in unit.outputs}
        put_back(folder, streams, checkpoint.head["record"], manifest.epoch, checkpoint.files)
        containers = folder / "containers"
        containers.mkdir(parents=True, exist_ok=True)
        for name, content in found.contents.items():
            (containers / name).write_bytes(content)


def _noticed(store: OpenStore, unit: str) -> None:
    """See whether the store still has its folder; if not, it begins a new life."""
    try:
        store.trace(unit)
    except StoreLost:
        store.reopen()


def _older(unit: str, newest: Manifest, key: tuple[int, int], frame: int, stores: Stores) -> StateRefused:
    return StateRefused(
        "HF-R062",
        "BackupOlder",
        f"the stores of unit {unit!r} hold an older checkpoint than they were known to hold.",
        where=", ".join(f"{store.name} at {store.url}" for store in stores.opened),
        why=f"the newest is checkpoint {newest.serial} of epoch {newest.epoch}, frame {newest.frame}; checkpoint {key[1]} of "
        f"epoch {key[0]}, frame {frame}, was stored: a store was lost, or somebody set it back",
        effect="the unit was not started; what the stores hold is untouched",
        do="bring back the folder of a store as it was last, and run again; or begin its state anew: --fresh OPERATOR",
    )


def _nowhere(unit: str, host: str) -> StateRefused:
    return StateRefused(
        "HF-R017",
        "NothingToMakeFramesFrom",
        f"sealed frames of unit {unit!r} are missing on host {host!r}, and no store has a checkpoint to make them again from.",
        why="the stores that kept its checkpoints have lost their folders since",
        effect="what the host has of the unit stays as it is; sink tables are as they were",
        do="bring back the missing frames, or the folder of a host or a backup that kept copies, and run again",
    )
