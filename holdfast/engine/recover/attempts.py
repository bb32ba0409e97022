"""The units of a run in operation, and what is done when one of them fails.

The lives of the units (`engine.recover.supervisor`, decided by `protocols.lifecycle`) hear what is seen here, and
what they answer is carried out here. A restart makes a new attempt of the
unit under an epoch of its own, after the old one was abandoned: whatever the old one
still does, a hung function that comes back, a worker that writes, becomes nothing. The
attempt takes frames one by one, so that a bad frame shows by its number.

A lost host has one door, `_host_lost`, whoever finds that its mark is gone: the look of the run, or a restart that
failed over it. Behind it the host has a new folder, so that nobody passes twice.

Lock order: `_starting`, then the gate of a unit or the board's lock, never the board's lock first.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from holdfast.engine.flow.marking import Marker
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.protect.checkpointer import Guards
from holdfast.engine.recover.frames_on_disk import frames_on_disk, neighbours
from holdfast.engine.recover.made import Others, made_by_other_code
from holdfast.engine.recover.remade import Awaited
from holdfast.engine.recover.restore import Begun, Recovery
from holdfast.engine.recover.supervisor import Supervisor, cause_of
from holdfast.engine.state_folder import StateFolder
from holdfast.engine.unit.poison_search import NotAgain, guilty
from holdfast.engine.unit.query import UnitQuery
from holdfast.engine.unit.spark_errors import explain, frames_lost, host_lost, near_damaged, stalled
from holdfast.errors import HoldfastError, Remedy
from holdfast.failpoints import reach
from holdfast.graph.edge_ids import Consumer
from holdfast.graph.model import Graph
from holdfast.hosts.hosts import Homes
from holdfast.journals.incidents import Incidents
from holdfast.protocols.lifecycle import (
    Abandon,
    Announce,
    AskMaker,
    AttemptFailed,
    Cause,
    Cured,
    Disown,
    EndRun,
    FrameUnreadable,
    HostLost,
    InputGone,
    LeaveOut,
    LifeEvent,
    LifeInstruction,
    Looked,
    LoseStreams,
    NotCured,
    Note,
    Probe,
    ProbeFailed,
    PutBack,
    QueryEnded,
    RenewalWanted,
    Restore,
    Restored,
    Stalled,
    Start,
    Started,
    State,
    Stopping,
    Wake,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Crew"]


def _in_a_thread(name: str, work: Callable[[], None]) -> None:
    threading.Thread(target=work, name=name, daemon=True).start()


class Crew:
    def __init__(
        self,
        graph: Graph,
        folder: StateFolder,
        board: Board,
        supervisor: Supervisor,
        *,
        aside: Callable[[str, Callable[[], None]], None] = _in_a_thread,
    ) -> None:
        """`aside` does what nobody is to wait for."""
        self._aside = aside
        self._graph, self._folder, self._board, self._supervisor = graph, folder, board, supervisor
        self._units: dict[str, UnitQuery] = {}
        self._makers: dict[str, Callable[..., UnitQuery]] = {}
        self._spark: SparkSession | None = None
        self._starting = threading.RLock()  # held while a unit starts, and while a host is found lost
        self._fresh: dict[str, UnitQuery] = {}  # attempts that are made and do not run yet
        self._incidents: Incidents | None = None
        self._awaited: Awaited | None = None  # frames that somebody asked to have made again
        self._homes: Homes | None = None
        self._guards: Guards | None = None
        self._recovery: Recovery | None = None
        self._to_place: dict[str, Begun] = {}  # units that a run finds without a place, at its start

    def protect(self, homes: Homes, guards: Guards, recovery: Recovery) -> None:
        """Units live on hosts that may be lost, and come back from their backups."""
        self._homes, self._guards, self._recovery = homes, guards, recovery
        self._supervisor.protect(
            {name: not guards.keeps_nothing(name) and bool(homes.stores_of(name)) for name in homes.host_of}
        )

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
            self._happened(unit.unit.name, Started(self._supervisor.now(), unit.attempt))

    def stop(self) -> None:
        with self._starting:  # a restart that has begun is let through, and stopped like the others
            units = list(self)
            for unit in units:
                self._happened(unit.unit.name, Stopping())
        for unit in units:
            unit.stop()
        if self._incidents is not None:
            self._incidents.close()

    def came_back(self, name: str, begun: Begun) -> None:
        """At the start of a run: what became of a unit."""
        if begun.is_restored and self._guards.is_lossy(name):
            self._to_place[name] = begun

    def make_missing_again(self, sinks: Mapping[str, list[int]]) -> list[str]:
        """At the start of a run: a unit whose sealed frames are gone, and needed, is put back and makes them again.

        `sinks`: by stream, the last frame that each sink has. Returns what is to be said of it.
        """
        missing, told = [], []
        for unit in self if self._recovery is not None else ():
            for stream in unit.unit.outputs:
                queue = self._board.streams[stream]
                has = [n for reader, n in queue.taken.items() if reader.name not in self._to_place]
                has += sinks.get(stream, [])
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
        for name, begun in self._to_place.items():
            unit = self._units[name]
            unit.begun = self._go_on(unit, begun, lambda sink: written[sink](), lambda other: False).get(
                "begun", unit.begun
            )
            at = unit.recover()
            with self._board.changed:
                state = self._board.units[name]
                state.permitted = state.processed = at
        return bool(self._to_place)

    def look(self) -> None:
        """See who died or stalls, and that time has passed. Called again and again by the run."""
        if self._board.error is not None:
            return
        if self._awaited is not None:
            self._awaited.look(self._incidents)
        for host in () if self._homes is None else self._homes.lost():
            self._host_lost(host)
        for sink, error in self._board.unreadable():
            self._complain(str(Consumer.sink(sink)), error)
        for unit in self:
            self._look_at(unit)
            if self._board.error is not None:
                return
        for unit in self:
            name = unit.unit.name
            if self._board.stopping:
                self._happened(name, Stopping())
            elif self._is_up(unit) and unit.wants_other_values:
                self._happened(name, RenewalWanted(self._supervisor.now()))
            self._happened(name, Looked(self._supervisor.now(), has_room=not self._board.held_for_space))

    def _look_at(self, unit: UnitQuery) -> None:
        name, now_s = unit.unit.name, self._supervisor.now()
        if not self._is_up(unit):
            return
        unit.report()
        if not unit.is_alive():
            error = explain(self._graph, name, unit.query, unit.error, unit.committed)
            self._happened(name, QueryEnded(now_s, unit.attempt, unit.committed + 1, self._cause(name, error)))
        elif (seconds := self._supervisor.stalled(name)) is not None:
            error = stalled(self._graph, name, unit.committed, seconds)
            self._happened(name, Stalled(now_s, unit.attempt, unit.committed + 1, cause_of(error)))

    def _is_up(self, unit: UnitQuery) -> bool:
        """One that has just been replaced is dead, and no news."""
        life = self._supervisor.life(unit.unit.name)
        return unit.query is not None and life.is_up and life.attempt == unit.attempt

    def rows_left_out(self, on_error: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for unit in self:
            found |= unit.rows_left_out(on_error)
        return found

    def markers(self) -> dict[str, Marker]:
        """By unit, what it counted of LOST and tainted frames and of rows that came too late."""
        return {unit.unit.name: unit.marker for unit in self}

    # ---- what happened, and what is done about it ----

    def _happened(self, name: str, event: LifeEvent) -> None:
        self._carry_out(name, self._supervisor.handle(name, event))

    def _carry_out(self, name: str, instructions: Sequence[LifeInstruction]) -> None:
        aside: list[Abandon | Restore | Probe] = []
        for instruction in instructions:
            match instruction:
                case Disown(attempt):
                    if (unit := self._units[name]).attempt == attempt:
                        unit.disown()
                case LoseStreams():
                    self._lose_streams(name)
                case Abandon() | Restore() | Probe():  # they take their time, and nobody is to wait for them
                    aside.append(instruction)
                case PutBack():
                    self._put_back(self._fresh[name])
                case Announce():
                    self._tell_what_it_committed(self._fresh[name])
                case Start(attempt):
                    self._start(name, attempt)
                case AskMaker(_, cause):
                    if cause.error is None or not self._complain(name, cause.error):
                        self._happened(name, InputGone(self._supervisor.now()))
                case Note(frame, cause, tries):
                    self._note("died", name, frame, cause.error, tries)
                case LeaveOut(frame, _, tries):
                    self._note("given up", name, frame, self._supervisor.given_up_error([name]), tries)
                case Wake():
                    pass  # the run looks all the time
                case EndRun(cause):
                    if cause.error is not None:
                        self._board.fail(cause.error)
                case _:
                    assert_never(instruction)
        if aside:
            self._carry_out_aside(name, aside)

    def _carry_out_aside(self, name: str, instructions: Sequence[Abandon | Restore | Probe]) -> None:
        def work() -> None:
            try:
                for instruction in instructions:
                    match instruction:
                        case Abandon():
                            self._units[name].abandon()
                        case Restore():
                            self._restore(name, instruction)
                        case Probe(attempt, frame):
                            self._probe(name, attempt, frame)
                        case _:
                            assert_never(instruction)
            except (
                BaseException
            ) as error:  # a host that cannot be made again, a defect: without this, nobody would know
                self._board.fail(error)

        self._aside(f"restart {name}", work)

    def _note(self, what: str, name: str, frame: int, error: HoldfastError | None, tries: int) -> None:
        with contextlib.suppress(OSError):  # on a full disk it is in the log alone, or nowhere
            if self._incidents is not None:
                self._incidents.note(what, error=error, unit=name, frame=frame, attempt=tries)
        logging.getLogger(f"holdfast.unit.{name}").warning("%s", error)  # in full: what is done about it follows

    def _cause(self, name: str, error: HoldfastError) -> Cause:
        """Of an error of a unit; what is damaged on a host is said with what is done about it."""
        if error.remedy is Remedy.RESTORE and self._homes is not None and self._supervisor.can_restore(name):
            error = near_damaged(self._graph, name, self._homes.host_of[name], error)
        return cause_of(error)

    # ---- hosts ----

    def _host_lost(self, host: str) -> None:
        """A host's folder is gone: its units begin again elsewhere in time, from their backups."""
        with self._starting:
            if host not in self._homes.lost():
                return
            now_s, ended = self._supervisor.now(), self._homes.lives.get(host, 0)
            told = []
            for unit in self._living_on(host):
                name = unit.unit.name
                cause = cause_of(host_lost(self._graph, name, host, self._guards.stored(name)))
                told.append((name, self._supervisor.handle(name, HostLost(now_s, ended, unit.committed + 1, cause))))
            for name, instructions in told:  # after all have heard of it: they read each other
                self._carry_out(name, instructions)
            self._homes.reopen(host)
            self._guards.store_lost(host)

    def _living_on(self, host: str) -> list[UnitQuery]:
        return [unit for unit in self if self._homes.host_of[unit.unit.name] == host]

    def _see_to_host_of(self, name: str) -> None:
        if self._homes is not None and (host := self._homes.host_of[name]) in self._homes.lost():
            self._host_lost(host)

    def _lose_streams(self, name: str) -> None:
        if self._guards is not None:
            # A checkpoint it has begun would be stored without the frames that go along, and be believed.
            self._guards.fence(name)
        readers = self._board.lose(self._units[name].unit.outputs)
        for reader in readers - {name}:  # what it was about to read is made again
            self._happened(reader, RenewalWanted(self._supervisor.now()))

    def _complain(self, reader: str, error: HoldfastError) -> bool:
        """A sealed frame is damaged or missing: tell the unit that made it. False: it cannot be had."""
        maker = self._maker_of(error)
        if maker is None or self._supervisor.life(maker).state is State.GIVEN_UP:
            return False
        with self._starting:
            unit, was_up = self._units[maker], self._supervisor.life(maker).is_up
            cause = cause_of(frames_lost(self._graph, maker, self._homes.host_of[maker], error))
            self._happened(maker, FrameUnreadable(self._supervisor.now(), reader, unit.committed + 1, cause))
            if was_up and not self._supervisor.life(maker).is_up and reader in self._units and reader != maker:
                self._happened(reader, RenewalWanted(self._supervisor.now()))
        return True

    def _maker_of(self, error: HoldfastError) -> str | None:
        if self._homes is None or error.remedy is not Remedy.REMAKE:
            return None
        folder = Path(error.where).parent
        makers = (
            unit.unit.name for unit in self if any(self._folder.stream(each) == folder for each in unit.unit.outputs)
        )
        return next(makers, None)

    # ---- another attempt ----

    def _restore(self, name: str, order: Restore) -> None:
        """Make the next attempt, and report; what is to be told and started comes back as instructions."""
        frame = self._units[name].committed + 1
        try:
            from_backup = self._make(name, order)
            with self._starting:
                self._see_to_host_of(name)
                self._happened(name, Restored(self._supervisor.now(), order.attempt, from_backup))
        except Exception as error:
            with self._starting:
                self._see_to_host_of(name)
                cause = self._cause(name, explain(self._graph, name, None, error, frame - 1))
                self._happened(name, AttemptFailed(self._supervisor.now(), order.attempt, frame, cause))

    def _make(self, name: str, order: Restore) -> bool:
        """Whether it comes from a backup, or from nothing."""
        old, epoch, more = self._units[name], self._folder.raise_epoch(), {}
        from_backup = False
        if self._recovery is not None:
            self._guards.leave(name)
            reach("restoring", old.committed, name)
            begun = self._recovery.begin(
                name, epoch, near_is_good=order.near_is_good, frames_are_gone=order.frames_are_gone
            )
            epoch, from_backup = begun.epoch, begun.is_restored
            reach("restored", old.committed, name)
            for sentence in begun.sentences:
                self._incidents.note(sentence, unit=name)
            if from_backup and self._guards.is_lossy(name):
                more = self._go_on(old, begun, lambda sink: self._board.sinks[sink][1], self._supervisor.is_dead)
                if "begun" in more:
                    self._folder.begin_at(name, more["begun"])
        fresh = self._makers[name](epoch=epoch, frames_at_once=1, settled=old.settled, is_changed=False, **more)
        fresh.attempt = order.attempt
        fresh.recover()
        fresh.made_after = old.made_after
        if fresh.committed < old.made_after and not (self._guards is not None and self._guards.is_lossy(name)):
            raise made_by_other_code(name, fresh.committed, Others(fresh.committed + 1, old.made_after), runs=True)
        self._fresh[name] = fresh
        return from_backup

    def _start(self, name: str, attempt: int) -> None:
        if self._board.stopping:
            return
        fresh = self._fresh.pop(name)
        fresh.start(self._spark)
        self._units[name] = fresh
        self._happened(name, Started(self._supervisor.now(), attempt))

    def _put_back(self, fresh: UnitQuery) -> None:
        name = fresh.unit.name
        lost = {stream for stream in fresh.unit.outputs if not self._board.streams[stream].frames}
        frames = {stream: frames_on_disk(self._folder.stream(stream), fresh.committed) for stream in lost}
        self._board.put_back(name, fresh.committed, frames, same=not self._guards.is_lossy(name))

    def _tell_what_it_committed(self, fresh: UnitQuery) -> None:
        """The attempt before may have died between its commit and its word to the others."""
        for stream in fresh.unit.outputs:
            told = self._board.streams[stream].sealed
            if told < fresh.committed:
                frames = frames_on_disk(self._folder.stream(stream), fresh.committed)
                for n in range(told + 1, fresh.committed + 1):
                    self._board.seal(stream, frames[n])

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

    def _probe(self, name: str, attempt: int, n: int) -> None:
        """The user's code raised twice on this frame: do what its operator declares."""
        unit, cause, now = self._units[name], self._supervisor.life(name).cause, self._supervisor.now
        error = None if cause is None else cause.error
        try:
            operator = guilty(self._graph, unit.unit, error)
            declared = operator is not None and operator.on_error != "fail"
            if declared and unit.leave_poison_out(n, operator, error):
                self._incidents.note("rows left out", error=error, unit=name, frame=n)
                self._happened(name, Cured(now(), attempt))
            else:
                self._happened(name, NotCured(now(), attempt, n))
        except NotAgain:
            passing = copy.copy(error)
            passing.may_pass = True
            self._happened(name, ProbeFailed(now(), attempt, n, cause_of(passing)))
        except Exception as raised:
            met = self._cause(name, explain(self._graph, name, None, raised, n - 1))
            self._happened(name, ProbeFailed(now(), attempt, n, met))
