"""The vocabulary between a unit and its driver: events report, instructions command.

A driver feeds events to a machine and carries out the instructions it gets back,
in their order. The checkpoint machines (none, checkpoint, uncoordinated,
synchronised, ecoc, extended) speak the part of it that concerns them, so each can
be tested and replaced alone.

Pure data. Used by every checkpoint machine, `protocols.driving`, `protocols.unit`,
`engine.protect.checkpointer` and `simulation.instances`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from holdfast.frames.identity import Kind
from holdfast.protocols.messages import (
    AckSent,
    CheckId,
    ExtensionSent,
    FrameSent,
    Loads,
    OfferSent,
    RefusalSent,
    RequestSent,
    ResumeSent,
)
from holdfast.protocols.wiring import EdgeId, Frame, UnitId

__all__ = [
    "AckArrived",
    "CheckpointEvent",
    "CheckpointInstruction",
    "CheckpointMachine",
    "CheckpointPrepared",
    "CheckpointStored",
    "CheckpointWanted",
    "CommitCheckpoint",
    "DrawInterval",
    "EdgeResumed",
    "ExtensionArrived",
    "FrameProcessed",
    "FramesSkipped",
    "InputFrame",
    "IntervalDrawn",
    "LocalInstruction",
    "MessageArrived",
    "OutputFrame",
    "PeerFound",
    "PinFrame",
    "PrepareCheckpoint",
    "ProcessFrame",
    "RequestArrived",
    "Restored",
    "Send",
    "SendAck",
    "SendExtension",
    "SendRequest",
    "SkipFrames",
    "StepDown",
    "StoreCheckpoint",
    "UnitEvent",
    "UnitInstruction",
    "UnitMessage",
    "UnpinFrame",
]

UnitMessage: TypeAlias = FrameSent | RequestSent | OfferSent | AckSent | ExtensionSent | ResumeSent | RefusalSent

# ---- events -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputFrame:
    """A frame as the intake holds it; the offset names it by these fields."""

    kind: Kind
    checksum: int
    size: int


@dataclass(frozen=True, slots=True)
class OutputFrame:
    """A frame as sealed on a port."""

    port: int
    kind: Kind
    checksum: int
    size: int


@dataclass(frozen=True, slots=True)
class FrameProcessed:
    """Outputs sealed and the commit on disk: processed(frame)."""

    frame: Frame
    outputs: tuple[OutputFrame, ...]
    state_bytes: int
    input_bytes: tuple[int, ...] = ()
    due: bool = False  # an interval that is not counted in frames is over


@dataclass(frozen=True, slots=True)
class FramesSkipped:
    """Numbers up to `frame` are sealed LOST; the state has not seen their inputs."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A consumer-side view of `RequestSent`: (edge, epoch, serial) names the asker."""

    edge: EdgeId
    epoch: int
    serial: int
    frame: Frame
    ids: frozenset[CheckId]
    extendable: bool = True


@dataclass(frozen=True, slots=True)
class AckArrived:
    edge: EdgeId
    frame: Frame
    loads: Loads


@dataclass(frozen=True, slots=True)
class ExtensionArrived:
    edge: EdgeId
    epoch: int
    serial: int
    after: Frame
    whole: bool


@dataclass(frozen=True, slots=True)
class EdgeResumed:
    """A consumer is in contact again; what it was told may be forgotten."""

    edge: EdgeId


@dataclass(frozen=True, slots=True)
class CheckpointWanted:
    """Checkpoint now: a queue is half full, or a person asks."""


@dataclass(frozen=True, slots=True)
class CheckpointPrepared:
    """Phase one of a two-phase backup is on enough stores."""

    serial: int


@dataclass(frozen=True, slots=True)
class CheckpointStored:
    """The manifest is verified on enough stores: stored(frame). `size` in bytes."""

    serial: int
    size: int


@dataclass(frozen=True, slots=True)
class IntervalDrawn:
    """Chance, handed in: frames until the next checkpoint."""

    frames: int


@dataclass(frozen=True, slots=True)
class MessageArrived:
    message: UnitMessage


@dataclass(frozen=True, slots=True)
class PeerFound:
    """The transport of an edge works again, on either side of it."""

    edge: EdgeId


