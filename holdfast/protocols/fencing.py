"""Fencing: an instance that has been replaced can no longer do anything.

Promise: once an instance with epoch e may have started, no store and no receiver
that has heard of e lets an instance below e change anything.

Why it holds. `Fence` keeps the highest epoch heard per (unit, slot) and refuses
lower ones. Epochs are allotted by compare-and-set on registers that live beside
the unit's k backup copies: a register grants an epoch only if it is higher than
all it granted before, so it grants each number at most once, and a claimant holds
an epoch only with more than half of the k registers: two claimants never hold the
same one. A claim also needs k - needed + 1 registers, where `needed` copies make a
checkpoint stored; so a claim meets every stored checkpoint in at least one store,
and from then on no lower epoch can get a checkpoint stored behind its back. Who
cannot reach that many does not activate.

Pure: no clock, randomness, thread, file or socket.
Driven by `protocols.edges`, `protocols.storing` and `protocols.activation`.
"""

from __future__ import annotations

from holdfast.protocols.invariants import invariant
from holdfast.protocols.messages import Stamp
from holdfast.protocols.wiring import UnitId

__all__ = ["EpochRegister", "Fence", "claim_quorum"]


class Fence:
    """The highest epoch heard of each (unit, slot)."""

    def __init__(self) -> None:
        self._highest: dict[tuple[UnitId, int], int] = {}

    def admit(self, stamp: Stamp) -> bool:
        """Remember a higher epoch; say whether this one may have an effect."""
        key = (stamp.unit, stamp.slot)
        highest = self._highest.get(key, 0)
        if stamp.epoch < highest:
            return False
        if stamp.epoch > highest:
            self._highest[key] = stamp.epoch
        return True

    def highest(self, unit: UnitId, slot: int = 0) -> int:
        return self._highest.get((unit, slot), 0)


class EpochRegister:
    """One register of one unit, beside one copy of its backups."""

    def __init__(self, current: int = 0) -> None:
        self.current = current

    def grants(self, epoch: int) -> bool:
        """Compare and set: take a higher number, refuse every other."""
        if epoch <= self.current:
            return False
        self.current = epoch
        return True


def claim_quorum(copies: int, needed: int) -> int:
    """How many of `copies` registers make a claim valid when `needed` copies store.

    More than half, so that two claims meet; and so many that the stores left out
    are too few to make a checkpoint stored without the claimant knowing.
    """
    invariant(1 <= needed <= copies, f"{needed} needed copies of {copies}")
    return max(copies // 2 + 1, copies - needed + 1)
