"""The state folder of a process: who may use it, which epoch it is, what was deployed.

    deployment.json   what runs here: clock, fingerprints, schemas, units
    epoch             the register; raised by one at each activation, under the lock
    lock              held (flock) by the one run that may write here
    config/           parameter changes, each with the frame it holds from
    sources/NAME/     the reader's own log or index
    streams/NAME/     sealed frames that somebody still needs
    units/NAME/       permits, commits, Spark checkpoint by epoch, state runs
    staging/          what is being sealed; nothing here is needed after a crash

The kernel releases the lock when its holder dies, however it dies, so a new run
starts at once. What an orphan of the old run still writes goes to the Spark
checkpoint of its own epoch and to staging, which nobody reads again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading
from pathlib import Path

from holdfast.engine.board import Sealed
from holdfast.errors import StateRefused
from holdfast.graph.model import Graph
from holdfast.hosts.homes import Homes

__all__ = ["StateFolder", "delete_frame", "state_folder"]


class StateFolder:
    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: int | None = None
        self._raising = threading.Lock()
        self._homes: Homes | None = None
        self.epoch = 0

    def live_on(self, homes: Homes) -> None:
        """Units and streams lie on these hosts from now on."""
        self._homes = homes

    def acquire(self, process: str) -> int:
        """Take the lock and the next epoch. A second run is refused."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
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
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._lock = handle
        register = self.root / "epoch"
        self.epoch = int(register.read_text()) + 1 if register.exists() else 1
        _write_whole(register, str(self.epoch))
        shutil.rmtree(self.root / "staging", ignore_errors=True)
        self.staging.mkdir(parents=True, mode=0o700)
        return self.epoch

    def raise_epoch(self) -> int:
        """The next epoch, for a unit that is started anew within this run. Called by the holder of the lock."""
        register = self.root / "epoch"
        with self._raising:  # units that died together may be started at the same moment
            epoch = int(register.read_text()) + 1
            _write_whole(register, str(epoch))
        return epoch

    def raise_epoch_to(self, least: int) -> None:
        """Never hand out a number that a backup store has granted already."""
        register = self.root / "epoch"
        with self._raising:
            if int(register.read_text()) < least:
                _write_whole(register, str(least))

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def in_use(self) -> bool:
        """Whether a run holds the lock now."""
        try:
            handle = os.open(self.root / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

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
        return json.loads(path.read_text()) if path.exists() else None

    def begin_at(self, unit: str, frame: int) -> None:
        """A unit lost its state for good and begins anew after this frame."""
        with self._raising:
            deployment = self.deployment()
            deployment["start"][unit] = frame
            self.deploy(deployment)

    def deploy(self, deployment: dict) -> None:
        _write_whole(self.root / "deployment.json", json.dumps(deployment, indent=1))


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def _write_whole(path: Path, text: str) -> None:
    whole = path.with_name(path.name + ".tmp")
    with open(whole, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(whole, path)


def delete_frame(stream: str, sealed: Sealed) -> None:
    """Of a frame that nobody needs again; one that only refers to other files has none."""
    if sealed.file:
        Path(sealed.file).unlink(missing_ok=True)


def state_folder(graph: Graph, state: str | Path | None = None) -> Path:
    """Where the process keeps what it knows: given, declared, or .holdfast/NAME here."""
    if state is not None:
        return Path(state)
    if graph.state is not None:
        return Path(graph.base) / graph.state
    return Path(".holdfast") / graph.name
