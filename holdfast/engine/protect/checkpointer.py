"""The protections of a run at work: one checkpoint machine per unit, their words carried out.

Events go in (a frame is processed, a sink has written, a checkpoint is stored, a
neighbour speaks), instructions come out and are done here: pin the state of a frame,
pack and ship it, tell a neighbour, acknowledge. Acknowledgements reach the board, which
forgets what nobody needs again; so a frame is kept exactly as long as its protection
says. Nothing here is on the path of a frame but the pin, which takes milliseconds:
packing and shipping have threads of their own.

All machines are moved under one lock, one event after the other, in the order in which
the events came; between units of one run no word is lost. A new attempt of a unit has a
new epoch, and what an older one still says is refused by the fence.

Lock order: this lock, then the board's. Nobody who holds the board's calls in here.
"""

from __future__ import annotations

import math
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import networkx as nx

from holdfast.engine.flow.disks import full_while_running, is_full
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.unit.protection import Done, damaged_state
from holdfast.engine.unit.state_files import FRAMES_BACK
from holdfast.errors import Broken, HoldfastError, StateRefused
from holdfast.failpoints import reach
from holdfast.graph.model import Graph
from holdfast.graph.protections import Protection
from holdfast.graph.units import Unit
from holdfast.hosts.containers import Packer
from holdfast.hosts.local_checkpoint import link_frames
from holdfast.hosts.remembered import Remembered
from holdfast.hosts.sealed import PLAIN, Seal
from holdfast.hosts.shipping import Shipper
from holdfast.hosts.stores import OpenStore
from holdfast.protocols.checkpoint import PartialCheckpoint
from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointEvent,
    CheckpointInstruction,
    CheckpointMachine,
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
    CommitCheckpoint,
    DrawInterval,
    EdgeResumed,
    ExtensionArrived,
    FrameProcessed,
    IntervalDrawn,
    PinFrame,
    PrepareCheckpoint,
    RequestArrived,
    Restored,
    SendAck,
    SendExtension,
    SendRequest,
    StoreCheckpoint,
    UnpinFrame,
)
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.extended import Extended
from holdfast.protocols.fencing import Fence
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.messages import Manifest, Stage, Stamp
from holdfast.protocols.none import ACK_LAG, NoProtection
from holdfast.protocols.synchronised import Synchronised
from holdfast.protocols.uncoordinated import Uncoordinated
from holdfast.protocols.wiring import EdgeId, InputEdge, OutputEdge, Wiring

if TYPE_CHECKING:
    from holdfast.engine.unit.query import UnitQuery

__all__ = ["Done", "Guard", "Guards", "Stores", "machine_of", "wirings"]

# Protections that promise no more than to go on, and to name what is lost.
LOSSY = ("none", "checkpoint")
# An interval in elements is reached by counting, not by a number of frames.
_NEVER = 1 << 60
# A disk that is full may be cleared; asking once a second costs nothing.
_RETRY_S = 1.0
_UNTOUCHED = "the run stops here; sealed frames and sink tables are as they were"
_REPORT = "this is a defect of Holdfast: report it with this text"


@dataclass(frozen=True)
class Stores:
    """Where the checkpoints of one unit go."""

    opened: tuple[OpenStore, ...] = ()
    needed: int = 1


def wirings(units: Sequence[Unit], graph: Graph) -> dict[str, Wiring]:
    """The edges of every unit, as the protocols know them."""
    maker = {stream: unit.name for unit in units for stream in unit.outputs}
    links = nx.MultiDiGraph()
    links.add_nodes_from(unit.name for unit in units)
    for unit in units:
        links.add_edges_from((maker[port.stream], unit.name) for port in unit.inputs if port.stream in maker)
    circle = {name: i for i, part in enumerate(nx.strongly_connected_components(links)) for name in part}

    def on_cycle(one: str, other: str) -> bool:
        return circle[one] == circle[other] and (one != other or links.has_edge(one, one))

    # Who may lose acknowledges what it has processed, a little late, and stores nothing that could be waited for.
    lag = {unit.name: ACK_LAG if unit.protect.durability in LOSSY else 0 for unit in units}
    found = {}
    for unit in units:
        inputs, outputs = [], []
        for port in unit.inputs:
            made_by, edge = maker.get(port.stream), _edge(port.stream, unit.name, port.feedback_frames)
            if made_by is None:
                inputs.append(InputEdge(edge, f"source {port.stream}", port.feedback_frames, outside=True))
            else:
                inputs.append(InputEdge(edge, made_by, port.feedback_frames, on_cycle(made_by, unit.name)))
        for at, stream in enumerate(unit.outputs):
            for other in units:
                for port in other.inputs:
                    if port.stream == stream:
                        edge = _edge(stream, other.name, port.feedback_frames)
                        circles = on_cycle(unit.name, other.name)
                        outputs.append(
                            OutputEdge(edge, at, other.name, port.feedback_frames, circles, lag=lag[other.name])
                        )
            for sink in graph.sinks_of(stream):
                outputs.append(OutputEdge(_edge(stream, f"sink {sink.name}"), at, f"sink {sink.name}", outside=True))
        found[unit.name] = Wiring(unit.name, tuple(inputs), tuple(outputs))
    return found


