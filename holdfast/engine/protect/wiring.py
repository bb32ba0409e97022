"""How the units of a run are wired for their protections, and which machine each of them gets.

Made once, when a run starts, from the graph and its units. No Spark, no files.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import networkx as nx

from holdfast.engine.unit.state_files import FRAMES_BACK
from holdfast.graph.model import Graph
from holdfast.graph.protections import Protection
from holdfast.graph.units import Unit
from holdfast.protocols.checkpoint import PartialCheckpoint
from holdfast.protocols.dialogue import CheckpointMachine, Restored
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.extended import Extended
from holdfast.protocols.none import ACK_LAG, NoProtection
from holdfast.protocols.synchronised import Synchronised
from holdfast.protocols.uncoordinated import Uncoordinated
from holdfast.protocols.wiring import Consumer, EdgeId, InputEdge, OutputEdge, Wiring

__all__ = ["LOSSY", "NEVER", "machine_of", "wirings"]

# Protections that promise no more than to go on, and to name what is lost.
LOSSY = ("none", "snapshot")
# An interval in elements is reached by counting, not by a number of frames.
NEVER = 1 << 60


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
            made_by = maker.get(port.stream)
            edge = EdgeId(port.stream, Consumer.unit(unit.name), port.feedback_frames)
            if made_by is None:
                inputs.append(InputEdge(edge, f"source {port.stream}", outside=True))
            else:
                inputs.append(InputEdge(edge, made_by, on_cycle(made_by, unit.name)))
        for at, stream in enumerate(unit.outputs):
            for other in units:
                for port in other.inputs:
                    if port.stream == stream:
                        edge = EdgeId(stream, Consumer.unit(other.name), port.feedback_frames)
                        outputs.append(OutputEdge(edge, at, on_cycle(unit.name, other.name), lag=lag[other.name]))
            for sink in graph.sinks_of(stream):
                outputs.append(OutputEdge(EdgeId(stream, Consumer.sink(sink.name)), at, outside=True))
        found[unit.name] = Wiring(unit.name, tuple(inputs), tuple(outputs))
    return found


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
    every = NEVER
    if protection.every is not None and protection.every.unit != "elements":
        count = protection.every.count
        every = max(1, math.ceil(count / frame_ms)) if protection.every.unit == "ms" else count
    if protection.durability == "ecoc":
        if protection.two_phase:
            return Synchronised(wiring, every, epoch, restored, phase % every, triggers, back=FRAMES_BACK)
        return (Extended if protection.extended else Ecoc)(wiring, every, epoch, restored, phase % every, triggers)
    if protection.durability == "uncoordinated":
        return Uncoordinated(wiring, every, epoch, restored)
    return (PartialCheckpoint if protection.durability == "snapshot" else NoProtection)(wiring, every, epoch, restored)
