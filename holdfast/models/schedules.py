"""When faults happen: drawn from their rates, or given, so that two solvers meet the same ones.

Times are seconds of the model. A given schedule has the same faults for every replication, or a list
for each of them.

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.errors import invariant
from holdfast.models.layout import Channel, Layout
from holdfast.models.stream import refused

__all__ = ["FaultClock", "Hit", "Progress"]

# More events than a model has channels, slots and units together fall on no moment.
_STANDS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Hit:
    """One fault at one time."""

    at_s: float
    kind: str
    target: str
    copy: int = 0


class Progress:
    """Several events may fall on one moment; that time stands still for long is a defect of ours, not an endless loop."""

    def __init__(self) -> None:
        self._stands = 0

    def moved(self, dt: np.ndarray) -> None:
        self._stands = 0 if dt.max(initial=0.0) > 0 else self._stands + 1
        invariant(self._stands < _STANDS_MAX, "a model's time stands still: its next event is always now")


class FaultClock:
    """The next fault of every channel in every replication."""

    def __init__(
        self,
        layout: Layout,
        replications: int,
        rng: np.random.Generator,
        schedule: Sequence[Hit] | Sequence[Sequence[Hit]] | None = None,
    ) -> None:
        self._channels, self._rng, self._count = layout.channels, rng, replications
        self._given: np.ndarray | None = None
        shape = (len(layout.channels), replications)
        if schedule is None:
            mean = np.array([each.fault.mttf_s for each in layout.channels]).reshape(-1, 1)
            self.next_at = rng.exponential(1.0, shape) * mean
        else:
            self._load(layout, shape, schedule)

    def _load(self, layout: Layout, shape: tuple[int, int], schedule: Sequence) -> None:
        lists = schedule if schedule and not isinstance(schedule[0], Hit) else [schedule] * self._count
        if len(lists) != self._count:
            raise refused(f"{len(lists)} schedules do not fit {self._count} replications.")
        by_channel: dict[tuple[int, int], list[float]] = {}
        known = {(each.fault.kind, each.target, each.copy): c for c, each in reversed(list(enumerate(layout.channels)))}
        for r, hits in enumerate(lists):
            for hit in hits:
                if (hit.kind, hit.target, hit.copy) not in known:
                    raise refused(f"the model has no fault {hit.kind!r} of {hit.target!r}, copy {hit.copy}.")
                by_channel.setdefault((known[hit.kind, hit.target, hit.copy], r), []).append(hit.at_s)
        deepest = max((len(times) for times in by_channel.values()), default=0)
        self._given = np.full((deepest + 1, *shape), np.inf)
        for (c, r), times in by_channel.items():
            self._given[: len(times), c, r] = sorted(times)
        self._taken = np.zeros(shape, int)
        self.next_at = self._given[0].copy()

    def repair(self, channel: Channel, count: int) -> np.ndarray:
        if channel.fault.exponential_repair:
            return self._rng.exponential(channel.fault.repair_s, count)
        return np.full(count, channel.fault.repair_s)

    def fired(self, c: int, hit: np.ndarray, up_at: np.ndarray) -> None:
        """Of channel c in the replications `hit` (indices); its clock goes on when the target is up again."""
        if self._given is None:
            self.next_at[c, hit] = up_at + self._rng.exponential(self._channels[c].fault.mttf_s, len(hit))
        else:
            self._taken[c, hit] += 1
            self.next_at[c, hit] = self._given[self._taken[c, hit], c, hit]
