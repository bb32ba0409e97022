"""Which protection machine a unit gets in a schedule, by the name of the protocol.

`ecoc` and `two_phase` are refused on cyclic graphs, as `check` refuses them for a
user. `mixed` draws a lossless protection for each unit, `mixed_lossy` any one, with at
least one that may lose; both draw an interval for each unit too.
"""

from __future__ import annotations

from random import Random
from typing import Any

from holdfast.protocols.checkpoint import PartialCheckpoint
from holdfast.protocols.dialogue import CheckpointMachine, Restored
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.extended import Extended
from holdfast.protocols.none import NoProtection
from holdfast.protocols.synchronised import Synchronised
from holdfast.protocols.uncoordinated import Uncoordinated
from holdfast.protocols.wiring import Wiring
from holdfast.simulation.graphs import Graph

__all__ = ["INTERVAL_MAX", "PROTECTIONS", "Protections"]

PROTECTIONS = (
    "none",
    "checkpoint",
    "uncoordinated",
    "two_phase",
    "ecoc",
    "extended",
    "mixed",
    "mixed_lossy",
)

# In this share of schedules all sources trigger at the same frames.
_ALIGNED = 0.3

INTERVAL_MAX = 6

_LOSSY = ("none", "checkpoint")
_COORDINATED = ("ecoc", "extended", "two_phase")


class Protections:
    """The protection of each unit of one graph."""

    def __init__(self, protocol: str, graph: Graph, every: int, rng: Random, replaced: dict[str, Any]) -> None:
        self._mixed = protocol.startswith("mixed")
        self._classes: dict[str, Any] = {
            "none": NoProtection,
            "checkpoint": PartialCheckpoint,
            "uncoordinated": Uncoordinated,
            "ecoc": Ecoc,
            "extended": Extended,
            "two_phase": Synchronised,
            **replaced,
        }
        self._names = dict.fromkeys(graph.inner, protocol)
        self._every = dict.fromkeys(graph.inner, every)
        if self._mixed:
            for unit in graph.inner:
                anywhere = ("uncoordinated", "extended")
                acyclic = (*anywhere, "ecoc", "two_phase", "two_phase")
                wiring = graph.wirings[unit]
                late = wiring.on_cycle or any(e.delay for e in wiring.outputs)
                names = anywhere if late else acyclic
                self._names[unit] = rng.choice(names)
                self._every[unit] = rng.randint(3, every)
        if protocol == "mixed_lossy":
            for unit in rng.sample(graph.inner, rng.randint(1, len(graph.inner) - 1)):
                self._names[unit] = rng.choice(_LOSSY)
        self.lossy = frozenset(u for u, name in self._names.items() if name in _LOSSY)
        self._triggers = {
            unit: graph.wirings[unit].is_source
            or not any(self._names[e.producer] in _COORDINATED for e in graph.wirings[unit].inputs)
            for unit in graph.inner
        }
        aligned = rng.random() < _ALIGNED
        self._phases = {unit: 0 if aligned else rng.randrange(n) for unit, n in self._every.items()}

    def machine(self, wiring: Wiring, epoch: int, restored: Restored) -> CheckpointMachine:
        unit = wiring.unit
        name = self._names[unit]
        if name not in _COORDINATED:
            return self._classes[name](wiring, self._every[unit], epoch, restored)
        return self._classes[name](wiring, self._every[unit], epoch, restored, self._phases[unit], self._triggers[unit])

    def frames_between_max(self, wiring: Wiring) -> int | None:
        """How many frames a running unit may process with no checkpoint pending; None if others decide.

        An own round is left out where another's came through within an interval, so the longest pause of a
        unit that starts rounds is two intervals, less a frame; of an uncoordinated one, the longest draw.
        """
        name, every = self._names[wiring.unit], self._every[wiring.unit]
        if name == "uncoordinated":
            return max((3 * every) // 2, (every + 1) // 2)
        if name == "checkpoint":
            return every
        if name in _COORDINATED and self._triggers[wiring.unit]:
            return 2 * every - 1
        return None

    def keeps_near(self, unit: str) -> bool:
        """Whether a restart on the same host may use what the last instance left."""
        return self._names[unit] != "none"

    def asks(self, wiring: Wiring, round_number: int) -> bool:
        """Whether a person who wants a checkpoint of the process asks this unit.

        Uncoordinated units are asked each; requests of those that start rounds must
        reach everybody else by themselves. Only where a join may answer with an older
        checkpoint are the others asked too, once the first had their round.
        """
        name = self._names[wiring.unit]
        if name == "uncoordinated" or self._triggers[wiring.unit]:
            return True
        return round_number > 0 and (name == "extended" or self._mixed)
