"""The virtual clock: one heap of things to come, and the memory of what happened.

Time moves only from event to event, and chance comes from one seeded generator, so
a seed replays exactly. The trace keeps the last events per subject for the story of
a broken invariant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

__all__ = ["ScheduleBroken", "World"]

# A schedule that needs more steps than this does not come to rest: 700 are usual.
_STEPS_MAX = 10_000


class ScheduleBroken(Exception):
    """An invariant does not hold; `subject` is the unit or edge it is about."""

    def __init__(self, subject: str, story: str) -> None:
        super().__init__(f"{subject}: {story}")
        self.subject = subject
        self.story = story


class World:
    """Clock, chance and trace of one schedule."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = 0.0
        self.steps = 0
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.trace: deque[tuple[float, str, object]] = deque(maxlen=400)
        self.touched: set[str] = set()

    def after(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heappush(self._heap, (self.now + delay, self._count, action, args))

    def at(self, time: float, action: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heappush(self._heap, (time, self._count, action, args))

    def between(self, least: float, most: float) -> float:
        return least + (most - least) * self.rng.random()

    def note(self, subject: str, what: object) -> None:
        self.trace.append((self.now, subject, what))

    def run(self, check: Callable[[set[str]], None]) -> None:
        """Play until nothing is left to happen; check after every step."""
        heap, touched = self._heap, self.touched
        while heap:
            self.now, _, action, args = heappop(heap)
            self.steps += 1
            action(*args)
            if touched:
                check(touched)
                touched.clear()
            if self.steps > _STEPS_MAX:
                raise ScheduleBroken("schedule", f"no rest after {_STEPS_MAX} steps")

    def story(self, subject: str, lines_max: int = 25) -> list[str]:
        """The recent events of a subject, oldest first."""
        told = [
            f"{time:9.3f}  {name:<12} {what}"
            for time, name, what in self.trace
            if name == subject or name in subject or subject == "schedule"
        ]
        return told[-lines_max:]
