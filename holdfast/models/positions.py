"""Where the flow waits, first half: how far each unit is at every moment, and so what is late, skipped or missing.

A unit that is down stands still; one that is behind works at its own pace until it is level with its slowest
input; one that is level goes with it. All of that is piecewise linear, so lateness is exact between events. What
happens to a unit leaves traces in the stream (frames that are LOST, a state that lacks some): they are written
down by position, and `models.marks` follows them downstream.

    crash, driver   the unit stands still, then catches up: late, nothing else
    host            its folder is gone too. ecoc, uncoordinated: it goes back to a checkpoint and does that part
                    again. checkpoint: the state lacks what came since. none: it lacks everything. Frames that its
                    readers had not taken are LOST
    behind_s        a unit that is further behind its input seals LOST what it leaves out
    copies          "ha": another copy goes on after failover_s; "replicate": at once. Nothing is lost while one is up
    source          nothing comes; when it is back, what waited outside comes at once

Pure: randomness arrives as a `numpy.random.Generator`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.models.schedules import FaultClock, Progress
from holdfast.models.stations import Stations

__all__ = ["Positions", "Trace"]

# Seconds of stream; two positions nearer than this are level.
_LEVEL = 1e-7


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened to the stream of a station between two positions, in some replications."""

    kind: str  # "lost" | "gap" | "late" | "wrong"
    where: int  # station; of "late" the output; of "wrong" the operator
    replications: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    amount: np.ndarray  # "lost": share of the frames; "gap": seconds of stream that the state lacks, infinite: all


