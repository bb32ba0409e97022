"""What a sink was given in a run: frames, when each became visible, and when each was due.

A frame's rows are compared only if its checksum differs from the ideal run's, so comparing two long runs that agree
costs a comparison of numbers. Times are integer microseconds on one clock; `None` if they were not measured.

Pure: rows and times are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

__all__ = ["Arrival", "Output"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One frame as a sink has it. A sink that cannot recognise frames may have one number several times."""

    n: int
    rows: int
    checksum: str  # equal checksums mean equal rows
    read: Callable[[], Iterable[Hashable]]  # the payloads, one for each row
    at_us: int | None = None  # when it was visible in the sink
    due_us: int | None = None  # when its inputs had arrived, in a system that needs no time
    mark: str = ""  # "tainted": the run marked it as possibly wrong
    is_lost: bool = False  # the run marked it as LOST


@dataclass(frozen=True)
class Output:
    """All a sink has after a run, in the order of frame numbers."""

    name: str
    arrivals: tuple[Arrival, ...]
    again: tuple[int, ...] = ()  # frames that were handed over again and left out

    def by_frame(self) -> dict[int, list[Arrival]]:
        found: dict[int, list[Arrival]] = {}
        for arrival in self.arrivals:
            found.setdefault(arrival.n, []).append(arrival)
        return dict(sorted(found.items()))

    def visible_us(self) -> dict[int, int]:
        """Frame -> when it could first be seen."""
        found: dict[int, int] = {}
        for arrival in self.arrivals:
            if arrival.at_us is not None:
                found[arrival.n] = min(arrival.at_us, found.get(arrival.n, arrival.at_us))
        return dict(sorted(found.items()))
