"""Channels between instances: delay, cuts, and weather in which messages go astray.

A channel joins one sending instance to one receiving instance. In calm weather it is a
FIFO queue with delay. What is in flight when an edge is cut is lost, and so is what is
sent while it is cut. When a cut heals, the last delivered messages may come once more
before anything new, as from a transport that did not hear that they had arrived.

In bad weather messages of a link are held up, so that later ones overtake them, or come
twice, the second one perhaps much later; in the worst they are lost one by one. A
transport notices that it lost something, in the end, and connects anew (`faults`);
messages that are late, doubled or out of order nobody mends but the protocols.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.protocols.dialogue import UnitMessage
from holdfast.simulation.world import World

__all__ = ["Address", "Network", "Weather"]

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Weather:
    """Chances of each message on a link."""

    held_up: float
    doubled: float
    lost: float


@dataclass(slots=True)
class _Link:
    """Two units, whichever instances they have."""

    cuts: int = 0
    generation: int = 0
    weather: Weather | None = None


class _Channel:
    __slots__ = ("last", "link", "receiver", "recent")

    def __init__(self, receiver: Address, link: _Link) -> None:
        self.receiver = receiver
        self.link = link
        self.last = 0.0
        self.recent: deque[UnitMessage] = deque(maxlen=4)


class Network:
    """Delivers by calling `deliver(receiver, message)`; `seen` says what went astray."""

    def __init__(self, world: World, deliver: Callable[[Address, UnitMessage], None]) -> None:
        self._world = world
        self._deliver = deliver
        self._links: dict[frozenset[str], _Link] = {}
        self._channels: dict[tuple[Address, Address], _Channel] = {}
        self.seen: set[str] = set()

    def _link(self, x: str, y: str) -> _Link:
        return self._links.setdefault(frozenset((x, y)), _Link())

    def send(self, sender: Address, receiver: Address, message: UnitMessage) -> None:
        channel = self._channels.get((sender, receiver))
        if channel is None:
            channel = _Channel(receiver, self._link(sender[0], receiver[0]))
            self._channels[(sender, receiver)] = channel
        self._send(channel, message)

    def _send(self, channel: _Channel, message: UnitMessage) -> None:
        link, world = channel.link, self._world
        if link.cuts:
            return
        time = world.now + 0.1 + 0.9 * world.rng.random()
        if link.weather is not None:
            self._send_badly(channel, message, time, link.weather)
            return
        if time < channel.last:
            time = channel.last
        channel.last = time
        world.at(time, self._arrive, channel, message, link.generation)

    def _send_badly(self, channel: _Channel, message: UnitMessage, time: float, weather: Weather) -> None:
        world, generation = self._world, channel.link.generation
        if world.rng.random() < weather.lost:
            self.seen.add("message_lost")
            return
        if world.rng.random() < weather.held_up:
            self.seen.add("message_held_up")
            time += world.between(0.5, 6.0)
        world.at(time, self._arrive, channel, message, generation)
        if world.rng.random() < weather.doubled:
            self.seen.add("message_doubled")
            world.at(time + world.between(0.0, 6.0), self._arrive, channel, message, generation)

    def _arrive(self, channel: _Channel, message: UnitMessage, generation: int) -> None:
        if channel.link.generation != generation:
            return
        channel.recent.append(message)
        self._deliver(channel.receiver, message)

    def is_cut(self, x: str, y: str) -> bool:
        return self._link(x, y).cuts > 0

    def cut(self, x: str, y: str) -> None:
        link = self._link(x, y)
        link.cuts += 1
        link.generation += 1

    def heal(self, x: str, y: str) -> bool:
        """End one cut of the pair; True if messages flow again."""
        link = self._link(x, y)
        link.cuts -= 1
        if link.cuts > 0:
            return False
        for channel in list(self._channels.values()):
            if channel.link is link and self._world.rng.random() < 0.5:
                for message in list(channel.recent):
                    self._send(channel, message)
        return True

    def spoil(self, x: str, y: str, weather: Weather) -> bool:
        """Bad weather on a link until `clear`; False if it has some already."""
        link = self._link(x, y)
        if link.weather is not None:
            return False
        link.weather = weather
        return True

    def clear(self, x: str, y: str) -> None:
        self._link(x, y).weather = None
