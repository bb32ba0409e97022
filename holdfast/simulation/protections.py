"""Which protection machine a unit gets in a schedule, by the name of the protocol.

`ecoc` and `synchronised` are refused on cyclic graphs, as `check` refuses them for a
user. `mixed` draws a lossless protection for each unit.
"""

from __future__ import annotations

from random import Random
from typing import Any

from holdfast.protocols.dialogue import CheckpointMachine, Restored
from holdfast.protocols.uncoordinated import Uncoordinated
from holdfast.protocols.wiring import Wiring
from holdfast.simulation.graphs import Graph

__all__ = ["PROTECTIONS", "Protections"]

PROTECTIONS = ("uncoordinated",)


class Protections:
    """The protection of each unit of one graph."""

    def __init__(
        self, protocol: str, graph: Graph, every: int, rng: Random, replaced: dict[str, Any]
    ) -> None:
        self.every = every
        self.lossy = protocol in ("none", "checkpoint")
        self._classes = {"uncoordinated": Uncoordinated, **replaced}
        self._names = {unit: protocol for unit in graph.inner}

    def machine(self, wiring: Wiring, epoch: int, restored: Restored) -> CheckpointMachine:
        name = self._names[wiring.unit]
        return self._classes[name](wiring, self.every, epoch, restored)

    def triggers(self, wiring: Wiring) -> bool:
        """Whether a person who wants a checkpoint of the process asks this unit."""
        return self._names[wiring.unit] == "uncoordinated" or wiring.is_source
