"""How one unit is wired: the edges that a machine needs to know, and no more.

All streams share one frame clock, so a unit's position is one number: having
processed frame m it has consumed m - delay on an input edge and sealed m on every
output port. `delay` is 0 except on declared feedback edges.

Pure data. Made by `engine.protect.wiring` when a run starts and by `simulation.graphs`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.graph.edge_ids import Consumer, EdgeId

__all__ = ["Consumer", "EdgeId", "Frame", "InputEdge", "OutputEdge", "UnitId", "Wiring"]

UnitId: TypeAlias = str
Frame: TypeAlias = int


@dataclass(frozen=True, slots=True)
class InputEdge:
    """An edge that a unit reads. `outside`: it reads a source log."""

    edge: EdgeId
    producer: UnitId
    on_cycle: bool = False
    outside: bool = False
    delay: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", self.edge.delay)


@dataclass(frozen=True, slots=True)
class OutputEdge:
    """An edge that a unit feeds. `outside`: it feeds a sink with a ledger.

    `lag`: the consumer acks what it processed, this many frames late (`none.ACK_LAG` for
    partial protections, which store nothing that an ack could wait for).
    """

    edge: EdgeId
    port: int
    on_cycle: bool = False
    outside: bool = False
    lag: int = 0
    delay: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", self.edge.delay)

    @property
    def consumer(self) -> Consumer:
        return self.edge.consumer


@dataclass(frozen=True, slots=True)
class Wiring:
    """All edges of one unit; `inputs` and `outputs` keep their declared order."""

    unit: UnitId
    inputs: tuple[InputEdge, ...]
    outputs: tuple[OutputEdge, ...]
    delays: dict[EdgeId, int] = field(init=False, compare=False, repr=False)
    ports: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "delays", {e.edge: e.delay for e in self.inputs})
        object.__setattr__(self, "ports", tuple(sorted({e.port for e in self.outputs})))

    @property
    def is_source(self) -> bool:
        """Whether the unit reads the outside world, so that its frames drive the clock."""
        return any(e.outside for e in self.inputs)

    @property
    def on_cycle(self) -> bool:
        return any(e.on_cycle for e in self.inputs)
