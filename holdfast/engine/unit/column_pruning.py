"""Which columns a plan uses: loaders read those and no others.

Spark cannot see into a Python loader, so it cannot prune its columns. We look at the
optimised plan instead: a column of a loader that no node above refers to is not read;
it stays in the DataFrame as a null that Spark drops. Nodes that pass columns on by
place (a union) count as using all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from holdfast.engine.unit.worker import Load
from holdfast.graph.schemas import Schema
from holdfast.operators.builtin import FRAME
from holdfast.quoting import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LOADER", "loaded", "loader", "map_in_arrow", "used_columns"]

# Nodes whose references are all they need of their children; others are taken to need everything.
_BY_NAME = frozenset(
    {
        "Project", "Filter", "Aggregate", "Join", "Sort", "Window", "Repartition", "RepartitionByExpression",
        "MapInArrow", "PythonMapInArrow", "MapInPandas", "ArrowEvalPython", "BatchEvalPython", "Generate",
        "GlobalLimit", "LocalLimit", "SubqueryAlias", "Range",
    }
)  # fmt: skip
# A loader's output is told from other columns by a mark in the name of its function; the name of its plan
# follows, then that of its port. No two plans have a leaf in common: Spark takes equal plans for one.
LOADER = "holdfast_load_"


def loader(load: Load, plan: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function of a leaf, under a name that no leaf of another plan has."""

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        return load(batches)

    read.__name__ = f"{LOADER}{plan}_{load.port}"
    return read


def map_in_arrow(df: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]], ddl: str) -> DataFrame:
    """`df.mapInArrow`, for columns of any name: PySpark asks for `a.b` as if it were b of a."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.functions import pandas_udf
    from pyspark.util import PythonEvalType

    udf = pandas_udf(function, returnType=ddl, functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)  # type: ignore[call-overload]
    column = udf(*(df[quoted(name)] for name in df.columns))
    return DataFrame(df._jdf.mapInArrow(column._jc, False, None), df.sparkSession)


def loaded(chunks: DataFrame, load: Load, needed: frozenset[str] | None, plan: str) -> DataFrame:
    """The rows of a port, with all its declared columns; those nobody uses are null."""
    kept = load.schema.columns
    if needed is not None and set(needed) != set(load.schema.names):
        kept = tuple(c for c in kept if c.name in needed) or load.schema.columns[:1]
        names = tuple(column.name for column in kept)
        load = replace(load, columns=names)
    ddl = Schema(kept).ddl + (f", {FRAME} bigint" if load.many else "")
    df = map_in_arrow(chunks, loader(load, plan), ddl)
    if len(kept) == len(load.schema.columns):
        return df
    present = {column.name for column in kept}
    columns = [
        F.col(quoted(c.name)) if c.name in present else F.lit(None).cast(c.type).alias(c.name)
        for c in load.schema.columns
    ]
    return df.select(*columns, *([F.col(FRAME)] if load.many else []))


def used_columns(df: DataFrame) -> dict[str, frozenset[str]]:
    """port -> columns of its loader that the optimised plan refers to."""
    used: set[int] = set()
    found: list[tuple[str, str, int]] = []  # (port, column, id); a port read twice has two ids a column
    plan = df._jdf.queryExecution().optimizedPlan()
    used |= _ids(plan.output())
    _walk(plan, used, found)
    needed: dict[str, set[str]] = {}
    for port, name, number in found:
        columns = needed.setdefault(port, set())
        if number in used and name != FRAME:
            columns.add(name)
    return {port: frozenset(columns) for port, columns in needed.items()}


def _walk(node: Any, used: set[int], found: list[tuple[str, str, int]]) -> None:
    kind = node.getClass().getSimpleName()
    port = _port_of(node, kind)
    if port is not None:
        output = node.output()
        for at in range(output.size()):
            attribute = output.apply(at)
            found.append((port, attribute.name(), attribute.exprId().id()))
        return
    used |= _ids(node.references())
    children = node.children()
    for at in range(children.size()):
        child = children.apply(at)
        if kind not in _BY_NAME:
            used |= _ids(child.output())
        _walk(child, used, found)


def _port_of(node: Any, kind: str) -> str | None:
    if "MapInArrow" not in kind:
        return None
    name = node.functionExpr().name()
    return name.removeprefix(LOADER).partition("_")[2] if name.startswith(LOADER) else None


def _ids(attributes: Any) -> set[int]:
    sequence = attributes.toSeq()
    return {sequence.apply(at).exprId().id() for at in range(sequence.size())}
