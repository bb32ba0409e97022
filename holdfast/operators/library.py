"""The keyed function of a declared built-in: one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.graph.model import Graph, Operator
from holdfast.graph.schemas import Schema
from holdfast.operators.aggregate import make_aggregate
from holdfast.operators.builtin import KeyedFunction
from holdfast.operators.join import make_join

__all__ = ["keyed_function"]


def keyed_function(
    operator: Operator,
    inputs: Sequence[Schema],
    graph: Graph,
    type_of: Callable[[str], str] | None = None,
) -> KeyedFunction:
    options = dict(operator.options)
    if options.get("time") is None and isinstance(graph.time, str):
        options["time"] = graph.time
    if operator.kind == "join":
        return make_join(options, *inputs)
    return make_aggregate(options, inputs[0], type_of=type_of)
