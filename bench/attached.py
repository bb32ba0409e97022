"""One run of a process with every setting beside it, and what each wrote to its backup."""

from __future__ import annotations

import shutil
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import holdfast as hf
from bench import thesis
from bench.report import say
from holdfast.engine.protect.shadow import Beside
from holdfast.engine.run.run import start_graph
from holdfast.hosts.containers import read_container
from holdfast.hosts.places import Folder
from holdfast.hosts.sealed import from_json
from holdfast.hosts.stores import OpenStore
from holdfast.protocols.dialogue import ExtensionArrived, FrameProcessed, PinFrame, StoreCheckpoint

__all__ = ["Setting", "attached"]

# Of a sealed frame with so many elements, about.
FRAME_BYTES = {100: 3_500, 10_000: 202_000}


@dataclass(frozen=True)
class Setting:
    kind: str  # "uncoordinated" | "ecoc" | "extended"
    ci: int  # the thesis' interval in elements; 0: as many elements as are within one frame
    every: int  # frames
    triggers: str
    phases: Mapping[str, int]

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.ci or 'frame'}" + ("" if self.kind == "uncoordinated" else f"-{self.triggers}")

    @property
    def protection(self):
        every = hf.frames(self.every)
        return (
            hf.uncoordinated(every)
            if self.kind == "uncoordinated"
            else hf.ecoc(every, extended=self.kind == "extended")
        )


@dataclass
class Counted:
    """Bytes written to one backup, by unit, frame and part."""

    by: dict[tuple[str, int, str], float] = field(default_factory=lambda: defaultdict(float))
    opening: int = 0  # marks and registers: once a run
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, path: str, content: bytes) -> None:
        folder, _, rest = path.partition("/")
        parts: dict[str, float] = {}
        frame = 0
        if rest.startswith("files/"):
            frame, parts = _shares(content)
        elif rest in ("manifest.json", "prepared.json"):
            frame, parts = from_json(content).frame, {"manifest": len(content)}
        with self.lock:
            if not parts:
                self.opening += len(content)
            for part, size in parts.items():
                self.by[folder, frame, part] += size

    def within(self, first: int, last: int) -> dict[tuple[str, str], float]:
        """(unit, part) -> bytes of checkpoints of frames after `first` up to `last`."""
        found: dict[tuple[str, str], float] = defaultdict(float)
        with self.lock:
            for (unit, frame, part), size in self.by.items():
                if first < frame <= last:
                    found[unit, part] += size
        return found

    def checkpoints(self, first: int, last: int) -> int:
        with self.lock:
            return sum(first < frame <= last for _, frame, part in self.by if part == "manifest")


def _shares(content: bytes) -> tuple[int, dict[str, float]]:
    """Of a container: its bytes by what is in it, as far as they can be told apart: by share before compression."""
    opened = read_container(content)
    record = len(str(opened.head["record"]))
    sizes = {
        "state": sum(len(own) for name, own in opened.files.items() if not name.startswith("streams/")),
        "frames": sum(len(own) for name, own in opened.files.items() if name.startswith("streams/")),
        "record": record,
        "head": len(str(opened.head)) - record,
    }
    whole = sum(sizes.values())
    return opened.head["frame"], {part: len(content) * size / whole for part, size in sizes.items()}


class CountedFolder(Folder):
    def __init__(self, root: Path, counted: Counted) -> None:
        super().__init__(root)
        self._counted = counted

    def write(self, path: str, content: bytes) -> None:
        super().write(path, content)
        self._counted.note(path, content)


class Heard:
    """Pending delay and extensions, from the words of the machines of one setting."""

    def __init__(self) -> None:
        self._pinned: dict[tuple[str, int], tuple[int, float]] = {}
        self._extended: set[tuple[str, int]] = set()
        self._lock = threading.Lock()
        self.pending: list[tuple[int, float]] = []  # (frame, seconds)
        self.extended: list[int] = []

    def __call__(self, unit: str, event: object, instructions: list) -> None:
        now = time.monotonic()
        with self._lock:
            if isinstance(event, ExtensionArrived):
                self._extended.add((unit, event.serial))
            for each in instructions:
                if isinstance(each, PinFrame):
                    self._pinned[unit, each.serial] = each.frame, now
                elif isinstance(each, StoreCheckpoint):
                    frame, since = self._pinned.pop((unit, each.serial))
                    self.pending.append((frame, now - since))
                    if (unit, each.serial) in self._extended:
                        self.extended.append(frame)


class Lags:
    """How far each producer is ahead of each consumer, and the bytes that went between them."""

    def __init__(self, wirings: Mapping, window: tuple[int, int]) -> None:
        self._wirings, self._window = wirings, window
        self._at: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()
        self.lags: dict[str, list[int]] = defaultdict(list)
        self.own_bytes = 0

    def saw(self, unit: str, event: object) -> None:
        if not isinstance(event, FrameProcessed):
            return
        first, last = self._window
        with self._lock:
            self._at[unit] = event.frame
            if not first < event.frame <= last:
                return
            for edge, size in zip(self._wirings[unit].inputs, event.input_bytes, strict=True):
                if not edge.outside:
                    self.own_bytes += size
            for edge in self._wirings[unit].outputs:
                if not edge.outside and not edge.delay:
                    self.lags[f"{unit}>{edge.consumer}"].append(event.frame - self._at[edge.consumer])


