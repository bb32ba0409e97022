"""What a unit tells its workers of the frames they work on; the same types at both ends, JSON on the way.

A unit's plan is built once and executed for every frame. Which frame, is told by a local
property of the job (`FRAME_PROPERTY`), so nothing in the plan changes from frame to frame.
`to_json` makes the text of that property, in the driver; `from_json` reads it, in a task.

No Spark, no Arrow: every task imports this.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.protocols.taint import Mark
from holdfast.sources.reference import Reference

__all__ = ["FRAME_PROPERTY", "FrameJob", "FrameTask", "PortInput"]

FRAME_PROPERTY = "holdfast.frame"


@dataclass(frozen=True, slots=True)
class PortInput:
    """Where the rows of one port are: a file of ours ("": it has none), or references into the outside world."""

    file: str | None = None
    references: tuple[dict[str, Any], ...] = ()  # as `Reference.to_json` gives them: who reads the port parses them
    without: tuple[tuple[int, int], ...] = ()  # ranges of rows that are left out, counted from the first of the port

    @classmethod
    def of(cls, references: tuple[Reference, ...], without: list[list[int]]) -> PortInput:
        return cls(None, tuple(each.to_json() for each in references), _ranges(without))

    @classmethod
    def of_file(cls, file: str, without: list[list[int]]) -> PortInput:
        return cls(file, (), _ranges(without))

    def opened(self) -> Iterator[Reference]:
        return map(Reference.from_json, self.references)

    def _to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"references": list(self.references)} if self.file is None else {"file": self.file}
        return found | ({"without": self.without} if self.without else {})

    @classmethod
    def _from_json(cls, found: dict[str, Any]) -> PortInput:
        return cls(found.get("file"), tuple(found.get("references", ())), _ranges(found.get("without", ())))


@dataclass(frozen=True, slots=True)
class FrameTask:
    """One frame of a job."""

    n: int
    boundary_us: int
    since_us: int
    params: Mapping[str, Mapping[str, Any]]
    ports: Mapping[str, PortInput]
    strike: tuple[str, ...] = ()  # the worker that seals this frame is to die, once for each mark
    marks: Mapping[str, Mark] = field(default_factory=dict)  # by stream: it is TAINTED

    def _to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "n": self.n,
            "boundary_us": self.boundary_us,
            "since_us": self.since_us,
            "params": self.params,
            "ports": {key: port._to_json() for key, port in self.ports.items()},
        }
        if self.strike:
            found["strike"] = self.strike
        if self.marks:
            found["marks"] = {stream: mark.to_json() for stream, mark in self.marks.items()}
        return found

    @classmethod
    def _from_json(cls, found: dict[str, Any]) -> FrameTask:
        return cls(
            found["n"],
            found["boundary_us"],
            found["since_us"],
            found["params"],
            {key: PortInput._from_json(port) for key, port in found["ports"].items()},
            tuple(found.get("strike", ())),
            {stream: Mark(int(mark[0]), str(mark[1])) for stream, mark in found.get("marks", {}).items()},
        )


@dataclass(frozen=True, slots=True)
class FrameJob:
    """Several frames at once only if all operators of the unit are frame-aware; each is sealed as if it came alone."""

    epoch: int
    staging: str
    state: Mapping[str, Any]  # by operator, the files that are its state before the first frame
    frames: tuple[FrameTask, ...]
    probe: bool = False  # nothing of it is kept: rows are sought on which an operator raises

    def to_json(self) -> str:
        found: dict[str, Any] = {
            "epoch": self.epoch,
            "staging": self.staging,
            "state": self.state,
            "frames": [frame._to_json() for frame in self.frames],
        }
        return json.dumps(found | ({"probe": True} if self.probe else {}))

    @classmethod
    def from_json(cls, text: str) -> FrameJob:
        found = json.loads(text)
        frames = tuple(map(FrameTask._from_json, found["frames"]))
        return cls(found["epoch"], found["staging"], found["state"], frames, found.get("probe", False))


def _ranges(found: Any) -> tuple[tuple[int, int], ...]:
    return tuple((first, end) for first, end in found)
