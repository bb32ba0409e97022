"""`holdfast trace --where`: which kept frames hold rows like these.

The condition is SQL of DuckDB over the columns of the stream and `_frame`. Frame by
frame, so that memory follows a frame and not the queue; the database has no access
to files. What can no longer be read is counted, never passed over in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.errors import UsageError
from holdfast.records.kept import Kept
from holdfast.records.masking import shown_rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Found", "find_rows", "select_from"]


@dataclass(frozen=True, slots=True)
class Found:
    stream: str
    where: str
    frames: dict[int, int]  # frame -> matching rows
    rows: list[dict[str, Any]]  # at most `limit`, each with its `_frame`
    looked_at: int
    unreadable: dict[int, str]  # frame -> why

    def to_json(self) -> dict[str, Any]:
        return {
            "stream": self.stream,
            "where": self.where,
            "frames": {str(n): count for n, count in self.frames.items()},
            "rows": self.rows,
            "looked_at": self.looked_at,
            "unreadable": {str(n): why for n, why in self.unreadable.items()},
        }


def find_rows(kept: Kept, stream: str, where: str, *, limit: int = 100) -> Found:
    stream = kept.checked(stream)
    frames: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    unreadable: dict[int, str] = {}
    numbers = kept.frames_kept(stream)
    # A condition that cannot be read is an error even when no frame is kept.
    select_from(kept.schema(stream).arrow.empty_table(), 0, where, hide=kept.hides_values)
    for n in numbers:
        table, why = kept.rows(stream, n)
        if table is None:
            unreadable[n] = why
            continue
        matching = select_from(table, n, where, hide=kept.hides_values)
        if matching.num_rows:
            frames[n] = matching.num_rows
            rows += shown_rows(matching.slice(0, max(0, limit - len(rows))), hide=kept.hides_values)
    return Found(stream, where, frames, rows, len(numbers), unreadable)


def select_from(table: pa.Table, n: int, where: str, *, hide: bool = False) -> pa.Table:
    """The rows of one frame that meet the condition, with the frame's number."""
    import duckdb
    import pyarrow as pa

    rows = table.append_column("_frame", pa.array([n] * table.num_rows, pa.int64()))
    with duckdb.connect(config={"enable_external_access": "false", "threads": "1"}) as connection:
        connection.execute("set timezone = 'UTC'")
        connection.register("rows_of_frame", rows)
        try:
            # In brackets: the condition ends where we say, not with a semicolon of its own.
            return connection.sql(f"select * from rows_of_frame where (\n{where}\n)").to_arrow_table()
        except duckdb.Error as error:
            raise UsageError(
                "HF-E016",
                "ConditionNotUnderstood",
                f"{where!r} is no condition on this stream.",
                why="" if hide and table.num_rows else str(error).splitlines()[0],  # it may quote a row
                effect="nothing was read",
                do=f'columns are: {", ".join(rows.column_names)}; e.g. --where "{table.column_names[-1]} is not null"',
            ) from None
