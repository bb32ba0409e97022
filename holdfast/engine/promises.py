"""Watches what the outputs promise while a run goes on: kept or broken, since when, by how much.

Delay is counted per frame: from the moment its last input was sealed at the sources to
the moment the sink has it. At full speed that says how fast the machine is and nothing
about the process, so it is judged only when a source is live or paced. A frame that is
due and not written breaks the promise when its time is up, not when it comes at last.

Loss: rows an operator was allowed to drop (on_error="drop") are lost and said to be; rows
in quarantine are not. Order holds by construction: a sink takes frames by number.

No clock of its own. Called under the board's lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.graph.durations import show_ms
from holdfast.graph.model import Graph, Operator, Source
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


class PromiseWatch:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.is_paced = False  # set by the run once it knows its sources
        self._delays = {
            sink.name: _Delay(promise.delay_ms_max)
            for sink in graph.sinks
            for promise in sink.promises
            if isinstance(promise, Within)
        }
        self._due: dict[int, float] = {}  # frame -> when its last input was sealed
        self._above = {sink.name: _above(graph, sink.stream) for sink in graph.sinks}

    def sealed(self, n: int, now_s: float) -> None:
        """A source sealed frame n. It is due from the last of them on."""
        if self._delays and self.is_paced:
            self._due[n] = now_s

    def written(self, sink: str, last: int, n: int, now_s: float) -> None:
        """The sink has the frames after `last` up to n."""
        delay = self._delays.get(sink)
        if delay is None:
            return
        for frame in range(last + 1, n + 1):
            due = self._due.get(frame)
            if due is not None:
                self._compare(delay, frame, (now_s - due) * 1000, now_s)
        if due is not None and (now_s - due) * 1000 <= delay.bound_ms:
            delay.broken_since_s = None  # the newest came in time: kept again

    def look(self, written: dict[str, int], now_s: float) -> None:
        """Frames that are overdue break the promise now."""
        for sink, delay in self._delays.items():
            overdue = self._due.get(written.get(sink, 0) + 1)
            if overdue is not None and (now_s - overdue) * 1000 > delay.bound_ms and delay.broken_since_s is None:
                delay.broken_since_s = now_s
        oldest = min((written.get(sink, 0) for sink in self._delays), default=0)
        for n in [n for n in self._due if n <= oldest]:
            del self._due[n]

    def statuses(self, dropped: dict[str, int], quarantined: dict[str, int], now_s: float) -> list[PromiseStatus]:
        """One line for each promise; rows left out are counted by operator."""
        found = []
        for sink in self._graph.sinks:
            for promise in sink.promises:
                match promise:
                    case Within():
                        found.append(self._delay_status(sink.name, str(promise), now_s))
                    case Loses():
                        lost = {name: rows for name, rows in dropped.items() if rows and name in self._above[sink.name]}
                        apart = sum(rows for name, rows in quarantined.items() if name in self._above[sink.name])
                        rows = ", ".join(f"{count} rows dropped by {name}" for name, count in lost.items())
                        why = rows or (f"{apart} rows in quarantine" if apart else "")
                        found.append(PromiseStatus(sink.name, str(promise), "BROKEN" if lost else "kept", why))
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


def _above(graph: Graph, stream: str) -> set[str]:
    """All operators whose output can reach this stream."""
    seen: set[str] = set()
    todo = [stream]
    while todo:
        producer = graph.producer_of(todo.pop())
        if isinstance(producer, Source) or producer is None or producer.name in seen:
            continue
        assert isinstance(producer, Operator)
        seen.add(producer.name)
        todo += [edge.stream for edge in producer.inputs]
    return seen
