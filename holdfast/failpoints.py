"""The named moments in the life of a frame at which a run can be broken on purpose.

The engine calls `reach` at each. Unless a plan is armed (HOLDFAST_FAULTS, JSON: a list
of {point, frame, victim[, unit, mark]}), that is one comparison. A process is killed
with SIGKILL: the real thing, no clean-up, no exception. A unit is no process: its
attempt dies by an exception in its query, as by any that Spark or a user's code raises.
A logical host is a folder (`folder`): it is deleted with all that lies in it. Sealed frames
of a unit are deleted; state files of a unit and copies in a store are `damage`d (a byte of each is turned round) or `delete`d;
a store is slow, or does not answer, for a while.

A checkpoint is under way, and a unit is restarted, when they are: a fault planned there
strikes at the first such moment of the unit that is not before the frame.

`mark` is a file that says the fault was carried out. It outlives the run, so a fault
with a mark strikes once, however often the run is started again.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = [
    "AT_WORK", "CHECKPOINTING", "POINTS", "RECOVERING", "UnitKilled", "armed", "arming", "descendants", "marks_at_work",
    "reach", "stall_s", "store_trouble", "strike_here", "victims",
]  # fmt: skip

POINTS = (
    "sealed, not renamed",
    "renamed",
    "state committed",
    "sink written, not committed",
    "committed",
)
# In a Python worker, when the user's code has run and the frame is not written: only a worker can die there.
AT_WORK = "at work"
# Of a unit's checkpoint: it is about to be packed and sent; enough stores have it.
CHECKPOINTING = ("shipping", "stored")
# Of a unit that is started again: before its state is looked for; when it is in place.
RECOVERING = ("restoring", "restored")
_STALL = "stall"

_plan: list[dict] | None = None
_striking = threading.RLock()
_doomed: set[str] = set()  # units whose query is to die at its next point
_troubled: dict[str, tuple[float, float]] = {}  # store -> (seconds each request takes; < 0: it is refused, until when)


class UnitKilled(Exception):
    """The attempt of a unit that was to die here."""


def _faults() -> list[dict]:
    global _plan
    if _plan is None:
        _plan = json.loads(os.environ.get("HOLDFAST_FAULTS", "[]"))
    return _plan


@contextlib.contextmanager
def arming(plan: list[dict]) -> Iterator[None]:
    """Break what runs in this process meanwhile; nothing of the plan is left afterwards."""
    global _plan
    before, _plan = _plan, plan
    try:
        yield
    finally:
        _plan = before
        _doomed.clear()
        _troubled.clear()


def armed(point: str, frame: int, unit: str) -> dict | None:
    """The fault planned for this very moment, if any, and not yet carried out."""
    return next(iter(_due(point, frame, unit)), None)


def _due(point: str, frame: int, unit: str) -> list[dict]:
    late = point in CHECKPOINTING or point in RECOVERING
    return [
        fault
        for fault in _faults()
        if fault["point"] == point
        and (frame >= fault["frame"] if late else frame == fault["frame"])
        and fault.get("unit", unit) == unit
        and not fault.get("done")
        and not ("mark" in fault and Path(fault["mark"]).exists())
    ]


def reach(point: str, frame: int, unit: str) -> None:
    """Say that the run is at `point` of `frame`; strike if that was asked for."""
    if not _faults():
        return
    with _striking:
        # What only breaks files comes first: the others may not return.
        for fault in sorted(_due(point, frame, unit), key=lambda fault: fault["victim"] in ("unit", "driver", "jvm")):
            _strike(fault, point, frame, unit)
        if point not in CHECKPOINTING and unit in _doomed:
            _doomed.discard(unit)
            raise UnitKilled(f"killed on purpose at {point!r} of frame {frame}")


def _strike(fault: dict, point: str, frame: int, unit: str) -> None:
    words = f"{point} {frame} {unit}"
    match fault["victim"]:
        case "state":
            folder = Path(fault["folder"])
            if _harm(fault["harm"], [*folder.glob("runs/*/*.arrow"), *folder.glob("spark/*/state/**/*.*")]):
                _note(fault, words)
        case "frames":
            if _harm(fault["harm"], [path for folder in fault["folders"] for path in Path(folder).glob("*.arrow")]):
                _note(fault, words)
        case "copy":
            if _harm(fault["harm"], Path(fault["folder"]).glob("*")):
                _note(fault, words)
        case "host":
            _note(fault, words)
            shutil.rmtree(fault["folder"], ignore_errors=True)
        case "store":
            _note(fault, words)
            _troubled[fault["store"]] = (fault["each_s"], time.monotonic() + fault["seconds"])
        case "unit":
            _note(fault, words)
            _doomed.add(unit)  # a checkpoint is not on the query's own way: it dies at its next point
        case kind:
            _note(fault, words)
            for pid in victims(kind):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _harm(how: str, files: Iterable[Path]) -> int:
    """Damage or delete these files in place; how many there were."""
    harmed = 0
    for path in files:
        try:
            if how == "delete":
                path.unlink()
            elif size := path.stat().st_size:
                with open(path, "r+b") as file:
                    file.seek(size // 2)
                    byte = file.read(1)[0]
                    file.seek(size // 2)
                    file.write(bytes([byte ^ 0xFF]))
        except OSError:  # a folder, or gone meanwhile
            continue
        harmed += 1
    return harmed


def store_trouble(store: str) -> float:
    """Seconds a request to this store is to take; below 0: it is to fail."""
    if store not in _troubled:
        return 0.0
    each_s, until_s = _troubled[store]
    return each_s if time.monotonic() < until_s else 0.0


def marks_at_work(frame: int, unit: str) -> list[str]:
    """Of the faults planned for the worker that seals this frame: as many workers die as there are."""
    return [fault["mark"] for fault in _due(AT_WORK, frame, unit)] if _faults() else []


def strike_here(marks: Iterable[str]) -> None:
    """Kill this worker, once for each mark: Spark runs the task again in another."""
    for mark in marks:
        try:
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)


def stall_s(source: str, frame: int) -> float:
    """Seconds for which the source is to be silent before this frame."""
    fault = armed(_STALL, frame, source) if _faults() else None
    if fault is None:
        return 0.0
    _note(fault, f"stalled {frame} {source}")
    return fault["seconds"]


def _note(fault: dict, text: str) -> None:
    fault["done"] = True
    if fault.get("mark"):
        Path(fault["mark"]).write_text(text)


def victims(kind: str, driver: int | None = None) -> list[int]:
    """Process ids of a run: 'driver' is its own (by default this one), 'jvm' its Java, 'worker' Spark's Python workers."""
    driver = os.getpid() if driver is None else driver
    if kind == "driver":
        return [driver]
    below = descendants(driver)
    if kind == "jvm":
        return [pid for pid, command in below if "java" in command.split(" ")[0]]
    if kind == "worker":
        return _workers(below)
    raise ValueError(f"no such victim: {kind!r}")


def _workers(below: list[tuple[int, str]]) -> list[int]:
    """The forked workers, not the daemon that forks them (nor the JVM, whose options name it too)."""
    daemons = {pid for pid, command in below if "python" in command.split(" ")[0] and "daemon" in command}
    parents = {pid: parent for pid, parent, _ in _table()}
    return [pid for pid in daemons if parents.get(pid) in daemons]


def _table() -> list[tuple[int, int, str]]:
    rows = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        parent = int(stat.rsplit(")", 1)[1].split()[1])
        rows.append((int(entry.name), parent, command))
    return rows


def descendants(root: int) -> list[tuple[int, str]]:
    table = _table()
    found, frontier = [], {root}
    while frontier:
        below = [(pid, command) for pid, parent, command in table if parent in frontier]
        found += below
        frontier = {pid for pid, _ in below}
    return found
