"""Watches what the outputs promise while a run goes on: kept or broken, since when, by how much.

Delay is counted per frame: from the moment the first source above the sink sealed it to
the moment the sink has it. A source that is silent delays the elements of the others, and
that is a delay like any other. At full speed a delay says how fast the machine is and
nothing about the process, so it is judged only when a source is live or paced. A frame that
is due and not written breaks the promise when its time is up, not when it comes at last.

Loss: rows an operator or a sink was allowed to drop (on_error="drop"), rows that came too late
for a window and frames that are LOST are lost and said to be; rows in quarantine are not. Frames
that are marked count as wrong. Order holds by construction: a sink takes frames by number.

No clock of its own. Called by every thread of a run, with and without the board's lock:
it has a lock of its own, and calls nothing while it holds it.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.engine.flow.gone import Gone
from holdfast.engine.flow.marking import Marker, Tally
from holdfast.graph.durations import show_ms
from holdfast.graph.model import Graph
from holdfast.graph.promises import Loses, Within

__all__ = ["PromiseStatus", "PromiseWatch"]


@dataclass(frozen=True, slots=True)
class PromiseStatus:
    sink: str
    promise: str
    state: str  # kept | BROKEN | not measured
    why: str = ""
    since_s: float | None = None  # seconds ago it was broken, while it is
    frames: int = 0  # that broke it, in this run


@dataclass
class _Delay:
    bound_ms: int
    broken_since_s: float | None = None
    first: int = 0
    count: int = 0
    worst_ms: float = 0.0
    sources: frozenset[str] = frozenset()  # above the sink
    due: OrderedDict[int, float] = field(default_factory=OrderedDict)  # frame -> when the first of them had sealed it


class PromiseWatch:
    def __init__(self, graph: Graph) -> None:
        self._graph, self._lock = graph, threading.Lock()
        self.is_paced = False  # set by the run once it knows its sources
        self.gone = Gone()  # set by the run: what units counted that it no longer has
        self._delays = {
            sink.name: _Delay(promise.delay_ms_max, sources=frozenset(_sources_above(graph, sink.stream)))
            for sink in graph.sinks
            for promise in sink.promises
            if isinstance(promise, Within)
        }
        self._above = {sink.name: _above(graph, sink.stream) | {f"sink {sink.name}"} for sink in graph.sinks}

    def sealed(self, source: str, n: int, now_s: float) -> None:
        """A source sealed frame n. A sink below is due from the first of its sources on."""
        if not self.is_paced:
            return
        with self._lock:
            for delay in self._delays.values():
                if source in delay.sources:
                    delay.due.setdefault(n, now_s)

    def found(self, sink: str, last: int, n: int, now_s: float) -> None:
        """At the start of a run: frames after `last` up to n wait sealed for the sink. They are due already; since when, the run before knew."""
        if self.is_paced and sink in self._delays:
            with self._lock:
                for frame in range(last + 1, n + 1):
                    self._delays[sink].due.setdefault(frame, now_s)

    def written(self, sink: str, last: int, n: int, now_s: float) -> None:
        """The sink has the frames after `last` up to n."""
        delay = self._delays.get(sink)
        if delay is None:
            return
        with self._lock:
            due = None
            for frame in range(last + 1, n + 1):
                due = delay.due.get(frame)
                if due is not None:
                    self._compare(delay, frame, (now_s - due) * 1000, now_s)
            if due is not None and (now_s - due) * 1000 <= delay.bound_ms:
                delay.broken_since_s = None  # the newest came in time: kept again

    def look(self, written: dict[str, int], now_s: float) -> None:
        """Frames that are overdue break the promise now."""
        with self._lock:
            for sink, delay in self._delays.items():
                reached, due = written.get(sink, 0), delay.due
                # In the order of their times. What is written goes from the front, so a look costs what was written since the last.
                while due and next(iter(due)) <= reached:
                    del due[next(iter(due))]
                if due and (now_s - next(iter(due.values()))) * 1000 > delay.bound_ms and delay.broken_since_s is None:
                    delay.broken_since_s = now_s

    def statuses(
        self, dropped: dict[str, int], quarantined: dict[str, int], now_s: float, markers: Mapping[str, Marker] = {}
    ) -> list[PromiseStatus]:
        """One line for each promise; rows left out are counted by operator, LOST and marked frames by unit."""
        tallies = {stream: tally for marker in markers.values() for stream, tally in marker.tallies.items()}
        late: Counter[str] = Counter()
        for marker in markers.values():
            late.update(marker.too_late)
        found = []
        for sink in self._graph.sinks:
            for promise in sink.promises:
                match promise:
                    case Within():
                        found.append(self._delay_status(sink.name, str(promise), now_s))
                    case Loses():
                        above, gone = self._above[sink.name], self.gone
                        rows = [
                            Counter({name: n for name, n in each.items() if n and name in above})
                            for each in (dropped, late, quarantined)
                        ]
                        before = (
                            gone.rows("drop", sink.stream),
                            gone.too_late(sink.stream),
                            gone.rows("quarantine", sink.stream),
                        )
                        for now, then in zip(rows, before, strict=True):
                            now.update(then)
                        tally = tallies.get(sink.stream, Tally()).plus(gone.tally(sink.stream))
                        found.append(_loss_status(sink.name, promise, *rows, tally))  # type: ignore[arg-type, call-arg]
                    case _:
                        found.append(PromiseStatus(sink.name, str(promise), "kept"))
        return found

    def _delay_status(self, sink: str, promise: str, now_s: float) -> PromiseStatus:
        delay = self._delays[sink]
        if not self.is_paced:
            return PromiseStatus(sink, promise, "not measured", "runs as fast as it can")
        why = ""
        if delay.count:
            why = f"{delay.count} frames late, the first {delay.first}, at worst {show_ms(round(delay.worst_ms))}"
        if delay.broken_since_s is None:
            return PromiseStatus(sink, promise, "kept", f"now; {why}" if why else "", None, delay.count)
        return PromiseStatus(sink, promise, "BROKEN", why, round(now_s - delay.broken_since_s, 1), delay.count)

    @staticmethod
    def _compare(delay: _Delay, n: int, ms: float, now_s: float) -> None:
        if ms > delay.bound_ms:
            delay.first = delay.first or n
            delay.count += 1
            delay.worst_ms = max(delay.worst_ms, ms)
            if delay.broken_since_s is None:
                delay.broken_since_s = now_s


def _loss_status(
    sink: str, promise: Loses, dropped: dict[str, int], late: dict[str, int], apart: dict[str, int], tally: Tally
) -> PromiseStatus:
    """Rows that were dropped, frames that are LOST and frames that may be wrong, against the shares promised.

    While it runs nobody knows what an ideal run would give: shares are of what came. `verify` measures.
    """
    words = [f"{count:,} rows dropped by {name}" for name, count in dropped.items()]
    words += [f"{count:,} rows came too late for {name}" for name, count in late.items()]
    rows = sum(dropped.values()) + sum(late.values())
    lost = max(_share(rows, rows + tally.rows), _share(tally.lost, tally.lost + tally.frames))
    wrong = _share(tally.tainted_rows, tally.rows)
    # A marked frame without rows may lack some; where nothing may be wrong, it counts.
    is_broken = lost > promise.at_most or wrong > promise.wrong_at_most or (tally.tainted and not promise.wrong_at_most)
    words += [tally.words()] * bool(tally.words())
    if apart and not words:
        words = [f"{sum(apart.values()):,} rows in quarantine"]
    return PromiseStatus(sink, str(promise), "BROKEN" if is_broken else "kept", "; ".join(words))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _above(graph: Graph, stream: str) -> set[str]:
    """All operators whose output can reach this stream."""
    return {operator.name for operator in graph.above(stream)}


def _sources_above(graph: Graph, stream: str) -> set[str]:
    """All sources whose elements can reach this stream."""
    streams = {stream, *(edge.stream for operator in graph.above(stream) for edge in operator.inputs)}
    return {source.name for source in graph.sources if source.name in streams}
