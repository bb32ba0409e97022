"""Names of columns that Holdfast gives its own columns: no stream of a process may have one of them.

Plans carry a row's frame, stream, port and shard beside the user's columns; windows and joins
keep their own; tables have the frame and the place of a row. A user's column of the same name
would be taken for ours.

Pure: a graph or schemas in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.errors import Finding
from holdfast.graph.model import Graph
from holdfast.graph.schemas import Schema, folded

__all__ = ["RESERVED", "check_reserved", "reserved_in"]

RESERVED = frozenset(
    {
        "_n", "_out", "_port", "_shard",  # on the way through a unit
        "_holdfast_boundary", "_holdfast_epoch", "_holdfast_rows",
        "_frame", "_i", "_arrival_us",  # in tables and source logs
        "_window", "_pane", "_start", "_end", "_rows", "_seen", "_session", "_time",  # of windows and joins
    }
)  # fmt: skip


def check_reserved(graph: Graph) -> Iterator[Finding]:
    """What is declared; what a function emits, `engine.check.types` sees."""
    for source in graph.sources:
        if source.schema is not None:
            yield from reserved_in(source.schema.names, f"source {source.name!r}", source.line)
    for operator in graph.operators:
        declared = [*(operator.options.get("emits") or {}).values()] if operator.kind == "keyed" else []
        if operator.kind == "keyed":
            declared.append(operator.options["state"])
        for schema in declared:
            if isinstance(schema, Schema):
                yield from reserved_in(schema.names, f"operator {operator.name!r}", operator.line)


def reserved_in(names: Iterable[str], whose: str, line: str) -> Iterator[Finding]:
    for name in names:
        if folded(name) in RESERVED:
            yield Finding(
                "HF-G044",
                "ReservedColumn",
                f"{whose} has a column {name!r}, which is one of Holdfast's own.",
                where=line,
                why=f"reserved are {', '.join(sorted(RESERVED))}, in any case of letters",
                effect="nothing was started, nothing was read",
                do=f"give it another name: {name.strip('_')!r}; a file that has it is renamed by its writer, "
                f"or read with a schema that leaves it out",
            )
            return
