"""What the state folder remembers of backup stores and units, so that an older copy of either is known as one.

A store proves by its register and its manifests what it has promised. One that was set
back to an older image, by an operator or by somebody who wants an old checkpoint used,
has forgotten promises, and nothing in it says so. So the other side keeps notes: for each
store and unit the highest epoch and checkpoint it ever answered with, and for each unit the
epoch of its last instance and its newest stored checkpoint. Notes lie beside the
epoch register, in the state folder, which is no host. They are written after the fact
and not synced: an old note proves less, never something wrong.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass
from pathlib import Path

from holdfast.atomic import write_whole
from holdfast.hosts.sealed import quoted
from holdfast.protocols.messages import Manifest

__all__ = ["Promised", "Remembered"]


@dataclass(frozen=True, slots=True, order=True)
class Promised:
    """What a store in one life has answered with, at most: a granted epoch, and the key of a manifest."""

    life: int
    epoch: int
    key: tuple[int, int] = (0, 0)

    def is_forgotten_by(self, epoch: int, manifest: Manifest | None) -> bool:
        return epoch < self.epoch or (0, 0) < self.key > ((0, 0) if manifest is None else manifest.key)


class Remembered:
    """Several threads may ask and note at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._read: dict[str, dict] = {}

    def promised(self, store: str, unit: str) -> Promised | None:
        with self._lock:
            match self._notes(f"store {store}").get(unit):
                case [int(life), int(epoch), int(of), int(serial)]:
                    return Promised(life, epoch, (of, serial))
                case _:
                    return None

    def note_promise(self, store: str, unit: str, said: Promised) -> None:
        known = self.promised(store, unit)
        if known is not None and known.life == said.life:
            said = Promised(said.life, max(known.epoch, said.epoch), max(known.key, said.key))
        if said != known:
            self._note(f"store {store}", unit, [said.life, said.epoch, *said.key])

    def claimed(self, unit: str) -> int:
        """The epoch of the last instance that owned what lies on its host; 0: none is known."""
        with self._lock:
            epoch = self._of(unit).get("claimed", 0)
            return epoch if isinstance(epoch, int) else 0

    def note_claim(self, unit: str, epoch: int) -> None:
        with self._lock:
            known = self._of(unit)
        self._note("units", unit, known | {"claimed": epoch})

    def stored(self, unit: str) -> tuple[tuple[int, int], int]:
        """Key and frame of the newest checkpoint that enough stores held; ((0, 0), 0): none is known."""
        with self._lock:
            match self._of(unit).get("stored"):
                case [int(epoch), int(serial), int(frame)]:
                    return (epoch, serial), frame
                case _:
                    return (0, 0), 0

    def note_stored(self, manifest: Manifest) -> None:
        with self._lock:
            known = self._of(manifest.unit)
        self._note("units", manifest.unit, known | {"stored": [manifest.epoch, manifest.serial, manifest.frame]})

    def _of(self, unit: str) -> dict:
        known = self._notes("units").get(unit)
        return known if isinstance(known, dict) else {}

    def _notes(self, name: str) -> dict:
        if name not in self._read:
            try:
                found = json.loads((self._folder / f"{quoted(name)}.json").read_text())
            except (OSError, ValueError):
                found = {}
            self._read[name] = (
                {k: v for k, v in found.items() if isinstance(v, list | dict)} if isinstance(found, dict) else {}
            )
        return self._read[name]

    def _note(self, name: str, unit: str, value: list | dict) -> None:
        with self._lock:
            notes = self._notes(name)
            notes[unit] = value
            with contextlib.suppress(OSError):  # on a full disk the older note stays, which proves less
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_whole(self._folder / f"{quoted(name)}.json", json.dumps(notes))
