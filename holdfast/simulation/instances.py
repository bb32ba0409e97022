"""One running instance of a unit: carries out what the protocol machines say.

This is the whole of what `hosts` does on Spark, with states that are hashes: it
processes frames, pins states by number, builds the files of a checkpoint (a base
that is shipped rarely, a delta against it, the frames of the queue), sends messages.
A frozen instance hears nothing and does nothing until it thaws; then it goes on as
if no time had passed, which is what makes it dangerous. What a dead one leaves on
its host's disk is its near checkpoint: state and queue, one failure domain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, assert_never

from holdfast.protocols.dialogue import (
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
    CommitCheckpoint,
    DrawInterval,
    FrameProcessed,
    IntervalDrawn,
    MessageArrived,
    OutputFrame,
    PeerFound,
    PinFrame,
    PrepareCheckpoint,
    ProcessFrame,
    Restored,
    Send,
    SkipFrames,
    StepDown,
    StoreCheckpoint,
    UnitInstruction,
    UnitMessage,
    UnpinFrame,
)
from holdfast.protocols.driving import carry_out_here
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.messages import (
    Manifest,
    Stage,
    Stamp,
    StoreAnswered,
)
from holdfast.protocols.shipping import SendToStore, Shipped, ShippingInstruction, Superseded
from holdfast.protocols.unit import LOST_CHECKSUM
from holdfast.protocols.wiring import EdgeId
from holdfast.simulation.graphs import next_state, outputs_of
from holdfast.simulation.world import ScheduleBroken

if TYPE_CHECKING:
    from holdfast.simulation.schedule import Schedule

__all__ = ["Instance", "restored_from"]

# A base is shipped again after this many checkpoints against it.
_CHECKPOINTS_PER_BASE = 4


class Instance:
    """Alive, frozen, or dead; `near_valid` says whether its disk can still be used."""

    def __init__(
        self,
        schedule: Schedule,
        unit: str,
        epoch: int,
        host: int,
        restored: Restored,
        state: int,
        base: tuple[int, str] | None,
        pins: dict[int, tuple[int, int]],
    ) -> None:
        self.schedule = schedule
        self.world = schedule.world
        self.unit = unit
        self.epoch = epoch
        self.host = host
        self.address = (unit, epoch)
        self.alive = True
        self.frozen = False
        self.near_valid = True
        self.states = {restored.frame: state}
        # The last frame at which a checkpoint was pending; until there is one, the first of this instance.
        self.busy_at = restored.frame
        self.inbox: list[tuple[str, object]] = []
        self.wiring = schedule.graph.wirings[unit]
        parts = schedule.parts
        stamp = Stamp(unit, 0, epoch)
        self.machine = parts.unit(
            self.wiring,
            schedule.protection(self.wiring, epoch, restored),
            stamp,
            restored,
            # The length of a source log is bounded by its retention, not by bytes.
            10**9 if unit.startswith("log:") else schedule.bytes_max,
            schedule.ahead,
        )
        self._orders: deque[UnitInstruction] = deque()
        self._is_carrying_out = False
        self._begun: deque[ProcessFrame] = deque()  # frames in work, in order
        self._is_working = False
        self.shipping = parts.shipping(stamp, schedule.store_names, schedule.needed)
        self._base = base
        self._since_base = 0
        self._manifests: dict[int, Manifest] = {}
        self.stored: Manifest | None = None
        # Serial to (frame, state), on the host's disk; an unpin may not be carried out
        # before a crash.
        self._pins = pins
        self._unpinned: dict[int, tuple[int, int]] = {}
        self.pins_left: dict[int, tuple[int, int]] = {}
        self._outside = ":" in unit
        self.keeps_near = not self._outside and schedule.protections.keeps_near(unit)
        self._ideal = schedule.ideal[unit]

    # ---- what happens to it ----------------------------------------------------------

    def start(self) -> None:
        self.carry_out(self.machine.start())

    def kill(self, near_valid: bool) -> None:
        if self.alive and near_valid:
            self._leave_pins()
        self.alive = False
        self.near_valid = self.near_valid and near_valid
        self.world.note(self.unit, f"epoch {self.epoch} killed, near {self.near_valid}")
        self.world.touched.add(self.unit)

    def _leave_pins(self) -> None:
        """The process died, its host's disk did not: pins may be there, or be torn."""
        rng = self.world.rng
        if rng.random() < 0.7:
            late = {s: pin for s, pin in self._unpinned.items() if rng.random() < 0.5}
            self.pins_left = {**late, **self._pins}

    def thaw(self) -> None:
        self.frozen = False
        inbox, self.inbox = self.inbox, []
        self.world.note(self.unit, f"epoch {self.epoch} wakes with {len(inbox)} waiting")
        for name, argument in inbox:
            if self.alive:
                getattr(self, name)(argument)

    def _sleeps(self, name: str, argument: object) -> bool:
        """Dead or frozen; a frozen one finds it when it wakes."""
        if not self.alive:
            return True
        if self.frozen:
            self.inbox.append((name, argument))
        return self.frozen

    def receive(self, message: UnitMessage) -> None:
        if self._sleeps("receive", message):
            return
        self.world.note(self.unit, message)
        checks = self.schedule.checks
        event = MessageArrived(message)
        try:
            if checks.hears(self, message):
                out = checks.refuse(self, message, lambda: self.machine.handle(event))
            else:
                out = self.machine.handle(event)
        except BrokenInvariant:
            # An instance that was replaced may meet what cannot be, and stop.
            if self.schedule.current[self.unit] is self:
                raise
            self.schedule.stepped_down(self, None)
            return
        self.carry_out(out)
        checks.heard(self, message)

    def peer_found(self, edge: EdgeId) -> None:
        if not self._sleeps("peer_found", edge):
            self.carry_out(self.machine.handle(PeerFound(edge)))

    def want_checkpoint(self, reason: str = "asked") -> None:
        if not self._sleeps("want_checkpoint", reason):
            self.carry_out(self.machine.handle(CheckpointWanted()))

    def store_answered(self, answer: StoreAnswered) -> None:
        if not self._sleeps("store_answered", answer):
            self._ship(self.shipping.answered(answer))

    def store_found(self, store: str) -> None:
        if not self._sleeps("store_found", store):
            self._ship(self.shipping.store_found(store))

    def frames_done(self, count: int) -> None:
        """The first of the frames in work are through: one, or a batch."""
        for left in range(count, 0, -1):
            if self._sleeps("frames_done", left):  # struck between two frames of a batch
                return
            self._frame_done(self._begun.popleft())
        self._is_working = False
        self._work()

    def _frame_done(self, order: ProcessFrame) -> None:
        frame = order.frame
        if self.schedule.faults.raises(self, frame):
            return
        # Before its first frame a feedback edge brings nothing; later, nothing is a loss.
        inputs = tuple(
            (0 if frame <= e.delay else LOST_CHECKSUM) if i is None else i.checksum
            for i, e in zip(order.inputs, self.wiring.inputs, strict=True)
        )
        state = next_state(self.states[frame - 1], frame, inputs)
        self.states[frame] = state
        outputs = outputs_of(self.wiring, state)
        self.schedule.checks.saw_state(self, frame, state)
        self.world.note(self.unit, order)
        size = 200 + state % 400
        self.schedule.checks.measured(self.unit, size)
        out = self.machine.handle(FrameProcessed(frame, outputs, size))
        if self.schedule.faults.struck_after_commit(self):
            return
        self.schedule.supervision.sealed(self, frame)
        self.carry_out(out)
        if self.alive:
            self.schedule.checks.processed(self, frame)

    # ---- what it does ----------------------------------------------------------------

    def carry_out(self, instructions: Iterable[UnitInstruction]) -> None:
        """In the order in which the machine gave them: what follows from one of them waits for the others."""
        self.world.touched.add(self.unit)
        self._orders += instructions
        if self._is_carrying_out:
            return
        self._is_carrying_out = True
        try:
            while self._orders and self.alive:
                self._carry_out(self._orders.popleft())
        finally:
            self._is_carrying_out = False
        self._work()

    def _carry_out(self, instruction: UnitInstruction) -> None:
        schedule = self.schedule
        match instruction:
            case Send(to, message):
                schedule.send(self, to, message)
            case ProcessFrame():
                self._begun.append(instruction)
            case SkipFrames(after, upto):
                self.states = {upto: self.states[after] | (upto > after)}
                self.busy_at = max(self.busy_at, upto)
                schedule.skipped(self, after, upto)
            case StepDown(epoch):
                schedule.stepped_down(self, epoch)
            case (
                PinFrame()
                | UnpinFrame()
                | StoreCheckpoint()
                | PrepareCheckpoint()
                | CommitCheckpoint()
                | DrawInterval()
            ):
                carry_out_here(instruction, self)
            case _:
                assert_never(instruction)

    def _work(self) -> None:
        """One frame after the other; a unit that is behind may take all that it has begun at once."""
        world = self.world
        if self._is_working or not self._begun or not self.alive:
            return
        frame, count = self._begun[0].frame, 1
        if self._outside and frame > self.schedule.frames and not self.unit.startswith("sink:"):
            return
        self._is_working = True
        if self.unit.startswith("sink:"):
            self.frames_done(1)
        elif self._outside:
            world.at(max(world.now, self.schedule.frame_time * frame), self.frames_done, 1)
        else:
            if len(self._begun) > 1 and world.rng.random() < 0.3:
                self.schedule.probe("several_frames_in_a_batch")
                count = len(self._begun)
            world.after(0.1 + 0.7 * world.rng.random(), self.frames_done, count)

    # What concerns only itself (`driving.LocalCarrier`).

    def pin(self, order: PinFrame) -> None:
        serial, frame = order.serial, order.frame
        if frame not in self.states:
            raise ScheduleBroken(self.unit, f"pin of frame {frame}, which it does not hold")
        if serial in self._pins:
            raise ScheduleBroken(self.unit, f"serial {serial} is pinned already")
        self._pins[serial] = (frame, self.states[frame])
        self.busy_at = max(self.busy_at, self.machine.processed)
        self.schedule.pinned(self)

    def unpin(self, order: UnpinFrame) -> None:
        if order.serial in self._pins:
            self._unpinned[order.serial] = self._pins.pop(order.serial)
            if len(self._unpinned) > 2:
                del self._unpinned[min(self._unpinned)]

    def store(self, order: StoreCheckpoint) -> None:
        self._ship(self.shipping.ship(self._pack(order.serial, order.frame, order.queues), Stage.FINAL))

    def prepare(self, order: PrepareCheckpoint) -> None:
        self._ship(self.shipping.ship(self._pack(order.serial, order.frame, order.queues), Stage.PREPARE))

    def commit(self, order: CommitCheckpoint) -> None:
        self._ship(self.shipping.ship(self._manifests[order.serial], Stage.COMMIT))

    def draw(self, order: DrawInterval) -> None:
        drawn = self.world.rng.randint(order.least, max(order.least, order.most))
        self.carry_out(self.machine.handle(IntervalDrawn(drawn)))

    def _pack(self, serial: int, frame: int, queues: tuple[tuple[EdgeId, int], ...]) -> Manifest:
        """The files of a checkpoint; their names are their hashes."""
        pinned, state = self._pins.get(serial, (None, 0))
        if pinned != frame:
            raise ScheduleBroken(self.unit, f"checkpoint {serial} of frame {frame} not pinned")
        blobs = self.schedule.blobs
        if self._base is None or self._since_base >= _CHECKPOINTS_PER_BASE:
            name = f"{self.unit}/base.{frame}.{state:x}"
            blobs[name] = state
            self._base = (frame, name)
            self._since_base = 0
        self._since_base += 1
        delta = f"{self.unit}/delta.{self._base[0]}.{frame}.{state:x}"
        blobs[delta] = (frame, state ^ blobs[self._base[1]])
        files = [self._base[1], delta]
        queue = self.machine.queue
        wanted = set()
        for edge, after in queues:
            for number in range(after + 1, frame + 1):
                wanted.add((number, queue.of(edge).frames[number]))
        for number, held in sorted(wanted, key=lambda w: (w[0], w[1].port)):
            name = f"{self.unit}/frame.{held.port}.{number}.{held.checksum:x}"
            blobs[name] = (number, held)
            files.append(name)
        manifest = Manifest(self.unit, self.epoch, serial, frame, queues, tuple(files))
        self._manifests[serial] = manifest
        return manifest

    def _ship(self, instructions: Iterable[ShippingInstruction]) -> None:
        self.world.touched.add(self.unit)
        for instruction in instructions:
            match instruction:
                case SendToStore(store, request):
                    self.schedule.send_to_store(self, store, request)
                case Shipped(manifest, Stage.PREPARE):
                    self.carry_out(self.machine.handle(CheckpointPrepared(manifest.serial)))
                case Shipped(manifest, _):
                    self.stored = manifest
                    self.schedule.shipped(self, manifest)
                    self._forget(manifest.frame)
                    size = 200 + 60 * len(manifest.files)
                    self.schedule.checks.measured(self.unit, size)
                    event = CheckpointStored(manifest.serial, size)
                    self.carry_out(self.machine.handle(event))
                case Superseded():
                    self.schedule.stepped_down(self, None)
                case _:
                    assert_never(instruction)

    def _forget(self, frame: int) -> None:
        """States before a stored checkpoint are of no use to anybody."""
        for number in [n for n in self.states if n < frame]:
            del self.states[number]

    @property
    def pinned(self) -> list[int]:
        """The frames it keeps restorable."""
        return sorted(frame for frame, _ in self._pins.values())

    # ---- what it leaves ----------------------------------------------------------------

    def near(self, stored: int) -> tuple[Restored, int, tuple[int, str] | None]:
        """State and queue on the host's disk, as the next instance here finds them."""
        queue = self.machine.queue
        frame = self.machine.processed
        restored = Restored(
            frame,
            stored,
            tuple(queue.acked.items()),
            tuple(queue.contents()),
            # One that died before it had found its place leaves that to the next.
            placed=self.machine.placed,
        )
        return restored, self.states[frame], self._base


def restored_from(manifest: Manifest, blobs: dict[str, Any], stored: int) -> tuple[Restored, int, tuple[int, str]]:
    """Unpack a checkpoint that was fetched whole."""
    base = manifest.files[0]
    frame, delta = blobs[manifest.files[1]]
    state = blobs[base] ^ delta
    frames: list[tuple[int, OutputFrame]] = [blobs[f] for f in manifest.files[2:]]
    restored = Restored(frame, stored, manifest.queues, tuple(frames))
    return restored, state, (int(base.split(".")[1]), base)
