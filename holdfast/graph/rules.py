"""All rules a process must pass before anything starts, without a JVM.

`check_structure` is the whole of `holdfast check` but for types; it opens nothing, so
it may be run anywhere and takes a few milliseconds. Errors come before warnings, each
in the order of the declarations. The rules that need Spark's analyser (HF-G003 through
a user's function, HF-G020 to HF-G027) live in `engine.check.types`.

Pure: a graph in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import Finding
from holdfast.graph.durability import check_durability
from holdfast.graph.fitting import check_fit
from holdfast.graph.memory import check_memory
from holdfast.graph.model import Graph
from holdfast.graph.promises import Loses
from holdfast.graph.reserved import check_reserved
from holdfast.graph.surviving import check_surviving
from holdfast.graph.units import cut
from holdfast.graph.wellformed import EFFECT, check_well_formed

__all__ = ["check_structure"]


def check_structure(graph: Graph) -> list[Finding]:
    found = [*check_well_formed(graph), *check_fit(graph), *check_surviving(graph), *check_durability(graph)]
    found += [*check_memory(graph), *check_reserved(graph)]
    if all(finding.warning for finding in found):
        found.extend(_declared_units(graph))
        found.extend(_untriable(graph))
        found.extend(_sinks_that_leave_out(graph))
    return sorted(dict.fromkeys(found), key=lambda finding: finding.warning)


def _untriable(graph: Graph) -> Iterator[Finding]:
    """Poison rows are found by trying a frame without some of them; Spark's own state would count the tries."""
    for unit in cut(graph):
        stream = next((name for name in unit.operators if graph.operator(name).kind == "stream"), None)
        for name in unit.operators if stream is not None else ():
            operator = graph.operator(name)
            if operator.on_error != "stop":
                beside = "" if name == stream else f"it shares a unit with '{stream}', which is one; "
                yield Finding(
                    "HF-G028",
                    "OnErrorNeedsFrames",
                    f"operator '{name}' declares on_error='{operator.on_error}' where a frame cannot be tried twice.",
                    where=f"{operator.line}, operator '{name}'",
                    why=f"{beside}the state of an operator over='stream' is Spark's, and every try would change it",
                    effect=EFFECT,
                    do="drop on_error=" if name == stream else "declare apart=True for it, or drop on_error=",
                )


def _sinks_that_leave_out(graph: Graph) -> Iterator[Finding]:
    for sink in graph.sinks:
        where = f"{sink.line}, sink '{sink.name}'"
        if sink.on_error != "fail" and not hasattr(sink.writer, "keys"):
            yield Finding(
                "HF-K037",
                "CannotLeaveOut",
                f"sink '{sink.name}' declares on_error='{sink.on_error}' and cannot tell which row is refused.",
                where=where,
                why=f"a {sink.writer.describe()} takes a frame as a whole; only tables are asked row by row",
                effect=EFFECT,
                do="drop on_error= there",
            )
        if sink.on_error == "drop" and (
            said := [each for each in sink.promises if isinstance(each, Loses) and each.at_most == 0]
        ):
            yield Finding(
                "HF-K035",
                "DropsWhatItKeeps",
                f"sink '{sink.name}' promises {said[0]} and drops rows that its table refuses.",
                where=where,
                why="a row that is dropped is lost",
                effect=EFFECT,
                do="declare on_error='quarantine': rows kept there count as kept; or promise hf.loses(at_most=...)",
            )


def _declared_units(graph: Graph) -> Iterator[Finding]:
    """A `unit=` word is a wish: say so where the cut could not grant it."""
    homes: dict[str, str] = {}
    for unit in cut(graph):
        for name in unit.operators:
            operator = graph.operator(name)
            if operator is None or operator.unit is None:
                continue
            first = homes.setdefault(operator.unit, unit.name)
            if first != unit.name:
                yield Finding(
                    "HF-G031",
                    "UnitCannotHold",
                    f"operator '{name}' is declared in unit '{operator.unit}' and runs apart from '{first}'.",
                    where=f"{operator.line}, operator '{name}'",
                    why=unit.why,
                    effect=f"it runs in unit '{unit.name}'; results are the same",
                    do="drop unit= there, or take away what parts them",
                    warning=True,
                )
