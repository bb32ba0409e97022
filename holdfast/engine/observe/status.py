"""What a run says of itself: one typed snapshot, for progress, `status` and `--json`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from holdfast.engine.flow.gone import Gone
from holdfast.engine.flow.marking import Marker, Tally
from holdfast.engine.flow.promises import PromiseStatus
from holdfast.engine.flow.scheduler import Board

__all__ = [
    "SinkStatus",
    "SourceStatus",
    "Status",
    "UnitStatus",
    "snapshot",
    "why_degraded",
    "with_backups",
    "with_marks",
]


@dataclass(frozen=True, slots=True)
class SourceStatus:
    name: str
    sealed: int
    rows: int
    late: int
    waiting: int  # frames sealed and not yet taken by the slowest consumer
    waiting_bytes: int
    bytes_bound: int
    ended: bool
    bad: int = 0  # elements that could not be taken as declared: dropped or quarantined
    why: str = ""  # silent since ..., broker away since ...: what it would say if asked


@dataclass(frozen=True, slots=True)
class UnitStatus:
    name: str
    state: str  # RUNNING | WAITING | HELD | DONE | RESTARTING | PROBING | GIVEN_UP
    processed: int
    ms_per_frame: float
    why: str
    behind: int = 0  # frames a source has sealed and this unit has not done
    restarts: int = 0
    host: str = ""
    stored: int | None = None  # frame of its newest checkpoint elsewhere; None: it has no backup
    stored_s: float = 0.0  # how long ago that was stored
    lost: int = 0  # frames it sealed LOST
    tainted: int = 0  # frames it marked: made from something that is missing
    marked: str = ""  # the same in words, since when and why
    too_late: int = 0  # rows that came too late for the windows of its operators, and were dropped


@dataclass(frozen=True, slots=True)
class SinkStatus:
    name: str
    stream: str
    written: int
    rows: int
    state: str = "OK"  # | AWAY: its target does not answer
    why: str = ""
    lost: int = 0  # frames of its stream that are LOST
    tainted: int = 0  # frames of its stream that are marked
    marked: str = ""  # the same in words, since when and why
    left_out: int = 0  # rows that its target refused in this run, and that were set aside or dropped


@dataclass(frozen=True)
class Status:
    process: str
    state: str  # activating | running | stopping | stopped | finished | failed
    frame: int  # the lowest frame that every sink has, or every unit where there is no sink
    frames_per_s: float
    sources: tuple[SourceStatus, ...] = ()
    units: tuple[UnitStatus, ...] = ()
    sinks: tuple[SinkStatus, ...] = ()
    notes: tuple[str, ...] = ()
    delays: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""
    frame_last: int | None = None
    time_us: int | None = None
    params: dict[str, Any] = field(default_factory=dict)
    promises: tuple[PromiseStatus, ...] = ()
    degraded: str = ""  # why, in a sentence; empty while all is well
    degraded_s: float = 0.0  # for how long
    last_error: str = ""  # code and name of what a unit met last, even if it passed
    last_error_at: tuple[str, int] | None = None  # a stream of that unit, and the frame: for `holdfast trace`

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def snapshot(board: Board, of_sinks: Mapping[str, tuple[int, int]]) -> dict[str, Any]:
    """The board's part of a Status; `of_sinks`: rows that each has written, and that were refused. Called under the board's lock."""
    sources, units, sinks = [], [], []
    for queue in board.streams.values():
        if not queue.from_source:
            continue
        floor = min((max(n, queue.taken.get(c, 0)) for c, n in queue.acked.items()), default=queue.sealed)
        sources.append(
            SourceStatus(
                queue.name,
                queue.sealed,
                queue.rows,
                queue.late,
                max(0, queue.sealed - floor),
                queue.waiting_bytes(),
                queue.bytes_bound,
                queue.ended is not None,
                bad=0 if queue.live is None else queue.live.bad,
                why="" if queue.live is None else queue.live.remark() or getattr(queue.live, "progress", str)(),
            )
        )
    last = board.last_frame
    newest = max((queue.sealed for queue in board.streams.values() if queue.from_source), default=0)
    for unit in board.units.values():
        if unit.condition != "RUNNING":
            state = unit.condition
        elif last is not None and unit.processed >= last:
            state = "DONE"
        elif unit.permitted > unit.processed:
            state = "RUNNING"
        else:
            state = "HELD" if unit.held.startswith("held") else "WAITING"
        why = unit.held if unit.condition == "RUNNING" else unit.trouble
        behind = max(0, newest - unit.processed)
        units.append(UnitStatus(unit.name, state, unit.processed, round(unit.ms_mean, 1), why, behind, unit.restarts))
    for name, (stream, written) in board.sinks.items():
        away = board.sinks_away.get(name)
        said = ("AWAY", away.sentence(time.time())) if away is not None else ("OK", "")
        rows, left_out = of_sinks.get(name, (0, 0))
        sinks.append(SinkStatus(name, stream, written, rows, *said, left_out=left_out))
    done = [sink.written for sink in sinks] or [unit.processed for unit in units]
    frame = min(done, default=0)
    return {
        "sources": tuple(sources),
        "units": tuple(units),
        "sinks": tuple(sinks),
        "frame": frame,
        "frame_last": last,
        "time_us": board.clock.boundary_us(frame) if board.clock is not None and frame > 0 else None,
    }


def why_degraded(board: Board, sinks: Sequence[SinkStatus], promises: Sequence[PromiseStatus]) -> str:
    """Why the run is not well, in a sentence, or nothing. Called under the board's lock."""
    ill = [unit for unit in board.units.values() if unit.condition != "RUNNING" and unit.trouble]
    found = [f"unit {unit.name} {unit.condition.lower().replace('_', ' ')}: {unit.trouble}" for unit in ill]
    heard = [queue for queue in board.streams.values() if queue.live is not None]
    found += [f"source {queue.name} is {away}" for queue in heard if (away := queue.live.away())]
    found += [f"sink {sink.name} is {sink.state.lower()} {sink.why}" for sink in sinks if sink.why]
    found += [f"output {each.sink}: {each.promise} broken" for each in promises if each.state == "BROKEN"]
    if board.held_for_space:
        found.append(board.held_for_space)
    return "; ".join(found)


