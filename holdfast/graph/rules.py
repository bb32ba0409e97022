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
from holdfast.graph.units import cut
from holdfast.graph.wellformed import check_well_formed

__all__ = ["check_structure"]


def check_structure(graph: Graph) -> list[Finding]:
    found = [*check_well_formed(graph), *check_fit(graph)]
    if all(finding.warning for finding in found):
        found.extend(_declared_units(graph))
    return sorted(dict.fromkeys(found), key=lambda finding: finding.warning)


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
