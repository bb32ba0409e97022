"""The state folder of a process: who may use it, which epoch it is, what was deployed.

    identity          which state folder this is, wherever it is moved; made at its first start
    deployment.json   what runs here: clock, fingerprints, schemas, units
    starts            the id of every start; ledgers of sinks keep the one that claimed them last
    epoch             the register; raised by one at each activation, under the lock
    lock              held (flock) by the one run that may write here; says its process id, and
                      nothing after a clean end. Of a killed one the id stays until somebody looks
    config/           parameter changes, each with the frame it holds from
    sources/NAME/     the reader's own log or index
    streams/NAME/     sealed frames that somebody still needs
    units/NAME/       permits, commits, Spark checkpoint by epoch, state runs
    sinks/NAME/       rows that a target refused, and that they were left out
    staging/          what is being sealed; nothing here is needed after a crash

The kernel releases the lock when its holder dies, however it dies, so a new run
starts at once. What an orphan of the old run still writes goes to the Spark
checkpoint of its own epoch and to staging, which nobody reads again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path

from holdfast.atomic import make_folder, sweep, sync_folder, sync_names, write_whole
from holdfast.engine import reboot
from holdfast.engine.trusted import owned_by_another
from holdfast.errors import StateRefused
from holdfast.graph.model import Graph
from holdfast.hosts.hosts import Homes, identity_of
from holdfast.journals.journal import Journal
from holdfast.journals.lock import is_held
from holdfast.journals.notes import as_note, as_word, damaged_note, read_note, read_word
from holdfast.sinks.owners import Owner

__all__ = ["StateFolder", "forget_unit", "state_folder"]

# A ledger keeps the id of its last start: a process that is refused ten times a minute needs a week to forget it.
_STARTS_MAX = 100_000
_OURS = frozenset({"identity", "epoch", "deployment.json"})  # one of them is there from the first start on
# Below the state folder: thrown away at each start, read by people alone, or Spark's, which has its own list (`sparkfiles`).
_NOT_RELIED_ON = ("staging", "logs", "reports", "spark")


class StateFolder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: int | None = None
        self._raising = threading.Lock()
        self._homes: Homes | None = None
        self.epoch = 0
        self.identity = ""
        self._start_id = ""
        self.may_be_torn = False  # the machine went down since the last run

    def live_on(self, homes: Homes) -> None:
        """Units and streams lie on these hosts from now on."""
        self._homes = homes

    def acquire(self, process: str) -> int:
        """Take the lock and the next epoch. A second run is refused."""
        if why := owned_by_another(self.root):
            raise StateRefused(
                "HF-R063",
                "StateNotYours",
                f"the state folder of stream process {process!r} is not yours.",
                where=str(self.root),
                why=f"{why}: what it says would be believed, down to where files lie",
                effect="nothing was started, nothing in it was touched",
                do="give it a folder of your own: --state DIR; if it is yours, make it so: chown or chmod o-w",
            )
        _refuse_strange(self.root, process)
        make_folder(self.root, sync=True, mode=0o700)
        with contextlib.suppress(PermissionError):  # somebody else's folder that we may write to stays as it is
            self.root.chmod(0o700)  # it was there already, made by hand
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise StateRefused(
                "HF-R001",
                "StateInUse",
                f"another run of stream process {process!r} holds its state folder.",
                where=f"{self.root}, process id {holder}",
                effect="nothing was started; the other run is untouched",
                do="holdfast status, or holdfast stop; for a second copy give it a folder of its own: --state DIR",
            ) from None
        self._lock = handle
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            self.may_be_torn = reboot.may_be_torn(self.root)
            # A run that was killed may have made folders whose names are not on disk yet; what is synced in them would go too.
            sweep(self.root, but=_NOT_RELIED_ON)
            sync_names(self.root, but=_NOT_RELIED_ON)
            self.identity = identity_of(self.root)
            self._start_id = _begun(self.root / "starts")
            self.epoch = self._registered() + 1
            self._register(self.epoch)
            shutil.rmtree(self.root / "staging", ignore_errors=True)
            self.staging.mkdir(parents=True, mode=0o700)
        except BaseException:  # a full disk, say: whoever makes room and starts again finds it free
            self.release()
            raise
        return self.epoch

    def owner(self) -> Owner:
        """This start, as it comes to the ledgers of sinks."""
        known = (self.deployment() or {}).get("sinks", {})
        starts = frozenset((self.root / "starts").read_text(errors="replace").split())
        return Owner(self.identity, self._start_id, starts, frozenset(known), str(self.root), self.may_be_torn)

    def cut_torn(self, units: Sequence[str]) -> None:
        """What a machine that went down left half written at the ends of journals is nothing."""
        if self.may_be_torn:
            folders = [
                *map(self.unit, units),
                *map(self.decisions, units),
                *self.root.glob("sources/*"),
                *self.root.glob("sources/*/log"),
            ]
            reboot.cut_torn([*dict.fromkeys(folders), self.config, _made(self.root / "records")])

    def mark_booted(self) -> None:
        """What was found is whole, or will be made again."""
        reboot.mark_booted(self.root)
        self.may_be_torn = False

    @property
    def has_homes(self) -> bool:
        return self._homes is not None

    def raise_epoch(self) -> int:
        """The next epoch, for a unit that is started anew within this run. Called by the holder of the lock."""
        with self._raising:  # units that died together may be started at the same moment
            epoch = self._registered() + 1
            self._register(epoch)
        return epoch

    def raise_epoch_to(self, least: int) -> None:
        """Never hand out a number that a backup store has granted already."""
        with self._raising:
            if self._registered() < least:
                self._register(least)

    def _registered(self) -> int:
        """The last epoch that was handed out; 0 before the first run."""
        register = self.root / "epoch"
        if not register.exists():
            return 0
        higher = 1000 + max((last_epoch(folder) for folder in self.root.glob("units/*")), default=0)
        return read_word(
            register,
            int,
            effect="nothing was started: an epoch that was handed out before would let an older run write too",
            do=f"write a number into it that is higher than any before: echo {higher} > {register}",
        )

    def _register(self, epoch: int) -> None:
        write_whole(self.root / "epoch", as_word(epoch), sync=True)

    def release(self) -> None:
        if self._lock is not None:
            # Its process id is soon somebody else's: who reads it here must not end that one.
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = None

    @property
    def in_use(self) -> bool:
        """Whether a run holds the lock now."""
        return is_held(self.root / "lock")

    @property
    def staging(self) -> Path:
        return self.root / "staging" / str(self.epoch)

    def source(self, name: str) -> Path:
        return _made(self.root / "sources" / name)

    def stream(self, name: str) -> Path:
        return _made(self.root / "streams" / name) if self._homes is None else self._homes.stream(name)

    def unit(self, name: str) -> Path:
        return _made(self.root / "units" / name) if self._homes is None else self._homes.unit(name)

    def decisions(self, unit: str) -> Path:
        """What was decided about a unit's inputs: part of the input, and lost with no host."""
        return _made(self.root / "units" / unit)

    def staging_of(self, unit: str) -> Path:
        return self.staging if self._homes is None else self._homes.staging(unit, self.epoch)

    @property
    def config(self) -> Path:
        return _made(self.root / "config")

    @property
    def socket_note(self) -> Path:
        """Where a running process can be reached from another shell."""
        return self.root / "control.json"

    def deployment(self) -> dict | None:
        path = self.root / "deployment.json"
        words = {
            "effect": "nothing was started; state, sealed frames and sink tables are as they were",
            "do": "put the file back from a copy; without one begin in another folder: --state DIR",
        }
        if path.exists():
            return read_note(path, **words)
        # Written before the first frame is made: a folder that has made some, and does not say of what, is not a new one.
        if any(self.root.glob("units/*/commits.*.jsonl")):
            raise damaged_note(path, FileNotFoundError("it is gone, and units have made frames here"), **words)
        return None

    def begin_at(self, unit: str, frame: int) -> None:
        """A unit lost its state for good and begins anew after this frame."""
        with self._raising:
            deployment = self.deployment()
            deployment["start"][unit] = frame
            self.deploy(deployment)

    def deploy(self, deployment: dict) -> None:
        write_whole(self.root / "deployment.json", as_note(deployment, indent=1), sync=True)


