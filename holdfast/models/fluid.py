"""Where the flow drops: rates are constant between two events, so only faults and what follows them cost time.

Elements are not followed one by one. Between two events (a fault, a repair, a failover, a state that
is right again) every rate is constant, counts are integrals of rates, and the next event is known. All
replications are stepped at once, each to its own next event. The rules are those of `models.stream`.

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.models.corruption import corrupt
from holdfast.models.layout import Feed, Layout
from holdfast.models.measures import Measure, measured
from holdfast.models.schedules import FaultClock, Hit, Progress
from holdfast.models.stream import StreamModel

__all__ = ["Drops", "simulate_drops"]

# Elements; less than this is left of a state by rounding alone.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Drops:
    """Of every replication: shares of time, and elements at each output."""

    until_s: float
    outputs: tuple[str, ...]
    nominal: np.ndarray  # elements at each output without any fault
    up: np.ndarray  # share of time in which everything was up: availability without propagation
    available: np.ndarray  # and nothing wrong: by replication
    available_of: np.ndarray  # by output and replication
    clean: np.ndarray  # by output and replication
    tainted: np.ndarray
    steps: int
    hits: int

    def availability(self) -> Measure:
        return measured(self.available)

    def tainted_at(self, output: int = 0) -> Measure:
        return measured(self.tainted[output])

    def tainted_share(self, output: int = 0) -> Measure:
        return measured(self.tainted[output] / self.nominal[output])

    def lost_share(self, output: int = 0) -> Measure:
        """Elements that neither came clean nor tainted. Copies that are both let through do not make up for it."""
        return measured(np.maximum(0.0, 1 - (self.clean[output] + self.tainted[output]) / self.nominal[output]))


def simulate_drops(
    model: StreamModel,
    *,
    until_s: float,
    replications: int,
    rng: np.random.Generator,
    schedule: Sequence[Hit] | Sequence[Sequence[Hit]] | None = None,
) -> Drops:
    layout = Layout(model)
    return _Fluid(layout, replications, rng, FaultClock(layout, replications, rng, schedule)).run(until_s)


class _Fluid:
    """Arrays have an instance, slot, group or channel first and a replication second."""

    def __init__(self, layout: Layout, replications: int, rng: np.random.Generator, clock: FaultClock) -> None:
        self.layout, self.rng, self.clock = layout, rng, clock
        count, slots, groups = len(layout.instances), len(layout.slots), len(layout.members)
        self.now = np.zeros(replications)
        self.up_at = np.zeros((count, replications))  # up where this is not after now
        self.wrong = np.zeros((slots, replications))  # Z: clean elements until the state is right
        self.empty = np.zeros((slots, replications))  # clean elements until a state that began empty is full
        self.active = np.zeros((groups, replications), int)  # of "ha" groups; -1: none
        self.over_at = np.full((groups, replications), np.inf)  # failover
        self.clean, self.tainted = np.zeros((2, count, replications))  # rates out
        self.clean_in, self.tainted_in = np.zeros((2, slots, replications))  # rates at slots
        self.touched = np.zeros((count, replications), bool)  # handles tainted elements
        self.hits = 0

    def run(self, until_s: float) -> Drops:
        layout, model = self.layout, self.layout.model
        outputs = [model.index[each.operator] for each in model.outputs]
        above = [
            {model.index[name] for name in model.above(each.operator)} | {i}
            for each, i in zip(model.outputs, outputs, strict=True)
        ]
        replications = len(self.now)
        up, available = np.zeros((2, replications))
        available_of, clean, tainted = np.zeros((3, len(outputs), replications))
        self.extra = np.zeros((len(outputs), replications))  # single tainted elements
        steps, progress = 0, Progress()
        while (self.now < until_s).any():
            self._flow()
            until = np.minimum(self._next_event(), until_s)
            dt = until - self.now
            progress.moved(dt)
            is_up, is_right = self._looks()
            up += dt * is_up.all(0)
            available += dt * is_right.all(0)
            for o, i in enumerate(outputs):
                available_of[o] += dt * is_right[sorted(above[o])].all(0)
                good, bad = self._read(Feed(layout.of_operator[i], self._ha_of(i)))
                clean[o] += dt * good
                tainted[o] += dt * bad
            self._refill(dt)
            live = self.now < until_s
            self.now = until
            self._happen(live & (self.now < until_s), outputs)
            steps += 1
        nominal = np.array([model.rates[each.operator][1] * until_s for each in model.outputs])
        names = tuple(each.operator for each in model.outputs)
        tainted += self.extra
        return Drops(
            until_s,
            names,
            nominal,
            up / until_s,
            available / until_s,
            available_of / until_s,
            clean,
            tainted,
            steps,
            self.hits,
        )

    # -- between two events --------------------------------------------------------

    def _ha_of(self, operator: int) -> int:
        group = self.layout.instances[self.layout.of_operator[operator][0]].group
        return group if self.layout.is_ha(group) else -1

    def _read(self, feed: Feed) -> tuple[np.ndarray, np.ndarray]:
        """Rates of clean and tainted elements that a reader of the feed gets."""
        first = feed.instances[0]
        if feed.group >= 0:
            read = np.maximum(self.active[feed.group], 0)
            there = self.active[feed.group] >= 0
            rows, columns = np.array(feed.instances)[read], np.arange(len(read))
            return self.clean[rows, columns] * there, self.tainted[rows, columns] * there
        if len(feed.instances) == 1:
            return self.clean[first], self.tainted[first]
        chosen = list(feed.instances)
        return self.clean[chosen].max(0), self.tainted[chosen].max(0)

    def _flow(self) -> None:
        """Rates through the graph, upstream first. A tainted element makes the state that takes it wrong at once."""
        layout = self.layout
        for j, instance in enumerate(layout.instances):
            operator = layout.model.operators[instance.operator]
            alive = self.up_at[j] <= self.now
            if operator.is_source:
                self.clean[j] = operator.rate * alive
                continue
            ports = []
            for feeds in layout.feeds[j]:
                read = [self._read(feed) for feed in feeds]
                ports.append((sum(good for good, _ in read) * alive, sum(bad for _, bad in read) * alive))
            bad_any = np.zeros(len(self.now), bool)
            for _, bad in ports:
                bad_any |= bad > 0
            unstable = np.zeros(len(self.now), bool)
            passes = np.ones(len(self.now))
            for m in layout.slots_of[j]:
                slot = layout.slots[m]
                good, bad = ports[slot.port]
                self.clean_in[m], self.tainted_in[m] = good, bad
                if bad_any.any():
                    self.wrong[m] = np.where(
                        bad > 0, np.maximum(self.wrong[m], slot.state.to_refill_tainted), self.wrong[m]
                    )
                    unstable |= bad > 0
                unstable |= self.wrong[m] > 0
                passes = passes * np.where(self.empty[m] > 0, slot.state.refilling, 1.0)
            clean = sum(good * port.selectivity for (good, _), port in zip(ports, operator.ports, strict=True))
            dirty = sum(bad * port.selectivity_bad for (_, bad), port in zip(ports, operator.ports, strict=True))
            if unstable.any():
                all_bad = sum(
                    (good + bad) * port.selectivity_bad for (good, bad), port in zip(ports, operator.ports, strict=True)
                )
                clean, dirty = np.where(unstable, 0.0, clean), np.where(unstable, all_bad, dirty)
            self.clean[j], self.tainted[j] = clean * passes, dirty * passes
            self.touched[j] = bad_any | (self.tainted[j] > 0)

    def _next_event(self) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            until = self.clock.next_at.min(0, initial=np.inf)
            until = np.minimum(until, np.where(self.up_at > self.now, self.up_at, np.inf).min(0))
            flows = self.clean_in > 0
            settles = (self.wrong > 0) & flows & (self.tainted_in <= 0)
            until = np.minimum(
                until, np.where(settles, self.now + self.wrong / self.clean_in, np.inf).min(0, initial=np.inf)
            )
            fills = (self.empty > 0) & flows
            until = np.minimum(
                until, np.where(fills, self.now + self.empty / self.clean_in, np.inf).min(0, initial=np.inf)
            )
        return np.minimum(until, self.over_at.min(0, initial=np.inf))

    def _looks(self) -> tuple[np.ndarray, np.ndarray]:
        """By operator and replication: something of it is up; it is up, right and handles nothing wrong."""
        layout = self.layout
        alive = self.up_at <= self.now
        bad = self.touched.copy()
        for m, slot in enumerate(layout.slots):
            bad[slot.instance] |= (self.wrong[m] > 0) | (self.empty[m] > 0)
        is_up = np.empty((len(layout.of_operator), len(self.now)), bool)
        is_right = np.empty_like(is_up)
        for i, instances in enumerate(layout.of_operator):
            group = layout.instances[instances[0]].group
            own = list(instances)
            if group < 0:
                is_up[i] = alive[own[0]]
                is_right[i] = alive[own[0]] & ~bad[own[0]]
            elif layout.is_ha(group):
                rows, columns = np.array(own)[np.maximum(self.active[group], 0)], np.arange(len(self.now))
                is_up[i] = (self.active[group] >= 0) & alive[rows, columns]
                is_right[i] = is_up[i] & ~bad[rows, columns]
            else:
                is_up[i] = alive[own].any(0)
                is_right[i] = is_up[i] & ~(bad[own] & alive[own]).any(0)
        return is_up, is_right

    def _refill(self, dt: np.ndarray) -> None:
        read = self.clean_in * dt
        for m, slot in enumerate(self.layout.slots):
            floor = np.where(self.tainted_in[m] > 0, slot.state.to_refill_tainted, 0.0)
            self.wrong[m] = np.where(self.wrong[m] > 0, np.maximum(self.wrong[m] - read[m], floor), 0.0)
        self.empty -= read
        self.wrong[self.wrong < _ROUNDING] = 0.0
        self.empty[self.empty < _ROUNDING] = 0.0

    # -- events ----------------------------------------------------------------------

    def _happen(self, live: np.ndarray, outputs: list[int]) -> None:
        due = (self.clock.next_at <= self.now) & live
        for c in np.nonzero(due.any(1))[0].tolist():
            hit = np.nonzero(due[c])[0]
            if self.layout.channels[c].fault.kind == "corruption":
                corrupt(self, c, hit, outputs)
                self.clock.fired(c, hit, self.now[hit])
            else:
                self._go_down(c, hit)
        for g in range(len(self.layout.members)):
            if self.layout.is_ha(g):
                self._fail_over(g)

    def _go_down(self, c: int, hit: np.ndarray) -> None:
        layout, channel = self.layout, self.layout.channels[c]
        repair = self.clock.repair(channel, len(hit))
        now = self.now[hit]
        was_up = self.up_at[list(channel.instances)][:, hit] <= now
        self.clock.fired(c, hit, now + repair)
        some = was_up.any(0)
        self.hits += int(some.sum())
        for j, alive in zip(channel.instances, was_up, strict=True):
            rows, lasts = hit[alive], repair[alive]
            self.up_at[j, rows] = now[alive] + lasts
            operator = layout.model.operators[layout.instances[j].operator]
            for m in layout.slots_of[j]:
                slot = layout.slots[m]
                if operator.protect.keeps_state:
                    self._widen(m, rows, (operator.protect.every_s + lasts) * slot.rate)
                else:
                    self.wrong[m, rows] = 0.0
                    self.empty[m, rows] = slot.state.size
        for m, lacks in channel.lacks:
            self._widen(m, hit[some], repair[some] * lacks)
        for i in {layout.instances[j].operator for j in channel.instances}:
            self._all_copies_down(i, hit[some])

    def _all_copies_down(self, i: int, rows: np.ndarray) -> None:
        """Of a "replicate" group: those below feel it once no copy is left."""
        own = list(self.layout.of_operator[i])
        group = self.layout.instances[own[0]].group
        if group < 0 or self.layout.is_ha(group):
            return
        rest = self.up_at[own][:, rows].min(0) - self.now[rows]
        for m, lacks in self.layout.group_lacks[group]:
            self._widen(m, rows[rest > 0], rest[rest > 0] * lacks)

    def _widen(self, m: int, rows: np.ndarray, lost: np.ndarray) -> None:
        state = self.layout.slots[m].state
        needed = np.minimum(state.alpha * state.size + state.beta * lost, state.gamma * state.size)
        self.wrong[m, rows] = np.maximum(self.wrong[m, rows], needed)

    def _fail_over(self, g: int) -> None:
        members, failover_s = self.layout.members[g], self.layout.model.copies[g].failover_s
        whole = np.stack([(self.up_at[copy] <= self.now).all(0) for copy in members])
        columns = np.arange(len(self.now))
        lost = (self.active[g] >= 0) & ~whole[np.maximum(self.active[g], 0), columns]
        if lost.any():
            self.active[g, lost] = -1
            rows = np.nonzero(lost)[0]
            for m, lacks in self.layout.group_lacks[g]:
                self._widen(m, rows, np.full(len(rows), failover_s * lacks))
        none = self.active[g] < 0
        can = none & whole.any(0)
        self.over_at[g, none & ~can] = np.inf
        begins = can & np.isinf(self.over_at[g])
        self.over_at[g, begins] = self.now[begins] + failover_s
        done = can & (self.over_at[g] <= self.now)
        if done.any():
            settled = np.stack([self._is_settled(copy) for copy in members]) & whole
            # The first copy whose state is right, else the first that is whole.
            chosen = np.where(settled.any(0), settled.argmax(0), whole.argmax(0))
            self.active[g, done] = chosen[done]
            self.over_at[g, done] = np.inf

    def _is_settled(self, copy: list[int]) -> np.ndarray:
        slots = [m for j in copy for m in self.layout.slots_of[j]]
        return np.all((self.wrong[slots] <= 0) & (self.empty[slots] <= 0), axis=0)
