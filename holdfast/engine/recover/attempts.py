"""The units of a run in operation, and what is done when one of them fails.

The supervisor decides; here it is carried out. A restart makes a new attempt of the
unit under an epoch of its own, after the old one was abandoned: whatever the old one
still does, a hung function that comes back, a worker that writes, becomes nothing. The
attempt takes frames one by one, so that a bad frame shows by its number.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.engine.flow.marking import Marker
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.protect.checkpointer import Guards
from holdfast.engine.recover.frames_on_disk import frames_on_disk, neighbours
from holdfast.engine.recover.remade import Awaited
from holdfast.engine.recover.restore import Begun, Recovery
from holdfast.engine.recover.supervisor import Supervisor
from holdfast.engine.state_folder import StateFolder
from holdfast.engine.unit.poison_search import NotAgain, guilty
from holdfast.engine.unit.query import UnitQuery
from holdfast.engine.unit.spark_errors import explain, frames_lost, host_lost, near_damaged, stalled
from holdfast.errors import HoldfastError
from holdfast.failpoints import reach
from holdfast.graph.model import Graph
from holdfast.hosts.hosts import Homes
from holdfast.journals.incidents import Incidents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NEAR_DAMAGED", "Crew"]

# What the host has of a unit is damaged or gone: it is not tried again, a backup is.
NEAR_DAMAGED = frozenset({"HF-O010", "HF-R004", "HF-R040", "HF-R041", "HF-R043"})
LOST = "HF-U034"
PUT_BACK = frozenset({LOST, "HF-U035"})
FRAMES_LOST = "HF-U036"
# A sealed frame cannot be read: whoever made it makes it again.
FRAME_UNREADABLE = frozenset({"HF-F002", "HF-F005"})
# Deleting a host's folder takes a moment, and its mark need not be the first to go.
_DOUBT_S = 2.0


class Crew:
    def __init__(self, graph: Graph, folder: StateFolder, board: Board, supervisor: Supervisor) -> None:
        self._graph, self._folder, self._board, self._supervisor = graph, folder, board, supervisor
        self._units: dict[str, UnitQuery] = {}
        self._makers: dict[str, Callable[..., UnitQuery]] = {}
        self._spark: SparkSession | None = None
        self._starting = threading.Lock()  # held while a unit starts, and while a host is found lost
        self._restarting: set[str] = set()
        self._incidents: Incidents | None = None
        self._awaited: Awaited | None = None  # frames that somebody asked to have made again
        self._homes: Homes | None = None
        self._guards: Guards | None = None
        self._recovery: Recovery | None = None
        self._placeless: dict[str, Begun] = {}  # of those a run finds without a place
        self._doubtful: dict[str, float] = {}  # units whose death may be that of their host, since when

    def protect(self, homes: Homes, guards: Guards, recovery: Recovery) -> None:
        """Units live on hosts that may be lost, and come back from their backups."""
        self._homes, self._guards, self._recovery = homes, guards, recovery

    def add(self, unit: UnitQuery, maker: Callable[..., UnitQuery]) -> None:
        """`maker` makes another attempt of it."""
        self._units[unit.unit.name], self._makers[unit.unit.name] = unit, maker

    def __getitem__(self, name: str) -> UnitQuery:
        return self._units[name]

    def __iter__(self) -> Iterator[UnitQuery]:
        return iter(list(self._units.values()))

    @property
    def host_of(self) -> Mapping[str, str]:
        return {} if self._homes is None else self._homes.host_of

    def start(self, spark: SparkSession) -> None:
        self._spark = spark
        self._incidents = Incidents(self._folder.root, epoch=self._folder.epoch)
        self._awaited = Awaited(self._folder.root, self._board)
        for unit in self:
            unit.start(spark)

    def stop(self) -> None:
        with self._starting:  # a restart that has begun is let through, and stopped like the others
            units = list(self)
        for unit in units:
            unit.stop()
        if self._incidents is not None:
            self._incidents.close()

    def came_back(self, name: str, begun: Begun) -> None:
        """At the start of a run: what became of a unit."""
        if begun.is_restored and self._guards.is_lossy(name):
            self._placeless[name] = begun

    def make_missing_again(self, sinks: Mapping[str, list[int]]) -> list[str]:
        """At the start of a run: a unit whose sealed frames are gone, and needed, is put back and makes them again.

        `sinks`: by stream, the last frame that each sink has. Returns what is to be said of it.
        """
        missing, told = [], []
        for unit in self if self._recovery is not None else ():
            for stream in unit.unit.outputs:
                queue = self._board.streams[stream]
                has = [n for reader, n in queue.taken.items() if reader not in self._placeless] + sinks.get(stream, [])
                if min(has, default=queue.sealed) + 1 < min(queue.frames, default=queue.sealed + 1):
                    missing.append(unit.unit.name)
        for name in dict.fromkeys(missing):
            old = self._units[name]
            begun = self._recovery.begin(name, self._folder.raise_epoch(), frames_are_gone=True)
            met = frames_lost(self._graph, name, self._homes.host_of[name], None)
            Incidents(self._folder.root, epoch=begun.epoch).note("put back", error=met, unit=name, frame=old.committed)
            told += [met.what, *begun.sentences]
            self.came_back(name, begun)
            fresh = self._makers[name](
                epoch=begun.epoch, frames_at_once=old.frames_wanted, settled=old.settled, is_changed=old.is_changed
            )
            at = fresh.recover()
            self._units[name] = fresh
            self._board.units[name].permitted = self._board.units[name].processed = at
        return told

    def place_lossy(self, written: Mapping[str, Callable[[], int]]) -> bool:
        """At the start of a run: units that may lose, and whose host was lost, go on behind what anybody has seen."""
        for name, begun in self._placeless.items():
            unit = self._units[name]
            unit.begun = self._go_on(unit, begun, lambda sink: written[sink](), lambda other: False).get(
                "begun", unit.begun
            )
            at = unit.recover()
            with self._board.changed:
                state = self._board.units[name]
                state.permitted = state.processed = at
        return bool(self._placeless)

    def look(self) -> None:
        """See who died or stalls; begin what is due. Called again and again by the run."""
        if self._board.error is not None:
            return
        if self._awaited is not None:
            self._awaited.look(self._incidents)
        if self._homes is not None:
            for host in self._homes.lost():
                with self._starting:
                    self._lost(host)
        for sink, error in self._board.unreadable():
            if not self._is_doubtful(f"sink {sink}", error):
                self._make_again(error)
        for unit in self:
            name = unit.unit.name
            if unit.query is None or self._supervisor.is_dead(name) or self._units[name] is not unit:
                continue  # one that has just been replaced is dead, and no news
            unit.report()
            if not unit.is_alive():
                error = explain(self._graph, name, unit.query, unit.error, unit.committed)
                if self._is_doubtful(name, error) or self._make_again(error, reader=name):
                    continue
                if error.code == "HF-U030":  # no unit can go on without the JVM
                    self._board.fail(error)
                    return
                self._died(name, unit.committed + 1, error)
            elif (seconds := self._supervisor.stalled(name)) is not None:
                self._died(name, unit.committed + 1, stalled(self._graph, name, unit.committed, seconds))
        if self._board.stopping:
            return
        for unit in self:
            name = unit.unit.name
            if unit.query is not None and not self._supervisor.is_dead(name) and unit.wants_other_values:
                self._supervisor.renew(name)
        for name in self._supervisor.due():
            self._restarting.add(name)
            threading.Thread(target=self._restart, args=(name,), name=f"restart {name}", daemon=True).start()
        for name, n in self._supervisor.to_probe():
            threading.Thread(target=self._probe, args=(name, n), name=f"probe {name}", daemon=True).start()

    def rows_left_out(self, on_error: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for unit in self:
            found |= unit.rows_left_out(on_error)
        return found

    def markers(self) -> dict[str, Marker]:
        """By unit, what it counted of LOST and tainted frames and of rows that came too late."""
        return {unit.unit.name: unit.marker for unit in self}

    # ---- hosts ----

    def _is_doubtful(self, name: str, error: HoldfastError) -> bool:
        """A file that is missing may be the first sign of a lost host: its mark may go a moment later."""
        if self._homes is None or not (error.code in NEAR_DAMAGED or error.code.startswith("HF-F")):
            return False
        since = self._doubtful.setdefault(name, time.monotonic())
        if time.monotonic() - since < _DOUBT_S:
            return True
        del self._doubtful[name]
        return False

    def _lost(self, host: str) -> None:
        """A host's folder is gone: its units begin again elsewhere in time, from their backups."""
        victims = [unit for unit in self if self._homes.host_of[unit.unit.name] == host]
        readers = self._board.lose(stream for unit in victims for stream in unit.unit.outputs)
        hit = {unit.unit.name for unit in victims}
        for name in hit | readers:
            self._units[name].disown()
            self._doubtful.pop(name, None)
        self._homes.reopen(host)
        self._guards.store_lost(host)
        for unit in victims:
            name = unit.unit.name
            care = self._supervisor.care(name)
            if care.condition == "GIVEN_UP" or name in self._restarting:
                continue  # a restart that is under way sees it itself
            if care.due_s is not None and care.error is not None and care.error.code == LOST:
                continue  # one that was under way has seen it: a loss is one death
            self._died(name, unit.committed + 1, host_lost(self._graph, name, host, self._guards.stored(name)))
        for name in readers - hit:
            if not self._supervisor.is_dead(name):
                self._supervisor.renew(name)  # what it was about to read is made again

    def _make_again(self, error: HoldfastError, reader: str | None = None) -> bool:
        """A sealed frame is damaged or missing: its unit goes back to its backup and makes it again. False: it cannot be had."""
        maker = self._maker_of(error)
        if maker is None or self._supervisor.care(maker).condition == "GIVEN_UP":
            return False
        if self._supervisor.is_dead(maker):
            return True  # it is on its way back, and the frames with it; the reader is looked at again then
        with self._starting:
            unit = self._units[maker]
            readers = self._board.lose(unit.unit.outputs)
            for name in {maker, *readers}:
                self._units[name].disown()
            self._died(maker, unit.committed + 1, frames_lost(self._graph, maker, self._homes.host_of[maker], error))
            for name in (readers | ({reader} if reader else set())) - {maker}:
                if name == reader or not self._supervisor.is_dead(name):
                    self._supervisor.renew(name)
        return True

    def _maker_of(self, error: HoldfastError) -> str | None:
        if self._homes is None or error.code not in FRAME_UNREADABLE:
            return None
        folder = Path(error.where).parent
        makers = (
            unit.unit.name for unit in self if any(self._folder.stream(each) == folder for each in unit.unit.outputs)
        )
        return next(makers, None)

    def _restart(self, name: str) -> None:
        old, life = self._units[name], self._life(name)
        try:
            old.abandon()
            epoch = self._folder.raise_epoch()
            is_restored, more = False, {}
            if self._recovery is not None:
                self._guards.leave(name)
                met = self._supervisor.care(name).error
                damaged = met is not None and met.code in PUT_BACK
                reach("restoring", old.committed, name)
                frames_are_gone = met is not None and met.code == FRAMES_LOST
                begun = self._recovery.begin(name, epoch, near_is_good=not damaged, frames_are_gone=frames_are_gone)
                epoch, is_restored = begun.epoch, begun.is_restored
                reach("restored", old.committed, name)
                for sentence in begun.sentences:
                    self._incidents.note(sentence, unit=name)
                if is_restored and self._guards.is_lossy(name):
                    more = self._go_on(old, begun, lambda sink: self._board.sinks[sink][1], self._supervisor.is_dead)
                    if "begun" in more:
                        self._folder.begin_at(name, more["begun"])
            fresh = self._makers[name](epoch=epoch, frames_at_once=1, settled=old.settled, is_changed=False, **more)
            fresh.recover()
            if is_restored:
                lost = {stream for stream in fresh.unit.outputs if not self._board.streams[stream].frames}
                frames = {stream: frames_on_disk(self._folder.stream(stream), fresh.committed) for stream in lost}
                self._board.put_back(name, fresh.committed, frames, same=not self._guards.is_lossy(name))
            else:
                self._tell_what_it_committed(fresh)
            with self._starting:
                if self._board.stopping:
                    return
                if life is not None and self._life(name) == life:
                    fresh.start(self._spark)
                    self._units[name] = fresh
                    self._restarting.discard(name)
                    self._supervisor.restarted(name)
                    return
            raise FileNotFoundError(f"host {self._homes.host_of[name]} was lost again")
        except Exception as error:
            self._restarting.discard(name)
            met = explain(self._graph, name, None, error, old.committed)
            if self._life(name) != life:
                met = host_lost(self._graph, name, self._homes.host_of[name], self._guards.stored(name))
            self._died(name, old.committed + 1, met)

    def _tell_what_it_committed(self, fresh: UnitQuery) -> None:
        """The attempt before may have died between its commit and its word to the others."""
        for stream in fresh.unit.outputs:
            told = self._board.streams[stream].sealed
            if told < fresh.committed:
                frames = frames_on_disk(self._folder.stream(stream), fresh.committed)
                for n in range(told + 1, fresh.committed + 1):
                    self._board.seal(stream, frames[n])

    def _life(self, name: str) -> int | None:
        """Of the host of a unit; None while its folder is gone."""
        return 0 if self._homes is None else self._homes.life(self._homes.host_of[name])

    def _go_on(
        self, old: UnitQuery, begun: Begun, written: Callable[[str], int], is_dead: Callable[[str], bool]
    ) -> dict[str, int]:
        """Behind what anybody has seen of it; returns where its state begins, if it has none."""
        name = old.unit.name
        around = neighbours(self._board, self._guards.wirings[name], old.unit.outputs, written, is_dead)
        with self._board.changed:
            boundary_us = self._board.boundary_us(old.committed) if self._board.clock is not None else 0
        placed = self._recovery.go_on(name, begun, around, old.schemas, boundary_us, old.marker.tallies)
        if placed.lost is not None:
            first, last = placed.lost
            Incidents(self._folder.root, epoch=begun.epoch).note(
                f"frames {first} to {last} are LOST", unit=name, frame=last
            )
            logging.getLogger(f"holdfast.unit.{name}").warning(
                "frames %s to %s are LOST: its host is gone", first, last
            )
        return {"begun": placed.frame} if begun.is_empty else {}

    def _probe(self, name: str, n: int) -> None:
        """The user's code raised twice on this frame: do what its operator declares."""
        unit, error = self._units[name], self._supervisor.care(name).error
        try:
            operator = guilty(self._graph, unit.unit, error)
            declared = operator is not None and operator.on_error != "stop"
            if declared and unit.leave_poison_out(n, operator, error):
                self._incidents.note("rows left out", error=error, unit=name, frame=n)
                self._supervisor.restart_at_once(name)
            else:
                self._supervisor.give_up(name)
                self._incidents.note("given up", error=error, unit=name, frame=n)
        except NotAgain:
            passing = copy.copy(error)
            passing.may_pass = True
            self._died(name, n, passing)
        except Exception as raised:
            self._died(name, n, explain(self._graph, name, None, raised, n - 1))

    def _died(self, name: str, frame: int, error: HoldfastError) -> None:
        if self._recovery is not None and error.code in NEAR_DAMAGED and self._recovery.stores(name).opened:
            error = near_damaged(self._graph, name, self._homes.host_of[name], error)
        self._supervisor.died(name, frame, error)
        care = self._supervisor.care(name)
        error = care.error or error  # what it is given up with may say more
        what = "given up" if care.condition == "GIVEN_UP" else "died"
        with contextlib.suppress(OSError):  # on a full disk it is in the log alone, or nowhere
            self._incidents.note(what, error=error, unit=name, frame=frame, attempt=care.attempt)
        logging.getLogger(f"holdfast.unit.{name}").warning("%s", error)  # in full: what is done about it follows
