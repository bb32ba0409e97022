"""Logical hosts: a folder each, in which units, their sealed frames and backups of other hosts' units lie.

    HOST/host.json      the mark: which host this is, of whom, and its how-manieth folder
    HOST/claim          the start of the state folder that used it last (`starts` there): a copy of the folder does not know it
    HOST/units/NAME/    near checkpoint of a unit that lives here
    HOST/streams/NAME/  sealed frames of its outputs that somebody still needs
    HOST/staging/       what is being sealed
    HOST/backups/       the backup store for units of other hosts

A host whose mark is gone has lost everything: it gets a new, empty folder and a higher
life, and its units come back from their backups. How often that happened is written
down in the state folder (hosts.json), which is no host. A folder with the mark of another
state folder is another's and is refused; so backups under a URL lie in a folder of their own
there, named after the state folder and its identity.

Units are spread over the hosts in their order unless placed; the copies of a unit go to
the hosts after its own. Without hosts everything lies in the state folder, as it does
for a process without protections.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from holdfast.atomic import make_folder, put_in_place, sync_file, sync_names, sync_way, write_whole
from holdfast.errors import StateRefused
from holdfast.graph.hosting import Backup, Host, spread
from holdfast.graph.secrets import Secret
from holdfast.journals.notes import as_note, as_word, note_in, read_note, read_word

__all__ = ["Homes", "identity_of"]

_MARK = "host.json"
_CLAIM = "claim"
# Whoever deletes a folder is done after a moment; one that cannot be made for longer is broken.
_PATIENCE_S = 5.0
_AGAIN_S = 0.05


class Homes:
    def __init__(
        self,
        root: Path,
        hosts: Sequence[Host],
        backup: Backup | None,
        units: Sequence[tuple[str, str | None, tuple[str, ...]]],
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
        self.lives = self._read_lives()
        for host in self._folders:  # all, before one is touched
            self._refuse_copies(host)
        lost = [name for name in self._folders if self.reopen(name)]
        for host in self._folders:
            if host not in lost:
                self._claim(host)
        return lost

    @cached_property
    def identity(self) -> str:
        return identity_of(self._root)

    def _read_lives(self) -> dict[str, int]:
        if not self._lives_file.exists():
            return {}
        fields = read_note(
            self._lives_file,
            effect="nothing was started; no host's folder was touched",
            do="put the file back from a copy; without one write into it what each host.json says: "
            + '{"HOST": LIFE, ...}',
        )
        return fields["lives"] if isinstance(fields.get("lives"), dict) else fields  # as it was written before

    def reopen(self, host: str) -> bool:
        """See to one host: a new folder, and a new life, if its mark is not what it should be. Says whether it was lost."""
        life = self.lives.get(host)
        if life is not None and self._mark(host) == life:
            return False
        self._refuse_others(host)
        patience = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._make(host, life)
            except OSError as error:  # it may be about to be deleted
                if time.monotonic() >= patience:
                    raise _unusable(host, self._folders[host], error) from None
                time.sleep(_AGAIN_S)
            else:
                self._claim(host)
                return life is not None

    def _make(self, host: str, life: int | None) -> None:
        folder, life_now = self._folders[host], 0 if life is None else life + 1
        mark = as_note({"host": host, "life": life_now, "of": self.identity})
        if life is not None:
            _clear_away(folder)
        make_folder(folder, mode=0o700)
        sync_way(folder)
        # Known as lost before it is there again: a crash in between makes it one life more, never one less.
        self.lives[host] = life_now
        _write(self._lives_file, as_note({"lives": self.lives}))
        _write(folder / _MARK, mark)

    def _refuse_others(self, host: str) -> None:
        said = self._said(host)
        if said is None or (said.get("host"), said.get("of")) == (host, self.identity):
            return
        whose = f"host {said['host']!r} of this process" if said.get("of") == self.identity else "another state folder"
        raise StateRefused(
            "HF-R014",
            "HostTaken",
            f"the folder of host {host!r} belongs to {whose}.",
            where=str(self._folders[host]),
            why=f"its mark {_MARK} says so: folders were exchanged, two processes share one, or the state folder was made anew",
            effect="nothing in it was touched",
            do="give each host of each process a folder of its own, or put the folders back; to begin anew empty this one",
        )

    def _refuse_copies(self, host: str) -> None:
        """Two copies of a state folder would work on one host, at once or in turns, and each would miss what the other did."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            claim = (self._folders[host] / _CLAIM).read_text().strip()
            if self._mark(host) is None or claim in self._starts():
                return
            raise StateRefused(
                "HF-R020",
                "HostOfACopy",
                f"the folder of host {host!r} was used by a start that this state folder does not know.",
                where=str(self._folders[host]),
                why=f"state folder {self._root} is a copy, or was put back from an older copy, and another one has run since, or runs",
                effect="nothing was started, nothing in it was touched",
                do="use the newer copy of the state folder; or, if that one is gone for good and does not run, let this one go on\n"
                f"with what the hosts have: rm {' '.join(str(folder / _CLAIM) for folder in self._folders.values())}",
            )

    def _starts(self) -> list[str]:
        path = self._root / "starts"
        return path.read_text(errors="replace").split() if path.exists() else []

    def _claim(self, host: str) -> None:
        if starts := self._starts():
            with contextlib.suppress(FileNotFoundError):  # it is deleted at this moment: a loss like any other
                _write(self._folders[host] / _CLAIM, starts[-1] + "\n")

    def lost(self) -> list[str]:
        """Hosts whose folder went away while they were in use."""
        return [host for host in self._folders if self._mark(host) != self.lives.get(host)]

    def life(self, host: str) -> int | None:
        """The host's life, if its folder is there."""
        mark = self._mark(host)
        return mark if mark == self.lives.get(host) else None

    def _mark(self, host: str) -> int | None:
        """The life of the folder that is there, if it is ours."""
        said = self._said(host)
        if said is None or (said.get("host"), said.get("of")) != (host, self.identity):
            return None
        return said.get("life")

    def _said(self, host: str) -> dict | None:
        try:
            return note_in((self._folders[host] / _MARK).read_bytes())
        except (OSError, ValueError):  # a mark that is damaged is as good as gone: the host comes back from its backups
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

    def stream_folders(self, unit: str) -> list[Path]:
        """Where the frames of a unit lie; nothing is made."""
        return [self._home(unit) / "streams" / stream for stream, maker in self._maker.items() if maker == unit]

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
            make_folder(new, sync=True, mode=0o700)
            for entry in old.iterdir():
                if entry.name != "quarantine" and not (new / entry.name).exists():
                    _move(entry, new / entry.name)

    # ---- where copies lie ----

    def store_names(self, unit: str) -> tuple[str, ...]:
        """The stores of one unit: never on its own host."""
        if self._backup.urls:
            return tuple(f"copy{at}" for at in range(1, len(self._backup.urls) + 1))
        names = list(self._folders)
        own = names.index(self.host_of[unit])
        return tuple((names[own + 1 :] + names[:own])[: self._backup.copies])

    def stores_of(self, unit: str) -> Mapping[str, str]:
        """Store -> place, for one unit."""
        if not self._backup.urls:
            return {host: str(self._folders[host] / "backups") for host in self.store_names(unit)}
        own = f"{self._root.name}-{self.identity}"
        places = [f"{url.rstrip('/')}/{own}" for url in self._backup.urls]
        return dict(zip(self.store_names(unit), places, strict=True))

    @property
    def key(self) -> Secret | None:
        return self._backup.key

    @property
    def needed(self) -> int:
        return self._backup.needed_of


