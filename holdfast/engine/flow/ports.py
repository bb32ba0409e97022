"""From which frame on the input ports of units read, when the process was changed since the last run.

A port that was not there before finds what its stream still keeps. Over a feedback edge it is
empty before that, as it is in the first frames of a process; since when is in the deployment
("ports"), so that every restart takes the same frames for empty. Over any other edge the unit
would have to leave out frames: that is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from holdfast.engine.flow.queues import UnitInputState
from holdfast.engine.flow.scheduler import Board
from holdfast.errors import StateRefused
from holdfast.graph.units import UnitInput

__all__ = ["first_wanted", "known_ports", "stand_ports"]


def known_ports(old: Mapping[str, Any] | None, unit: str) -> Callable[[UnitInput | UnitInputState], int | None]:
    """Since which frame a port of the unit reads, by the deployment before; None if it had no such port."""
    if old is None or unit not in old.get("start", {}):
        return lambda port: None
    if (ports := old.get("ports")) is not None:
        return lambda port: ports.get(unit, {}).get(_key(port))
    streams = old.get("inputs", {}).get(unit)  # of a version that did not say more
    return lambda port: 1 if streams is None or port.stream in streams else None


def first_wanted(board: Board, resume_at: Mapping[str, int], stream: str) -> int:
    """The first frame of a stream that anybody wants; `resume_at`: by unit, the frame it goes on with."""
    ports = ((unit.name, port) for unit in board.units.values() for port in unit.inputs if port.stream == stream)
    return min((_wanted(port, resume_at[unit]) for unit, port in ports), default=1)


def _wanted(port: UnitInputState, resume_at: int) -> int:
    return max(1, port.since, resume_at - port.feedback_frames)


def stand_ports(
    board: Board, resume_at: Mapping[str, int], old: Mapping[str, Any] | None, *, once: Collection[str], has_hosts: bool
) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Since which frame each port reads, for the deployment; and what is to be said of it. `once`: sources that cannot be read again."""
    found: dict[str, dict[str, int]] = {}
    told: list[str] = []
    for unit in board.units.values():
        since = known_ports(old, unit.name)
        inputs = []
        for port in unit.inputs:
            known, first = since(port), _first(board, port.stream, resume_at[unit.name], once)
            port = replace(port, since=known or 1)
            if (wanted := _wanted(port, resume_at[unit.name])) < first:
                if known is None and port.feedback_frames:
                    port = replace(port, since=first)
                    told.append(
                        f"{unit.name} reads {port.stream} over a new feedback edge: it is empty up to frame {first - 1:,}"
                    )
                elif port.stream not in once and (known is None or not has_hosts):  # on hosts, it may be made again
                    raise _not_kept(unit.name, port, wanted, first, is_new=known is None)
            inputs.append(port)
        unit.inputs = tuple(inputs)
        found[unit.name] = {_key(port): port.since for port in inputs}
    return found, told


def _first(board: Board, stream: str, resume_at: int, once: Collection[str]) -> int:
    """The first frame of it that is there for who reads it from now on."""
    queue = board.streams[stream]
    if queue.from_source:
        return resume_at if stream in once else 1
    return min(queue.frames, default=queue.sealed + 1)


def _key(port: UnitInput | UnitInputState) -> str:
    return f"{port.stream}@{port.feedback_frames}"


def _not_kept(unit: str, port: UnitInputState, wanted: int, first: int, *, is_new: bool) -> StateRefused:
    why, do = "files of its queue were removed, or the disk lost them", "restore the state folder from a copy"
    if is_new:
        why = f"the unit did not read {port.stream!r} before, and those who did have these frames: they were deleted"
        do = (
            f"undo that change and run until {unit!r} stands where {port.stream!r} does (holdfast status), then change it;\n"
            "or give the operator another name, and its sink too: a new one begins where the process stands"
        )
    return StateRefused(
        "HF-R018",
        "InputNotKept",
        f"unit {unit!r} goes on with frame {wanted} of stream {port.stream!r}; the oldest one still kept is {first}.",
        why=why,
        effect="nothing was started; state, queues and sinks are untouched",
        do=do,
    )