class Positions:
    """Arrays have a station (or one copy of it) first and a replication second."""

    def __init__(self, stations: Stations, replications: int, rng: np.random.Generator, clock: FaultClock) -> None:
        self._stations, self._rng, self._clock = stations, rng, clock
        self._units = stations.all
        count = len(self._units)
        self._copy = np.cumsum([0, *(each.count for each in self._units)])  # the first instance of each station
        total = int(self._copy[-1])
        self._now = np.zeros(replications)
        self._at = np.zeros((total, replications))  # position of each instance
        self._up_at = np.zeros((total, replications))
        self._offered = np.zeros((count, replications))  # position that readers see
        self._top = np.zeros((count, replications))  # the furthest it ever was
        self._active = np.zeros((count, replications), int)  # of "ha"; -1: none
        self._over_at = np.full((count, replications), np.inf)
        self._speed = np.zeros((total, replications))
        self._flows = np.zeros((count, replications))  # speed of what is offered
        self._skips = np.zeros((count, replications))  # of it LOST
        self._skipped = np.zeros((count, replications))  # seconds left out since it was last within its bound
        outputs = stations.model.outputs
        self.late_s, self.tentative_s = np.zeros((2, len(outputs), replications))
        self.delay_max_s = np.zeros((len(outputs), replications))
        self.backlog = np.zeros(replications)  # element seconds
        self.traces: list[Trace] = []
        self.steps = self.hits = 0

    def run(self, until_s: float) -> None:
        progress = Progress()
        while (self._now < until_s).any():
            self._move()
            until = np.minimum(self._next_event(), until_s)
            progress.moved(until - self._now)
            self._advance(until)
            self._happen(self._now < until_s)
            self.steps += 1
        self._overdue(until_s)

    # -- between two events --------------------------------------------------------

    def _instances(self, u: int) -> range:
        return range(int(self._copy[u]), int(self._copy[u + 1]))

    def _move(self) -> None:
        """Speeds, upstream first."""
        for u, unit in enumerate(self._units):
            for j in self._instances(u):
                alive = self._up_at[j] <= self._now
                speed = np.where(alive, 1.0 if unit.is_source else unit.pace, 0.0)
                for i in unit.inputs:
                    ahead = self._offered[i] - self._at[j]
                    speed = np.where(
                        ahead > _LEVEL, speed, np.where(ahead < -_LEVEL, 0.0, np.minimum(speed, self._flows[i]))
                    )
                self._speed[j] = speed
            self._flows[u] = self._offering_speed(u)
            if np.isfinite(unit.protect.behind_s):
                self._skip(u)

    def _offering_speed(self, u: int) -> np.ndarray:
        """What is offered moves with a copy that is there and offers; one that is behind has to come up first."""
        own = list(self._instances(u))
        if len(own) == 1:
            return self._speed[own[0]]
        level = self._at[own] >= self._offered[u] - _LEVEL
        moves = np.where(level & self._offers(u), self._speed[own], 0.0)
        return moves.max(0)

    def _offers(self, u: int) -> np.ndarray:
        own = list(self._instances(u))
        if self._units[u].copies.kind == "ha":
            return np.arange(len(own))[:, None] == self._active[u]
        return self._up_at[own] <= self._now

    def _behind(self, u: int) -> tuple[np.ndarray, np.ndarray]:
        """How far behind its slowest input, and how fast that one is."""
        inputs = list(self._units[u].inputs)
        ahead = self._offered[inputs] - self._offered[u]
        slowest = ahead.argmin(0)
        columns = np.arange(len(self._now))
        return ahead[slowest, columns], self._flows[np.array(inputs)[slowest], columns]

    def _skip(self, u: int) -> None:
        lag, comes = self._behind(u)
        too_far = (lag >= self._units[u].protect.behind_s - _LEVEL) & (comes > self._flows[u])
        self._skips[u] = np.where(too_far, comes - self._flows[u], 0.0)
        self._skipped[u] = np.where(lag < self._units[u].protect.behind_s - 2 * _LEVEL, 0.0, self._skipped[u])
        if too_far.any():
            self._flows[u] = np.where(too_far, comes, self._flows[u])
            for j in self._instances(u):
                level = np.abs(self._at[j] - self._offered[u]) <= _LEVEL
                self._speed[j] = np.where(too_far & level, comes, self._speed[j])

    def _next_event(self) -> np.ndarray:
        until = self._clock.next_at.min(0, initial=np.inf)
        until = np.minimum(until, np.where(self._up_at > self._now, self._up_at, np.inf).min(0))
        until = np.minimum(until, self._over_at.min(0))
        soon = np.full(len(self._now), np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            for u, unit in enumerate(self._units):
                for j in self._instances(u):
                    for i in unit.inputs:
                        ahead, gains = self._offered[i] - self._at[j], self._speed[j] - self._flows[i]
                        meets = ((ahead > _LEVEL) & (gains > 0)) | ((ahead < -_LEVEL) & (gains < 0))
                        soon = np.minimum(soon, np.where(meets, ahead / gains, np.inf))
                    if unit.count > 1:
                        ahead, gains = self._offered[u] - self._at[j], self._speed[j] - self._flows[u]
                        soon = np.minimum(soon, np.where((ahead > _LEVEL) & (gains > 0), ahead / gains, np.inf))
                if np.isfinite(unit.protect.behind_s):
                    lag, comes = self._behind(u)
                    room, grows = unit.protect.behind_s - lag, comes - self._flows[u]
                    soon = np.minimum(soon, np.where((room > _LEVEL) & (grows > 0), room / grows, np.inf))
        return np.minimum(until, self._now + soon)

    def _advance(self, until: np.ndarray) -> None:
        dt = until - self._now
        begins = self._offered.copy()
        self._at += self._speed * dt
        for u, unit in enumerate(self._units):
            self._offered[u] += self._flows[u] * dt
            if unit.count == 1:
                self._offered[u] = self._at[int(self._copy[u])]
            if self._skips[u].any():
                self._write_skipped(u, begins[u], dt)
        for o, u in enumerate(self._stations.outputs):
            self._deliver(o, u, begins[u], dt)
        for u, unit in enumerate(self._units):
            if not unit.is_source:
                rate = sum(sum(self._stations.model.rates[each.name][0]) for each in unit.operators[:1])
                behind = np.maximum(0.0, self._now - (begins[u] + self._offered[u]) / 2 + dt / 2)
                self.backlog += behind * dt * rate
            np.maximum(self._top[u], self._offered[u], out=self._top[u])
        self._now = until

    def _write_skipped(self, u: int, begins: np.ndarray, dt: np.ndarray) -> None:
        rows = np.nonzero((self._skips[u] > 0) & (dt > 0) & (self._flows[u] > 0))[0]
        if not len(rows):
            return
        share = self._skips[u, rows] / self._flows[u, rows]
        ends = self._offered[u, rows]
        self._skipped[u, rows] += (ends - begins[rows]) * share
        # What a unit had made before it went back to a checkpoint is with its readers already.
        new = ends > self._top[u, rows]
        self.traces.append(
            Trace("lost", u, rows[new], np.maximum(begins[rows], self._top[u, rows])[new], ends[new], share[new])
        )
        self.traces.append(Trace("gap", u, rows, ends, ends, self._skipped[u, rows].copy()))

    def _deliver(self, o: int, u: int, begins: np.ndarray, dt: np.ndarray) -> None:
        """Which of the positions that are new at output o came later than promised. Delay is linear in between."""
        output, latency_s = self._stations.model.outputs[o], self._units[u].latency_s
        first, last, speed = np.maximum(begins, self._top[u]), self._offered[u], self._flows[u]
        rows = np.nonzero((last > first + _LEVEL) & (dt > 0))[0]
        if not len(rows):
            return
        first, last, speed, start = first[rows], last[rows], speed[rows], begins[rows]
        early = self._now[rows] + (first - start) / speed - first + latency_s
        late = self._now[rows] + (last - start) / speed - last + latency_s
        self.delay_max_s[o, rows] = np.maximum(self.delay_max_s[o, rows], np.maximum(early, late))
        came = 1.0 - np.where(speed > 0, self._skips[u, rows] / speed, 0.0)
        for bound_s, counts in ((output.within_s, self.late_s), (output.tentative_s, self.tentative_s)):
            if not np.isfinite(bound_s):
                continue
            share, from_first = _share_above(early, late, bound_s)
            counts[o, rows] += share * (last - first) * came
            if counts is self.late_s and (some := share > 0).any():
                length = share * (last - first)
                begin = np.where(from_first, first, last - length)
                self.traces.append(Trace("late", o, rows[some], begin[some], (begin + length)[some], came[some]))

    def _overdue(self, until_s: float) -> None:
        """What should have come by the end and did not."""
        for o, u in enumerate(self._stations.outputs):
            output, latency_s = self._stations.model.outputs[o], self._units[u].latency_s
            for bound_s, counts in ((output.within_s, self.late_s), (output.tentative_s, self.tentative_s)):
                if np.isfinite(bound_s):
                    due = until_s - max(0.0, bound_s - latency_s)
                    missing = np.maximum(0.0, due - self._top[u])
                    counts[o] += missing
                    if counts is self.late_s and (rows := np.nonzero(missing)[0]).size:
                        ones = np.ones(len(rows))
                        self.traces.append(Trace("late", o, rows, self._top[u, rows], ones * due, ones))
            self.delay_max_s[o] = np.maximum(self.delay_max_s[o], until_s - self._top[u] + latency_s)

    # -- events ----------------------------------------------------------------------

    def _happen(self, live: np.ndarray) -> None:
        for u, unit in enumerate(self._units):
            if unit.is_source:
                # What waited outside comes at once.
                j = int(self._copy[u])
                back = (self._up_at[j] <= self._now) & live
                self._at[j, back] = self._offered[u, back] = self._now[back]
        due = (self._clock.next_at <= self._now) & live
        for c in np.nonzero(due.any(1))[0]:
            self._hit(int(c), np.nonzero(due[c])[0])
        for u, unit in enumerate(self._units):
            if unit.copies is not None and unit.copies.kind == "ha":
                self._fail_over(u, unit.copies.failover_s)

    def _hit(self, c: int, rows: np.ndarray) -> None:
        channel = self._stations.layout.channels[c]
        repair = self._clock.repair(channel, len(rows))
        now = self._now[rows]
        if channel.fault.kind == "corruption":
            self._clock.fired(c, rows, now)
            self._corrupt(c, rows)
            return
        self._clock.fired(c, rows, now + repair)
        counted = np.zeros(len(rows), bool)
        for u, k in self._stations.hit_by[c]:
            j = int(self._copy[u]) + k
            was_up = self._up_at[j, rows] <= now
            counted |= was_up
            hit = rows[was_up]
            self._up_at[j, hit] = now[was_up] + repair[was_up]
            if channel.fault.kind == "host" and not self._units[u].is_source:
                self._lose_folder(u, j, hit, {each for each, _ in self._stations.hit_by[c]})
        self.hits += int(counted.sum())

    def _lose_folder(self, u: int, j: int, rows: np.ndarray, hit: set[int]) -> None:
        unit = self._units[u]
        age = self._rng.random(len(rows)) * unit.protect.every_s
        others = [each for each in self._instances(u) if each != j]
        kept = (self._up_at[others][:, rows] <= self._now[rows]).any(0) if others else np.zeros(len(rows), bool)
        # Another copy has everything, a lossless protection everything up to its checkpoint.
        back = kept | unit.protect.is_lossless
        self._at[j, rows[back]] = np.maximum(0.0, self._at[j, rows[back]] - age[back])
        if unit.count == 1:
            self._offered[u, rows] = self._at[j, rows]
        gone = ~back
        if not gone.any():
            return
        rows, age = rows[gone], age[gone]
        position = self._at[j, rows]
        lacks = age if unit.protect.keeps_state else np.full(len(rows), np.inf)
        self.traces.append(Trace("gap", u, rows, position, position, lacks))
        frame_s = self._stations.model.frame_s
        reached = position.copy()
        for reader in unit.readers:
            if reader in hit:
                continue  # it has lost its place too, and goes on behind
            # The frame that a reader is at work on is not taken yet.
            working = self._rng.random(len(rows)) < self._units[reader].load
            reached = np.minimum(reached, self._offered[reader, rows] - frame_s * working)
        lost = np.maximum(0.0, reached) < position - _LEVEL
        if lost.any():
            ones = np.ones(int(lost.sum()))
            self.traces.append(Trace("lost", u, rows[lost], np.maximum(0.0, reached)[lost], position[lost], ones))

    def _corrupt(self, c: int, rows: np.ndarray) -> None:
        """Three copies and more outvote it; else a state is wrong, or one element."""
        channel, layout = self._stations.layout.channels[c], self._stations.layout
        for u, k in self._stations.hit_by[c]:
            unit = self._units[u]
            if unit.copies is not None and (unit.copies.n > 2 or (unit.copies.kind == "ha" and k)):
                continue
            j = int(self._copy[u]) + k
            hit = rows[self._up_at[j, rows] <= self._now[rows]]
            self.hits += len(hit)
            which = self._rng.integers(len(unit.operators), size=len(hit))
            in_state = self._rng.random(len(hit)) < channel.fault.state_share
            for n, operator in enumerate(unit.operators):
                chosen = hit[which == n]
                position = self._at[j, chosen]
                state = in_state[which == n] & operator.is_stateful
                rate = layout.model.rates[operator.name][1]
                length = np.where(state, 0.0, 1.0 / rate if rate else 0.0)
                self.traces.append(
                    Trace("wrong", layout.model.index[operator.name], chosen, position, position + length, state * 1.0)
                )

    def _fail_over(self, u: int, failover_s: float) -> None:
        own = list(self._instances(u))
        alive = self._up_at[own] <= self._now
        columns = np.arange(len(self._now))
        lost = (self._active[u] >= 0) & ~alive[np.maximum(self._active[u], 0), columns]
        self._active[u, lost] = -1
        none = self._active[u] < 0
        can = none & alive.any(0)
        self._over_at[u, none & ~can] = np.inf
        begins = can & np.isinf(self._over_at[u])
        self._over_at[u, begins] = self._now[begins] + failover_s
        done = can & (self._over_at[u] <= self._now)
        if done.any():
            furthest = np.where(alive, self._at[own], -np.inf).argmax(0)
            self._active[u, done] = furthest[done]
            self._over_at[u, done] = np.inf
        reached = self._at[np.array(own)[np.maximum(self._active[u], 0)], columns]
        self._offered[u] = np.where(self._active[u] >= 0, np.maximum(self._offered[u], reached), self._offered[u])


def _share_above(early: np.ndarray, late: np.ndarray, bound: float) -> tuple[np.ndarray, np.ndarray]:
    """Share of a line from `early` to `late` that is above the bound, and whether that part is the first one."""
    high, low = np.maximum(early, late), np.minimum(early, late)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(high > low, (high - bound) / (high - low), np.where(high > bound, 1.0, 0.0))
    return np.clip(part, 0.0, 1.0), early > late
