"""What travels between units, and between a unit and its backup stores.

Every message carries the (unit, slot, epoch) of its sender, so that each receiver
can refuse an instance that has been replaced. Check-requests are side messages
(id, n) and never part of a frame: sealed frames do not change.

Pure data. Used by `protocols.edges`, `protocols.unit`, `protocols.shipping` and
`protocols.activation`, which send them; by `hosts.stores` and `simulation.stores`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from holdfast.frames.identity import Kind
from holdfast.protocols.wiring import EdgeId, Frame, UnitId

__all__ = [
    "AckSent",
    "CheckId",
    "ClaimGranted",
    "ClaimRefused",
    "ClaimSent",
    "ExtensionSent",
    "FrameSent",
    "Loads",
    "Manifest",
    "OfferSent",
    "RefusalSent",
    "RequestSent",
    "ResumeSent",
    "Stage",
    "Stamp",
    "StoreAnswered",
    "StoreSent",
    "Verdict",
]


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who speaks. A higher epoch of the same (unit, slot) silences a lower one."""

    unit: UnitId
    slot: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CheckId:
    """Name of a coordinated checkpoint; cascaded requests inherit it."""

    unit: UnitId
    epoch: int
    serial: int


Loads: TypeAlias = dict[UnitId, int]


@dataclass(frozen=True, slots=True)
class FrameSent:
    """Downstream: a sealed frame."""

    stamp: Stamp
    edge: EdgeId
    frame: Frame
    kind: Kind
    checksum: int
    size: int


@dataclass(frozen=True, slots=True)
class RequestSent:
    """Downstream: checkpoint at `frame` or later, on behalf of my pending `serial`.

    `frame` is a number of the common clock: a consumer that has processed it has
    consumed `frame` - delay of a feedback edge. `extendable` says that the asker could
    put frames into its checkpoint instead; one whose queue is filling up could not.
    """

    stamp: Stamp
    edge: EdgeId
    serial: int
    frame: Frame
    ids: frozenset[CheckId]
    extendable: bool


@dataclass(frozen=True, slots=True)
class OfferSent:
    """Downstream, on contact: I am the producer now; my first frame is `first`.

    `answer`: this answers a resume, and there is nothing before `first`.
    """

    stamp: Stamp
    edge: EdgeId
    first: Frame
    answer: bool


@dataclass(frozen=True, slots=True)
class AckSent:
    """Upstream: no restart of mine will ever need a frame up to `frame`."""

    stamp: Stamp
    edge: EdgeId
    frame: Frame
    loads: Loads


@dataclass(frozen=True, slots=True)
class ExtensionSent:
    """Upstream: put the frames after `after` into your pending (epoch, serial).

    `whole` asks for every unacknowledged frame of the edge and no waiting: the
    request came round a cycle.
    """

    stamp: Stamp
    edge: EdgeId
    epoch: int
    serial: int
    after: Frame
    whole: bool


@dataclass(frozen=True, slots=True)
class ResumeSent:
    """Upstream, on contact or on a gap: I hold frames up to `after`, send the rest.

    `after` is None when the consumer lost its place (partial protections) and
    takes whatever comes first. `contact` counts the askings of this instance: one that
    comes again after a later one is a duplicate and must not move the producer back.
    `lossy`: if frames behind `after` are gone, say so and go on.
    """

    stamp: Stamp
    edge: EdgeId
    contact: int
    after: Frame | None
    acked: Frame
    lossy: bool = False


@dataclass(frozen=True, slots=True)
class RefusalSent:
    """Answer to a message of a lower epoch: you have been replaced by `epoch`."""

    stamp: Stamp
    refused: Stamp
    epoch: int


class Stage(Enum):
    """What a store does with a manifest."""

    FINAL = "final"
    PREPARE = "prepare"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A checkpoint as a backup knows it: a position and the files that make it.

    `queues` maps an output edge to the last frame that is NOT in the checkpoint:
    the frames after it, up to `frame`, are. An edge that is missing holds none.
    """

    unit: UnitId
    epoch: int
    serial: int
    frame: Frame
    queues: tuple[tuple[EdgeId, Frame], ...]
    files: tuple[str, ...]

    @property
    def key(self) -> tuple[int, int]:
        """Order of manifests: a later epoch wins, then a later checkpoint of it."""
        return (self.epoch, self.serial)


@dataclass(frozen=True, slots=True)
class StoreSent:
    """Unit to store: keep these files, then this manifest."""

    stamp: Stamp
    manifest: Manifest
    stage: Stage
    files: tuple[str, ...]


class Verdict(Enum):
    """How a store ends a request."""

    STORED = "stored"
    MISSING = "missing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class StoreAnswered:
    """Store to unit. `missing` names files that must travel again.

    `lives` counts the folders that this store and its peers have lost, as far as it
    knows: an answer given before a loss says nothing about what is there now.
    """

    store: str
    unit: UnitId
    epoch: int
    serial: int
    stage: Stage
    verdict: Verdict
    missing: tuple[str, ...] = ()
    lives: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimSent:
    """Claimant to store: let `epoch` be mine. Also the read of the newest manifest."""

    unit: UnitId
    epoch: int
    claimant: str


@dataclass(frozen=True, slots=True)
class ClaimGranted:
    store: str
    unit: UnitId
    epoch: int
    claimant: str
    before: int
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    store: str
    unit: UnitId
    epoch: int
    claimant: str
    current: int
