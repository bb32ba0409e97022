"""From what was declared to the pure graph: ports get their streams, operators their settings.

Nothing is judged here but names that lead nowhere, which only the declaration knows
(`inputs=` for a port that is not there, `protect`/`edge`/`disable` of an unknown
operator); those travel as `Graph.notes` to `rules.check_structure`.

Pure. Reads the private fields of `declare.process.StreamProcess`, its other half.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.errors import Finding
from holdfast.graph.declared import did_you_mean, nearest
from holdfast.graph.model import FRAME_WORDS, Edge, Graph, Operator
from holdfast.graph.options import Feedback

if TYPE_CHECKING:
    from holdfast.declare.process import StreamProcess, _Draft

__all__ = ["assemble"]

_EFFECT = "nothing was started, nothing was read"


def assemble(process: StreamProcess) -> Graph:
    notes: list[Finding] = []
    off = {port for port, _ in process._disabled}
    declared = {param.name for param in process._params}
    operators = [_operator(draft, off, declared, notes) for draft in process._drafts]
    operators = _with_edge_delays(process, operators, notes)
    operators = _with_protections(process, operators, notes)
    operators = _with_places(process, operators, notes)
    operators = _with_disabled_outputs(operators, off)
    graph = Graph(
        name=process.name,
        frame_ms=process._frame_ms,
        time=process._time,
        grace_ms=process._grace_ms,
        sources=tuple(process._sources),
        operators=tuple(operators),
        sinks=tuple(process._sinks),
        params=tuple(process._params),
        protect=process._protect,
        chunks=process._chunks,
        partitions=process._partitions,
        line=process._line,
        queue_bytes=process._queue_bytes,
        state=process._state,
        values=process._values,
        durability=process._durability,
        base=process._base,
        disabled=tuple(sorted(off)),
        supervision=process._supervision,
        hosts=process._hosts,
        backup=process._backup,
        on_degraded=process._on_degraded,
    )
    notes.extend(_unknown_disabled(process, graph))
    return replace(graph, notes=tuple(notes))


def _operator(draft: _Draft, off: set[str], declared: set[str], notes: list[Finding]) -> Operator:
    ports = dict(draft.ports)
    for port, reads in draft.remapped.items():
        if port not in draft.ports:
            meant = nearest(port, draft.ports)
            if meant is not None and meant not in draft.remapped:
                ports[meant] = reads  # as it was meant: one slip, one finding
            notes.append(
                Finding(
                    "HF-G018",
                    "UnknownPort",
                    f"operator '{draft.name}' has no input port '{port}'.",
                    where=f"{draft.line}, inputs= of operator '{draft.name}'",
                    why=f"its positional parameters are: {', '.join(draft.ports) or 'none'}",
                    effect=_EFFECT,
                    do=did_you_mean(port, draft.ports, f"add a parameter '{port}' to the function, or drop it"),
                )
            )
    edges, closed = [], []
    for port, reads in ports.items():
        if f"{draft.name}.{port}" in off and f"{draft.name}.{port}" not in draft.outputs:
            closed.append(port)
        elif isinstance(reads, Feedback):
            edges.append(Edge(reads.stream, draft.name, port, reads.frames, reads.schema, line=draft.line))
        else:
            edges.append(Edge(reads, draft.name, port, line=draft.line))
    # A parameter with a default of its own that nobody declared stays the function's affair.
    own = draft.with_default | (FRAME_WORDS if draft.kind == "keyed" else frozenset())
    return Operator(
        draft.name,
        draft.kind,
        tuple(edges),
        draft.outputs,
        tuple(name for name in draft.params if name in declared or name not in own),
        draft.function,
        draft.options,
        line=draft.line,
        disabled=tuple(closed),
        **draft.settings,
    )


def _with_edge_delays(process: StreamProcess, operators: list[Operator], notes: list[Finding]) -> list[Operator]:
    for stream, consumer, delay_ms, line in process._edge_delays:
        found = False
        for i, operator in enumerate(operators):
            if operator.name == consumer and any(edge.stream == stream for edge in operator.inputs):
                found = True
                edges = tuple(
                    replace(edge, delay_ms_max=delay_ms) if edge.stream == stream else edge for edge in operator.inputs
                )
                operators[i] = replace(operator, inputs=edges)
        if not found:
            there = [f"{edge.stream} -> {edge.consumer}" for each in operators for edge in each.inputs]
            notes.append(_lost(f"edge {stream} -> {consumer}", line, f"{stream} -> {consumer}", there))
    return operators


def _with_protections(process: StreamProcess, operators: list[Operator], notes: list[Finding]) -> list[Operator]:
    names = [operator.name for operator in operators]
    for name, protection, line in process._protects:
        if name in names:
            i = names.index(name)
            operators[i] = replace(operators[i], protect=protection)
        else:
            notes.append(_lost(f"operator '{name}'", line, name, names))
    return operators


def _with_places(process: StreamProcess, operators: list[Operator], notes: list[Finding]) -> list[Operator]:
    names = [operator.name for operator in operators]
    lines: dict[str, str] = {}
    for name, host, line in process._places:
        if name not in names:
            notes.append(_lost(f"operator '{name}'", line, name, names))
            continue
        i = names.index(name)
        placed, before = operators[i].host, lines.setdefault(name, line)
        if placed not in (None, host):
            notes.append(
                Finding(
                    "HF-G033",
                    "PlacedTwice",
                    f"operator '{name}' is placed on host '{placed}' and on host '{host}'.",
                    where=f"{line}, operator '{name}'",
                    why=f"an operator lives on one host; '{placed}' is said at {before}",
                    effect=_EFFECT,
                    do="drop one of the two",
                )
            )
        operators[i] = replace(operators[i], host=placed or host)
    return operators


def _with_disabled_outputs(operators: list[Operator], off: set[str]) -> list[Operator]:
    return [
        replace(each, disabled=each.disabled + tuple(stream for stream in each.outputs if stream in off))
        for each in operators
    ]


def _unknown_disabled(process: StreamProcess, graph: Graph) -> list[Finding]:
    ports = {f"{draft.name}.{port}" for draft in process._drafts for port in draft.ports}
    there = ports | set(graph.streams)
    return [_lost(f"port '{port}'", line, port, there) for port, line in process._disabled if port not in there]


def _lost(what: str, line: str, word: str, there: Iterable[str]) -> Finding:
    return Finding(
        "HF-G017",
        "UnknownOperator",
        f"there is no {what}.",
        where=line,
        why="it is named here and declared nowhere",
        effect=_EFFECT,
        do=did_you_mean(word, there, "drop the line"),
    )
