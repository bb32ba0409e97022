"""The named moments in the life of a frame at which a run can be broken on purpose.

The engine calls `reach` at each. Unless a plan is armed (HOLDFAST_FAULTS, JSON: a list
of {point, frame, victim[, unit, mark]}), that is one comparison. A process is killed
with SIGKILL: the real thing, no clean-up, no exception. A unit is no process: its
attempt dies by an exception in its query, as by any that Spark or a user's code raises.
A logical host is a folder (`folder`): it is deleted with all that lies in it.

`mark` is a file that says the fault was carried out. It outlives the run, so a fault
with a mark strikes once, however often the run is started again.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

__all__ = ["AT_WORK", "POINTS", "UnitKilled", "armed", "descendants", "reach", "stall_s", "strike_here", "victims"]

POINTS = (
    "sealed, not renamed",
    "renamed",
    "state committed",
    "sink written, not committed",
    "committed",
)
# In a Python worker, when the user's code has run and the frame is not written: only a worker can die there.
AT_WORK = "at work"
_STALL = "stall"

_plan: list[dict] | None = None


class UnitKilled(Exception):
    """The attempt of a unit that was to die here."""


def _faults() -> list[dict]:
    global _plan
    if _plan is None:
        _plan = json.loads(os.environ.get("HOLDFAST_FAULTS", "[]"))
    return _plan


def armed(point: str, frame: int, unit: str) -> dict | None:
    """The fault planned for this very moment, if any, and not yet carried out."""
    for fault in _faults():
        if (
            fault["point"] == point
            and fault["frame"] == frame
            and fault.get("unit", unit) == unit
            and not fault.get("done")
            and not ("mark" in fault and Path(fault["mark"]).exists())
        ):
            return fault
    return None


def reach(point: str, frame: int, unit: str) -> None:
    """Say that the run is at `point` of `frame`; strike if that was asked for."""
    while _faults() and (fault := armed(point, frame, unit)) is not None:
        _note(fault, f"{point} {frame} {unit}")
        if fault["victim"] == "host":
            shutil.rmtree(fault["folder"], ignore_errors=True)
            continue
        if fault["victim"] == "unit":
            raise UnitKilled(f"killed on purpose at {point!r} of frame {frame}")
        for pid in victims(fault["victim"]):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def strike_here(mark: str) -> None:
    """Kill this worker, once: Spark runs the task again in another."""
    try:
        os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
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
    daemons = {
        pid for pid, command in below if "python" in command.split(" ")[0] and "daemon" in command
    }
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
