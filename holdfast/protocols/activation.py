"""Starting a unit: claim an epoch, find the newest checkpoint, begin there.

Promise: at most one instance holds an epoch; it starts from a checkpoint not older
than any whose ack may have left; a damaged copy is found and another one used; and
if no good copy of the newest checkpoint can be reached, it waits rather than start
from an older one, whose inputs upstream may have dropped.

Why it holds. The claim is the read: each store answers a granted claim with its
newest manifest and from then on refuses lower epochs (`fencing.claim_quorum` makes
every stored checkpoint visible to every claim). The near checkpoint, state and queue
of the last instance on this host, may be used instead only if no store of the quorum
knows a later instance (stores that lost their folders know less), so none ran in
between, and if it is not older than the newest manifest; after a power failure its host does not offer it. With it may come
pinned states of checkpoints that were pending. Those behind the newest manifest only:
storing an older one under our higher epoch would put the unit back behind its acks.

Pure: no clock, randomness, thread, file or socket; a retry is an event.
Driven by `hosts.activating` and by `simulation.supervision`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from holdfast.protocols.fencing import claim_quorum
from holdfast.protocols.messages import ClaimGranted, ClaimRefused, ClaimSent, Manifest
from holdfast.protocols.wiring import Frame, UnitId

__all__ = [
    "Activation",
    "ActivationEvent",
    "ActivationInstruction",
    "ClaimAnswered",
    "CopyFetched",
    "EpochPassed",
    "FetchCopy",
    "GiveWay",
    "NearCheckpoint",
    "RetryDue",
    "SendClaim",
    "StartUnit",
]


@dataclass(frozen=True, slots=True)
class NearCheckpoint:
    """What the host still has of the last instance here; `pins` are (serial, frame)."""

    epoch: int
    frame: Frame
    pins: tuple[tuple[int, Frame], ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimAnswered:
    answer: ClaimGranted | ClaimRefused


@dataclass(frozen=True, slots=True)
class CopyFetched:
    """The answer of a store to a fetch; `held` is the manifest that is in force there."""

    store: str
    manifest: Manifest
    good: bool
    held: Manifest | None


@dataclass(frozen=True, slots=True)
class RetryDue:
    """Some time has passed, or a store is back."""


@dataclass(frozen=True, slots=True)
class EpochPassed:
    """A store refuses the fetch: it has granted a higher epoch since."""

    epoch: int


ActivationEvent: TypeAlias = ClaimAnswered | CopyFetched | EpochPassed | RetryDue


@dataclass(frozen=True, slots=True)
class SendClaim:
    store: str
    claim: ClaimSent


@dataclass(frozen=True, slots=True)
class FetchCopy:
    """Read the checkpoint under our epoch; a store that granted a higher one refuses."""

    store: str
    epoch: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class StartUnit:
    """Start with this epoch: from the near checkpoint, a manifest, or from nothing.

    `stored` is what may be acknowledged: the position of the newest checkpoint that
    enough of the answering stores hold. A manifest that fewer hold may be started
    from, but the next claim may miss it, so upstream must keep its inputs. Of the near
    checkpoint's pins only `pinned` may be handed on; the others are to be dropped first.
    """

    epoch: int
    near: NearCheckpoint | None
    manifest: Manifest | None
    store: str | None
    stored: Frame
    pinned: tuple[tuple[int, Frame], ...] = ()


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Start nothing: `epoch` was granted to somebody else."""

    epoch: int


ActivationInstruction: TypeAlias = SendClaim | FetchCopy | StartUnit | GiveWay


