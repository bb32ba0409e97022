"""What every source offers the engine: sealed frames, in order, by reference.

The engine runs one thread per source. It opens the reader, asks for the time of
the first element, sets the process's frame clock, and takes frames. A frame that
was handed out once is handed out again after a restart with the same checksum.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import xxhash

from holdfast.frames.clock import FrameClock
from holdfast.graph.schemas import Schema
from holdfast.sources.reference import Reference

__all__ = ["OpenSource", "Reader", "SourceContext", "SourceFrame", "frame_checksum"]


@dataclass(frozen=True, slots=True)
class SourceContext:
    name: str
    schema: Schema
    time: Any  # name of a column; anything else: no element time (ARRIVAL, None)
    grace_us: int
    late: str  # "admit" | "drop" | "quarantine" | "fail"
    directory: Path  # the source's own state folder
    base: Path  # folder of the user's file; relative patterns start there
    frame_us: int
    from_n: int  # the first frame wanted
    clock: FrameClock | None  # None until the process has a t0
    epoch: int
    monotonic: Callable[[], float]
    process: str = ""  # name of the stream process
    boundary: str | None = None  # "clock" | "hold"; None: as suits the reader
    bad: str = "fail"  # "fail" | "drop" | "quarantine"
    new_columns: str = "ignore"  # "fail" | "ignore" | "keep"
    ahead_us: int | None = None  # how far ahead of the wall clock an element may be; None: as far as it says
    on_ahead: str = "quarantine"  # "admit" | "drop" | "quarantine" | "fail"
    unheld: Mapping[str, str] = field(default_factory=dict)  # what a sink below cannot hold, and which sink
    wall: Callable[[], float] = time.time
    spark_feed: Callable[..., Any] | None = None  # makes the query that feeds a Spark stream, in the run's session

    @property
    def time_column(self) -> str | None:
        """The column that holds element time, or None when frames go by arrival."""
        named = isinstance(self.time, str) and self.time in self.schema.names
        return self.time if named else None


@dataclass(frozen=True, slots=True)
class SourceFrame:
    n: int
    references: tuple[Reference, ...]  # in element order
    rows: int
    bytes: int  # what the rows weigh in their files, about
    checksum: str  # over n, boundary, schema, and digest and ranges of the references
    late_rows: int  # came late: admitted into this frame, dropped or quarantined, as declared
    quarantined: tuple[Reference, ...] = ()  # late rows kept apart, not in `references`


class OpenSource(Protocol):
    def first_time_us(self) -> int | None:
        """Time of the earliest element to start from; None if the source knows none."""

    def set_clock(self, clock: FrameClock) -> None: ...

    def frames(self, stop: threading.Event) -> Iterator[SourceFrame]:
        """Sealed frames from `from_n` on, gapless; ends with a bounded source, or on stop."""

    def seen_until(self) -> int:
        """Newest element time seen, epoch microseconds; 0 before the first."""

    def extent(self) -> int:
        """How much there is in all, by the source's own measure: grows if and only if it does."""

    def trim(self, before_n: int) -> None:
        """No restart will need frames below `before_n`: forget what was kept for them."""

    def close(self) -> None: ...


class Reader(Protocol):
    bounded: bool
    reliable: bool  # can be read again from outside: lossless through the loss of a host

    def describe(self) -> str: ...

    def open(self, context: SourceContext) -> OpenSource: ...


def frame_checksum(n: int, boundary_us: int, schema: Schema, references: Sequence[Reference]) -> str:
    """Equal for equal rows at equal places; paths and mtimes do not count."""
    seen = xxhash.xxh3_128(f"{n} {boundary_us} {schema.ddl}\n".encode())
    for reference in references:
        ranges = np.array(reference.ranges, dtype="<i8")
        seen.update(f"{reference.digest} {len(ranges)}\n".encode())
        seen.update(ranges.tobytes())
    return seen.hexdigest()
