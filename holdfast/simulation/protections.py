"""Which protection machine a unit gets in a schedule, by the name of the protocol.

`ecoc` and `synchronised` are refused on cyclic graphs, as `check` refuses them for a
user. `mixed` draws a lossless protection for each unit.
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

__all__ = ["PROTECTIONS", "Protections"]

PROTECTIONS = (
    "none",
    "checkpoint",
    "uncoordinated",
    "synchronised",
    "ecoc",
    "extended",
    "mixed",
)

# In this share of schedules all sources trigger at the same frames.
_ALIGNED = 0.3


class Protections:
    """The protection of each unit of one graph."""

    def __init__(
        self, protocol: str, graph: Graph, every: int, rng: Random, replaced: dict[str, Any]
    ) -> None:
        self.every = every
        self._mixed = protocol == "mixed"
        self.lossy = protocol in ("none", "checkpoint")
        self._classes: dict[str, Any] = {
            "none": NoProtection,
            "checkpoint": PartialCheckpoint,
            "uncoordinated": Uncoordinated,
            "ecoc": Ecoc,
            "extended": Extended,
            "synchronised": Synchronised,
            **replaced,
        }
        self._names = {unit: protocol for unit in graph.inner}
        if protocol == "mixed":
            for unit in graph.inner:
                anywhere = ("uncoordinated", "extended")
                acyclic = (*anywhere, "ecoc", "synchronised", "synchronised")
                wiring = graph.wirings[unit]
                late = wiring.on_cycle or any(e.delay for e in wiring.outputs)
                names = anywhere if late else acyclic
                self._names[unit] = rng.choice(names)
        aligned = rng.random() < _ALIGNED
        self._phases = {unit: 0 if aligned else rng.randrange(every) for unit in graph.inner}

    def machine(self, wiring: Wiring, epoch: int, restored: Restored) -> CheckpointMachine:
        name = self._names[wiring.unit]
        if name in ("none", "checkpoint", "uncoordinated"):
            return self._classes[name](wiring, self.every, epoch, restored)
        phase = self._phases[wiring.unit]
        return self._classes[name](wiring, self.every, epoch, restored, phase)

    def keeps_near(self, unit: str) -> bool:
        """Whether a restart on the same host may use what the last instance left."""
        return self._names[unit] != "none"

    def asks(self, wiring: Wiring, round_number: int) -> bool:
        """Whether a person who wants a checkpoint of the process asks this unit.

        Uncoordinated units are asked each; requests of coordinated sources must reach
        everybody else by themselves. Only where a join may answer with an older
        checkpoint are the others asked too, once the sources had their round.
        """
        name = self._names[wiring.unit]
        if name == "uncoordinated" or wiring.is_source:
            return True
        return round_number > 0 and (name == "extended" or self._mixed)
