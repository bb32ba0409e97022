"""The identity of a frame: (stream, n, kind, epoch), and the side record of a sealed one.

A number is never skipped: every n ends STABLE, TENTATIVE (one STABLE may follow) or LOST (empty, with the reason), so
no consumer waits permanently. The epoch says which activation sealed it and is fenced elsewhere; it is not part of
the content, so a frame sealed again after a restart keeps its checksum.

Pure: no clock, randomness, file or Spark.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from holdfast.errors import invariant

__all__ = ["END_US", "FIRST_N", "FrameId", "FrameRecord", "Kind"]

FIRST_N = 1

# The boundary of the end frame of a bounded input: 2200-01-01T00:00:00Z. Later
# than any element we expect and still inside nanosecond timestamps (2262),
# which pandas needs.
END_US = 7_258_118_400_000_000


class Kind(StrEnum):
    """How final a sealed frame is."""

    STABLE = "stable"  # never changes again
    TENTATIVE = "tentative"  # made from incomplete inputs; one STABLE may replace it
    LOST = "lost"  # empty, with a reason; the number is still accounted for


@dataclass(frozen=True, slots=True)
class FrameId:
    stream: str
    n: int
    kind: Kind
    epoch: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.n} {self.kind} (epoch {self.epoch})"


@dataclass(frozen=True, slots=True)
class FrameRecord:
    """What is known about a sealed frame without opening it."""

    stream: str
    n: int
    kind: Kind
    epoch: int
    boundary_us: int  # end of the frame, exclusive, in epoch microseconds
    rows: int
    bytes: int
    checksum: str  # hex, over canonical content; the epoch is not in it
    path: str = ""  # file name relative to the queue's folder; "" when it has no file
    reason: str = ""  # why it is LOST or TENTATIVE, or marked
    mark: str = ""  # "tainted": made from missing input (protocols.taint); not part of the content
    mark_us: int = 0  # where the mark comes from: boundary of the last frame that is missing

    def __post_init__(self) -> None:
        invariant(self.n >= FIRST_N, f"frame {self.n} of {self.stream!r}: numbers start at 1")
        invariant(
            self.kind is not Kind.LOST or self.rows == 0,
            f"frame {self.n} of {self.stream!r} is LOST and has {self.rows} rows",
        )

    @property
    def id(self) -> FrameId:
        return FrameId(self.stream, self.n, self.kind, self.epoch)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "kind": self.kind.value}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> FrameRecord:
        """Unknown fields are ignored, so that an older version reads a newer record."""
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in found.items() if name in known}
        return cls(**{**given, "kind": Kind(given["kind"])})
