"""The state runs of a unit on disk: which are kept, and moments of them that are pinned.

The runs that the newest commit records name stay, so that a lost last entry can be
redone; so do those of a pinned frame, until it is unpinned. All others go.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from pathlib import Path
from typing import Any

from holdfast.errors import invariant
from holdfast.hosts.near import Pin, pin_runs, pin_spark

__all__ = ["FRAMES_BACK", "RECORDS_KEPT", "StateFiles"]

# State runs referenced by the newest commit records stay, so that a lost last entry can be redone.
RECORDS_KEPT = 3
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
        self._lock = threading.Lock()  # a pin is set by whoever hears of a request

    def remember(self, record: dict[str, Any]) -> None:
        """Keep the runs of the newest records; remove files no kept record names."""
        with self._lock:
            self._recent.append((record["n"], _files(record["state"]), record))
            while len(self._recent) > self._kept:
                _, old, _ = self._recent.popleft()
                for file in old - self._named():
                    for name in self._operators:
                        (self.runs(name) / file).unlink(missing_ok=True)

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
