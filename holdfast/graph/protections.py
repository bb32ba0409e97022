"""How an operator is protected: declared here, enforced by the protocols.

`every` may be a duration ("5 seconds"), `frames(10)` or `elements(1000)`.
A protection is a value: two operators with equal protections may share a unit.

Pure: plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.errors import UsageError
from holdfast.graph.durations import duration_ms, show_ms

__all__ = [
    "Interval",
    "Protection",
    "checkpoint",
    "ecoc",
    "elements",
    "frames",
    "none",
    "uncoordinated",
]


@dataclass(frozen=True, slots=True)
class Interval:
    count: int
    unit: str  # "ms" | "frames" | "elements"

    def __str__(self) -> str:
        if self.unit == "ms":
            return show_ms(self.count)
        return f"{self.count:,} {self.unit[:-1] if self.count == 1 else self.unit}"

    @classmethod
    def of(cls, declared: object) -> Interval:
        if isinstance(declared, Interval):
            return declared
        if isinstance(declared, str | timedelta):
            if (ms := duration_ms(declared, what="every")) > 0:
                return Interval(ms, "ms")
        raise UsageError(
            "HF-C007",
            "NotAnInterval",
            f"every={declared!r} is not an interval.",
            effect="nothing was declared",
            do="write every='5 seconds', every=hf.frames(10) or every=hf.elements(1000)",
        )


@dataclass(frozen=True, slots=True)
class Protection:
    durability: str  # "none" | "checkpoint" | "uncoordinated" | "ecoc"
    every: Interval | None = None
    extended: bool = False
    two_phase: bool = False

    def __str__(self) -> str:
        if self.every is None:
            return self.durability
        kind = self.durability + (" extended" if self.extended else " in two phases" if self.two_phase else "")
        return f"{kind} every {self.every}"

    def __call__(self, *_: object, **__: object) -> Protection:
        """hf.none() is a slip that Python's words do not explain."""
        raise UsageError(
            "HF-C003",
            "UnknownWord",
            f"'{self}' is a protection already, not a function.",
            effect="nothing was declared",
            do=f"write hf.{self.durability} without brackets"
            if self.every is None
            else "drop the second pair of brackets",
        )


none = Protection("none")


def frames(n: int) -> Interval:
    """Every n frames, as in `hf.ecoc(every=hf.frames(10))`."""
    return _positive(n, "frames")


def elements(n: int) -> Interval:
    """Every n elements, as in `hf.checkpoint(every=hf.elements(1000))`."""
    return _positive(n, "elements")


def checkpoint(every: object) -> Protection:
    """Own state only: after a failure work goes on, what came meanwhile is LOST."""
    return Protection("checkpoint", Interval.of(every))


def uncoordinated(every: object) -> Protection:
    """State and unacknowledged output, each operator on its own: lossless, more to store."""
    return Protection("uncoordinated", Interval.of(every))


def ecoc(every: object, *, extended: bool = False, two_phase: bool = False) -> Protection:
    """Efficient coordinated checkpoints: lossless, state only; `extended` for cycles.

    `two_phase`: the state travels at once and counts when all below have stored the same frame,
    so a recovery repeats the least.
    """
    if extended and two_phase:
        raise UsageError(
            "HF-C044",
            "ExtendedInTwoPhases",
            "ecoc is either extended or in two phases, not both.",
            why="what an extended checkpoint holds is known only when all have answered; it cannot travel before",
            effect="nothing was declared",
            do="write extended=True on cycles and two_phase=True elsewhere: both can be mixed in one process",
        )
    return Protection("ecoc", Interval.of(every), bool(extended), bool(two_phase))


def _positive(n: object, unit: str) -> Interval:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise UsageError(
            "HF-C007",
            "NotAnInterval",
            f"{n!r} {unit} is not an interval.",
            effect="nothing was declared",
            do="take a whole number of at least 1",
        )
    return Interval(n, unit)
