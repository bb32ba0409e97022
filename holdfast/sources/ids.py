"""What may name an element for ever: a column of text, whole numbers, decimals, bytes, dates or times."""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.graph.schemas import Schema

__all__ = ["check_id"]


def check_id(column: str | None, source: str, schema: Schema) -> None:
    """HF-C034 if values of the column of id= cannot be compared: nested ones, and numbers of which one does not equal itself."""
    if column is None:
        return
    kind = schema.type_of(column)
    if "<" in kind or kind in ("float", "double"):
        raise UsageError(
            "HF-C034",
            "NotASetting",
            f"column '{column}' of id= is {kind} in source '{source}', which names nothing for ever.",
            why="an element is known again by a value that equals itself and nothing else",
            effect="nothing was declared",
            do="take a column of type string, bigint, decimal, binary, date or timestamp",
        )
