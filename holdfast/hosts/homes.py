"""Logical hosts: a folder each, in which units, their sealed frames and backups of other hosts' units lie.

    HOST/host.json      the mark: which host this is, and its how-manieth folder
    HOST/units/NAME/    near checkpoint of a unit that lives here
    HOST/streams/NAME/  sealed frames of its outputs that somebody still needs
    HOST/staging/       what is being sealed
    HOST/backups/       the backup store for units of other hosts

A host whose mark is gone has lost everything: it gets a new, empty folder and a higher
life, and its units come back from their backups. How often that happened is written
down in the state folder (hosts.json), which is no host.

Units are spread over the hosts in their order unless placed; the copies of a unit go to
the hosts after its own. Without hosts everything lies in the state folder, as it does
for a process without protections.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.graph.hosting import Backup, Host, spread

__all__ = ["Homes"]

_MARK = "host.json"


class Homes:
    def __init__(
        self, root: Path, hosts: Sequence[Host], backup: Backup | None, units: Sequence[tuple[str, str | None, tuple[str, ...]]]
    ) -> None:
        """`units`: name, the host it is placed on or None, the streams it makes."""
        self._root = root
        self._folders = {host.name: Path(host.folder) if host.folder else root / "hosts" / host.name for host in hosts}
        self._backup = backup or Backup()
        self.host_of = spread(list(self._folders), [(unit, placed) for unit, placed, _ in units])
        self._maker = {stream: unit for unit, _, streams in units for stream in streams}
        self._lives_file = root / "hosts.json"
        self.lives: dict[str, int] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._folders)

    def open(self) -> list[str]:
        """Make the folders that are missing; returns the hosts that had lost theirs."""
        self.lives = json.loads(self._lives_file.read_text()) if self._lives_file.exists() else {}
        return [name for name in self._folders if self.reopen(name)]

    def reopen(self, host: str) -> bool:
        """See to one host: a new folder, and a new life, if its mark is not what it should be. Says whether it was lost."""
        folder, life = self._folders[host], self.lives.get(host)
        if life is not None and self._mark(host) == life:
            return False
        life_now = 0 if life is None else life + 1
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Known as lost before it is there again: a crash in between makes it one life more, never one less.
        self.lives[host] = life_now
        _write(self._lives_file, json.dumps(self.lives))
        _write(folder / _MARK, json.dumps({"host": host, "life": life_now}))
        return life is not None

    def lost(self) -> list[str]:
        """Hosts whose folder went away while they were in use."""
        return [host for host in self._folders if self._mark(host) != self.lives.get(host)]

    def life(self, host: str) -> int | None:
        """The host's life, if its folder is there."""
        mark = self._mark(host)
        return mark if mark == self.lives.get(host) else None

    def _mark(self, host: str) -> int | None:
        try:
            return json.loads((self._folders[host] / _MARK).read_text())["life"]
        except (OSError, ValueError, KeyError):
            return None

    # ---- where things lie ----

    def folder(self, host: str) -> Path:
        return self._folders[host]

    def unit_folder(self, name: str) -> Path:
        """Where the unit lies; nothing is made."""
        return self._home(name) / "units" / name

    def unit(self, name: str) -> Path:
        return _made(self.unit_folder(name))

    def stream(self, name: str) -> Path:
        return _made(self._home(self._maker.get(name, "")) / "streams" / name)

    def staging(self, unit: str, epoch: int) -> Path:
        return _made(self._home(unit) / "staging" / str(epoch))

    def _home(self, unit: str) -> Path:
        host = self.host_of.get(unit)
        return self._root if host is None else self._folders[host]

    def paths(self) -> dict[str, str]:
        """For who reads the state folder: where each unit and stream lies that does not lie in it."""
        units = {f"units/{unit}": str(self._home(unit) / "units" / unit) for unit in self.host_of}
        streams = {
            f"streams/{stream}": str(self._home(unit) / "streams" / stream)
            for stream, unit in self._maker.items()
            if unit in self.host_of
        }
        return units | streams

    def bring(self, deployment: Mapping) -> None:
        """Move what an earlier deployment kept elsewhere to where it lies now."""
        before, now = deployment.get("homes", {}), self.paths()
        for key in {*before, *now}:
            old = Path(before.get(key, self._root / key))
            new = Path(now.get(key, self._root / key))
            if old == new or not old.is_dir():
                continue
            new.mkdir(parents=True, exist_ok=True, mode=0o700)
            for entry in old.iterdir():
                if entry.name != "quarantine" and not (new / entry.name).exists():
                    shutil.move(entry, new / entry.name)

    # ---- where copies lie ----

    def stores_of(self, unit: str) -> Mapping[str, str]:
        """Store -> place, for one unit: never on its own host."""
        if self._backup.urls:
            return {f"copy{at}": url for at, url in enumerate(self._backup.urls, 1)}
        names = list(self._folders)
        own = names.index(self.host_of[unit])
        others = names[own + 1 :] + names[:own]
        return {host: str(self._folders[host] / "backups") for host in others[: self._backup.copies]}

    @property
    def needed(self) -> int:
        return self._backup.needed_of


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _write(path: Path, text: str) -> None:
    whole = path.with_name(f".{path.name}.tmp")
    with open(whole, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(whole, path)
