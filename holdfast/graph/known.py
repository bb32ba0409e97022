"""What is known of a stream's columns without a JVM.

Sources, keyed operators and feedback edges declare their schema; filters, splits and
unions keep it; aggregates and joins change it in ways that can be read off. Whatever
passes through a function of the user's is unknown until Spark has analysed it, and
unknown is never an error here.

Pure.
"""

from __future__ import annotations

import re

from holdfast.graph.model import Edge, Graph, Operator, Source
from holdfast.graph.schemas import Schema

__all__ = ["Columns", "columns_at", "columns_of", "plain_column", "show_columns"]

Columns = dict[str, str | None]  # name -> type, None where the type is not known

_WHOLE = ("tinyint", "smallint", "int", "bigint")


def columns_of(graph: Graph, stream: str, _seen: frozenset[str] = frozenset()) -> Columns | None:
    """Columns of a stream in order, or None if nothing is known."""
    producer = graph.producer_of(stream)
    if producer is None or stream in _seen:
        return None
    if isinstance(producer, Source):
        return _as_columns(producer.schema)
    seen = _seen | {stream}
    match producer.kind:
        case "frame" | "stream" | "keyed":
            return _as_columns(producer.options.get("emits", {}).get(stream))
        case "filter" | "split":
            return _first(graph, producer, seen)
        case "union":
            known = [columns_at(graph, edge, seen) for edge in producer.inputs]
            return next((columns for columns in known if columns is not None), None)
        case "map":
            return _mapped(producer, _first(graph, producer, seen))
        case "aggregate":
            return _aggregated(producer, _first(graph, producer, seen))
        case "join":
            return _joined(graph, producer, seen)
    return None


def columns_at(graph: Graph, edge: Edge, _seen: frozenset[str] = frozenset()) -> Columns | None:
    """Columns an input port sees: what was declared on the edge, else the stream's."""
    if edge.schema is not None:
        return _as_columns(edge.schema)
    return columns_of(graph, edge.stream, _seen)


def plain_column(expression: str) -> str | None:
    """The column if the expression is nothing but one: 'celsius' or '`odd name`'."""
    text = expression.strip()
    if re.fullmatch(r"[A-Za-z_]\w*", text):
        return text
    quoted = re.fullmatch(r"`((?:[^`]|``)+)`", text)
    return quoted[1].replace("``", "`") if quoted else None


def show_columns(columns: Columns) -> str:
    return ", ".join(f"{name} {kind}" if kind else name for name, kind in columns.items())


def _as_columns(schema: Schema | None) -> Columns | None:
    return None if schema is None else {column.name: column.type for column in schema.columns}


def _first(graph: Graph, operator: Operator, seen: frozenset[str]) -> Columns | None:
    return columns_at(graph, operator.inputs[0], seen) if operator.inputs else None


def _mapped(operator: Operator, before: Columns | None) -> Columns | None:
    found: Columns = {}
    for expression in operator.options["select"]:
        named = re.search(r"\bas\s+([A-Za-z_]\w*)\s*$", expression, flags=re.IGNORECASE)
        column = plain_column(expression)
        if expression.strip() == "*":
            if before is None:
                return None
            found |= before
        elif column is not None:
            found[column] = (before or {}).get(column)
        elif named:
            source = plain_column(expression[: named.start()])
            found[named[1]] = (before or {}).get(source) if source else None
        else:
            return None
    return found


def _aggregated(operator: Operator, before: Columns | None) -> Columns:
    found: Columns = {key: (before or {}).get(key) for key in operator.options["by"]}
    for column, (function, expression) in operator.options["emits"].items():
        inner = plain_column(expression)
        found[column] = _aggregate_type(function, (before or {}).get(inner) if inner else None)
    return found


def _aggregate_type(function: str, inner: str | None) -> str | None:
    if function in ("count", "count_distinct"):
        return "bigint"
    if function in ("window_start", "window_end"):
        return "timestamp"
    if function in ("min", "max", "first", "last"):
        return inner
    if function == "sum":
        return "bigint" if inner in _WHOLE else "double" if inner in ("float", "double") else None
    return None if inner is not None and inner.startswith("decimal") else "double"


def _joined(graph: Graph, operator: Operator, seen: frozenset[str]) -> Columns | None:
    sides = [columns_at(graph, edge, seen) for edge in operator.inputs]
    if operator.options.get("emits") is not None or len(sides) < 2 or None in sides:
        return None
    left, right = sides
    found: Columns = {key: left.get(key) for key in operator.options["on"]}
    found |= left
    for name, kind in right.items():
        if name not in operator.options["on"]:
            found[f"{name}_right" if name in found else name] = kind
    return found
