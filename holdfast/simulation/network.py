"""FIFO channels between instances: delay, cuts, and duplicates on reconnect.

A channel joins one sending instance to one receiving instance. What is in flight
when an edge is cut is lost, and so is what is sent while it is cut. When a cut
heals, the last delivered messages may come once more before anything new, as from a
transport that did not hear that they had arrived. Order within a channel is kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.protocols.dialogue import UnitMessage
from holdfast.simulation.world import World

__all__ = ["Address", "Network"]

Address = tuple[str, int]
_Channel = tuple[Address, Address]


class Network:
    """Delivers by calling `deliver(receiver, message)`."""

    def __init__(self, world: World, deliver: Callable[[Address, UnitMessage], None]) -> None:
        self._world = world
        self._deliver = deliver
        self._last: dict[_Channel, float] = {}
        self._cuts: dict[frozenset[str], int] = {}
        self._lost: dict[frozenset[str], int] = {}
        self._recent: dict[_Channel, deque[UnitMessage]] = {}
        self.delivered = 0

    def send(self, sender: Address, receiver: Address, message: UnitMessage) -> None:
        pair = frozenset((sender[0], receiver[0]))
        if pair in self._cuts:
            return
        world = self._world
        channel = (sender, receiver)
        time = max(world.now + 0.1 + 0.9 * world.rng.random(), self._last.get(channel, 0.0))
        self._last[channel] = time
        world.at(time, self._arrive, channel, message, self._lost.get(pair, 0))

    def _arrive(self, channel: _Channel, message: UnitMessage, generation: int) -> None:
        pair = frozenset((channel[0][0], channel[1][0]))
        if self._lost.get(pair, 0) != generation:
            return
        self.delivered += 1
        recent = self._recent.get(channel)
        if recent is None:
            recent = self._recent[channel] = deque(maxlen=4)
        recent.append(message)
        self._deliver(channel[1], message)

    def is_cut(self, x: str, y: str) -> bool:
        return frozenset((x, y)) in self._cuts

    def cut(self, x: str, y: str) -> None:
        pair = frozenset((x, y))
        self._cuts[pair] = self._cuts.get(pair, 0) + 1
        self._lost[pair] = self._lost.get(pair, 0) + 1

    def heal(self, x: str, y: str) -> bool:
        """End one cut of the pair; True if messages flow again."""
        pair = frozenset((x, y))
        left = self._cuts.get(pair, 0) - 1
        if left > 0:
            self._cuts[pair] = left
            return False
        self._cuts.pop(pair, None)
        for channel, recent in list(self._recent.items()):
            if {channel[0][0], channel[1][0]} == {x, y} and self._world.rng.random() < 0.5:
                for message in list(recent):
                    self.send(*channel, message)
        return True