def with_backups(
    units: Sequence[UnitStatus], host_of: Mapping[str, str], ages: Mapping[str, tuple[int, int, float]]
) -> tuple[UnitStatus, ...]:
    """The units with their host and, where they have one, the age of their backup."""
    shown = []
    for unit in units:
        _, stored, seconds = ages.get(unit.name, (0, None, 0.0))
        shown.append(replace(unit, host=host_of[unit.name], stored=stored, stored_s=round(seconds, 1)))
    return tuple(shown)


def with_marks(parts: dict[str, Any], of_unit: Mapping[str, Marker], gone: Gone) -> None:
    """Units and sinks with what was LOST, what is marked and what came too late; sinks also what units before these left."""
    tallies = {stream: tally for marker in of_unit.values() for stream, tally in marker.tallies.items()}
    units = []
    for unit in parts["units"]:
        marker = of_unit[unit.name]
        most = max(marker.tallies.values(), key=lambda tally: (tally.tainted, tally.lost), default=Tally())
        late = sum(marker.too_late.values())
        units.append(replace(unit, lost=most.lost, tainted=most.tainted, marked=most.words(), too_late=late))
    sinks = []
    for sink in parts["sinks"]:
        tally = tallies.get(sink.stream, Tally()).plus(gone.tally(sink.stream))
        sinks.append(replace(sink, lost=tally.lost, tainted=tally.tainted, marked=tally.words()))
    parts["units"], parts["sinks"] = tuple(units), tuple(sinks)
