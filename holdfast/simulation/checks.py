"""What must hold after every step, and at the calm end.

The checks look at the truth (disks of stores, what an instance would restart from),
never at what a machine believes, so they see a violation whatever caused it.

For every edge x -> y, any place x may be found in must offer every frame that any
place y may be found in still needs. Places of a unit: where it runs, its near
checkpoint, and each stored checkpoint that a claim could pick now. Offered behind:
what its queue trimmed or believes acknowledged, or what the checkpoint's queue does
not hold. So one comparison per edge covers: stored safe_out(x) <= safe_in(y) or the
frames between are in x's stored checkpoint; relaxed consistency of the running
edge; and no trimmed frame needed again. Only edges whose ends changed are looked at.

Units whose protection may lose are asked for less. One that died owes its consumers
nothing; what it offers while it runs must still reach back to what a lossless consumer
needs. It needs nothing itself. Only such a unit may skip frames, and only outputs below
one that did may differ from the ideal run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.protocols.dialogue import Send, UnitMessage
from holdfast.protocols.fencing import claim_quorum
from holdfast.protocols.messages import AckSent, Manifest, RefusalSent
from holdfast.protocols.none import ACK_LAG
from holdfast.protocols.unit import Unit
from holdfast.protocols.wiring import EdgeId
from holdfast.simulation.graphs import FRAME_BYTES_MAX
from holdfast.simulation.instances import Instance
from holdfast.simulation.world import ScheduleBroken

if TYPE_CHECKING:
    from holdfast.simulation.schedule import Schedule

__all__ = ["Checks", "image"]


class Checks:
    """Safety and liveness of one schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._lossy = schedule.protections.lossy
        self._inner = frozenset(schedule.graph.inner)
        self._into: dict[str, list[tuple[EdgeId, int]]] = {u: [] for u in schedule.graph.wirings}
        self._out_of: dict[str, list[EdgeId]] = {u: [] for u in schedule.graph.wirings}
        self._ends: dict[EdgeId, tuple[str, str]] = {}
        for edge in schedule.graph.edges:
            if edge.consumer in self._lossy:
                continue
            self._into[edge.consumer].append((edge.name, edge.delay))
            self._out_of[edge.producer].append(edge.name)
            self._ends[edge.name] = (edge.producer, edge.consumer)
        # Before the first step nobody offers less than everything or has anything.
        self._low = {edge.name: 0 for edge in schedule.graph.edges}
        self._need = {edge.name: 0 for edge in schedule.graph.edges}
        self._heard: dict[tuple[tuple[str, int], str], int] = {}
        self._below_loss: set[str] = set()
        self._sizes: dict[str, int] = {}
        self._only = list(schedule.stores.values())
        self._places: dict[str, tuple[int, list[Manifest | None]]] = {}
        self._quorum = claim_quorum(len(schedule.store_names), schedule.needed)

    # ---- after every step --------------------------------------------------------------

    def after_step(self, touched: Iterable[str]) -> None:
        schedule = self._schedule
        low, need = self._low, self._need
        edges = []
        for unit in touched:
            instance = schedule.current[unit]
            machine = instance.machine
            runs = instance.alive or (instance.near_valid and schedule.hosts[instance.host].up)
            inner = unit in self._inner
            if runs and inner:
                self._bounded(unit, machine)
            if unit in self._lossy:
                runs = runs and machine.placed and (instance.alive or instance.keeps_near)
                stored = []
            else:
                stored = self.places(unit) if inner else []
            least = machine.processed if runs else None
            for manifest in stored:
                frame = 0 if manifest is None else manifest.frame
                if least is None or frame < least:
                    least = frame
            for edge, delay in self._into[unit]:
                need[edge] = max((least or 0) - delay, 0)
                edges.append(edge)
            queue = machine.queue
            for edge in self._out_of[unit]:
                kept = queue.of(edge)
                value = max(kept.trimmed, kept.acked[edge]) if runs else 0
                for manifest in stored:
                    if manifest is not None:
                        after = _held_after(manifest, edge)
                        if after > value:
                            value = after
                low[edge] = value
                edges.append(edge)
        for edge in edges:
            if low[edge] > need[edge]:
                self._gap(edge)

    def processed(self, instance: Instance, frame: int) -> None:
        """A unit that starts checkpoints has one pending, or had one within its interval."""
        unit = instance.unit
        if unit not in self._inner:
            return
        most = self._schedule.protections.frames_between_max(instance.wiring)
        if most is None:
            return
        if instance.machine.protection.pending:
            instance.busy_at = frame
        elif frame - instance.busy_at > most:
            since = frame - instance.busy_at
            raise ScheduleBroken(unit, f"no checkpoint was taken for {since} frames, {most} are allowed")

    def _gap(self, edge: EdgeId) -> None:
        x, y = self._ends[edge]
        raise ScheduleBroken(
            f"{x},{y}",
            f"edge {edge}: {y} may restart needing frame {self._need[edge] + 1}, "
            f"{x} has nothing up to {self._low[edge]}",
        )

    def _bounded(self, unit: str, machine: Unit) -> None:
        if machine.queue.sealed != machine.processed:
            raise ScheduleBroken(unit, "queue and state are at different frames")
        # Frames under way were begun while there was room for them, by the size of the newest.
        if machine.queue.bytes_held >= self._schedule.bytes_max + self._schedule.ahead * FRAME_BYTES_MAX:
            raise ScheduleBroken(unit, f"queue holds {machine.queue.bytes_held} bytes")

    def places(self, unit: str) -> list[Manifest | None]:
        """The stored checkpoints that a claim made now could start from."""
        if len(self._only) == 1:
            return [self._only[0].disk.manifests.get(unit)]
        changes = sum(store.changes for store in self._only)
        known = self._places.get(unit)
        if known is None or known[0] != changes:
            known = self._places[unit] = (changes, self._look_for_places(unit))
        return known[1]

    def _look_for_places(self, unit: str) -> list[Manifest | None]:
        held = sorted(
            (store.disk.manifests.get(unit) for store in self._only if store.joined_before),
            key=lambda m: (0, 0) if m is None else m.key,
            reverse=True,
        )
        # A claim misses at most all but a quorum of the stores that can answer.
        return held[: max(1, len(held) - self._quorum + 1)]

    # ---- messages of instances that were replaced --------------------------------------

    def hears(self, receiver: Instance, message: UnitMessage) -> bool:
        """Whether the message is of a lower epoch than one the receiver heard before."""
        if isinstance(message, RefusalSent):
            return False
        key = (receiver.address, message.stamp.unit)
        heard = self._heard.get(key, 0)
        if message.stamp.epoch >= heard:
            self._heard[key] = message.stamp.epoch
            return False
        return True

    def refuse(self, receiver: Instance, message: UnitMessage, handle: Callable[[], Any]) -> Any:
        """A stale message may change nothing and cause nothing but a refusal."""
        self._schedule.probe("stale_message_refused")
        before = image(receiver.machine)
        instructions = handle()
        after = image(receiver.machine)
        answers = [i for i in instructions if not (isinstance(i, Send) and isinstance(i.message, RefusalSent))]
        if before != after or answers:
            raise ScheduleBroken(
                receiver.unit,
                f"{type(message).__name__} of epoch {message.stamp.epoch} of "
                f"{message.stamp.unit} had an effect after a higher epoch was heard",
            )
        return instructions

    def heard(self, receiver: Instance, message: UnitMessage) -> None:
        """Who was told of its successor stops; what an ack says of sizes is true."""
        if isinstance(message, AckSent):
            for unit, size in message.loads.items():
                if size > self._sizes.get(unit, 0):
                    raise ScheduleBroken(receiver.unit, f"ack says {unit} stores {size} bytes, which it never did")
        elif isinstance(message, RefusalSent):
            if message.epoch > receiver.epoch and receiver.alive:
                raise ScheduleBroken(receiver.unit, "goes on after it was refused")

    def measured(self, unit: str, size: int) -> None:
        """The largest checkpoint, or state, that a unit ever had."""
        if size > self._sizes.get(unit, 0):
            self._sizes[unit] = size

    # ---- content -----------------------------------------------------------------------

    def saw_state(self, instance: Instance, frame: int, state: int) -> None:
        """Whole states equal the ideal; tainted ones need a loss above them."""
        unit = instance.unit
        if state != self._schedule.ideal[unit][frame] and not state & 1:
            raise ScheduleBroken(unit, f"frame {frame} differs from the ideal run (epoch {instance.epoch})")
        if state & 1:
            self._schedule.counts["frames_tainted"] += 1
            if unit not in self._below_loss:
                raise ScheduleBroken(unit, f"frame {frame} is tainted, but nothing was lost")

    def skipped(self, unit: str) -> None:
        """A unit lost frames: it and all that it feeds may be tainted from now on."""
        if unit not in self._lossy:
            raise ScheduleBroken(unit, "lost frames under a lossless protection")
        todo = [unit]
        while todo:
            here = todo.pop()
            if here not in self._below_loss:
                self._below_loss.add(here)
                todo += [e.consumer for e in self._schedule.graph.edges if e.producer == here]

    def shipped(self, instance: Instance, manifest: Manifest) -> None:
        """Stored means: on enough disks, now."""
        stores = self._schedule.stores.values()
        copies = 0
        for store in stores:
            held = store.disk.manifests.get(manifest.unit)
            if not store.joined_before:
                copies += 1
            elif held is not None and held.key >= manifest.key:
                # One that lost its folder learnt the manifest and is sent the files.
                copies += store.folder > 0 or store.disk.files.issuperset(held.files)
        if copies < self._schedule.needed:
            raise ScheduleBroken(instance.unit, f"checkpoint {manifest.frame} called stored with {copies} copies")

    # ---- the calm end ------------------------------------------------------------------

    def all_delivered(self) -> None:
        """Every unit runs and every frame of the ideal run has come out."""
        schedule = self._schedule
        for unit, instance in schedule.current.items():
            if not instance.alive or instance.frozen:
                raise ScheduleBroken(unit, "does not run after the calm")
            if ":" in unit and unit.startswith("log:"):
                continue
            if instance.machine.processed != schedule.frames:
                raise ScheduleBroken(
                    unit,
                    f"stands at frame {instance.machine.processed} of {schedule.frames}",
                )
        schedule.supervision.at_rest()

    def all_acknowledged(self) -> str | None:
        """The first edge whose producer still keeps frames, or None."""
        schedule = self._schedule
        for edge in schedule.graph.edges:
            acked = schedule.current[edge.producer].machine.queue.of(edge.name).acked[edge.name]
            lag = ACK_LAG if edge.consumer in self._lossy else 0
            if acked < schedule.frames - edge.delay - lag:
                return f"{edge.name} acknowledged up to {acked}"
        return None

    def at_rest(self) -> None:
        """Nothing is pending or on its way any more."""
        schedule = self._schedule
        for unit in schedule.graph.inner:
            instance = schedule.current[unit]
            if instance.machine.protection.pending:
                raise ScheduleBroken(unit, f"checkpoints {instance.machine.protection.pending} stay pending")
            for store in schedule.stores.values():
                if instance.stored is not None and not store.holds(instance.stored):
                    raise ScheduleBroken(unit, f"{store.name} has no copy of {instance.stored.frame} in the end")
            if instance.pinned:
                raise ScheduleBroken(unit, f"frames {instance.pinned} stay pinned")
            if instance.shipping.travelling is not None:
                raise ScheduleBroken(unit, "a checkpoint stays on its way")
            self._nothing_is_kept(instance)

    def _nothing_is_kept(self, instance: Instance) -> None:
        """At rest a machine knows its neighbours and little else: what grows with the frames is forgotten."""
        wiring = instance.wiring
        edges = len(wiring.inputs) + len(wiring.outputs)
        late = max([e.delay for e in wiring.inputs] + [e.delay for e in wiring.outputs], default=0)
        most = max(edges, len(self._inner), late + ACK_LAG) + 2
        for name, held in _containers(instance.machine, "unit"):
            if len(held) > most:
                raise ScheduleBroken(instance.unit, f"keeps {len(held)} items in {name} in the end: {held!r:.200}")

    def fail_unacknowledged(self) -> None:
        left = self.all_acknowledged()
        raise ScheduleBroken("schedule", f"after {self._schedule.frames} frames {left}")


def _held_after(manifest: Manifest, edge: EdgeId) -> int:
    """The frames of an edge after this number, up to the checkpoint's own, are in it."""
    for name, after in manifest.queues:
        if name == edge:
            return after
    return manifest.frame


def _containers(thing: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every container that a machine holds, by the way to it."""
    if isinstance(thing, (dict, list, set, deque)):
        yield name, thing
        for item in thing.values() if isinstance(thing, dict) else thing:
            yield from _containers(item, name)
    elif hasattr(thing, "__dict__") and not hasattr(thing, "_value_"):
        for field, value in vars(thing).items():
            yield from _containers(value, f"{name}.{field}")


def image(thing: Any) -> Any:
    """All state of a machine as a comparable value."""
    if isinstance(thing, (int, str, float, type(None))):
        return thing
    if isinstance(thing, dict):
        return tuple(sorted(((repr(k), image(v)) for k, v in thing.items())))
    if isinstance(thing, (set, frozenset)):
        return tuple(sorted(repr(item) for item in thing))
    if hasattr(thing, "__dict__") and not hasattr(thing, "_value_"):
        return image(vars(thing))
    if hasattr(thing, "__iter__"):
        return tuple(image(item) for item in thing)
    return repr(thing)
