"""A faulty run's outputs against the ideal run's: lost, wrong, duplicates, delay, order.

Elements are compared frame by frame, by payload. An element of the ideal frame that the
real one lacks is lost; one the ideal frame does not have is wrong; a further copy of one
it has is a duplicate. A right row in a wrong frame is lost in one and wrong in the other:
the frame is part of what was promised.

Delay runs from the moment a frame was due to the moment it was visible, for every frame
that came, empty ones too (that nothing happened is an answer). A frame that never came
has no delay: it is lost. Order is by visibility: a frame is out of order when one with a
higher number could be seen before it. What became visible at once is in order, so the
place inside a frame, which is written in one transaction, plays no part.

Pure: no clock; the times are in the arrivals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.levels.arrivals import Arrival, Output

__all__ = ["Measured", "measure", "out_of_order"]


@dataclass(frozen=True)
class Measured:
    """What one output gave. Each count goes with the frames it comes from."""

    output: str
    elements: int  # in the ideal run
    frames: int  # likewise
    lost: dict[int, int] = field(default_factory=dict)  # frame -> elements
    wrong: dict[int, int] = field(default_factory=dict)
    duplicates: dict[int, int] = field(default_factory=dict)
    missing: tuple[int, ...] = ()  # numbers that never came, rows or not
    again: tuple[int, ...] = ()  # came again and were left out
    delay_ms: dict[int, float] = field(default_factory=dict)  # empty: not measured
    disordered: tuple[int, ...] = ()
    across: dict[str, tuple[int, ...]] = field(default_factory=dict)  # other output -> frames of either
    tainted: dict[int, int] = field(default_factory=dict)  # frame that was marked -> its elements
    unmarked: tuple[int, ...] = ()  # frames that are wrong, or lack elements, and neither marked nor LOST

    @property
    def lost_share(self) -> float:
        """LF of the definitions is what is kept: 1 - this."""
        return _share(self.lost, self.elements)

    @property
    def wrong_share(self) -> float:
        """EF: everything the ideal run does not have, copies included."""
        return _share(self.wrong, self.elements) + _share(self.duplicates, self.elements)

    @property
    def tainted_share(self) -> float:
        """What the run itself said may be wrong: an upper bound of what is."""
        return _share(self.tainted, self.elements)

    @property
    def delay_ms_max(self) -> float | None:
        return max(self.delay_ms.values(), default=None)

    @property
    def delay_ms_p99(self) -> float | None:
        """The smallest delay that 99 of 100 frames do not exceed."""
        found = sorted(self.delay_ms.values())
        return found[math.ceil(0.99 * len(found)) - 1] if found else None


def measure(ideal: Sequence[Output], real: Sequence[Output]) -> list[Measured]:
    """One for each output of the ideal run, in its order."""
    given = {output.name: output for output in real}
    found = []
    for expected in ideal:
        actual = given.get(expected.name, Output(expected.name, ()))
        found.append(_measured(expected, actual, [other for other in given.values() if other.name != expected.name]))
    return found


def out_of_order(outputs: Iterable[Output]) -> tuple[int, ...]:
    """Frames of these outputs, taken together, that could be seen before one with a lower number.

    Named is the lower number, which came too late.
    """
    at: dict[int, list[int]] = {}
    for output in outputs:
        for n, when in output.visible_us().items():
            at.setdefault(n, []).append(when)
    late, soonest_above = [], None
    for n in sorted(at, reverse=True):
        if soonest_above is not None and max(at[n]) > soonest_above:
            late.append(n)
        soonest_above = min(at[n]) if soonest_above is None else min(soonest_above, *at[n])
    return tuple(sorted(late))


def _measured(ideal: Output, real: Output, others: list[Output]) -> Measured:
    lost: dict[int, int] = {}
    wrong: dict[int, int] = {}
    duplicates: dict[int, int] = {}
    expected, actual = ideal.by_frame(), real.by_frame()
    for n in sorted({*expected, *actual}):
        counts = _compared(expected.get(n, []), actual.get(n, []))
        for found, count in zip((lost, wrong, duplicates), counts, strict=True):
            if count:
                found[n] = count
    delays: dict[int, float] = {}
    for arrival in real.arrivals:
        if arrival.at_us is not None and arrival.due_us is not None:
            late_ms = (arrival.at_us - arrival.due_us) / 1000
            delays[arrival.n] = min(late_ms, delays.get(arrival.n, late_ms))
    return Measured(
        ideal.name,
        elements=sum(arrival.rows for arrival in ideal.arrivals),
        frames=len(expected),
        lost=lost,
        wrong=wrong,
        duplicates=duplicates,
        missing=tuple(n for n in expected if n not in actual),
        again=real.again,
        delay_ms=delays,
        tainted={each.n: each.rows for each in real.arrivals if each.mark},
        unmarked=tuple(
            n
            for n in sorted({*lost, *wrong})
            if n in actual and not any(each.mark or each.is_lost for each in actual[n])
        ),
        disordered=out_of_order([real]),
        across={other.name: out_of_order([real, other]) for other in others},
    )


def _compared(expected: list[Arrival], actual: list[Arrival]) -> tuple[int, int, int]:
    """(lost, wrong, duplicates) of one frame."""
    if [each.checksum for each in expected] == [each.checksum for each in actual]:
        return 0, 0, 0
    ideal = Counter(payload for arrival in expected for payload in arrival.read())
    real = Counter(payload for arrival in actual for payload in arrival.read())
    beyond = real - ideal
    copies = sum(count for payload, count in beyond.items() if payload in ideal)
    return (ideal - real).total(), beyond.total() - copies, copies


def _share(counts: dict[int, int], elements: int) -> float:
    count = sum(counts.values())
    if not count:
        return 0.0
    return count / elements if elements else math.inf