def attached(
    spark, name: str, data: Path, work: Path, tried: list[Setting], *, rows: int, frame_ms: int, window: tuple[int, int],
    rate: object = None, until: int | None = None,
) -> dict:  # fmt: skip
    """Run the process once with all settings beside it; figures by setting, of the frames within the window."""
    folder = work / "run"
    shutil.rmtree(folder, ignore_errors=True)
    counted = {each.name: Counted() for each in tried}
    heard = {each.name: Heard() for each in tried}
    lags: list[Lags] = []

    def listener(at: int, own: Heard):
        def hear(unit: str, event: object, instructions: list) -> None:
            own(unit, event, instructions)
            if at == 0 and lags:
                lags[0].saw(unit, event)

        return hear

    beside = []
    for at, each in enumerate(tried):
        place = folder / "stores" / each.name
        store = OpenStore("backup", str(place), place=CountedFolder(place, counted[each.name]))
        beside.append(
            Beside(each.name, each.protection, store, each.phases, seed=at, heard=listener(at, heard[each.name]))
        )
    seen = {"frame": 0}
    # Two frames between two units at most, and two that are processed and not yet acknowledged.
    queue = round(4.5 * FRAME_BYTES[rows]) if rows in FRAME_BYTES else "512 MB"
    process = thesis.process(
        name, data, hf.none, frame_ms=frame_ms, sink=hf.write.callback(lambda table, frame: seen.update(frame=frame)),
        hosts=("h1", "h2"), queue=queue,
    )  # fmt: skip
    began = time.monotonic()
    graph = process.graph()
    with start_graph(
        graph, state=folder / "state", spark=spark, frames_at_once=1, beside=beside, rate=rate, until_frame=until
    ) as run:
        lags.append(Lags(run.parts.guards.wirings, window))
        told = began
        while not run.finished:
            with run.parts.board.changed:
                run.parts.board.changed.wait(timeout=1.0)
                done = min(unit.processed for unit in run.parts.board.units.values())
            if time.monotonic() - told > 20:
                told = time.monotonic()
                say(f"  {name}: frame {done} of {until or window[1]}, {told - began:.0f} s")
        run.wait()
    seconds = time.monotonic() - began
    payload = (window[1] - window[0]) * rows * thesis.EDGES[name] * thesis.ELEMENT_BYTES[name]
    cells = {
        each.name: _cell(each, counted[each.name], heard[each.name], window, frame_ms, payload, lags[0].own_bytes)
        | _theirs(name, each, rows * 1000 // frame_ms)
        for each in tried
    }
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "frames": window[1],
        "seconds": round(seconds, 1),
        "lag_frames": {edge: round(statistics.mean(own), 2) for edge, own in lags[0].lags.items()},
        "payload_bytes": payload,
        "own_bytes": lags[0].own_bytes,
        "own_bytes_per_frame": round(lags[0].own_bytes / (window[1] - window[0]) / thesis.EDGES[name]),
        "cells": cells,
    }


def _cell(
    setting: Setting,
    counted: Counted,
    heard: Heard,
    window: tuple[int, int],
    frame_ms: int,
    payload: int,
    own_bytes: int,
) -> dict:
    first, last = window
    found = counted.within(first, last)
    total = sum(found.values())
    rounds = (last - first) / setting.every
    pending = [seconds for frame, seconds in heard.pending if first < frame <= last]
    extended = sum(first < frame <= last for frame in heard.extended)
    units, parts = ({key[at] for key in found} for at in (0, 1))
    return {
        "every_frames": setting.every,
        "rounds": round(rounds, 1),
        "checkpoints": len(pending),
        "bytes_per_round": round(total / rounds, 1),
        "kb_per_s": round(total / (last - first) / frame_ms, 3),
        "of_payload": round(total / payload, 5),
        "of_own_bytes": round(total / max(1, own_bytes), 5),
        "by_unit": {
            each: round(sum(n for key, n in found.items() if key[0] == each) / rounds, 1) for each in sorted(units)
        },
        "by_part": {
            each: round(sum(n for key, n in found.items() if key[1] == each) / rounds, 1) for each in sorted(parts)
        },
        "opening_bytes": counted.opening,
        "extended_share": round(extended / max(1, len(pending)), 4),
        "pending_s": round(statistics.mean(pending), 4) if pending else 0.0,
    }


def _theirs(name: str, setting: Setting, rate: int) -> dict:
    """The thesis' figures beside ours, where it has them."""
    measured = thesis.MEASURED[name].get(setting.kind) if rate == 200 else None
    kb_per_s = None if measured is None else measured[thesis.CIS.index(setting.ci)]
    per_round = None if kb_per_s is None else round(kb_per_s * 1000 * setting.ci / rate)
    return {"thesis_kb_per_s": kb_per_s, "thesis_bytes_per_round": per_round}
