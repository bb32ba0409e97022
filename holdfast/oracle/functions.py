"""Operators without state on the DataFrames of one frame: the user's function, filter, map, union and split.

The function is called again for every frame, on DataFrames that hold this frame and no other. The
built-ins are written down a second time, as plain as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from holdfast.oracle.tables import N
from holdfast.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from holdfast.graph.model import Graph, Operator

__all__ = ["call", "rowwise", "values_as_columns"]


def call(operator: Operator, ports: Mapping[str, DataFrame], values: Mapping[str, Column]) -> dict[str, DataFrame]:
    """By stream, what the user's function makes of its ports."""
    result = operator.function(**ports, **values)
    if isinstance(result, dict):
        return {stream: result[stream.split(".", 1)[-1]] for stream in operator.outputs}
    parts = list(result) if isinstance(result, (tuple, list)) else [result]
    return dict(zip(operator.outputs, parts, strict=True))


def rowwise(operator: Operator, dfs: Sequence[DataFrame], *, numbered: bool) -> dict[str, DataFrame]:
    """By stream, what a built-in without state makes of its inputs; `numbered`: rows carry the number of their frame."""
    options, first = operator.options, dfs[0]
    match operator.kind:
        case "filter":
            made = [first.filter(F.expr(options["where"]))]
        case "map":
            made = [first.selectExpr(*options["select"], *([N] if numbered else []))]
        case "union":
            made = [reduce(lambda one, other: one.unionAll(other.select(*map(quoted, one.columns))), dfs)]
        case "split":
            made = [first.filter(F.expr(condition)) for condition in options["into"].values()]
        case kind:
            raise ValueError(f"{kind!r} keeps state")
    return dict(zip(operator.outputs, made, strict=True))


def values_as_columns(graph: Graph, operator: Operator, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Column]:
    """The operator's parameters: one value, or for each key its own."""
    columns = {}
    for name in operator.params:
        column = F.lit(values[name]["value"])
        for key, value in values[name]["per"].items():
            is_key = F.col(quoted(graph.param(name).per)).cast("string") == F.lit(key)
            column = F.when(is_key, F.lit(value)).otherwise(column)
        columns[name] = column
    return columns
