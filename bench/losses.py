"""How long a process needs after the loss of hosts, by protection, at the recorded pace.

Every operator has a host of its own and a backup that is not lost, as in the thesis. In
one run the host of the last operator goes, later those of the last two at once. Counted
from the loss:

    recovery_s   to the first frame past the loss, made by the last operator's next instance
    catchup_s    (null: not within a minute) from there until a frame is no later than frames were before the loss: than the latest of the last
                 ten and half a frame, since no two are equally late
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import holdfast as hf
from bench import thesis
from bench.report import say
from holdfast.engine.run.run import start_graph

__all__ = ["losses"]

CALM_MIN = 12  # frames before a loss; one that comes sooner would find units that are still warming up
TIMEOUT_S = 60


def losses(spark, name: str, data: Path, work: Path, kind: str, every: int, *, frame_ms: int) -> dict:
    interval = hf.frames(every)
    protection = (
        hf.uncoordinated(interval) if kind == "uncoordinated" else hf.ecoc(interval, extended=kind == "extended")
    )
    found = _lose(spark, name, data, work / "lost", protection, frame_ms, max(CALM_MIN, 2 * every))
    said = ", ".join(f"{what} {each['recovery_s']} + {each['catchup_s']} s" for what, each in found.items())
    say(f"{name} {kind} every {every} frames: recovery + catch-up: {said}")
    return found


def _lose(spark, name: str, data: Path, work: Path, protection, frame_ms: int, calm: int) -> dict:
    shutil.rmtree(work, ignore_errors=True)
    units = thesis.UNITS[name]
    hosts = {f"host_{unit}": str(work / "hosts" / unit) for unit in units}
    process = thesis.process(
        name, data, protection, frame_ms=frame_ms, sink=hf.write.callback(lambda table, frame: None),
        hosts=hosts, backup=hf.backup(str(work / "backup")),
    )  # fmt: skip
    last = thesis.LAST[name][0]
    with start_graph(process.graph(), state=work / "state", spark=spark, rate="1x", frames_at_once=1) as run:
        watch = _Watch(run, last, slack_s=frame_ms / 2000)
        found = {}
        for what, lost in (("single", thesis.LAST[name][:1]), ("multiple", thesis.LAST[name])):
            watch.until(lambda at=watch.processed: watch.processed >= at + calm)
            found[what] = watch.lose(lost, work / "hosts", work / "gone" / what)
        watch.close()
        run.stop()
    shutil.rmtree(work, ignore_errors=True)
    return found


class NotReached(Exception):
    pass


class _Watch:
    """When each frame came from the sources, when the last unit had it, and when it was down."""

    def __init__(self, run, unit: str, slack_s: float) -> None:
        self._run, self._unit, self._slack_s = run, unit, slack_s
        self._came: dict[int, float] = {}
        self._over = False
        self._down: list[float] = []
        self.made: list[tuple[int, float]] = []  # (frame, when), as the unit's position moved
        self.processed = 0
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        board, was_down = self._run.parts.board, False
        while not self._over and not self._run.finished:
            with board.changed:
                board.changed.wait(timeout=0.05)
                now = time.monotonic()
                for n in range(len(self._came) + 1, min(q.sealed for q in board.streams.values() if q.from_source) + 1):
                    self._came[n] = now
                unit = board.units[self._unit]
                if unit.condition != "RUNNING" and not was_down:
                    self._down.append(now)
                was_down = unit.condition != "RUNNING"
                if unit.processed != self.processed:
                    self.processed = unit.processed
                    self.made.append((unit.processed, now))

    def until(self, reached: Callable[[], bool]) -> None:
        board, deadline = self._run.parts.board, time.monotonic() + TIMEOUT_S
        with board.changed:
            while not reached():
                if time.monotonic() > deadline or self._run.finished:
                    raise NotReached(f"unit {self._unit} stands at {self.processed}")
                board.changed.wait(timeout=0.05)

    def late(self) -> list[float]:
        """Of the last ten frames: from the sources to the unit."""
        return [when - self._came[n] for n, when in self.made[-10:] if n in self._came]

    def lose(self, units: tuple[str, ...], hosts: Path, gone: Path) -> dict:
        gone.mkdir(parents=True)
        before, downs, lost_at = self.late(), len(self._down), time.monotonic()
        for unit in units:
            os.rename(hosts / unit, gone / unit)  # at once, as a host that is switched off
        self.until(lambda: len(self._down) > downs)
        down_at = self._down[downs]
        at = max(n for n, when in self.made if when <= down_at)

        def after(late_max: float) -> float | None:
            found = (when for n, when in self.made if when > down_at and n > at and when - self._came[n] <= late_max)
            return next(found, None)

        usual = max(before) + self._slack_s
        self.until(lambda: after(math.inf) is not None)
        with contextlib.suppress(NotReached):
            self.until(lambda: after(usual) is not None)
        since = [(n, when) for n, when in self.made if when > down_at]
        past, caught_up = after(math.inf), after(usual)
        return {
            "recovery_s": round(past - lost_at, 3),
            "catchup_s": None if caught_up is None else round(caught_up - past, 3),
            "noticed_s": round(down_at - lost_at, 3),
            "frames_made_again": max(0, at - min(n for n, _ in since)),
            "late_before_s": round(statistics.median(before), 3),
        }

    def close(self) -> None:
        self._over = True
        self._thread.join()