CheckpointEvent: TypeAlias = (
    FrameProcessed
    | FramesSkipped
    | RequestArrived
    | AckArrived
    | ExtensionArrived
    | EdgeResumed
    | CheckpointWanted
    | CheckpointPrepared
    | CheckpointStored
    | IntervalDrawn
)
UnitEvent: TypeAlias = (
    MessageArrived
    | PeerFound
    | FrameProcessed
    | CheckpointWanted
    | CheckpointPrepared
    | CheckpointStored
    | IntervalDrawn
)

# ---- instructions -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PinFrame:
    """Keep the state after `frame` restorable under this serial."""

    serial: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class UnpinFrame:
    serial: int


@dataclass(frozen=True, slots=True)
class StoreCheckpoint:
    """Make the pinned state permanent, with the frames after `queues[edge]` of each edge."""

    serial: int
    frame: Frame
    queues: tuple[tuple[EdgeId, Frame], ...]


@dataclass(frozen=True, slots=True)
class PrepareCheckpoint:
    """Phase one: ship it, but leave the former checkpoint in force."""

    serial: int
    frame: Frame
    queues: tuple[tuple[EdgeId, Frame], ...]


@dataclass(frozen=True, slots=True)
class CommitCheckpoint:
    """Phase two: let the prepared checkpoint replace the former one."""

    serial: int


@dataclass(frozen=True, slots=True)
class SendRequest:
    edge: EdgeId
    serial: int
    frame: Frame
    ids: frozenset[CheckId]
    extendable: bool


@dataclass(frozen=True, slots=True)
class SendAck:
    edge: EdgeId
    frame: Frame
    loads: Loads


@dataclass(frozen=True, slots=True)
class SendExtension:
    edge: EdgeId
    epoch: int
    serial: int
    after: Frame
    whole: bool


@dataclass(frozen=True, slots=True)
class DrawInterval:
    """Draw a whole number of frames between the two, both included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Send:
    to: UnitId
    message: UnitMessage


@dataclass(frozen=True, slots=True)
class ProcessFrame:
    """Every input of `frame` is here, in the wiring's order; None before the first."""

    frame: Frame
    inputs: tuple[InputFrame | None, ...]


@dataclass(frozen=True, slots=True)
class SkipFrames:
    """The state stands at `upto` now and has not seen the frames after `after`.

    If both are equal, only frames that were sealed and not yet delivered are lost.
    """

    after: Frame
    upto: Frame


@dataclass(frozen=True, slots=True)
class StepDown:
    """A higher epoch runs this unit: stop, touch nothing."""

    epoch: int


LocalInstruction: TypeAlias = (
    PinFrame | UnpinFrame | StoreCheckpoint | PrepareCheckpoint | CommitCheckpoint | DrawInterval
)
CheckpointInstruction: TypeAlias = LocalInstruction | SendRequest | SendAck | SendExtension
UnitInstruction: TypeAlias = LocalInstruction | Send | ProcessFrame | SkipFrames | StepDown

# ---- what a machine starts from -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Restored:
    """Where an instance starts: from nothing, its near checkpoint, or a backup.

    `frame` is the position of the state, `stored` that of the newest checkpoint a
    restart could fall back to. `frames` are the sealed frames that came along, by
    port and number; `acked` says how far each consumer is known to be safe. An
    instance that is not `placed` may have been further; it must find its place. So must
    one that starts from the near checkpoint of an instance that had not found its own.

    `pinned` are the (serial, frame) of pins that outlived a crash of the process, as
    `StartUnit.pinned` allows them: the machine takes them up again or unpins them, and
    gives no serial twice. A driver that drops all pins leaves it empty.
    """

    frame: Frame = 0
    stored: Frame = 0
    acked: tuple[tuple[EdgeId, Frame], ...] = ()
    frames: tuple[tuple[Frame, OutputFrame], ...] = ()
    placed: bool = True
    pinned: tuple[tuple[int, Frame], ...] = ()

    @property
    def serial(self) -> int:
        """The highest serial in use."""
        return max((serial for serial, _ in self.pinned), default=0)


class CheckpointMachine(Protocol):
    """What `unit` asks of a protection; state changes only through `handle`."""

    def start(self) -> list[CheckpointInstruction]: ...

    def handle(self, event: CheckpointEvent) -> list[CheckpointInstruction]: ...

    @property
    def stored(self) -> Frame: ...

    @property
    def pending(self) -> tuple[Frame, ...]: ...

    @property
    def lossy(self) -> bool:
        """Whether inputs that are gone may be taken as LOST."""
        ...

    @property
    def asking(self) -> bool:
        """Whether a checkpoint that was wanted is still to come."""
        ...
