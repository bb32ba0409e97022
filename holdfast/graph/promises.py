"""What an output may lose, how late it may be and in which order it must come.

Words for users (`hf.lossless`, `hf.within("5 seconds")`); the thesis names of the
levels stand in `level` and appear in --json only. A promise is carried by the sink
it was given to; levels and planner read it there.

Pure: plain values.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from holdfast.errors import UsageError
from holdfast.graph.durations import duration_ms, show_ms

__all__ = [
    "InOrder",
    "InOrderAcross",
    "Loses",
    "Promise",
    "Within",
    "in_order",
    "in_order_across",
    "loses",
    "lossless",
    "within",
]


@dataclass(frozen=True, slots=True)
class Loses:
    """At most a share `at_most` is missing, at most a share `wrong_at_most` is wrong."""

    at_most: float
    wrong_at_most: float = 0.0

    @property
    def level(self) -> str:
        return "LOLE" if self.at_most == 0 and self.wrong_at_most == 0 else "LILO"

    def __str__(self) -> str:
        if self.level == "LOLE":
            return "lossless"
        wrong = f", wrong at most {self.wrong_at_most:.3g}" if self.wrong_at_most else ""
        return f"loses at most {self.at_most:.3g}{wrong}"


@dataclass(frozen=True, slots=True)
class Within:
    """Every frame is in the sink at most `delay_ms_max` after the first source above it sealed it."""

    delay_ms_max: int

    @property
    def level(self) -> str:
        return "LIDE" if self.delay_ms_max else "DEFR"

    def __str__(self) -> str:
        return f"within {show_ms(self.delay_ms_max)}"


@dataclass(frozen=True, slots=True)
class InOrder:
    """Elements of this output come in stream order."""

    @property
    def level(self) -> str:
        return "IASO"

    def __str__(self) -> str:
        return "in order"


@dataclass(frozen=True, slots=True)
class InOrderAcross:
    """Frame n of this output comes before frame n+1 of each of the named sinks."""

    sinks: tuple[str, ...]

    @property
    def level(self) -> str:
        return "IESO"

    def __str__(self) -> str:
        return "in order across " + ", ".join(self.sinks)


Promise = Loses | Within | InOrder | InOrderAcross

lossless = Loses(0.0, 0.0)
in_order = InOrder()


def loses(*, at_most: float, wrong_at_most: float = 0.0) -> Loses:
    """A share of elements that may be missing (0.01 is one in a hundred), and one that may be wrong."""
    for name, share in (("at_most", at_most), ("wrong_at_most", wrong_at_most)):
        top = 1.0 if name == "at_most" else float("inf")
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share < top:
            raise UsageError(
                "HF-C006",
                "NotAShare",
                f"{name}={share!r} is not a share of the elements.",
                effect="nothing was declared",
                do="write 0.01 for one element in a hundred, 0 for none",
            )
    return Loses(float(at_most), float(wrong_at_most))


def within(delay: str | timedelta) -> Within:
    """The longest time from the moment the first source above a sink has sealed a frame to the moment the sink has it.

    A frame waits for all its sources: one that is silent uses up the time of the others.
    """
    return Within(duration_ms(delay, what="within"))


def in_order_across(*sinks: str) -> InOrderAcross:
    """Elements of these outputs, taken together, come in stream order."""
    return InOrderAcross(tuple(sinks))
