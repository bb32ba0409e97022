"""A model of a process from its graph and from what a run of it measured.

Every stream that is made becomes an operator of the model, in the unit that makes it, so that an operator with
several outputs is several of them. What a unit's records do not say about its inner streams is attributed to the
stream that leaves it: inner ones pass everything on. Feedback edges are left out: a model has no cycles.

Pure: plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from holdfast.graph.hosting import DEFAULT_HOSTS
from holdfast.graph.model import STATEFUL, Graph
from holdfast.graph.model import Operator as GraphOperator
from holdfast.graph.promises import Loses, Within
from holdfast.graph.protections import Protection
from holdfast.graph.refilling import refills_us
from holdfast.graph.units import Unit
from holdfast.models.refilling import Fit, never, time_window
from holdfast.models.stream import Fault, Operator, Output, Port, Protect, State, StreamModel, refused

if TYPE_CHECKING:
    from holdfast.records.measured import MeasuredRun, MeasuredUnit

__all__ = ["derived", "with_declared"]

# Assumed where no record says it. A unit is restarted after 0.25 s and needs a session's query, 1 to 3 s; a lost host
# took 0.6 to 5.8 s in docs/benchmarks.md.
CRASH_S, HOST_S = 3.0, 6.0
CRASH_MTTF_S, HOST_MTTF_S = 1800.0, 86_400.0
# A promise `within` says every frame; with faults that is a share, and the file says which.
LATE_AT_MOST = 0.01


def derived(
    graph: Graph, units: tuple[Unit, ...], run: MeasuredRun, fits: Mapping[str, Fit] | None = None
) -> StreamModel:
    """`fits`: by operator with windows of rows, from its recorded input."""
    frame_s, fits = graph.frame_ms / 1000, fits or {}
    notes = {"measured": f"rates, work and state from {run.frames:,} frames"}
    operators = [
        Operator(source.name, rate=run.rates[source.name], element_bytes=run.row_bytes.get(source.name, 0.0))
        for source in graph.sources
        if run.rates.get(source.name)
    ]
    rates = {each.name: each.rate for each in operators}
    if silent := [source.name for source in graph.sources if not run.rates.get(source.name)]:
        raise refused(
            f"source {silent[0]!r} has no rows in these records: nothing is known of what follows it.",
            do="profile a run that had some",
        )
    unit_of = {name: unit for unit in units for name in unit.operators}
    for operator in graph.order:
        unit = unit_of[operator.name]
        measured = run.units[unit.name]
        edges = [edge for edge in operator.inputs if not edge.is_feedback]
        if len(edges) < len(operator.inputs):
            notes[f"feedback of {operator.name}"] = "left out: what goes round a cycle is not followed"
        came = sum(rates[edge.stream] for edge in edges)
        is_first = operator.name == unit.operators[0]
        for stream in operator.outputs:
            sent = measured.rows.get(stream, came)
            selectivity = sent / came if came else 0.0
            ports = tuple(
                Port(
                    (edge.stream,),
                    selectivity,
                    state=_state(graph, operator, rates[edge.stream], measured, fits, notes),
                )
                for edge in edges
            )
            rates[stream] = came * selectivity
            operators.append(
                Operator(
                    stream,
                    ports,
                    frame_cost_s=(measured.work_s or 0.0) if is_first and stream == operator.outputs[0] else 0.0,
                    unit=unit.name,
                    host=unit.host or measured.host or DEFAULT_HOSTS[units.index(unit) % len(DEFAULT_HOSTS)],
                    protect=_protect(graph.protection_of(operator), frame_s, came),
                    state_bytes=measured.state_bytes.get(operator.name, 0.0),
                    element_bytes=measured.bytes.get(stream, 0.0),
                )
            )
    if not any(each.host for each in run.units.values()):
        notes["hosts"] = (
            f"none in these records: units are spread over {' and '.join(DEFAULT_HOSTS)}, as with a protection"
        )
    made = _frames_of(operators, run, graph, notes)
    return replace(made, notes=notes)


def _state(
    graph: Graph,
    operator: GraphOperator,
    rate: float,
    measured: MeasuredUnit,
    fits: Mapping[str, Fit],
    notes: dict[str, str],
) -> State | None:
    if operator.kind not in STATEFUL:
        return None
    key = f"stabilises {operator.name}"
    if (fit := fits.get(operator.name)) is not None:
        notes[key] = (
            f"fitted to {fit.samples} bursts of its recorded input, R2 {fit.r2:.2f}; the engine marks such windows for longer"
        )
        return fit.state
    refill_us = refills_us(operator, graph.frame_ms)
    if refill_us is None:
        notes[key] = "never: nothing says when it does; stabilises= would"
        return never(measured.state_rows.get(operator.name, 1.0))
    notes[key] = "exact" if operator.kind in ("aggregate", "join") else "as declared"
    return time_window(refill_us / 1e6, rate)


def _protect(declared: Protection, frame_s: float, rate: float) -> Protect:
    if declared.every is None:
        return Protect()
    count = declared.every.count
    every_s = {"ms": count / 1000, "frames": count * frame_s, "elements": count / rate if rate else frame_s}[
        declared.every.unit
    ]
    behind_ms = getattr(declared, "behind_ms", None)
    kept = Protect(declared.durability, max(every_s, frame_s))
    return kept if behind_ms is None else replace(kept, behind_s=behind_ms / 1000)


def _frames_of(operators: list[Operator], run: MeasuredRun, graph: Graph, notes: dict[str, str]) -> StreamModel:
    units = {each.unit for each in operators if not each.is_source}
    hosts = {each.host for each in operators if each.host and not each.is_source}
    faults = []
    for kind, mttf_s, repair_s, targets in (
        ("crash", CRASH_MTTF_S, CRASH_S, units),
        ("host", HOST_MTTF_S, HOST_S, hosts),
    ):
        for target in sorted(targets):
            names = {target} if kind == "crash" else {each.unit for each in operators if each.host == target}
            seen = [s for name in names if name in run.units for s in run.units[name].recoveries_s.get(kind, ())]
            faults.append(Fault(kind, mttf_s, median(seen) if seen else repair_s, (target,)))
            notes[f"{kind} of {target}"] = (
                f"measured, {len(seen)} times" if seen else f"recovery assumed: {repair_s:g} s"
            )
    notes["mttf"] = "assumed; predict and advise take --mttf and --host-mttf"
    return StreamModel(
        graph.name, tuple(operators), _outputs(graph, notes), tuple(faults), (), "waits", graph.frame_ms / 1000
    )


def _outputs(graph: Graph, notes: dict[str, str]) -> tuple[Output, ...]:
    """One for each stream that a sink takes, with the strictest of what its sinks promise."""
    found: dict[str, Output] = {}
    for sink in graph.sinks:
        output = found.get(sink.stream, Output(sink.stream))
        for promise in sink.promises:
            match promise:
                case Within(delay_ms_max):
                    output = replace(
                        output, within_s=min(output.within_s, delay_ms_max / 1000), late_at_most=LATE_AT_MOST
                    )
                    notes["late"] = f"read as: at most {LATE_AT_MOST:.0%} of the frames later than promised"
                case Loses(at_most, wrong_at_most):
                    output = replace(
                        output,
                        lost_at_most=min(output.lost_at_most, at_most),
                        wrong_at_most=min(output.wrong_at_most, wrong_at_most),
                    )
        found[sink.stream] = output
    return tuple(found.values())


def with_declared(model: StreamModel, graph: Graph) -> StreamModel:
    """What the file declares now: protections and promises. Rates, work, states and faults stay the model's."""
    known = {stream: operator for operator in graph.operators for stream in operator.outputs}
    operators = tuple(
        replace(
            each, protect=_protect(graph.protection_of(known[each.name]), model.frame_s, sum(model.rates[each.name][0]))
        )
        if each.name in known
        else each
        for each in model.operators
    )
    before = {each.operator: each for each in model.outputs}
    outputs = []
    for each in _outputs(graph, {}):
        if each.operator not in model.index:
            raise refused(
                f"sink reads {each.operator!r}, which the model does not have.",
                do="make the model again: holdfast model FILE",
            )
        if (old := before.get(each.operator)) is not None:
            # The model says how a promise is interpreted.
            each = replace(each, available_at_least=old.available_at_least, tentative_s=old.tentative_s)
            if old.late_at_most < 1 and each.late_at_most < 1:
                each = replace(each, late_at_most=old.late_at_most)
        outputs.append(each)
    return replace(model, operators=operators, outputs=tuple(outputs))
