"""The units of a run in operation, and what is done when one of them fails.

The supervisor decides; here it is carried out. A restart makes a new attempt of the
unit under an epoch of its own, after the old one was abandoned: whatever the old one
still does, a hung function that comes back, a worker that writes, becomes nothing. The
attempt takes frames one by one, so that a bad frame shows by its number.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.engine.board import Board
from holdfast.engine.failure import explain, stalled
from holdfast.engine.folder import StateFolder
from holdfast.engine.poison import guilty
from holdfast.engine.supervisor import Supervisor
from holdfast.engine.unit import UnitQuery
from holdfast.errors import HoldfastError
from holdfast.graph.model import Graph
from holdfast.records.incidents import Incidents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Crew"]


class Crew:
    def __init__(self, graph: Graph, folder: StateFolder, board: Board, supervisor: Supervisor) -> None:
        self._graph, self._folder, self._board, self._supervisor = graph, folder, board, supervisor
        self._units: dict[str, UnitQuery] = {}
        self._makers: dict[str, Callable[..., UnitQuery]] = {}
        self._spark: SparkSession | None = None
        self._starting = threading.Lock()
        self._incidents: Incidents | None = None

    def add(self, unit: UnitQuery, maker: Callable[..., UnitQuery]) -> None:
        """`maker` makes another attempt of it."""
        self._units[unit.unit.name], self._makers[unit.unit.name] = unit, maker

    def __getitem__(self, name: str) -> UnitQuery:
        return self._units[name]

    def __iter__(self) -> Iterator[UnitQuery]:
        return iter(list(self._units.values()))

    def start(self, spark: SparkSession) -> None:
        self._spark = spark
        self._incidents = Incidents(self._folder.root, epoch=self._folder.epoch)
        for unit in self:
            unit.start(spark)

    def stop(self) -> None:
        with self._starting:  # a restart that has begun is let through, and stopped like the others
            units = list(self)
        for unit in units:
            unit.stop()
        if self._incidents is not None:
            self._incidents.close()

    def look(self) -> None:
        """See who died or stalls; begin what is due. Called again and again by the run."""
        if self._board.error is not None:
            return
        for unit in self:
            name = unit.unit.name
            if unit.query is None or self._supervisor.is_dead(name):
                continue
            if not unit.is_alive():
                error = explain(self._graph, name, unit.query, unit.error, unit.committed)
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
            threading.Thread(target=self._restart, args=(name,), name=f"restart {name}", daemon=True).start()
        for name, n in self._supervisor.to_probe():
            threading.Thread(target=self._probe, args=(name, n), name=f"probe {name}", daemon=True).start()

    def rows_left_out(self, on_error: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for unit in self:
            found |= unit.rows_left_out(on_error)
        return found

    def _restart(self, name: str) -> None:
        old = self._units[name]
        try:
            old.abandon()
            epoch = self._folder.raise_epoch()
            fresh = self._makers[name](epoch=epoch, frames_at_once=1, settled=old.settled, is_changed=False)
            fresh.recover()
            with self._starting:
                if self._board.stopping:
                    return
                fresh.start(self._spark)
                self._units[name] = fresh
        except Exception as error:
            self._died(name, old.committed + 1, explain(self._graph, name, None, error, old.committed))
        else:
            self._supervisor.restarted(name)

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
        except Exception as raised:
            self._died(name, n, explain(self._graph, name, None, raised, n - 1))

    def _died(self, name: str, frame: int, error: HoldfastError) -> None:
        self._supervisor.died(name, frame, error)
        care = self._supervisor.care(name)
        what = "given up" if care.condition == "GIVEN_UP" else "died"
        self._incidents.note(what, error=error, unit=name, frame=frame, attempt=care.attempt)
        logging.getLogger(f"holdfast.unit.{name}").warning("%s", error)  # in full: what is done about it follows
