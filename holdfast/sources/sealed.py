"""Sources whose frames are written down before they are handed out: what live ones and growing files have in common.

Which elements a frame has, and when the clock closed it, are chance there. So a frame that was
handed out once comes out of a list (`log`, `grown`), and only those after it are cut.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import SourceError
from holdfast.frames.clock import FrameClock
from holdfast.frames.cut import Cutter
from holdfast.sources.assembly import Assembly
from holdfast.sources.reader import SourceContext, SourceFrame
from holdfast.sources.reference import Reference

__all__ = ["check_kept", "handed_out", "reached_us", "taken_up"]


def handed_out(
    sealed: Iterator[SourceFrame], fresh: Iterator[SourceFrame], from_n: int, stop: threading.Event
) -> Iterator[SourceFrame]:
    """Those of the list, then those that are cut now; none below `from_n`."""
    for frame in sealed:
        if stop.is_set():
            return
        yield frame
    for frame in fresh:
        if frame.n >= from_n:
            yield frame


def taken_up(
    context: SourceContext,
    clock: FrameClock,
    state: dict[str, Any] | None,
    last_n: int,
    here: Callable[[Reference], Reference],
    *,
    by_arrival: bool,
) -> tuple[Cutter, Assembly]:
    """As the last seal left them; new where there is none. Arrival never runs backwards, so nothing is late by it.

    A process may have gone on without the source: it is new there, or was taken out and put back. Those frames are
    closed, so what belongs to them is late, and what was open comes with the first frame that is taken now.
    """
    assembly = Assembly(replace(context, late="admit") if by_arrival else context, clock)
    cutter = Cutter(clock, 0 if by_arrival else context.grace_us)
    if state is not None:
        assembly.restore(state["open"], here)
        cutter = Cutter.restored(state["cutter"])
    assembly.next = last_n + 1
    if context.from_n > assembly.next:
        assembly.pass_over(context.from_n)
        cutter.close(context.from_n - 1)
    return cutter, assembly


def reached_us(cutter: Cutter, clock: FrameClock) -> int:
    """How far the time of a source has come: frames that are closed are over, whether an element or the clock closed them."""
    return clock.boundary_us(cutter.closed) + cutter.grace_us if cutter.closed > 0 else clock.t0_us


def check_kept(from_n: int, first: int, where: Path) -> None:
    """Raise HF-S010 unless frame `from_n` is still in a list that begins with frame `first`."""
    if from_n < first:
        raise SourceError(
            "HF-S010",
            "LogTrimmed",
            f"frame {from_n} is no longer kept for this source; what is kept begins with frame {first}.",
            where=str(where),
            effect="nothing was read; later frames are still there",
            do="keep more: source(..., keep='1 day'), or begin with a fresh state folder",
        )