def _edge(stream: str, consumer: str, delay: int = 0) -> EdgeId:
    return f"{stream}>{consumer}@{delay}" if delay else f"{stream}>{consumer}"


def machine_of(
    protection: Protection,
    frame_ms: int,
    wiring: Wiring,
    epoch: int,
    restored: Restored,
    triggers: bool = True,
    phase: int = 0,
) -> CheckpointMachine:
    """`triggers`: a coordinated unit that nobody asks begins rounds by its own interval, `phase` frames into it."""
    every = _NEVER
    if protection.every is not None and protection.every.unit != "elements":
        count = protection.every.count
        every = max(1, math.ceil(count / frame_ms)) if protection.every.unit == "ms" else count
    if protection.durability == "ecoc":
        if protection.two_phase:
            return Synchronised(wiring, every, epoch, restored, phase % every, triggers, back=FRAMES_BACK)
        return (Extended if protection.extended else Ecoc)(wiring, every, epoch, restored, phase % every, triggers)
    kind = {"none": NoProtection, "checkpoint": PartialCheckpoint, "uncoordinated": Uncoordinated}[
        protection.durability
    ]
    return kind(wiring, every, epoch, restored)


@dataclass
class Guard:
    """One unit's protection: its machine, its packer, its way to the stores."""

    unit: UnitQuery
    wiring: Wiring
    machine: CheckpointMachine
    stamp: Stamp
    packer: Packer | None
    shipper: Shipper | None = None
    packing: queue.SimpleQueue = field(default_factory=queue.SimpleQueue)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)  # bytes of a checkpoint under way, by serial
    acked: dict[EdgeId, int] = field(default_factory=dict)  # what it acknowledged, by input edge
    rows: int = 0  # since the last checkpoint it began
    stored_s: float = 0.0
    is_over: bool = False


