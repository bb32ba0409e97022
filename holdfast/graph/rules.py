"""All rules a process must pass before anything starts, without a JVM.

`check_structure` is the whole of `holdfast check` but for types; it opens nothing, so
it may be run anywhere and takes a few milliseconds. Errors come before warnings, each
in the order of the declarations. The rules that need Spark's analyser (HF-G003 through
a user's function, HF-G020 to HF-G027) live in `engine.types`.

Pure: a graph in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import Finding
from holdfast.graph.fitting import check_fit
from holdfast.graph.model import Graph
from holdfast.graph.surviving import check_surviving
from holdfast.graph.units import cut
from holdfast.graph.wellformed import EFFECT, check_well_formed

__all__ = ["check_structure"]


def check_structure(graph: Graph) -> list[Finding]:
    found = [*check_well_formed(graph), *check_fit(graph), *check_surviving(graph)]
    if all(finding.warning for finding in found):
        found.extend(_declared_units(graph))
        found.extend(_untriable(graph))
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
