"""`invariant()`: a condition that holds or stops the unit, also under `python -O`.

A machine that meets a state its proof excludes must not go on: a wrong trim or a
wrong ack costs data that nobody can bring back, while a stopped unit costs a
restart. The driver adds the recent events of the unit before it reports.

Pure: touches nothing. Used by every machine here, `protocols.queue` for one; `simulation.schedule` and
`engine.protect.checkpointer` report what it raises.
"""

from __future__ import annotations

__all__ = ["BrokenInvariant", "ProtocolRefused", "invariant"]


class BrokenInvariant(Exception):
    """A protocol reached a state that its proof excludes."""


class ProtocolRefused(ValueError):
    """A declared protection cannot keep its promise on this wiring."""


def invariant(holds: bool, story: str) -> None:
    """Raise `BrokenInvariant` with its story unless the condition holds."""
    if not holds:
        raise BrokenInvariant(story)
