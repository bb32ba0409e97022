"""Where the flow waits, second half: which answers are LOST, and which are tainted by what is missing.

A mark depends on the position in the stream alone, not on when a unit came to it. So once it is known at which
positions frames are LOST and states lack something (`models.positions`), one sweep along the stream, all
replications at once, gives the marks of every output, by the engine's rules (`protocols.taint`): an operator whose
input is LOST or tainted, or whose state has a gap, makes tainted answers; a gap is over when its state has refilled.

Pure: arrays in, arrays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.models.positions import Trace
from holdfast.models.schedules import Progress
from holdfast.models.stations import Stations

__all__ = ["Marks", "sweep"]

# Elements; less than this is left of a state by rounding alone.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Marks:
    """By output and replication: shares of the elements, and of the stream that was right and in time."""

    lost: np.ndarray
    tainted: np.ndarray
    right: np.ndarray
    steps: int


@dataclass(frozen=True)
class _Changes:
    """Sorted by position, for every replication: to what, and how much is added to it."""

    at: np.ndarray
    code: np.ndarray
    amount: np.ndarray


def sweep(stations: Stations, traces: Sequence[Trace], replications: int, until_s: float) -> Marks:
    return _Sweep(stations, replications).run(_sorted(stations, traces, replications), until_s)


def _sorted(stations: Stations, traces: Sequence[Trace], replications: int) -> _Changes:
    """Beginnings and ends of intervals, and gaps. Codes: see `_Sweep._apply`."""
    offset = _offsets(stations)
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []

    def add(rows: np.ndarray, at: np.ndarray, code: int, amount: np.ndarray) -> None:
        found.append((rows, at, np.full(len(rows), code), amount))

    for trace in traces:
        match trace.kind:
            case "gap":
                add(trace.replications, trace.begins, offset["gap"] + trace.where, trace.amount)
            case "wrong":
                state = trace.amount > 0
                rows, where = trace.replications, offset["state"] + trace.where
                add(rows[state], trace.begins[state], where, trace.amount[state])
                some = ~state & (trace.ends > trace.begins)
                add(rows[some], trace.begins[some], offset["wrong"] + trace.where, np.ones(int(some.sum())))
                add(rows[some], trace.ends[some], offset["wrong"] + trace.where, -np.ones(int(some.sum())))
            case kind:
                amount = trace.amount if kind == "lost" else np.ones(len(trace.replications))
                some = trace.ends > trace.begins
                add(trace.replications[some], trace.begins[some], offset[kind] + trace.where, amount[some])
                add(trace.replications[some], trace.ends[some], offset[kind] + trace.where, -amount[some])
    if not found:
        empty = np.zeros((1, replications))
        return _Changes(empty + np.inf, empty.astype(int), empty)
    rows, at, code, amount = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((amount, at, rows))
    rows, at, code, amount = rows[order], at[order], code[order], amount[order]
    counts = np.bincount(rows, minlength=replications)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    shape = (int(counts.max()) + 1, replications)
    made = _Changes(np.full(shape, np.inf), np.zeros(shape, int), np.zeros(shape))
    made.at[place, rows], made.code[place, rows], made.amount[place, rows] = at, code, amount
    return made


def _offsets(stations: Stations) -> dict[str, int]:
    units, operators = len(stations.all), len(stations.model.operators)
    return {
        "lost": 0,
        "gap": units,
        "state": 2 * units,
        "wrong": 2 * units + operators,
        "late": 2 * (units + operators),
    }


class _Sweep:
    """Arrays have a station, operator or slot first and a replication second."""

    def __init__(self, stations: Stations, replications: int) -> None:
        model = stations.model
        self._stations, self._model = stations, model
        self._offset = _offsets(stations)
        self._at = np.zeros(replications)
        self._lost = np.zeros((len(stations.all), replications))  # share of the frames, here
        self._wrong_out = np.zeros((len(model.operators), replications))  # intervals of wrong elements, here
        self._late = np.zeros((len(model.outputs), replications))
        self._unit_of = {each.name: u for u, unit in enumerate(stations.all) for each in unit.operators}
        self._slots = [
            (i, p) for i, each in enumerate(model.operators) for p, port in enumerate(each.ports) if port.state
        ]
        self._states = [model.operators[i].ports[p].state for i, p in self._slots]
        self._slots_of = [[m for m, (i, _) in enumerate(self._slots) if i == n] for n in range(len(model.operators))]
        self._rates = np.array([model.rates[model.operators[i].name][0][p] for i, p in self._slots]).reshape(-1, 1)
        shape = (len(self._slots), replications)
        self._left, self._missing, self._clean_in = np.zeros((3, *shape))  # Z; elements missed; clean ones a second
        self._held = np.zeros(shape, bool)  # something is wrong at the port now
        self._clean, self._tainted = np.zeros((2, len(model.operators), replications))
        self._marked = np.zeros((len(model.operators), replications), bool)

    def run(self, changes: _Changes, until_s: float) -> Marks:
        outputs = [self._model.index[each.operator] for each in self._model.outputs]
        nominal = (
            np.array([self._model.rates[each.operator][1] for each in self._model.outputs]).reshape(-1, 1) * until_s
        )
        replications = len(self._at)
        clean, tainted, right = np.zeros((3, len(outputs), replications))
        taken = np.zeros(replications, int)
        columns, steps, progress = np.arange(replications), 0, Progress()
        while (self._at < until_s).any():
            self._flow()
            with np.errstate(divide="ignore", invalid="ignore"):
                ends = (self._left > 0) & ~self._held & (self._clean_in > 0)
                until = np.where(ends, self._at + self._left / self._clean_in, np.inf).min(0, initial=np.inf)
            until = np.minimum(np.minimum(until, changes.at[taken, columns]), until_s)
            ds = np.maximum(0.0, until - self._at)
            progress.moved(ds)
            for o, i in enumerate(outputs):
                clean[o] += ds * self._clean[i]
                tainted[o] += ds * self._tainted[i]
                wrong = (
                    self._marked[i]
                    | (self._lost[self._unit_of[self._model.operators[i].name]] > 1e-9)
                    | (self._late[o] > 0)
                )
                right[o] += ds * ~wrong
            self._refill(ds)
            self._at = until
            due = (changes.at[taken, columns] <= until) & (until < until_s)
            self._apply(np.nonzero(due)[0], changes.code[taken, columns], changes.amount[taken, columns])
            taken += due
            steps += 1
        came = clean + tainted
        return Marks(np.maximum(0.0, 1 - came / nominal), tainted / nominal, right / until_s, steps)

    def _flow(self) -> None:
        """Rates through the graph, upstream first."""
        for i, operator in enumerate(self._model.operators):
            here = 1.0 - np.clip(self._lost[self._unit_of[operator.name]], 0.0, 1.0)
            if operator.is_source:
                self._clean[i] = operator.rate * here
                continue
            marked = np.zeros(len(self._at), bool)
            ports = []
            for p, port in enumerate(operator.ports):
                reads = [self._model.index[name] for name in port.reads]
                good, bad = self._clean[reads].sum(0), self._tainted[reads].sum(0)
                ports.append((good, bad))
                # Whole frames of an input are LOST, or it is marked.
                lost = np.zeros(len(self._at), bool)
                for name in port.reads:
                    lost |= self._lost[self._unit_of[name]] > 1 - 1e-9
                marked |= lost | self._marked[reads].any(0)
                for m in self._slots_of[i]:
                    if self._slots[m][1] == p:
                        self._hold(m, good, bad, lost | self._marked[reads].any(0))
            for m in self._slots_of[i]:
                marked |= self._left[m] > 0
            marked |= self._wrong_out[i] > 0
            clean = sum(good * port.selectivity for (good, _), port in zip(ports, operator.ports, strict=True))
            dirty = sum(
                (good + bad) * port.selectivity_bad for (good, bad), port in zip(ports, operator.ports, strict=True)
            )
            self._clean[i] = np.where(marked, 0.0, clean) * here
            self._tainted[i] = np.where(marked, dirty, 0.0) * here
            self._marked[i] = marked

    def _hold(self, m: int, good: np.ndarray, bad: np.ndarray, held: np.ndarray) -> None:
        state = self._states[m]
        self._clean_in[m] = np.where(held, 0.0, good)
        self._held[m] = held
        if held.any():
            floor = np.minimum(state.alpha * state.size + state.beta * self._missing[m], state.gamma * state.size)
            floor = (
                np.maximum(floor, state.to_refill_tainted)
                if state.alpha_taint is None
                else np.maximum(np.where(self._missing[m] > 0, floor, 0.0), state.to_refill_tainted)
            )
            self._left[m] = np.where(held, np.maximum(self._left[m], floor), self._left[m])

    def _refill(self, ds: np.ndarray) -> None:
        if not len(self._slots):
            return
        # What does not come at all is missing; what comes tainted is there.
        for m, (i, p) in enumerate(self._slots):
            reads = [self._model.index[name] for name in self._model.operators[i].ports[p].reads]
            came = self._clean[reads].sum(0) + self._tainted[reads].sum(0)
            missing = np.maximum(0.0, self._rates[m] - came)
            self._missing[m] += np.where(missing > 1e-9 * self._rates[m], missing, 0.0) * ds
        self._left = np.where(self._held, self._left, np.maximum(0.0, self._left - self._clean_in * ds))
        self._left[self._left < _ROUNDING] = 0.0
        self._missing[(self._left <= 0) & ~self._held] = 0.0

    def _apply(self, rows: np.ndarray, codes: np.ndarray, amounts: np.ndarray) -> None:
        offset = self._offset
        for code in np.unique(codes[rows]):
            own = rows[codes[rows] == code]
            amount = amounts[own]
            if code >= offset["late"]:
                self._late[code - offset["late"], own] += amount
            elif code >= offset["wrong"]:
                self._wrong_out[code - offset["wrong"], own] += amount
            elif code >= offset["state"]:
                for m in self._slots_of[code - offset["state"]]:
                    self._left[m, own] = np.maximum(self._left[m, own], self._states[m].to_refill_tainted)
            elif code >= offset["gap"]:
                self._lack(int(code - offset["gap"]), own, amount)
            else:
                self._lost[code, own] += amount

    def _lack(self, u: int, rows: np.ndarray, seconds: np.ndarray) -> None:
        """The state of every operator of the unit lacks so much of its stream; infinite: it is empty."""
        for operator in self._stations.all[u].operators:
            for m in self._slots_of[self._model.index[operator.name]]:
                state, rate = self._states[m], float(self._rates[m, 0])
                cap = state.gamma * state.size
                with np.errstate(invalid="ignore"):
                    needed = np.minimum(state.alpha * state.size + state.beta * rate * seconds, cap)
                needed = np.where(np.isinf(seconds), cap, needed)
                self._left[m, rows] = np.maximum(self._left[m, rows], needed)
