"""How a checkpoint machine is driven: what happens goes in, what it says is carried out, in one place for all.

A driver feeds one machine and hands each instruction to its carrier, which has one method
for every kind: on Spark that is a guard of the run (`engine.protect.checkpointer`, for
protections beside the declared one too), in the simulator a unit with wires and the
instance that runs it. A kind that is added to the dialogue and has no method here does not
pass the type checker, and stops the run instead of being dropped in silence.

Order: instructions are carried out in the order in which they were said, all of one event
before the next event goes in. A carrier that is over (its instance was replaced, its host
is gone) carries out nothing more of what was said.

Pure: no clock, randomness, thread, file, socket or Spark.
Used by `engine.protect.checkpointer`, `protocols.unit` and `simulation.instances`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, assert_never

from holdfast.protocols.dialogue import (
    CheckpointEvent,
    CheckpointInstruction,
    CheckpointMachine,
    CommitCheckpoint,
    DrawInterval,
    LocalInstruction,
    PinFrame,
    PrepareCheckpoint,
    SendAck,
    SendExtension,
    SendRequest,
    StoreCheckpoint,
    UnpinFrame,
)

__all__ = ["Carrier", "LocalCarrier", "MachineDriver", "carry_out", "carry_out_here"]


class LocalCarrier(Protocol):
    """What concerns nobody but the unit itself: its state, its stores, chance."""

    def pin(self, order: PinFrame) -> None: ...

    def unpin(self, order: UnpinFrame) -> None: ...

    def store(self, order: StoreCheckpoint) -> None: ...

    def prepare(self, order: PrepareCheckpoint) -> None: ...

    def commit(self, order: CommitCheckpoint) -> None: ...

    def draw(self, order: DrawInterval) -> None: ...


class Carrier(LocalCarrier, Protocol):
    """And what is said to neighbours: asked downstream, acknowledged and extended upstream."""

    @property
    def is_over(self) -> bool: ...

    def ask(self, order: SendRequest) -> None: ...

    def ack(self, order: SendAck) -> None: ...

    def extend(self, order: SendExtension) -> None: ...


def carry_out(order: CheckpointInstruction, carrier: Carrier) -> None:
    match order:
        case SendRequest():
            carrier.ask(order)
        case SendAck():
            carrier.ack(order)
        case SendExtension():
            carrier.extend(order)
        case PinFrame() | UnpinFrame() | StoreCheckpoint() | PrepareCheckpoint() | CommitCheckpoint() | DrawInterval():
            carry_out_here(order, carrier)
        case _:
            assert_never(order)


def carry_out_here(order: LocalInstruction, carrier: LocalCarrier) -> None:
    match order:
        case PinFrame():
            carrier.pin(order)
        case UnpinFrame():
            carrier.unpin(order)
        case StoreCheckpoint():
            carrier.store(order)
        case PrepareCheckpoint():
            carrier.prepare(order)
        case CommitCheckpoint():
            carrier.commit(order)
        case DrawInterval():
            carrier.draw(order)
        case _:
            assert_never(order)


def _nobody(event: CheckpointEvent, said: list[CheckpointInstruction]) -> None:
    """Who follows the words of most machines."""


class MachineDriver:
    """One machine and who carries out what it says. `heard` is told of every event and its answer."""

    def __init__(
        self,
        machine: CheckpointMachine,
        carrier: Carrier,
        heard: Callable[[CheckpointEvent, list[CheckpointInstruction]], None] = _nobody,
    ) -> None:
        self.machine = machine
        self._carrier = carrier
        self._heard = heard

    def start(self) -> None:
        self._carry_out(self.machine.start())

    def handle(self, event: CheckpointEvent) -> None:
        if self._carrier.is_over:
            return
        said = self.machine.handle(event)
        self._heard(event, said)
        self._carry_out(said)

    def _carry_out(self, said: list[CheckpointInstruction]) -> None:
        for order in said:
            if self._carrier.is_over:
                return
            carry_out(order, self._carrier)
