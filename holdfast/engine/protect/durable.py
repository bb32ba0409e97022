"""What outlasts a loss of power: one thread of a run that syncs, and lets forget what it has made safe.

Frames are pure functions of their inputs, so a frame need not be on disk before it is
read: it can be made again as long as its inputs are there. What has to be there first is
what makes *forgetting* right. In rounds, beside the frames:

    1. a cut: the frames every unit has sealed at one moment (under the board's lock)
    2. the state files that the commit records of the cut name, their folders, the commit
       journals. From here on the cut is *durable*: sinks may have its frames, and no ledger
       is ever ahead of the journals.
    3. frames of the cut that still lie here after a while, since a consumer is slow, are synced
       as well; most are acknowledged and deleted before, and need no sync at all. Of a unit with
       Spark state the files of its checkpoint follow (`sparkfiles`). Then the cut is *settled*: nobody can
       want it made again, its inputs are acknowledged and older state files go.

After a loss of power every unit goes back to its newest frame whose record, state and
frames are whole (`engine.recover.torn`), never behind a settled cut.

A sync that fails is not tried again: the kernel may have dropped what it could not write.
The run stops (HF-R053), and the next one goes by what is really there.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdfast.atomic import sync_file, write_whole
from holdfast.engine.flow.disks import is_full
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.unit.state_files import RECORDS_KEPT, StateFiles
from holdfast.errors import StateRefused
from holdfast.graph.model import Graph

if TYPE_CHECKING:
    from holdfast.engine.unit.query import UnitQuery

__all__ = ["Durable", "shown_until"]

# Most sinks have a frame within a few milliseconds; what still lies here after so long is synced.
_LINGER_S = 0.25
# Spark writes its commit entry a few milliseconds after ours.
_LOOK_S = 0.01
_IDLE_S = 0.5
# Beside the commit journal of a unit.
_SHOWN = "shown"
# A disk that takes long for a sync holds the frames back in the end: what is not durable has to be kept.
FRAMES_AHEAD_MAX = 256


@dataclass
class _Stand:
    """How far one unit is safe."""

    durable: int = 0
    settled: int = 0
    cuts: deque[tuple[float, int]] = field(default_factory=deque)  # durable ones that are not settled: since when
    state: set[Path] = field(default_factory=set)  # files that were synced and are still named
    segment: Path = Path()  # of the journal: the last one that was synced
    frames: set[str] = field(default_factory=set)
    tells: bool = False  # a sink that cannot say what it has reads it


class Units(Protocol):
    """The units of a run in operation; whoever restarts them keeps them (`engine.recover.attempts`)."""

    def __iter__(self) -> Iterator[UnitQuery]: ...

    def __getitem__(self, unit: str) -> UnitQuery: ...


class Durable(threading.Thread):
    def __init__(self, board: Board, crew: Units, fail: Callable[[BaseException], None], graph: Graph) -> None:
        super().__init__(name="sync", daemon=True)
        # Sinks that have no ledger: what they were shown is written down here.
        self._cannot_tell = {sink.stream for sink in graph.sinks if not sink.writer.idempotent}
        self._board, self._crew, self._fail = board, crew, fail
        self._stands: dict[str, _Stand] = {}
        self._named: set[Path] = set()  # folders whose own names are synced
        self._halted = threading.Event()
        self._round = threading.Lock()
        self.error: BaseException | None = None
        self.syncs = 0

    # ---- what a run does ----

    def begin(self) -> None:
        """What this run found is made safe before it forgets anything."""
        for unit in self._crew:
            self._named.add(unit.folder.parents[1])  # the state folder
            stand = self._stands[unit.unit.name] = _Stand(tells=bool(self._cannot_tell & {*unit.unit.outputs}))
            self._sync_unit(unit, stand, unit.committed)
            with self._board.changed:
                queues = [self._board.streams[stream] for stream in unit.unit.outputs]
                files = [frame.file for queue in queues for frame in queue.frames.values()]
            self._sync_frames(stand, files)
            stand.durable = stand.settled = unit.committed
            unit.files.hold_from(unit.committed)
            with self._board.changed:
                for queue in queues:
                    queue.durable = unit.committed

    def run(self) -> None:
        while not self._halted.is_set():
            with self._board.changed:
                if not self._is_behind():
                    waits = any(stand.cuts for stand in self._stands.values())
                    self._board.changed.wait(timeout=_LINGER_S if waits else _IDLE_S)
                    continue
            if not self.round():
                self._halted.wait(_LOOK_S)  # Spark has not committed yet

    def close(self) -> None:
        """Make the last frames safe too. Called when no unit works any more, and before the sinks stop."""
        self._halted.set()
        with self._board.changed:
            self._board.changed.notify_all()
        if self.is_alive():
            self.join()
        if self._stands and self.error is None:
            self.round()
            self.round(linger_s=0.0)

    def wait_for_room(self, unit: str, n: int) -> None:
        """Held while too much is not durable."""
        with self._board.changed:
            while (
                n - self._stands[unit].durable > FRAMES_AHEAD_MAX and self.error is None and not self._halted.is_set()
            ):
                self._board.changed.wait(timeout=0.5)

    def taken_over(self, unit: str, files: StateFiles) -> int:
        """Another attempt begins: how many of the newest commit records it has to know, to keep their files."""
        stand = self._stands.get(unit)
        if stand is None:  # a run begins: nothing goes before what it found is synced
            files.hold_from(0)
            return RECORDS_KEPT
        files.hold_from(stand.settled)
        # Folders that it throws away and makes again have new names, under the old ones.
        gone = self._crew[unit].folder
        self._named.difference_update([folder for folder in list(self._named) if folder.is_relative_to(gone)])
        return max(RECORDS_KEPT, self._crew[unit].committed - stand.settled + 1)

    def _is_behind(self) -> bool:
        now = time.monotonic()
        for unit in self._crew:
            stand = self._stands[unit.unit.name]
            if self._sealed(unit) > stand.durable or (stand.cuts and now - stand.cuts[0][0] >= _LINGER_S):
                return True
        return False

    def _sealed(self, unit: UnitQuery) -> int:
        return min(self._board.streams[stream].sealed for stream in unit.unit.outputs)

    # ---- one round ----

    def round(self, linger_s: float = _LINGER_S) -> bool:
        """Make what is sealed now durable, and settle what can be. False: nothing was to do yet."""
        with self._round:
            try:
                return self._make_round(linger_s)
            except _NoRoom:  # nothing was dropped: what is not noted is not shown, and the next round tries again
                return False
            except Exception as error:  # a defect too: without this, sinks would wait without a word
                self.error = _not_synced(error) if isinstance(error, OSError) else error
                self._fail(self.error)
                self._halted.set()
                return True

    def _make_round(self, linger_s: float) -> bool:
        with self._board.changed:
            cut = [(unit, self._sealed(unit)) for unit in self._crew]
        moved = False
        for unit, sealed in cut:
            stand = self._stands[unit.unit.name]
            if sealed > stand.durable and self._sync_unit(unit, stand, sealed):
                stand.cuts.append((time.monotonic(), sealed))
                stand.durable, moved = sealed, True
                with self._board.changed:
                    for stream in unit.unit.outputs:
                        self._board.streams[stream].durable = sealed
                    self._board.changed.notify_all()
        for unit, _ in cut:
            moved = self._settle(unit, self._stands[unit.unit.name], linger_s) or moved
        return moved

    def _sync_unit(self, unit: UnitQuery, stand: _Stand, n: int) -> bool:
        """State, then the record that names it. False if another attempt has taken over meanwhile."""
        named = unit.files.named_by(n)
        if named is None:
            return False
        fresh = named - stand.state
        try:
            for path in fresh:
                self._sync(path)
            self._sync_folders({path.parent for path in fresh})
        except FileNotFoundError:
            if unit.is_alive():
                raise
            return False  # it died, or is about to: its files go with it
        stand.state |= fresh
        if stand.tells:
            with self._board.changed:
                queues = [self._board.streams[stream] for stream in unit.unit.outputs]
                files = [frame.file for queue in queues for at, frame in queue.frames.items() if at <= n and frame.file]
            self._sync_frames(stand, [file for file in files if file not in stand.frames])
            _note_shown(unit.folder, n)
        segments = [path for path in sorted(unit.folder.glob("commits.*.jsonl")) if path >= stand.segment]
        for path in segments:
            self._sync(path)
        if segments and segments[-1] != stand.segment:
            self._sync_folders({unit.folder})
            stand.segment = segments[-1]
        return True

    def _settle(self, unit: UnitQuery, stand: _Stand, linger_s: float) -> bool:
        settled = stand.settled
        if unit.uses_spark_state and stand.cuts and time.monotonic() - stand.cuts[0][0] >= linger_s:
            frame = unit.spark_files.committed()
            if frame > unit.spark_files.durable:
                self.syncs += unit.spark_files.make_durable(frame)
        while stand.cuts:
            since, n = stand.cuts[0]
            if unit.uses_spark_state and n > unit.spark_files.durable:
                break
            with self._board.changed:
                queues = [self._board.streams[stream] for stream in unit.unit.outputs]
                left = [frame.file for queue in queues for at, frame in queue.frames.items() if at <= n and frame.file]
            left = [file for file in left if file not in stand.frames]
            if left:
                if time.monotonic() - since < linger_s:
                    break
                self._sync_frames(stand, left)
            stand.cuts.popleft()
            settled = n
        if settled == stand.settled:
            return False
        stand.settled = settled
        unit.files.hold_from(settled)
        stand.state &= unit.files.named()
        with self._board.changed:
            there = {frame.file for queue in queues for frame in queue.frames.values()}
        stand.frames &= there
        unit.acknowledge(settled)
        return True

    def _sync_frames(self, stand: _Stand, files: Iterable[str]) -> None:
        folders = set()
        for file in files:
            with contextlib.suppress(FileNotFoundError):  # all have it, meanwhile
                self._sync(Path(file))
                folders.add(Path(file).parent)
                stand.frames.add(file)
        self._sync_folders(folders)

    def _sync(self, path: Path) -> None:
        sync_file(path)
        self.syncs += 1

    def _sync_folders(self, folders: Iterable[Path]) -> None:
        """The names in these, and the way to them: a folder whose own name is lost takes all that is in it along."""
        for folder in folders:
            self._sync(folder)
            while folder not in self._named and folder.parent != folder:
                self._named.add(folder)
                folder = folder.parent
                self._sync(folder)


class _NoRoom(Exception):
    """A note found no room on the disk. Not a failed sync: what is written stays written."""


def _note_shown(unit: Path, n: int) -> None:
    try:
        write_whole(unit / _SHOWN, str(n), sync=True)
    except OSError as error:
        if is_full(error):
            raise _NoRoom from error
        raise


def shown_until(unit: Path, begun: int) -> int:
    """The last frame that a sink without a ledger may have been shown."""
    try:
        return int((unit / _SHOWN).read_text())
    except (OSError, ValueError):
        return begun


def _not_synced(error: OSError) -> StateRefused:
    return StateRefused(
        "HF-R053",
        "DiskDoesNotSync",
        "the disk of the state folder did not take what was to be synced.",
        where=str(error.filename or ""),
        why=str(error),
        effect="the run stops; nothing was acknowledged or deleted that rests on it, sink tables are as they were",
        do="see to the disk (dmesg names the fault) and run again: the run goes back to what is really on disk",
    )