class Guards:
    seal: Seal = PLAIN  # of what is packed, and what is remembered of it: set by `recovery`
    memory: Remembered | None = None

    def __init__(
        self,
        graph: Graph,
        units: Sequence[Unit],
        board: Board,
        *,
        fail: Callable[[BaseException], None],
        chance: random.Random | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._graph, self._board, self._fail, self._now = graph, board, fail, now
        self._chance = chance if chance is not None else random.Random()
        self.wirings = wirings(units, graph)
        self._protections = {unit.name: unit.protect for unit in units}
        self._streams = {unit.name: unit.outputs for unit in units}
        self._guards: dict[str, Guard] = {}
        self._stores: dict[str, Stores] = {unit.name: Stores() for unit in units}
        self._stored: dict[str, int] = {unit.name: 0 for unit in units}
        self._newest: dict[str, Manifest] = {}
        self.troubles: dict[tuple[str, str], str] = {}  # (unit, store) -> what it said
        self.followers: Sequence[Guards] = ()  # other protections that hear of the same frames
        self._fence = Fence()
        self._lock = threading.RLock()
        self._todo: deque[tuple[str, CheckpointEvent]] = deque()
        self._is_draining = False
        board.on_acknowledged(self._sink_acked)

    # ---- who is guarded ----

    def settle(self, unit: str, stores: Stores, stored: int, newest: Manifest | None) -> None:
        """Before a unit starts: where its checkpoints are, and which is the newest."""
        with self._lock:
            self._stores[unit], self._stored[unit] = stores, stored
            if newest is None:
                self._newest.pop(unit, None)
            else:
                self._newest[unit] = newest

    def stored(self, unit: str) -> int:
        """The position of the newest checkpoint a restart could fall back to; for a partial protection, what may be acked."""
        with self._lock:
            return self._stored[unit]

    def safe(self, unit: str, committed: int) -> int:
        """What no restart of a unit that stands at `committed` will need again."""
        with self._lock:
            return committed - ACK_LAG if self.is_lossy(unit) else min(self._stored[unit], committed)

    def keeps_nothing(self, unit: str) -> bool:
        return self._protections[unit].durability == "none"

    def is_lossy(self, unit: str) -> bool:
        return self._protections[unit].durability in LOSSY

    def join(self, query: UnitQuery, at: int, epoch: int) -> None:
        """An instance starts at this frame. Its neighbours hear of it."""
        name = query.unit.name
        with self._lock:
            wiring, stamp = self.wirings[name], Stamp(name, 0, epoch)
            self._fence.admit(stamp)
            acked = tuple((edge.edge, self._acked_by(name, edge)) for edge in wiring.outputs)
            stored = min(self._stored[name], at) if self.is_lossy(name) else self._stored[name]
            above = {edge.producer for edge in wiring.inputs if not edge.outside and edge.producer != name}
            asked = any(self._protections[producer].durability == "ecoc" for producer in above)
            machine = machine_of(
                self._protections[name], self._graph.frame_ms, wiring, epoch, Restored(at, stored, acked),
                triggers=wiring.is_source or not asked, phase=self._phase(name),
            )  # fmt: skip
            guard = Guard(query, wiring, machine, stamp, None, stored_s=self._now())
            if (stores := self._stores[name]).opened:
                guard.packer = Packer(name, epoch, self._containers(query), seal=self.seal)
                if name in self._newest:
                    guard.packer.adopt(self._newest[name])
                guard.shipper = Shipper(
                    stamp, stores.opened, stores.needed, guard.packer.content,
                    on_shipped=lambda manifest, stage: self._shipped(guard, manifest, stage),
                    on_superseded=lambda: self._superseded(guard),
                    on_trouble=lambda store, error: self._trouble(guard, store, error),
                )  # fmt: skip
                threading.Thread(target=self._pack, args=(guard,), name=f"pack {name}", daemon=True).start()
            self._guards[name] = guard
            self._carry_out(guard, machine.start())
            for edge in wiring.inputs:
                if not edge.outside and edge.producer in self._guards:
                    self._todo.append((edge.producer, EdgeResumed(edge.edge)))
            if guard.shipper is not None and stored == 0 < at:
                self._todo.append((name, CheckpointWanted()))  # its copies are gone, or it never had one
            self._drain()
        for each in self.followers:
            each.join(query, at, epoch)

    def store_lost(self, store: str) -> None:
        """A host that keeps copies is gone: whoever kept one there brings it again."""
        with self._lock:
            for guard in self._guards.values():
                if guard.shipper is not None and not guard.is_over:
                    guard.shipper.again(store)

    def leave(self, name: str) -> None:
        """The instance is gone: nothing it started goes on."""
        for each in self.followers:
            each.leave(name)
        with self._lock:
            guard = self._guards.pop(name, None)
            if guard is None:
                return
            guard.is_over = True
        guard.packing.put(None)
        if guard.shipper is not None:
            guard.shipper.close()

    def close(self) -> None:
        for name in list(self._guards):
            self.leave(name)

    # ---- what happens ----

    def processed(self, name: str, done: Done) -> None:
        for each in self.followers:
            each.processed(name, done)
        with self._lock:
            guard = self._guards.get(name)
            if guard is None:
                return
            guard.rows += done.rows
            self._todo.append(
                (name, FrameProcessed(done.n, (), done.state_bytes, done.input_bytes, self._is_due(name, guard)))
            )
            self._drain()
            if not guard.machine.asking and self._is_half_full(name):
                self._todo.append((name, CheckpointWanted()))
                self._drain()

    def _is_due(self, name: str, guard: Guard) -> bool:
        """Whether an interval in elements is over."""
        every = self._protections[name].every
        if every is None or every.unit != "elements" or guard.rows < every.count:
            return False
        guard.rows = 0
        return True

    def _is_half_full(self, name: str) -> bool:
        with self._board.changed:
            return any(
                2 * each.unacked_bytes() >= each.bytes_bound
                for each in map(self._board.streams.__getitem__, self._streams[name])
            )

    def _sink_acked(self, stream: str, consumer: str, n: int) -> None:
        if not consumer.startswith("sink "):
            return
        with self._lock:
            for name, streams in self._streams.items():
                if stream in streams and name in self._guards:
                    self._todo.append((name, AckArrived(_edge(stream, consumer), n, {})))
            self._drain()

    def _shipped(self, guard: Guard, manifest: Manifest, stage: Stage) -> None:
        with self._lock:
            if guard.is_over:
                return
            name = guard.wiring.unit
            if stage is Stage.PREPARE:
                self._todo.append((name, CheckpointPrepared(manifest.serial)))
            else:
                guard.packer.stored(manifest)
                guard.manifests.pop(manifest.serial, None)
                self._newest[name] = manifest
                if self.memory is not None:
                    self.memory.note_stored(manifest)
                self._stored[name], guard.stored_s = manifest.frame, self._now()
                self._reached("stored", manifest.frame, name)
                self._todo.append((name, CheckpointStored(manifest.serial, guard.sizes.pop(manifest.serial))))
            for key in [key for key in self.troubles if key[0] == name]:
                del self.troubles[key]
            self._drain()

    def _superseded(self, guard: Guard) -> None:
        self._fail(
            StateRefused(
                "HF-R013",
                "UnitTakenOver",
                f"another run works on unit {guard.wiring.unit!r}: a backup store refused this one.",
                where=", ".join(store.name for store in self._stores[guard.wiring.unit].opened),
                why="its stores have granted a higher epoch",
                effect="this run stops; what it stored before is kept, nothing of it is lost",
                do="find the other run and stop one of the two; each needs stores of its own",
            )
        )

    def _trouble(self, guard: Guard, store: str, error: Exception) -> None:
        with self._lock:
            self.troubles[guard.wiring.unit, store] = str(error)

    # ---- one event after the other ----

    def _drain(self) -> None:
        """Called with the lock held. Whoever is draining already takes what was added."""
        if self._is_draining:
            return
        self._is_draining = True
        try:
            while self._todo:
                name, event = self._todo.popleft()
                guard = self._guards.get(name)
                if guard is not None and not guard.is_over:
                    instructions = guard.machine.handle(event)
                    self._heard(name, event, instructions)
                    self._carry_out(guard, instructions)
        except HoldfastError as error:
            self._fail(error)
        except BrokenInvariant as error:
            self._fail(Broken("HF-X001", "Broken", str(error), effect=_UNTOUCHED, do=_REPORT))
        finally:
            self._is_draining = False

    def _carry_out(self, guard: Guard, instructions: list[CheckpointInstruction]) -> None:
        for instruction in instructions:
            if guard.is_over:
                return
            match instruction:
                case PinFrame(serial, frame):
                    self._pin(guard, serial, frame)
                case UnpinFrame(serial):
                    guard.unit.files.unpin(self._key(serial))
                case StoreCheckpoint(serial, frame, queues):
                    guard.packing.put((serial, frame, queues, Stage.FINAL, self._with_queue(guard, serial, queues)))
                case PrepareCheckpoint(serial, frame, queues):
                    guard.packing.put((serial, frame, queues, Stage.PREPARE, self._with_queue(guard, serial, queues)))
                case CommitCheckpoint(serial):
                    guard.shipper.ship(guard.manifests[serial], Stage.COMMIT)
                case DrawInterval(least, most):
                    frames = _NEVER if least > _NEVER // 4 else self._chance.randint(least, most)
                    self._todo.append((guard.wiring.unit, IntervalDrawn(frames)))
                case SendRequest(edge, serial, frame, ids, extendable):
                    consumer = next(e.consumer for e in guard.wiring.outputs if e.edge == edge)
                    self._todo.append(
                        (consumer, RequestArrived(edge, guard.stamp.epoch, serial, frame, ids, extendable))
                    )
                case SendExtension(edge, epoch, serial, after, whole):
                    self._todo.append(
                        (self._producer(guard, edge), ExtensionArrived(edge, epoch, serial, after, whole))
                    )
                case SendAck(edge, frame, loads):
                    self._acknowledge(guard, edge, frame)
                    self._todo.append((self._producer(guard, edge), AckArrived(edge, frame, loads)))
                case _:
                    assert_never(instruction)

    def _pin(self, guard: Guard, serial: int, frame: int) -> None:
        """Whoever speaks for this unit, a file that is missing is its own trouble and nobody else's."""
        try:
            guard.unit.files.pin(self._key(serial), frame)
        except (OSError, StateRefused) as error:
            guard.is_over = True
            if is_full(error):
                effect = "nothing is lost; the unit is started again when there is room"
                guard.unit.give_in(full_while_running(str(guard.unit.folder), error, effect))
                return
            guard.unit.give_in(error if isinstance(error, StateRefused) else damaged_state(guard.unit.folder, error))

    def _producer(self, guard: Guard, edge: EdgeId) -> str:
        return next(e.producer for e in guard.wiring.inputs if e.edge == edge)

    def _acknowledge(self, guard: Guard, edge: EdgeId, frame: int) -> None:
        """A unit may read one stream by several ports: it needs what the slowest of them needs."""
        guard.acked[edge] = max(guard.acked.get(edge, 0), frame)
        stream = edge.split(">")[0]
        ports = [e.edge for e in guard.wiring.inputs if e.edge.split(">")[0] == stream]
        safe = min(guard.acked.get(port, 0) for port in ports)
        if safe > 0:
            self._board.acknowledge(stream, guard.wiring.unit, safe)

    # ---- what protections beside the declared one do otherwise (`engine.protect.shadow`) ----

    def _phase(self, name: str) -> int:
        return 0

    def _key(self, serial: int) -> int | str:
        """Under which a moment of a unit is pinned."""
        return serial

    def _containers(self, query: UnitQuery) -> Path:
        return query.folder / "containers"

    def _reached(self, point: str, frame: int, name: str) -> None:
        reach(point, frame, name)

    def _heard(self, name: str, event: CheckpointEvent, instructions: list[CheckpointInstruction]) -> None:
        """Who wants to follow the machines' words."""

    def _acked_by(self, name: str, edge: OutputEdge) -> int:
        with self._board.changed:
            stream = self._streams[name][edge.port]
            acked = self._board.streams[stream].acked.get(edge.consumer, 0)
        if edge.outside:
            return acked
        other = self._guards.get(edge.consumer)
        return other.acked.get(edge.edge, acked) if other is not None else acked

    def _with_queue(self, guard: Guard, serial: int, queues: tuple[tuple[EdgeId, int], ...]) -> Any:
        """The pinned state, with the unacknowledged frames that go along; linked now, before one of them is trimmed."""
        pin = guard.unit.files.pinned(self._key(serial))
        after = dict(queues)
        wanted: dict[str, int] = {}
        for edge in guard.wiring.outputs:
            if edge.edge in after:
                stream = self._streams[guard.wiring.unit][edge.port]
                wanted[stream] = min(wanted.get(stream, pin.frame), after[edge.edge])
        frames = []
        with self._board.changed:
            for stream, first in wanted.items():
                held = self._board.streams[stream].frames
                frames += [(stream, Path(held[n].file)) for n in range(first + 1, pin.frame + 1) if n in held]
        return link_frames(pin, frames)

    # ---- packing, beside the frames ----

    def _pack(self, guard: Guard) -> None:
        while (work := guard.packing.get()) is not None and not guard.is_over:
            serial, frame, queues, stage, pin = work
            self._reached("shipping", frame, guard.wiring.unit)
            while not guard.is_over:
                try:
                    manifest = guard.packer.pack(serial, frame, queues, pin.files, record=pin.record)
                    guard.sizes[serial] = len(guard.packer.content(manifest.files[0]))
                except FileNotFoundError as error:
                    # Its host is gone, or a file of its state: it is put back, and this checkpoint is no more.
                    guard.is_over = True
                    guard.unit.give_in(damaged_state(guard.unit.folder, error))
                    return
                except OSError as error:  # a full disk, say: no frame waits for this until a queue is at its bound
                    self._trouble(guard, "near", error)
                    time.sleep(_RETRY_S)
                except Exception as error:  # a defect: without this, checkpoints would end without a word
                    self._fail(error)
                    return
                else:
                    guard.manifests[serial] = manifest
                    guard.shipper.ship(manifest, stage)
                    break

    # ---- what can be said ----

    def held_after(self, unit: str, stream: str, consumer: str, delay: int) -> int:
        """The newest checkpoint holds the frames of this edge after this one; its own position if it holds none."""
        with self._lock:
            manifest = self._newest.get(unit)
            queues = {} if manifest is None else dict(manifest.queues)
            return queues.get(_edge(stream, consumer, delay), self._stored[unit])

    def ages(self) -> dict[str, tuple[int, int, float]]:
        """By unit: frame processed, frame stored, seconds since that was stored."""
        with self._lock:
            return {
                name: (guard.unit.committed, self._stored[name], self._now() - guard.stored_s)
                for name, guard in self._guards.items()
                if guard.shipper is not None
            }
