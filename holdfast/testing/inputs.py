"""Rows for a test: from a file, from dicts, from pandas, as an Arrow table in a stream's schema."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import UsageError
from holdfast.graph.schemas import Schema

__all__ = ["fitted", "rows"]


def rows(found: Any, schema: object = None) -> pa.Table:
    """A CSV, JSON lines, Parquet or Arrow file; a list of dicts; a pandas DataFrame; an Arrow table."""
    if isinstance(found, pa.Table):
        table = found
    elif isinstance(found, (str, Path)):
        table = _read(Path(found))
    elif isinstance(found, Sequence):
        table = pa.Table.from_pylist([dict(row) for row in found])
    elif hasattr(found, "columns"):
        table = pa.Table.from_pandas(found, preserve_index=False)
    else:
        raise _not_rows(found)
    return table if schema is None else fitted(table, Schema.of(schema), "rows")


def fitted(table: pa.Table, schema: Schema, what: str) -> pa.Table:
    """The table with the schema's columns and types; text becomes a timestamp where one is declared."""
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise UsageError(
            "HF-C040",
            "RowsDoNotFit",
            f"{what} have no column {missing[0]!r}.",
            why=f"declared {schema.ddl}; the rows have {', '.join(table.column_names) or 'no columns'}",
            effect="nothing was run",
            do="name the columns as the source declares them",
        )
    columns = []
    for field in schema.arrow:
        column = table[field.name]
        if pa.types.is_timestamp(field.type) and pa.types.is_timestamp(column.type) and column.type.tz is None:
            column = column.cast(pa.timestamp("us")).cast(pa.int64()).cast(pa.timestamp("us")).cast(field.type)
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema.arrow)


def _read(path: Path) -> pa.Table:
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if suffix.startswith(".csv"):
        from pyarrow import csv

        return csv.read_csv(path)
    if suffix.startswith((".json", ".jsonl")):
        from pyarrow import json

        return json.read_json(path)
    if suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path)
    if suffix == ".arrow":
        with pa.memory_map(str(path)) as file:
            return pa.ipc.open_file(file).read_all()
    raise _not_rows(path)


def _not_rows(found: object) -> UsageError:
    return UsageError(
        "HF-C041",
        "NotRows",
        f"{found!r} are no rows.",
        effect="nothing was run",
        do="give a .csv, .jsonl, .parquet or .arrow file, a list of dicts, a pandas DataFrame or an Arrow table",
    )
