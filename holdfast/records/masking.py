"""Rows as they may be shown: as they are, or, with `values="hide"`, as types and lengths.

For data of people: whoever keeps a process going sees how many rows there are and
what shape they have, and no value.
"""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["masked", "shown", "shown_rows"]


def shown_rows(table: pa.Table, *, hide: bool) -> list[dict[str, Any]]:
    """Rows for a terminal or JSON. Columns of ours (`_frame`) are never values of the user's."""
    return [
        {name: masked(value) if hide and not name.startswith("_") else shown(value) for name, value in row.items()}
        for row in table.to_pylist()
    ]


def masked(value: Any) -> str | None:
    """Type and length; that a value is missing may be seen."""
    match value:
        case None:
            return None
        case str() | bytes():
            return f"<{'text' if isinstance(value, str) else 'bytes'} of {len(value)}>"
        case list() | dict():
            return f"<{'list' if isinstance(value, list) else 'fields'} of {len(value)}>"
        case bool():
            return "<true or false>"
        case datetime() | date():
            return "<time>"
        case _:
            return f"<{type(value).__name__.lower()}>"


def shown(value: Any) -> Any:
    match value:
        case datetime():
            if value.tzinfo is not None:
                return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
            return value.isoformat()
        case date():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [shown(each) for each in value]
        case dict():
            return {name: shown(each) for name, each in value.items()}
        case bool() | int() | float() | str() | None:
            return value
        case _:
            return str(value)
