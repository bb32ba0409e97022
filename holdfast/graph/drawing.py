"""The graph for people: as text in a terminal. `picture.as_svg` draws it.

Units are boxes around their operators, with the reason of the cut; what an operator
reads stands beside it, feedback with the number of frames it goes back.

Pure: a graph and its units in, text out.
"""

from __future__ import annotations

from holdfast.graph.durations import show_ms
from holdfast.graph.hosting import spread
from holdfast.graph.model import ARRIVAL, Edge, Graph, Operator, Sink, Source
from holdfast.graph.picture import as_svg
from holdfast.graph.protections import none
from holdfast.graph.units import Unit
from holdfast.graph.wording import count, described, outside, readers_of

__all__ = ["as_svg", "as_text"]


def as_text(graph: Graph, units: tuple[Unit, ...]) -> str:
    """The whole process, sources first, sinks last."""
    clock = "by arrival" if graph.time is ARRIVAL else f"by column {graph.time}" if graph.time else "without a time"
    grace = f", grace {show_ms(graph.grace_ms)}" if graph.grace_ms else ""
    lines = [
        f"{graph.name}   frames of {show_ms(graph.frame_ms)} {clock}{grace}   "
        + ", ".join(
            (
                count(len(graph.sources), "source"),
                count(len(graph.operators), "operator"),
                count(len(graph.sinks), "sink"),
                count(len(units), "unit"),
            )
        ),
        "",
    ]
    wide = max((len(name) for name in _names(graph)), default=0)
    for source in graph.sources:
        late = "" if source.late == "admit" else f"   late: {source.late}"
        lines.append(f"  ○ {source.name:<{wide}}   {outside(source.reader)}{late}")
        lines.append(f"  │ {'':<{wide}}   {source.schema.ddl if source.schema else ''}")
    host_of = spread([host.name for host in graph.homes], [(unit.name, unit.host) for unit in units if unit.outputs])
    for unit in units:
        lines += ["  │", *_unit(graph, unit, host_of.get(unit.name, ""), wide)]
    lines.append("  │")
    for sink in graph.sinks:
        promises = ", ".join(map(str, sink.promises)) or "no promise"
        reads = "" if sink.stream == sink.name else f"◀ {sink.stream}   "
        lines.append(f"  ● {sink.name:<{wide}}   {reads}{outside(sink.writer)}")
        lines.append(f"    {'':<{wide}}   {promises}")
    if graph.params:
        lines.append("")
        long = max(len(param.name) for param in graph.params)
        for param in graph.params:
            between = f", {param.between[0]} to {param.between[1]}" if param.between else ""
            per = f" per {param.per}" if param.per else ""
            doc = f"   {param.doc}" if param.doc else ""
            lines.append(f"  {param.name:<{long}} = {param.default!r}{per}{between}{doc}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _names(graph: Graph) -> list[str]:
    vertices: tuple[Source | Operator | Sink, ...] = (*graph.sources, *graph.operators, *graph.sinks)
    return [each.name for each in vertices]


def _unit(graph: Graph, unit: Unit, host: str, wide: int) -> list[str]:
    head = (
        f"  ┌─ unit {unit.name}"
        + (f" on {host}" if host else "")
        + (f", {unit.protect}" if unit.protect != none else "")
        + " "
    )
    members = [operator for name in unit.operators if (operator := graph.operator(name)) is not None]
    kinds = [f"{operator.kind:<9}" for operator in members]
    reads = ["◀ " + ", ".join(_reads(edge) for edge in operator.inputs) for operator in members]
    broad = max(map(len, reads))
    rows = [
        f"  │ ■ {operator.name:<{wide}} {kind}  {read:<{broad}}   {described(operator)}".rstrip()
        for operator, kind, read in zip(members, kinds, reads, strict=True)
    ]
    rows += [
        f"  │   {'':<{wide}} gives {stream} to {readers_of(graph, stream)}"
        for operator in members
        if len(operator.outputs) > 1
        for stream in operator.outputs
    ]
    length = max(len(head), min(96, max(map(len, rows))))
    return [f"{head:─<{length}}", *rows, f"  └─ {unit.why}"]


def _reads(edge: Edge) -> str:
    name = (
        edge.stream
        if edge.port in (edge.stream, "of", "left", "right") or _counted(edge)
        else f"{edge.stream} as {edge.port}"
    )
    if edge.is_feedback:
        return f"{name} ↺ {count(edge.feedback_frames, 'frame')} back"
    return name


def _counted(edge: Edge) -> bool:
    return edge.port.startswith("of") and edge.port[2:].isdigit()
