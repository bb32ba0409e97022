"""What columns of a source that is sent records may be: those that text can hold, and of `id=` those that name an element.

Told when they are declared: sent, every record would be a bad one.
"""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.graph.schemas import Schema

__all__ = ["check_id", "check_sent"]


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


def check_sent(format: str, source: str, schema: Schema) -> None:
    """HF-C034 if no record of this format can hold a column."""
    for column in schema.columns:
        if ("<" in column.type) if format == "csv" else ("map<" in column.type):
            raise UsageError(
                "HF-C034",
                "NotASetting",
                f"column '{column.name}' of source '{source}' is {column.type}, which {format.upper()} records cannot hold.",
                effect="nothing was declared",
                do="declare it as string and parse it in an operator" if format == "csv"
                else "declare it as a struct of the fields you need",
            )  # fmt: skip