def _move(entry: Path, final: Path) -> None:
    """To another disk, too: whoever dies in between leaves it whole under the old name or the new one, or both."""
    try:
        return os.rename(entry, final)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    draft = final.with_name(f"{final.name}.moving")
    if draft.is_dir():
        shutil.rmtree(draft)
    if entry.is_dir():
        shutil.copytree(entry, draft, symlinks=True)
        for path in draft.rglob("*"):
            if path.is_file() and not path.is_symlink():
                sync_file(path)
        sync_names(draft)
    else:
        shutil.copy2(entry, draft)
    put_in_place(draft, final, sync=True)
    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def identity_of(root: Path) -> str:
    """Of a state folder: made once, at its first start, and the same wherever it is moved."""
    path = root / "identity"
    if not path.exists():
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = root / f".identity.{os.getpid()}.tmp"
        _write(draft, as_word(uuid.uuid4().hex[:12]))
        with contextlib.suppress(FileExistsError):  # another was first
            os.link(draft, path)
        draft.unlink()
    return read_word(
        path,
        str,
        effect="nothing was started; hosts, backups and sink tables are known by this name",
        do="put the file back from a copy; the name alone will do, and stands in the ledger of each sink as its folder",
    )


def _made(path: Path) -> Path:
    make_folder(path, sync=True, mode=0o700)
    return path


def _write(path: Path, text: str) -> None:
    write_whole(path, text, sync=True)


def _clear_away(folder: Path) -> None:
    """What is left of a lost folder, out of the way at once: somebody may still be deleting it."""
    if not os.path.lexists(folder):
        return
    aside = folder.with_name(f".{folder.name}.lost")
    _delete(aside)
    try:
        os.rename(folder, aside)
    except OSError:  # a disk is mounted there
        for entry in folder.iterdir():
            _delete(entry)
    else:
        _delete(aside)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _unusable(host: str, folder: Path, error: OSError) -> StateRefused:
    return StateRefused(
        "HF-R015",
        "HostUnusable",
        f"the folder of host {host!r} cannot be made.",
        where=str(folder),
        why=str(error),
        effect="the run stops here; its units can be put back from their backups, sink tables are as they were",
        do="make the place writable again, or let the host lie elsewhere (hosts=), and run again",
    )
