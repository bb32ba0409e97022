"""What a user's iterator yields, as one Arrow table of the declared schema."""

from __future__ import annotations

import pyarrow as pa

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources.fit import check_fits, fit, no_column

__all__ = ["table_of"]


def table_of(
    items: list[object], schema: Schema, source: str, first: int
) -> tuple[pa.Table, SourceError | None]:
    """Dicts, tuples in schema order, pandas DataFrames, Arrow tables or batches, in order.

    `first`: the number of the first element, for errors. With an error comes the
    table of the elements before it: they are good and must not be lost with it.
    """
    tables: list[pa.Table] = []
    rows: list[dict] = []
    failed: SourceError | None = None
    at = first  # number of the first element of `rows`
    for item in items:
        if failed is not None:
            break
        try:
            if isinstance(item, dict):
                rows.append(_checked(item, schema, source, at + len(rows)))
            elif isinstance(item, tuple):
                rows.append(_named(item, schema, source, at + len(rows)))
            else:
                failed = _flush(rows, tables, schema, source, at)
                rows = []
                if failed is None:
                    at += tables[-1].num_rows
                    tables.append(_arrow(item, schema, source, at))
                    at += tables[-1].num_rows
        except SourceError as error:
            failed = _flush(rows, tables, schema, source, at) or error
            rows = []
    if rows:
        failed = failed or _flush(rows, tables, schema, source, at)
    return pa.concat_tables([schema.arrow.empty_table(), *tables]), failed


def _flush(
    rows: list[dict], tables: list[pa.Table], schema: Schema, source: str, first: int
) -> SourceError | None:
    """Rows to a table; of rows with a bad one, those before it."""
    try:
        tables.append(pa.Table.from_pylist(rows, schema=schema.arrow))
        return None
    except _REFUSED as error:
        at, why = _first_bad(rows, schema, error)
        tables.append(pa.Table.from_pylist(rows[:at], schema=schema.arrow))
        return _bad(source, first + at, why, rows[at])


_REFUSED = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError)


def _first_bad(rows: list[dict], schema: Schema, error: Exception) -> tuple[int, str]:
    for at, row in enumerate(rows):
        for field in schema.arrow:
            try:
                pa.array([row[field.name]], field.type)
            except _REFUSED as bad:
                why = str(bad).splitlines()[0]
                return at, f"{field.name} = {row[field.name]!r}: {why}"
    return 0, str(error)


def _checked(row: dict, schema: Schema, source: str, at: int) -> dict:
    for name in schema.names:
        if name not in row:
            raise no_column(name, [str(key) for key in row], f"source {source!r}, element {at}")
    return row


def _named(row: tuple, schema: Schema, source: str, at: int) -> dict:
    if len(row) != len(schema.names):
        why = f"{len(row)} values for {len(schema.names)} columns ({schema.ddl})"
        raise _bad(source, at, why, row)
    return dict(zip(schema.names, row, strict=True))


def _arrow(item: object, schema: Schema, source: str, at: int) -> pa.Table:
    where = f"source {source!r}, from element {at} on"
    if isinstance(item, pa.RecordBatch):
        item = pa.Table.from_batches([item])
    elif hasattr(item, "iloc") and hasattr(item, "columns"):
        item = pa.Table.from_pandas(item, preserve_index=False)
    if not isinstance(item, pa.Table):
        raise _bad(source, at, f"it is a {type(item).__name__}", item)
    check_fits(item.schema, schema, where)
    return fit(item, schema, where)


def _bad(source: str, at: int, why: str, element: object) -> SourceError:
    shown = repr(element)
    return SourceError(
        "HF-S011",
        "BadElement",
        f"element {at} cannot be taken as declared.",
        where=f"source {source!r}",
        why=f"{why}; it was {shown[:120]}{'...' if len(shown) > 120 else ''}",
        effect="it is not logged, nor what came after it; elements before it are",
        do="yield dicts, tuples in schema order, pandas DataFrames or Arrow tables that fit",
    )
