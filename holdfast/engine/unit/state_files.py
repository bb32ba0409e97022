"""The state runs of a unit on disk: which are kept, and moments of them that are pinned.

The runs that the newest commit records name stay, so that a lost last entry can be
redone; so do those of a pinned frame, until it is unpinned. All others go.
"""

from __future__ import annotations

import math
import shutil
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.errors import invariant
from holdfast.hosts.local_checkpoint import Pin, pin_runs, pin_spark

__all__ = ["FRAMES_BACK", "RECORDS_KEPT", "RECORDS_UNWRITTEN", "StateFiles"]

# State runs referenced by the newest commit records stay, so that a lost last entry can be redone.
RECORDS_KEPT = 3
# So many more stay while a sink below has not written their frames: such a frame can be made again (`holdfast remake`).
RECORDS_UNWRITTEN = 64
# A backup in two phases is of the frame asked for: so far may that lie behind the last one.
FRAMES_BACK = 8


class StateFiles:
    def __init__(self, folder: Path, operators: list[str], *, spark_epoch: int | None, two_phase: bool = False) -> None:
        """`spark_epoch`: of the Spark checkpoint, for a unit whose state Spark keeps."""
        # One more than can be asked for: a frame is committed a moment before its protection hears of it.
        self._kept = RECORDS_KEPT + FRAMES_BACK if two_phase else RECORDS_KEPT
        self._folder, self._operators, self._spark_epoch = folder, operators, spark_epoch
        self._recent: deque[tuple[int, frozenset[str], dict[str, Any]]] = deque()
        self._pins: dict[int | str, Pin] = {}
        self._held_from: int | None = None  # records from here on stay, however many
        self._lock = threading.Lock()  # a pin is set by whoever hears of a request
        self.unwritten_after: Callable[[], float] = lambda: math.inf  # the last frame that every sink below has

    def remember(self, record: dict[str, Any]) -> None:
        """Keep the runs of the newest records; remove files no kept record names."""
        with self._lock:
            self._recent.append((record["n"], _files(record["state"]), record))
            self._forget()

    def hold_from(self, frame: int) -> None:
        """Nothing older is needed after a loss of power; this and all after it are."""
        with self._lock:
            self._held_from = frame
            self._forget()

    def _forget(self) -> None:
        while (
            len(self._recent) > self._kept
            and (self._held_from is None or self._recent[0][0] < self._held_from)
            and (len(self._recent) > self._kept + RECORDS_UNWRITTEN or self._recent[0][0] < self.unwritten_after())
        ):
            _, old, _ = self._recent.popleft()
            for file in old - self._named():
                for name in self._operators:
                    (self.runs(name) / file).unlink(missing_ok=True)

    def named_by(self, n: int) -> set[Path] | None:
        """The files of the record of frame n; None if that is not among the newest."""
        with self._lock:
            record = next((record for at, _, record in self._recent if at == n), None)
        if record is None:
            return set() if not self._recent or n < self._recent[0][0] else None
        return {
            self.runs(name) / run[0]
            for name, shards in record["state"].items()
            for runs in shards.values()
            for run in runs
        }

    def named(self) -> set[Path]:
        """The files of all records that are kept."""
        with self._lock:
            return {self.runs(name) / file for name in self._operators for file in self._named()}

    @property
    def inputs(self) -> dict[int, list]:
        """What the newest frames were made of."""
        return {n: record["inputs"] for n, _, record in self._recent if "inputs" in record}

    def _named(self) -> frozenset[str]:
        return frozenset().union(*(files for _, files, _ in self._recent))

    def clear_strays(self) -> None:
        """What attempts left that never became state, state that is no longer ours, and pins of an instance that is gone."""
        shutil.rmtree(self._folder / "pins", ignore_errors=True)
        keep = self._named()
        for name in self._operators:
            for stray in self.runs(name).glob("*"):
                if stray.name not in keep:
                    stray.unlink(missing_ok=True)

    def runs(self, operator: str) -> Path:
        path = self._folder / "runs" / operator
        path.mkdir(parents=True, exist_ok=True)
        return path

    # ---- moments ----

    def pin(self, key: int | str, frame: int) -> None:
        """Keep the state after `frame` until it is unpinned."""
        with self._lock:
            record = next((record for n, _, record in self._recent if n == frame), None)
            invariant(record is not None, f"frame {frame} is to be pinned, its commit record is gone")
            if self._spark_epoch is None:
                self._pins[key] = pin_runs(self._folder, key, record)
            else:
                self._pins[key] = pin_spark(self._folder, key, record, self._spark_epoch)

    def pinned(self, key: int | str) -> Pin:
        return self._pins[key]

    def unpin(self, key: int | str) -> None:
        with self._lock:
            pin = self._pins.pop(key, None)
        if pin is not None:
            shutil.rmtree(pin.folder, ignore_errors=True)


def _files(state: dict[str, dict]) -> frozenset[str]:
    return frozenset(run[0] for shards in state.values() for runs in shards.values() for run in runs)
