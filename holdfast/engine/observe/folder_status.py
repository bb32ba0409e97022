"""What a state folder says of its process: asked of the run that holds it, or read from what it left.

A folder nobody holds still knows how far each source has sealed, each unit has committed and
each sink has written, and which parameters were changed. It says nothing of rows that wait or of
promises: those are known while a run measures them.

Reads; changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from holdfast.engine.flow.parameters import Config
from holdfast.engine.flow.promises import PromiseStatus
from holdfast.engine.observe.control import call
from holdfast.engine.observe.status import SinkStatus, SourceStatus, Status, UnitStatus
from holdfast.errors import StateRefused, UsageError
from holdfast.frames.clock import FrameClock
from holdfast.graph.model import Param
from holdfast.records.kept import Kept
from holdfast.sinks.ledger_reader import entry_in

__all__ = ["folder_status", "from_json", "left_behind"]

_PARTS = {"sources": SourceStatus, "units": UnitStatus, "sinks": SinkStatus, "promises": PromiseStatus}


def folder_status(root: Path) -> Status:
    """Of the run that holds the folder; where none does, of what the last one left."""
    root = Path(root).absolute()
    if not Kept(root).in_use:
        return left_behind(root)
    answer = call(root, {"do": "status"})
    if "error" in answer and "exit" in answer:
        kind = StateRefused if answer["exit"] == StateRefused.exit_code else UsageError
        raise kind(answer.get("code") or "HF-E013", "NotUnderstood", str(answer["error"]).splitlines()[0])
    return from_json(answer)


def from_json(answer: Mapping[str, Any]) -> Status:
    """A Status from its `to_json()`. Fields of another version are left out."""
    known = {each.name for each in fields(Status)}
    values = {key: value for key, value in answer.items() if key in known}
    for name, kind in _PARTS.items():
        taken = {each.name for each in fields(kind)}
        values[name] = tuple(
            kind(**{key: value for key, value in part.items() if key in taken}) for part in values.get(name, ())
        )
    for name in ("notes", "delays"):
        values[name] = tuple(values.get(name, ()))
    if values.get("last_error_at") is not None:
        values["last_error_at"] = tuple(values["last_error_at"])
    return Status(**values)


def left_behind(root: Path) -> Status:
    """What the last run left: `state` is "stopped", or "killed" where it had no time to say goodbye."""
    kept = Kept(root)
    deployment = kept.deployment
    was_killed = (root / "control.json").exists()
    sources = tuple(_source(kept, name) for name in kept.sources)
    done = {
        unit: max((each["n"] for each in kept.commits(unit)), default=start)
        for unit, start in deployment.get("start", {}).items()
    }
    newest = max((source.sealed for source in sources), default=0)
    units = tuple(
        UnitStatus(name, "STOPPED", n, 0.0, "no run holds the folder", behind=max(0, newest - n))
        for name, n in done.items()
    )
    sinks = tuple(_sink(kept, name, done) for name in deployment.get("targets", {}))
    frame = min([sink.written for sink in sinks] or list(done.values()), default=0)
    t0_us = deployment.get("t0_us")
    clock = None if t0_us is None else FrameClock(t0_us, deployment["frame_ms"] * 1000)
    last = next((each for each in reversed(kept.incidents) if each.code), None)
    return Status(
        process=kept.process,
        state="killed" if was_killed else "stopped",
        frame=frame,
        frames_per_s=0.0,
        sources=sources,
        units=units,
        sinks=sinks,
        notes=("no run holds the folder: this is what the last one left",),
        time_us=clock.boundary_us(frame) if clock is not None and frame > 0 else None,
        params=_params(root, frame),
        last_error=f"{last.code}" if last is not None else "",
    )


def _source(kept: Kept, name: str) -> SourceStatus:
    seals = kept.seals(name)
    folder = kept.root / "sources" / name
    return SourceStatus(
        name,
        sealed=max(seals, default=0),
        rows=sum(seal["rows"] for seal in seals.values()),
        late=sum(seal["late"] for seal in seals.values()),
        waiting=0,
        waiting_bytes=0,
        bytes_bound=0,
        ended=(folder / "end.json").exists(),
    )


def _sink(kept: Kept, name: str, done: Mapping[str, int]) -> SinkStatus:
    """What has left the queue was written; of what is still there the sink's ledger knows, where it can be read from here."""
    target = kept.deployment["targets"][name]
    stream = target["stream"]
    sealed = done.get(kept.unit_of(stream), 0)
    low, high, why = min(kept.queued(stream), default=sealed + 1) - 1, sealed, ""
    while low < high:  # written are the first of them, so the border is found by halves
        middle = (low + high + 1) // 2
        entry = entry_in(target, kept.process, name, middle)
        if entry.has is None:
            why = f"at least; frames up to {sealed:,} are sealed, and {entry.why}"
            break
        low, high = (middle, high) if entry.has else (low, middle - 1)
    return SinkStatus(name, stream, max(0, low), 0, "STOPPED", why)


def _params(root: Path, frame: int) -> dict[str, Any]:
    if not (root / "config").is_dir():
        return {}
    changes = Config(root / "config", ()).changes()
    return Config(root / "config", tuple(Param(name, None) for name in {each.name for each in changes})).at(frame + 1)
