"""A model laid out for a solver: copies as instances, who reads whom, what a fault takes from whom.

An operator outside of groups has one instance, a member of a group of copies one for each copy. A
slot is a port with state of one instance. A channel is one target of one fault, with a clock of its
own; the copies of an operator have channels of their own, as they live on different hosts.

Pure: plain values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.models.stream import Fault, State, StreamModel

__all__ = ["Channel", "Feed", "Instance", "Layout", "Slot"]


@dataclass(frozen=True, slots=True)
class Instance:
    operator: int
    group: int  # of copies; -1: none
    copy: int


@dataclass(frozen=True, slots=True)
class Feed:
    """What one port reads of one operator: its instances, and how they are read."""

    instances: tuple[int, ...]
    group: int  # whose active copy is read ("ha"); -1: all are, the larger number counts


@dataclass(frozen=True, slots=True)
class Slot:
    instance: int
    port: int
    state: State
    rate: float  # nominal, of clean elements


@dataclass(frozen=True, slots=True)
class Channel:
    fault: Fault
    target: str
    copy: int
    instances: tuple[int, ...]
    lacks: tuple[tuple[int, float], ...]  # (slot, elements a second it does not get while these are down)


class Layout:
    def __init__(self, model: StreamModel) -> None:
        self.model = model
        operators = model.operators
        group_of = {name: g for g, group in enumerate(model.copies) for name in group.members}
        self.instances: list[Instance] = []
        self.of_operator: list[tuple[int, ...]] = []
        for i, each in enumerate(operators):
            g = group_of.get(each.name, -1)
            copies = model.copies[g].n if g >= 0 else 1
            self.of_operator.append(tuple(range(len(self.instances), len(self.instances) + copies)))
            self.instances += [Instance(i, g, k) for k in range(copies)]
        self.feeds = [
            [[self._feed(instance, name) for name in port.reads] for port in operators[instance.operator].ports]
            for instance in self.instances
        ]
        self.slots = [
            Slot(j, p, port.state, model.rates[operators[instance.operator].name][0][p])
            for j, instance in enumerate(self.instances)
            for p, port in enumerate(operators[instance.operator].ports)
            if port.state is not None
        ]
        self.slots_of = [
            [m for m, slot in enumerate(self.slots) if slot.instance == j] for j in range(len(self.instances))
        ]
        self.members = [
            [[self.of_operator[model.index[name]][k] for name in group.members] for k in range(group.n)]
            for group in model.copies
        ]
        self.channels = [channel for fault in model.faults for channel in self._channels(fault)]
        # What slots outside of a group lack while no copy of it is there.
        self.group_lacks = [
            self._lacks([j for copy in members for j in copy], group=g) for g, members in enumerate(self.members)
        ]

    def is_ha(self, group: int) -> bool:
        return group >= 0 and self.model.copies[group].kind == "ha"

    def channel(self, kind: str, target: str, copy: int = 0) -> int:
        """The number of the first channel of that kind and target."""
        return next(
            c
            for c, each in enumerate(self.channels)
            if (each.fault.kind, each.target, each.copy) == (kind, target, copy)
        )

    def _feed(self, reader: Instance, name: str) -> Feed:
        instances = self.of_operator[self.model.index[name]]
        group = self.instances[instances[0]].group
        if not self.is_ha(group):
            return Feed(instances, -1)
        if group == reader.group:
            return Feed((instances[reader.copy],), -1)
        return Feed(instances, group)

    def _channels(self, fault: Fault) -> list[Channel]:
        found = []
        for target, names in self.model.targets(fault):
            by_copy: dict[int, list[int]] = {}
            for name in names:
                for k, j in enumerate(self.of_operator[self.model.index[name]]):
                    by_copy.setdefault(0 if fault.kind == "driver" else k, []).append(j)
            for k, instances in sorted(by_copy.items()):
                found.append(Channel(fault, target, k, tuple(instances), self._lacks(instances)))
        return found

    def _lacks(self, hit: Iterable[int], group: int = -1) -> tuple[tuple[int, float], ...]:
        """By slot what it nominally lacks. `group`: all copies of that group are down, so those outside feel it."""
        down = set(hit)
        found = []
        for m, slot in enumerate(self.slots):
            reader = self.instances[slot.instance]
            if slot.instance in down or (group >= 0 and reader.group == group):
                continue
            removed = {
                self.instances[j].operator
                for j in down
                if group >= 0
                or self.instances[j].group < 0
                or (
                    self.is_ha(reader.group)
                    and (self.instances[j].group, self.instances[j].copy) == (reader.group, reader.copy)
                )
            }
            lacks = slot.rate - self._rate_without(removed, slot)
            if lacks > 1e-12 * slot.rate:
                found.append((m, lacks))
        return tuple(found)

    def _rate_without(self, removed: set[int], slot: Slot) -> float:
        operators = self.model.operators
        out: dict[str, float] = {}
        for i, each in enumerate(operators):
            ins = [sum(out[name] for name in port.reads) for port in each.ports]
            if i == self.instances[slot.instance].operator:
                return ins[slot.port]
            made = each.rate + sum(rate * port.selectivity for rate, port in zip(ins, each.ports, strict=True))
            out[each.name] = 0.0 if i in removed else made
        raise AssertionError("a slot belongs to an operator of the model")
