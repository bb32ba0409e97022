"""Built-ins without memory: filter, map, union, split, as functions of DataFrames.

What a row becomes depends on that row alone, so any cut into frames, and several
frames at once, give the same rows. Conditions and columns are Spark SQL; a row for
which a condition is null is not taken.

Pure: no session, clock or state. Driven by `engine.unit.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from holdfast.errors import invariant
from holdfast.operators.builtin import carried

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["apply_rowwise", "filter_rows", "map_rows", "split_rows", "union_rows"]


def filter_rows(df: DataFrame, where: str) -> DataFrame:
    return df.where(where)


def map_rows(df: DataFrame, select: Sequence[str]) -> DataFrame:
    made = df.selectExpr(*select)
    return made if carried(made) else df.selectExpr(*carried(df), *select)  # '*' has the frame's number with it


def union_rows(dfs: Sequence[DataFrame]) -> DataFrame:
    """All rows of all inputs; columns go by name, in the order of the first."""
    return reduce(lambda one, other: one.unionByName(other), dfs)


def split_rows(df: DataFrame, into: Mapping[str, str]) -> dict[str, DataFrame]:
    """Per port the rows that fulfil its condition: a row may go to several, or to none."""
    return {port: df.where(condition) for port, condition in into.items()}


def apply_rowwise(
    kind: str, options: Mapping[str, Any], dfs: Sequence[DataFrame], outputs: Sequence[str]
) -> dict[str, DataFrame]:
    """The output streams of a row-wise operator (`options` as in `graph.model`)."""
    match kind:
        case "filter":
            return {outputs[0]: filter_rows(dfs[0], options["where"])}
        case "map":
            return {outputs[0]: map_rows(dfs[0], options["select"])}
        case "union":
            return {outputs[0]: union_rows(dfs)}
        case "split":
            parts = split_rows(dfs[0], options["into"])
            return dict(zip(outputs, parts.values(), strict=True))  # "operator.port", in order
    invariant(False, f"{kind!r} is no row-wise operator")
    return {}