def _refuse_strange(root: Path, process: str) -> None:
    """A run deletes and overwrites by name in its folder: one that holds other things, and no state yet, is not taken."""
    there = {entry.name for entry in root.iterdir()} if root.is_dir() else set()
    if there & _OURS:
        return
    # Of a first start that was killed at once or lost its power (names are synced with `starts`), and of a disk that is mounted there.
    strange = sorted(name for name in there - {"lock", "starts", "lost+found"} if not name.startswith(".identity."))
    if strange:
        raise StateRefused(
            "HF-R064",
            "NotAStateFolder",
            f"the folder given for the state of stream process {process!r} holds other things.",
            where=str(root),
            why=f"it was never used as a state folder and has {', '.join(strange[:3])}{' ...' * (len(strange) > 3)}; a run deletes "
            "what it takes for leftovers of its own",
            effect="nothing was started, nothing in it was touched",
            do="name a folder that is empty or not there yet: --state DIR",
        )


def last_epoch(unit: Path) -> int:
    """The epoch of the unit's last commit, as far as it can be read."""
    last = Journal(unit, "commits", vital=False).last() if unit.is_dir() else None
    return 0 if last is None else last.get("epoch", 0)


def _begun(path: Path) -> str:
    """The id of a start, on disk before anybody sees it. A line that was torn by a crash spoils no other."""
    start_id = uuid.uuid4().hex[:16]
    lines = path.read_text(errors="replace").split() if path.exists() else []
    if len(lines) > 2 * _STARTS_MAX:
        write_whole(path, "\n".join(lines[-_STARTS_MAX:]))
    with open(path, "a") as file:
        file.write(f"\n{start_id}\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    return start_id


def _made(path: Path) -> Path:
    make_folder(path, sync=True, mode=0o700)
    return path


def forget_unit(folder: Path) -> None:
    """What a unit of that name once left here belongs to nobody; rows it set aside are still somebody's."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name == "quarantine":
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def state_folder(graph: Graph, state: str | Path | None = None) -> Path:
    """Where the process keeps what it knows: given, declared, or .holdfast/NAME here."""
    if state is not None:
        return Path(state)
    if graph.state is not None:
        return Path(graph.base) / graph.state
    return Path(".holdfast") / graph.name
