"""Further protections of a run, tried beside the declared one on the same frames.

Each is a set of guards of its own: its machines, its interval and the phase of its
triggers, its pins, its packers and its backup store. Its checkpoints are real ones, and a
unit could be put back from them. But nothing of the run depends on it: its acknowledgements
stay among its own machines, so the run forgets, waits and falls back as if it were not
there. A sealed frame stays for as long as one of them may still put it into a checkpoint.

So many protections can be compared on one run of the data (`bench.ecoc`).

Lock order: as for guards; a set's lock is taken alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holdfast.engine.flow.scheduler import Board
from holdfast.engine.protect.checkpointer import Guard, Guards, Stores
from holdfast.graph.model import Graph
from holdfast.graph.protections import Protection
from holdfast.graph.units import Unit
from holdfast.hosts.stores import OpenStore
from holdfast.protocols.dialogue import CheckpointEvent, CheckpointInstruction
from holdfast.protocols.messages import ClaimSent
from holdfast.protocols.wiring import EdgeId, OutputEdge

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.engine.unit.query import UnitQuery

__all__ = ["Beside", "BesideGuards"]


@dataclass(frozen=True)
class Beside:
    """`protection` for every unit; `phases`: unit -> frames after the beginning of an interval at which it triggers."""

    name: str
    protection: Protection
    store: OpenStore
    phases: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    heard: Callable[[str, CheckpointEvent, list[CheckpointInstruction]], None] | None = None


class BesideGuards(Guards):
    def __init__(
        self, graph: Graph, units: Sequence[Unit], board: Board, beside: Beside, fail: Callable[[BaseException], None]
    ) -> None:
        own = [replace(unit, protect=beside.protection) for unit in units]
        super().__init__(graph, own, board, fail=fail, chance=random.Random(beside.seed))
        self._beside = beside
        self._holder = f"beside {beside.name}"
        self._readers: dict[str, list[tuple[str, EdgeId]]] = {}
        for name, wiring in self.wirings.items():
            for edge in wiring.inputs:
                if not edge.outside:
                    self._readers.setdefault(edge.edge.split(">")[0], []).append((name, edge.edge))
        self._acks: dict[EdgeId, int] = {}

    def join(self, query: UnitQuery, at: int, epoch: int) -> None:
        name = query.unit.name
        if not self.keeps_nothing(name):
            self._beside.store.ask(ClaimSent(name, epoch, self._holder))
            with self._lock:
                self._stores[name] = Stores((self._beside.store,))
                self._stored[name] = min(self._stored[name], at)
        for stream in self._streams[name]:
            if stream in self._readers:
                self._board.hold(stream, self._holder, 0)
        super().join(query, at, epoch)

    def _acknowledge(self, guard: Guard, edge: EdgeId, frame: int) -> None:
        """Heard by its own machines alone; what none of them needs again is held no longer."""
        guard.acked[edge] = self._acks[edge] = max(self._acks.get(edge, 0), frame)
        stream = edge.split(">")[0]
        if stream in self._readers:
            self._board.hold(stream, self._holder, min(self._acks.get(each, 0) for _, each in self._readers[stream]))

    def _acked_by(self, name: str, edge: OutputEdge) -> int:
        return super()._acked_by(name, edge) if edge.outside else self._acks.get(edge.edge, 0)

    def _is_half_full(self, name: str) -> bool:
        """The bound of a queue is the run's: it holds nobody back for the sake of this protection."""
        return False

    def _phase(self, name: str) -> int:
        return self._beside.phases.get(name, 0)

    def _key(self, serial: int) -> str:
        return f"{self._beside.name}-{serial}"

    def _containers(self, query: UnitQuery) -> Path:
        return query.folder / "containers" / self._holder

    def _reached(self, point: str, frame: int, name: str) -> None:
        """Faults are for the declared protection."""

    def _heard(self, name: str, event: CheckpointEvent, instructions: list[CheckpointInstruction]) -> None:
        if self._beside.heard is not None:
            self._beside.heard(name, event, instructions)