class Activation:
    """State changes only through `start` and `handle`."""

    def __init__(
        self,
        unit: UnitId,
        claimant: str,
        stores: tuple[str, ...],
        needed: int,
        known_epoch: int,
        near: NearCheckpoint | None,
    ) -> None:
        self._unit = unit
        self._claimant = claimant
        self._stores = stores
        self._needed = needed
        self._quorum = claim_quorum(len(stores), needed)
        self._known = known_epoch
        self._near = near
        self._epoch = 0
        self._granted: dict[str, ClaimGranted] = {}
        self._refused: set[str] = set()
        self._chosen: Manifest | None = None
        self._bad: set[str] = set()
        self.over = False

    def start(self) -> list[ActivationInstruction]:
        self._known = max(self._known, self._epoch)
        self._epoch = self._known + 1
        self._granted.clear()
        self._refused.clear()
        self._chosen = None
        self._bad.clear()
        return self._claim(self._stores)

    def handle(self, event: ActivationEvent) -> list[ActivationInstruction]:
        if self.over:
            return []
        match event:
            case ClaimAnswered(ClaimGranted() as grant):
                if grant.epoch != self._epoch or self._holds_epoch:
                    return []
                self._granted[grant.store] = grant
                return self._won() if self._holds_epoch else []
            case ClaimAnswered(ClaimRefused(store=store, epoch=epoch, current=current)):
                self._known = max(self._known, current)
                if self._holds_epoch or epoch != self._epoch:
                    return []
                self._refused.add(store)
                # Too many refusals for this number: try above what was heard.
                lost = len(self._refused) > len(self._stores) - self._quorum
                return self.start() if lost else []
            case CopyFetched(store, manifest, good, held):
                if manifest != self._chosen:
                    return []
                if good:
                    return self._begin(None, manifest, store)
                if held is not None and held.key > manifest.key:
                    # A store outside our quorum has replaced it by a newer one, which
                    # may be the only whole copy left and is as good a start.
                    self._chosen = held
                    self._bad.clear()
                else:
                    self._bad.add(store)
                return self._fetch()
            case EpochPassed(epoch):
                # Another activation won; its instance runs, or a supervisor will look.
                if epoch > self._epoch:
                    self.over = True
                    return [GiveWay(epoch)]
                return []
            case RetryDue():
                return self._retry()
            case _:
                assert_never(event)  # type: ignore[arg-type]  # both answers to a claim are above

    @property
    def _holds_epoch(self) -> bool:
        return len(self._granted) >= self._quorum

    def _claim(self, stores: tuple[str, ...]) -> list[ActivationInstruction]:
        claim = ClaimSent(self._unit, self._epoch, self._claimant)
        return [SendClaim(store, claim) for store in stores]

    def _won(self) -> list[ActivationInstruction]:
        grants = self._granted.values()
        before = max(grant.before for grant in grants)
        manifests = [grant.manifest for grant in grants if grant.manifest is not None]
        newest = max(manifests, key=lambda m: m.key, default=None)
        near = self._near
        # Stores that lost their folders may know less than the host does; one that knows a later instance wins.
        if near is not None and near.epoch >= before:
            if newest is None or newest.epoch < near.epoch or newest.frame <= near.frame:
                return self._begin(near, newest, None)
        if newest is None:
            return self._begin(None, None, None)
        self._chosen = newest
        return self._fetch()

    def _fetch(self) -> list[ActivationInstruction]:
        """Try the stores that answered with the manifest first, then all others."""
        holders = [g.store for g in self._granted.values() if g.manifest == self._chosen]
        for store in [*holders, *self._stores]:
            if store not in self._bad and self._chosen is not None:
                return [FetchCopy(store, self._epoch, self._chosen)]
        return []

    def _retry(self) -> list[ActivationInstruction]:
        if self._chosen is not None and len(self._bad) < len(self._stores):
            return self._fetch()
        # A lost answer cannot be told from a lost claim: take a fresh number. If every
        # store failed to give the checkpoint, the fresh claim reads again which one is
        # newest: one that was stored is met again and waited for; one that had a single
        # copy, and lost it with its store, was never acknowledged and is forgotten.
        return self.start()

    def _begin(
        self, near: NearCheckpoint | None, manifest: Manifest | None, store: str | None
    ) -> list[ActivationInstruction]:
        self.over = True
        pinned: tuple[tuple[int, Frame], ...] = ()
        if near is not None:
            newest = 0 if manifest is None else manifest.frame
            pinned = tuple(pin for pin in near.pins if pin[1] > newest)
        return [StartUnit(self._epoch, near, manifest, store, self._confirmed(), pinned)]

    def _confirmed(self) -> Frame:
        held = [grant.manifest for grant in self._granted.values() if grant.manifest is not None]
        sure = [m for m in held if held.count(m) >= self._needed]
        return max(sure, key=lambda m: m.key).frame if sure else 0
