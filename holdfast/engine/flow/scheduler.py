"""The board of one run: what is sealed, processed, written and acknowledged, and who waits for whom.

Every thread of a run (sources, units, sinks, control) reads and writes it under
one condition. It decides one thing: whether a unit may take its next frame. A
frame is permitted when every input has it, the unit is not too far ahead of
itself, and no queue it fills is at its bound; otherwise the board says who holds
it back.

No Spark, no files: the files follow from what the board returns.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.engine.flow.queues import Permit, Sealed, StreamQueue, UnitInputState, frame_gone, made_otherwise
from holdfast.errors import HoldfastError, invariant
from holdfast.frames.clock import FrameClock
from holdfast.frames.identity import END_US

if TYPE_CHECKING:
    from holdfast.engine.flow.sink_runner import AwaySink

__all__ = ["Board", "Hold", "UnitState"]


@dataclass
class UnitState:
    name: str
    inputs: tuple[UnitInputState, ...]
    outputs: tuple[str, ...]
    depth: int = 0  # stages upstream that answer a frame late; the end reaches this unit so much later
    ahead: int = 2  # permits beyond what is processed: one in work, one to follow without a pause
    permitted: int = 0
    processed: int = 0
    rows: int = 0
    ms_last: float = 0.0
    ms_mean: float = 0.0
    held: str = ""
    condition: str = "RUNNING"  # | RESTARTING | PROBING | GIVEN_UP
    trouble: str = ""  # what the supervisor says of it
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Hold:
    why: str


class Board:
    def __init__(self, *, closing_frames: int) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.clock: FrameClock | None = None
        self.streams: dict[str, StreamQueue] = {}
        self.units: dict[str, UnitState] = {}
        self.sinks: dict[str, tuple[str, int]] = {}  # sink -> (stream, written)
        self.sinks_away: dict[str, AwaySink] = {}  # whose target does not answer; their frames wait
        self.closing_frames = closing_frames
        self.until: int | None = None
        self.stopping = False
        self.error: BaseException | None = None
        self.failed_source: BaseException | None = None
        self.held_for_space = ""
        self.left_out: set[str] = set()  # units that stand still for the rest of the run
        self._unreadable: dict[str, HoldfastError] = {}  # sink -> the frame it stumbled over
        self._below: dict[str, frozenset[str]] | None = None  # unit -> the sinks that anything it makes can reach
        self._forget: Callable[[str, Sealed], None] = lambda stream, sealed: None
        self._written: Callable[[str, int, int], None] = lambda sink, last, n: None
        self._acknowledged: list[Callable[[str, str, int], None]] = []

    def on_forget(self, forget: Callable[[str, Sealed], None]) -> None:
        """What to do with a frame nobody needs again (delete its file)."""
        self._forget = forget

    def on_written(self, written: Callable[[str, int, int], None]) -> None:
        """Who wants to know that a sink has the frames after `last` up to n."""
        self._written = written

    def on_acknowledged(self, acknowledged: Callable[[str, str, int], None]) -> None:
        """Who wants to know of an acknowledgement; told without the lock."""
        self._acknowledged.append(acknowledged)

    # ---- what happened ----

    def seal(self, stream: str, sealed: Sealed) -> None:
        with self.changed:
            queue = self.streams[stream]
            invariant(
                sealed.n == queue.sealed + 1 or sealed.n <= queue.sealed,
                f"frame {sealed.n} of {stream!r} sealed after {queue.sealed}",
            )
            if (known := queue.known.pop(sealed.n, None)) not in (None, sealed.checksum):
                raise made_otherwise(stream, sealed, known)
            queue.frames[sealed.n] = sealed
            if sealed.n > queue.sealed:
                queue.sealed = sealed.n
                queue.rows += sealed.rows
            queue.seen = max(queue.seen, queue.sealed)
            self.changed.notify_all()

    def maker_of(self, stream: str) -> str:
        """The unit that makes a stream."""
        return next(unit.name for unit in self.units.values() if stream in unit.outputs)

    def end(self, stream: str, last: int) -> None:
        with self.changed:
            self.streams[stream].ended = last
            self.changed.notify_all()

    def process(self, unit: str, n: int, ms: float) -> None:
        with self.changed:
            state = self.units[unit]
            state.processed = max(state.processed, n)
            for port in state.inputs:
                self.streams[port.stream].taken[unit] = state.processed - port.feedback_frames
            state.ms_last = ms
            state.ms_mean = ms if state.ms_mean == 0 else 0.9 * state.ms_mean + 0.1 * ms
            if self.left_out:
                self._pass_over()
            self.changed.notify_all()

    def lose(self, streams: Iterable[str]) -> set[str]:
        """The files of these streams are gone. Returns the units that were about to read one of them."""
        with self.changed:
            lost = {*streams}
            for stream in lost:
                queue = self.streams[stream]
                queue.known |= {n: sealed.checksum for n, sealed in queue.frames.items()}
                queue.frames, queue.sealed = {}, 0
            for unit in self.units.values():
                if lost & {*unit.outputs} and unit.condition == "RUNNING":
                    unit.condition = "RESTARTING"  # from here on; the supervisor says why
            self.changed.notify_all()
            return {
                unit.name
                for unit in self.units.values()
                if unit.permitted > unit.processed and any(port.stream in lost for port in unit.inputs)
            }

    def found_unreadable(self, sink: str, error: Exception | None) -> None:
        """A sink cannot read the file of a frame; None: it has another one, or gave up."""
        with self.changed:
            self._unreadable.pop(sink, None)
            if isinstance(error, HoldfastError):
                self._unreadable[sink] = error

    def unreadable(self) -> list[tuple[str, HoldfastError]]:
        with self.changed:
            return list(self._unreadable.items())

    def put_back(self, unit: str, at: int, frames: Mapping[str, dict[int, Sealed]], *, same: bool) -> None:
        """A unit goes on after an earlier frame; `frames` are those of its streams that came back with it.

        `same`: it makes what follows again as it was. One that lost its state does not, and nobody has seen that.
        """
        with self.changed:
            state = self.units[unit]
            state.permitted = state.processed = at
            for port in state.inputs:
                self.streams[port.stream].taken[unit] = at - port.feedback_frames
            for stream, own in frames.items():
                queue = self.streams[stream]
                queue.frames, queue.sealed = own, at
                queue.known = {n: checksum for n, checksum in queue.known.items() if same and n > at}
            self.changed.notify_all()

    def acknowledge(self, stream: str, consumer: str, n: int) -> None:
        """No restart of this consumer will ever need a frame up to n."""
        with self.changed:
            queue = self.streams[stream]
            queue.acked[consumer] = max(queue.acked[consumer], n)
            gone = queue.trim()
            self.changed.notify_all()
        for sealed in gone:
            self._forget(stream, sealed)
        for told in self._acknowledged:
            told(stream, consumer, n)

    def hold(self, stream: str, holder: str, n: int) -> None:
        """Somebody beside the consumers keeps the frames after n; nobody waits for that."""
        with self.changed:
            queue = self.streams[stream]
            queue.held[holder] = max(queue.held.get(holder, 0), n)
            gone = queue.trim()
        for sealed in gone:
            self._forget(stream, sealed)

    def write(self, sink: str, n: int) -> None:
        with self.changed:
            self._written(sink, self.sinks[sink][1], n)
            self.sinks[sink] = (self.sinks[sink][0], n)
            gone = self.keep_for_remaking()
            self.changed.notify_all()
        for stream, sealed in gone:
            self._forget(stream, sealed)

    def unwritten_after(self, unit: str) -> float:
        """The last frame that every sink below the unit has; without one below, any. Before sinks are known, none."""
        if self._acknowledged:
            return math.inf
        with self.changed:
            if self._below is None:
                return 0
            return min((self.sinks[sink][1] for sink in self._below.get(unit, ())), default=math.inf)

    def _sinks_below(self) -> dict[str, frozenset[str]]:
        """By unit, the sinks that anything it makes can reach."""
        reach = {name: {*state.outputs} for name, state in self.units.items()}
        for _ in self.units:
            for streams in reach.values():
                for other in self.units.values():
                    if streams & {port.stream for port in other.inputs}:
                        streams |= reach[other.name]
        return {
            name: frozenset(sink for sink, (stream, _) in self.sinks.items() if stream in streams)
            for name, streams in reach.items()
        }

    def keep_for_remaking(self) -> list[tuple[str, Sealed]]:
        """Inputs of frames that a sink has not written stay: such a frame can be made again. Never more than a queue holds."""
        gone: list[tuple[str, Sealed]] = []
        if self._acknowledged:  # units have hosts: what they made was handed on, and is not made otherwise
            return gone
        if self._below is None:  # units and sinks are all there, and stay so for the run
            self._below = self._sinks_below()
        for name, below in self._below.items():
            if not below:
                continue
            safe = min(self.sinks[sink][1] for sink in below)
            for port in self.units[name].inputs:
                queue, holder = self.streams[port.stream], f"remake {name} {port.feedback_frames}"
                queue.held[holder] = max(queue.held.get(holder, 0), safe - port.feedback_frames, queue.beyond_bound())
                gone += [(port.stream, sealed) for sealed in queue.trim()]
        return gone

    def await_written(self, streams: Iterable[str], n: int) -> None:
        """Until every sink of these streams has frame n, or the run fails."""
        own = {*streams}
        with self.changed:
            self.changed.wait_for(
                lambda: (
                    self.error is not None
                    or all(written >= n for stream, written in self.sinks.values() if stream in own)
                )
            )

    def sinks_are_done(self) -> bool:
        """All have what is sealed. Who wants to stop does not wait for one that is away: its frames are kept."""
        passed = self.sinks_away if self.stopping else ()
        return all(n >= self.streams[stream].sealed or name in passed for name, (stream, n) in self.sinks.items())

    def left_waiting(self) -> list[str]:
        """What a run that ends now leaves to the next one."""
        return [
            f"sink {name} is away: frames {written + 1} to {self.streams[stream].sealed} wait, sealed, for the next run"
            for name, (stream, written) in self.sinks.items()
            if name in self.sinks_away
        ]

    def fail(self, error: BaseException) -> None:
        with self.changed:
            if self.error is None:
                self.error = error
            self.stopping = True
            self.changed.notify_all()

    def fail_after_sealed(self, error: BaseException) -> None:
        """A source failed: frames that all sources have sealed are worked off first; nothing else is waited for."""
        with self.changed:
            whole = min(queue.sealed for queue in self.streams.values() if queue.from_source and queue.ended is None)
            self.until = whole if self.until is None else min(self.until, whole)
            self.failed_source = self.failed_source or error
            if all(unit.processed >= self.until for unit in self.units.values()):
                self.fail(error)
            self.changed.notify_all()

    def leave_out(self, unit: str) -> None:
        """This unit was given up: it and all below stand still and do not hold a source back.

        What a source gave can be read again from its log or files, so nothing waits for
        them in memory. A queue between units keeps their frames, up to its bound.
        """
        with self.changed:
            self.left_out.add(unit)
            while True:
                dry = {stream for name in self.left_out for stream in self.units[name].outputs}
                below = {u.name for u in self.units.values() if any(i.stream in dry for i in u.inputs)}
                if below <= self.left_out:
                    break
                self.left_out |= below
            self._pass_over()
            self.changed.notify_all()

    def _pass_over(self) -> None:
        """Sources do not wait for a unit from the moment on that it can take nothing more."""
        still = {name for name in self.left_out if self.is_idle(self.units[name])}
        for queue in self.streams.values():
            if queue.from_source:
                queue.left_out = still & {*queue.acked}

    def is_idle(self, unit: UnitState) -> bool:
        """It has nothing in work and, as things are, nothing to come."""
        if unit.condition == "GIVEN_UP":
            return True
        if unit.permitted > unit.processed or unit.condition != "RUNNING":
            return False
        if self.last_frame is not None and unit.processed >= self.last_frame:
            return True
        return unit.name in self.left_out and self._is_dry(unit)

    def _is_dry(self, unit: UnitState) -> bool:
        """Its next frame wants one that will not come in this run."""
        dry = {stream for name in self.left_out for stream in self.units[name].outputs}
        wanted = unit.permitted + 1
        return any(
            port.stream in dry and wanted - port.feedback_frames > self.streams[port.stream].sealed
            for port in unit.inputs
        )

    # ---- what may happen ----

    @property
    def last_data_frame(self) -> int | None:
        """Known once every source has ended; None while one may still speak."""
        return _last_of([queue.ended for queue in self.streams.values() if queue.from_source])

    @property
    def last_frame(self) -> int | None:
        """The last closing frame of a bounded run, or the one the user asked to stop at."""
        last = self.last_data_frame
        last = None if last is None else last + self.closing_frames
        if self.until is not None:
            last = self.until if last is None else min(last, self.until)
        return last

    def next_permit(self, unit: UnitState) -> Permit | Hold:
        n = unit.permitted + 1
        if unit.condition != "RUNNING":
            return Hold(unit.trouble)
        if unit.name in self.left_out and self._is_dry(unit):
            return Hold(f"held back by {self._given_up_above(unit)} (given up)")
        if self.stopping:
            return Hold("stopping")
        last = self.last_frame
        if last is not None and n > last:
            return Hold("done")
        if unit.permitted - unit.processed >= unit.ahead:
            return Hold("")
        if self.held_for_space:
            return Hold(self.held_for_space)
        taken: list[tuple[UnitInputState, Sealed | None]] = []
        for port in unit.inputs:
            wanted = n - port.feedback_frames
            if wanted < port.since:
                taken.append((port, None))
                continue
            queue = self.streams[port.stream]
            sealed = self._available(queue, wanted)
            if sealed is None:
                if queue.live is not None and (said := queue.live.remark()):
                    return Hold(f"held: source {port.stream} is {said}")
                return Hold(self._blamed(queue, wanted))
            taken.append((port, sealed))
        for stream in unit.outputs:
            queue = self.streams[stream]
            waiting = queue.waiting_bytes()
            # Frames permitted and not yet made will be about as large as the newest one.
            coming = (unit.permitted - unit.processed) * queue.newest_bytes()
            if waiting + coming >= queue.bytes_bound and waiting + coming > 0:
                return Hold(f"held back by {queue.slowest()}: queue {stream} is at its bound" if waiting else "")
        return Permit(n, self.boundary_us(n, unit.depth), self.boundary_us(n - 1, unit.depth), tuple(taken))

    def _given_up_above(self, unit: UnitState) -> str:
        dry = {name: {*self.units[name].outputs} for name in self.left_out}
        wanted = {port.stream for port in unit.inputs}
        direct = [name for name, streams in dry.items() if streams & wanted]
        own = [name for name in direct if self.units[name].condition == "GIVEN_UP"]
        return ", ".join(own or direct)

    def _blamed(self, queue: StreamQueue, wanted: int) -> str:
        """Who keeps frame `wanted` of this queue from being there."""
        if queue.from_source:
            return f"waits for frame {wanted} of source {queue.name}"
        maker = next((u for u in self.units.values() if queue.name in u.outputs), None)
        if maker is not None and maker.condition != "RUNNING":
            return f"held back by {maker.name} ({maker.condition.lower().replace('_', ' ')})"
        return f"waits for frame {wanted} of stream {queue.name}"

    def boundary_us(self, n: int, depth: int = 0) -> int:
        """End of frame n for a unit with so many late stages before it; END once nothing can follow.

        A unit may find its closing frame in a queue before the sources are read to their end again.
        """
        sources = [queue for queue in self.streams.values() if queue.from_source]
        last = _last_of([queue.ended if queue.ended is not None else queue.closed_at for queue in sources])
        invariant(self.clock is not None, f"boundary of frame {n} asked for before the clock was set")
        return END_US if last is not None and n > last + depth else self.clock.boundary_us(n)

    def _available(self, queue: StreamQueue, n: int) -> Sealed | None:
        if n <= queue.sealed:
            sealed = queue.frames.get(n)
            if sealed is None and self._acknowledged:  # units have hosts, and a host may take their past with it
                raise frame_gone(queue.name, n)
            invariant(sealed is not None, f"frame {n} of {queue.name!r} was trimmed and is needed again")
            return sealed
        if not queue.from_source or queue.ended is None:
            return None
        if any(other.sealed >= n for other in self.streams.values() if other.from_source):
            return Sealed(n, self.clock.boundary_us(n), 0, 0, "empty", 0)
        if self.last_data_frame is not None and n > self.last_data_frame:
            return Sealed(n, END_US, 0, 0, "empty", 0)
        return None


def _last_of(ends: list[int | None]) -> int | None:
    """Of all sources; None while one may still speak."""
    known = [end for end in ends if end is not None]
    return max(known) if known and len(known) == len(ends) else None
