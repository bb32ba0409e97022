"""Starting a unit from its backup stores: drives `protocols.activation.Activation` to its end.

Claims and fetches are carried out one after the other. A store that has no trace of the
unit while a peer has one may have lost its folder while nobody looked, so it learns from
its peers before it is claimed from. A store that does not answer a fetch counts as one
whose copy is bad, so that the next is asked; if all are, the machine reads again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from holdfast.errors import StateRefused, invariant
from holdfast.hosts.names import Unfit
from holdfast.hosts.sealed import in_one_line
from holdfast.hosts.store_answers import Fetched, StoreLost, Trace
from holdfast.hosts.stores import OpenStore, StoreAway, who_know
from holdfast.protocols.activation import (
    Activation,
    ActivationEvent,
    ActivationInstruction,
    ClaimAnswered,
    CopyFetched,
    EpochPassed,
    FetchCopy,
    GiveWay,
    NearCheckpoint,
    RetryDue,
    SendClaim,
    StartUnit,
)
from holdfast.protocols.fencing import claim_quorum
from holdfast.protocols.messages import ClaimGranted, ClaimRefused, ClaimSent, Manifest

__all__ = ["Activated", "activate"]

# Stores come back within seconds or not soon; asking more often only burns epochs.
RETRY_S = 0.5


@dataclass(frozen=True)
class Activated:
    """What to start from. `bad`: stores whose copy was missing or damaged, with the reason, for the user."""

    epoch: int
    near: NearCheckpoint | None
    manifest: Manifest | None
    contents: dict[str, bytes]
    stored: int
    bad: tuple[str, ...]


def activate(
    unit: str,
    stores: Sequence[OpenStore],
    *,
    needed: int,
    known_epoch: int,
    near: NearCheckpoint | None,
    claimant: str,
    patience_s: float,
    vet: Callable[[Manifest, Mapping[str, bytes]], object] = lambda manifest, contents: None,
    now: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> Activated:
    """Claim an epoch and bring the checkpoint to start from; refused after `patience_s`.

    `vet` raises `Unfit` for a copy that is whole and still none of this unit's.
    """
    attempt = _Attempt(unit, stores, needed, known_epoch, near, claimant, vet)
    deadline = now() + patience_s
    todo: deque[ActivationInstruction] = deque()
    while True:
        if attempt.ready():
            todo.extend(attempt.go_on())
        while todo:
            instruction = todo.popleft()
            match instruction:
                case StartUnit(epoch, from_near, manifest, _, stored):
                    contents = {} if manifest is None or from_near is not None else attempt.contents
                    return Activated(epoch, from_near, manifest, contents, stored, tuple(attempt.bad.values()))
                case GiveWay(epoch):
                    raise _taken_over(unit, claimant, epoch)
                case SendClaim(_, claim) if claim.epoch > attempt.epoch > 0 and now() >= deadline:
                    # Two claimants may outbid each other for as long as they like.
                    raise attempt.out_of_reach(patience_s)
                case _:
                    todo.extend(attempt.carry_out(instruction))
        if now() >= deadline:
            raise attempt.out_of_reach(patience_s)
        wait(max(0.0, min(RETRY_S, deadline - now())))


class _Attempt:
    def __init__(
        self,
        unit: str,
        stores: Sequence[OpenStore],
        needed: int,
        known_epoch: int,
        near: NearCheckpoint | None,
        claimant: str,
        vet: Callable[[Manifest, Mapping[str, bytes]], object],
    ) -> None:
        self._vet = vet
        self.unit = unit
        self.stores = {store.name: store for store in stores}
        if len(self.stores) < len(stores):
            raise ValueError(f"two stores of unit {unit!r} have the same name: {[store.name for store in stores]}")
        self.needed = needed
        self._near = near
        self._claimant = claimant
        self._known_epoch = known_epoch if near is None else max(known_epoch, near.epoch)
        self._machine: Activation | None = None
        self.contents: dict[str, bytes] = {}
        self.bad: dict[str, str] = {}
        self.epoch = 0
        self._said: dict[str, str] = {}  # store -> how it last answered, for the error

    def go_on(self) -> list[ActivationInstruction]:
        if self._machine is not None:
            return self._machine.handle(RetryDue())
        # Begun here and not earlier: what the stores have told by now spares a refused claim.
        machine = Activation(self.unit, self._claimant, tuple(self.stores), self.needed, self._known_epoch, self._near)
        self._machine = machine
        return machine.start()

    def _told(self, event: ActivationEvent) -> list[ActivationInstruction]:
        return self._machine.handle(event) if self._machine is not None else []

    def carry_out(self, instruction: ActivationInstruction) -> list[ActivationInstruction]:
        match instruction:
            case SendClaim(store, claim):
                self.epoch = claim.epoch
                return self._claim(store, claim)
            case FetchCopy(store, epoch, manifest):
                return self._told(self._fetch(store, epoch, manifest))
            case StartUnit() | GiveWay():
                invariant(False, f"the activation of unit {self.unit!r} went on after its end.")
                return []
            case _:
                assert_never(instruction)

    def ready(self) -> bool:
        """Whether to claim now. Stores that may have lost what they knew of the unit ask their peers first."""
        traces = {}
        for store in self.stores.values():
            try:
                traces[store.name] = self._trace(store)
            except StoreAway as error:
                self._said[store.name] = f"away: {error}"
        newest = max((trace.epoch for trace in traces.values()), default=0)
        self._known_epoch = max(self._known_epoch, newest)
        for name, trace in traces.items():
            if trace.joined and (trace.epoch > 0 or newest == 0):
                continue
            store = self.stores[name]
            peers = [peer for peer in self.stores.values() if peer is not store]
            enough = len(self.stores) - self.needed + 1
            if self._near is not None:
                # The unit itself is here. Stores that have all lost their folders, one while another
                # was about to learn from it, would wait for each other.
                enough = min(enough, who_know(peers, self.unit))
            try:
                store.join(peers, [self.unit], enough)
            except StoreAway as error:
                self._said[name] = f"may have lost its folder: {error}"
        if self._near is None or (newest > 0 and newest >= self._near.epoch):
            return True
        return self._introduce(self._near, traces)

    def _introduce(self, near: NearCheckpoint, traces: dict[str, Trace]) -> bool:
        """The unit ran here under an epoch its stores do not know: it had none yet, or they lost their folders since.

        A quorum that knows nothing would have it start from nothing, beside a good near
        checkpoint. So all stores must be there to say so, and are told the epoch.
        """
        if len(traces) < len(self.stores) or not all(trace.joined for trace in traces.values()):
            for name in traces:
                self._said.setdefault(name, "knows nothing of the unit, which has run here; all stores must say so")
            return False
        try:
            for store in self.stores.values():
                store.ask(ClaimSent(self.unit, near.epoch, self._claimant))
        except StoreAway as error:
            self._said[store.name] = f"away: {error}"
            return False
        return True

    def _trace(self, store: OpenStore) -> Trace:
        try:
            return store.trace(self.unit)
        except StoreLost as error:
            self._passed_over(store.name, str(error))
            store.reopen()
            return store.trace(self.unit)

    def _claim(self, name: str, claim: ClaimSent) -> list[ActivationInstruction]:
        try:
            answer = self.stores[name].ask(claim)
        except StoreAway as error:
            if not self._said.get(name, "").startswith("may have lost"):
                self._said[name] = f"away: {error}"
            return []
        if not isinstance(answer, ClaimGranted | ClaimRefused):
            invariant(False, f"store {name!r} answered a claim as if it stored.")
            return []
        self._said[name] = f"{'granted' if isinstance(answer, ClaimGranted) else 'refused'} epoch {claim.epoch}"
        return self._told(ClaimAnswered(answer))

    def _fetch(self, name: str, epoch: int, manifest: Manifest) -> ActivationEvent:
        try:
            copy = self.stores[name].fetch(self.unit, epoch, manifest)
        except StoreAway as error:
            copy = Fetched(False, None, why=f"away: {error}")
        if copy.good:
            try:
                self._vet(manifest, copy.contents)
            except Unfit as error:
                copy = Fetched(False, copy.held, why=in_one_line("HF-R060", "CheckpointRefused", str(error)))
        if copy.passed is not None:
            return EpochPassed(copy.passed)
        if copy.good:
            self.contents = copy.contents
        else:
            self._said[name] = (
                f"checkpoint {manifest.serial} of epoch {manifest.epoch}, frame {manifest.frame}: {copy.why}"
            )
            self._passed_over(name, copy.why)
        return CopyFetched(name, manifest, copy.good, copy.held)

    def _passed_over(self, name: str, why: str) -> None:
        known = self.bad.get(name)
        if known is None or why not in known:
            self.bad[name] = f"{name}: {why}" if known is None else f"{known}; {why}"

    def out_of_reach(self, patience_s: float) -> StateRefused:
        quorum = claim_quorum(len(self.stores), self.needed)
        tried = "\n".join(f"{name}: {self._said.get(name, 'was not asked')}" for name in self.stores)
        return StateRefused(
            "HF-R012",
            "BackupOutOfReach",
            f"unit {self.unit!r} cannot be started from its backup stores.",
            where=", ".join(f"{store.name} at {store.url}" for store in self.stores.values()),
            why=f"after {patience_s:g} s, {quorum} of {len(self.stores)} stores and one whole copy of the newest "
            f"checkpoint are needed:\n{tried}",
            effect="the unit was not started; what the stores hold is untouched, and inputs it may need stay upstream",
            do="bring the stores named above back and run again; a store whose folder is lost for good learns from its "
            "peers once enough of them answer",
        )


def _taken_over(unit: str, claimant: str, epoch: int) -> StateRefused:
    return StateRefused(
        "HF-R013",
        "UnitTakenOver",
        f"unit {unit!r} was taken over while it was being started here.",
        where=claimant,
        why=f"a store has granted epoch {epoch} to somebody else since",
        effect="nothing was started here and nothing is lost; the unit goes on with whoever holds that epoch",
        do="holdfast status, to see where it runs; run again here only if nobody holds it any more",
    )
