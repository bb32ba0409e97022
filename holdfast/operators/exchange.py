"""Between our Arrow tables and the DataFrames of a user's function.

In: numbers and booleans are numpy's where no value is null and pandas' nullable ones
(Int64, boolean) where one is, so an integer never turns into a float on the way;
a double's null is NaN; timestamps are datetime64 in UTC, strings are str, decimals
Decimal, dates date, arrays numpy arrays. With `exact` every column has Arrow's type.

Out: the declared columns, no more and no fewer, in any order; keys may stand in the
index. A value that does not fit its declared type without loss is refused, never
rounded; NaN is null; nanoseconds are cut to microseconds, which is all Spark has.

Pure: no Spark, file or clock.
"""

from __future__ import annotations

import difflib
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Misfit", "to_df", "to_table"]

_NULLABLE = {
    pa.int8(): pd.Int8Dtype(),
    pa.int16(): pd.Int16Dtype(),
    pa.int32(): pd.Int32Dtype(),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
}
# Integers a double holds exactly.
_EXACT = 2**53


class Misfit(ValueError):
    """What came back is not what was declared; `do` says what would be."""

    def __init__(self, why: str, do: str) -> None:
        self.why, self.do = why, do
        super().__init__(why)


def to_df(table: pa.Table, *, exact: bool = False) -> pd.DataFrame:
    if exact:
        columns = {
            name: pd.Series(pd.arrays.ArrowExtensionArray(table.column(name)), copy=False)
            for name in table.column_names
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows), copy=False)
    plain = [at for at, column in enumerate(table.columns) if not _needs_nullable(column)]
    df = table.select(plain).to_pandas()
    for at, name in enumerate(table.column_names):
        column = table.column(at)
        if _needs_nullable(column):
            df.insert(at, name, _NULLABLE[column.type].__from_arrow__(column))
    return df


def to_table(found: Any, schema: pa.Schema, keys: tuple[str, ...] = ()) -> pa.Table:
    """The declared columns out of what a function returned."""
    if found is None:
        return schema.empty_table()
    if isinstance(found, pa.RecordBatch):
        found = pa.Table.from_batches([found])
    if isinstance(found, pa.Table):
        _compare(found.column_names, schema)
        columns = [_cast(found.column(field.name), field) for field in schema]
        return pa.Table.from_arrays(columns, schema=schema)
    if not isinstance(found, pd.DataFrame):
        raise Misfit(
            f"it is a {type(found).__name__}, not a pandas DataFrame",
            "return a DataFrame with the columns " + ", ".join(schema.names),
        )
    if any(name in keys for name in found.index.names):
        found = found.reset_index()
    _compare(list(found.columns), schema)
    columns = [_array(found[field.name], field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _needs_nullable(column: pa.ChunkedArray) -> bool:
    return column.null_count > 0 and column.type in _NULLABLE


def _compare(names: list, schema: pa.Schema) -> None:
    missing = [name for name in schema.names if name not in names]
    strange = [name for name in names if name not in schema.names]
    if missing:
        near = difflib.get_close_matches(missing[0], [str(name) for name in strange], n=1)
        raise Misfit(
            f"column {missing[0]!r} is missing; found {_listed(names)}",
            f"is {near[0]!r} meant to be {missing[0]!r}?"
            if near
            else f"return all declared columns: {_listed(schema.names)}",
        )
    if strange:
        raise Misfit(
            f"column {str(strange[0])!r} is not declared; declared are {_listed(schema.names)}",
            "declare it, or leave it out: df[[...]]",
        )
    if len(names) != len(schema.names):
        twice = next(name for name in names if names.count(name) > 1)
        raise Misfit(f"column {twice!r} stands there twice", "return each column once")


def _array(series: pd.Series, field: pa.Field) -> pa.Array:
    kind = field.type
    if isinstance(series.dtype, pd.ArrowDtype):
        return _cast(series.array.__arrow_array__(), field)
    if pa.types.is_integer(kind) and series.dtype.kind == "f":
        large = series.abs() > _EXACT
        if large.any():
            raise Misfit(
                f"column {field.name!r} is {kind}, but came back as float with the value "
                f"{series[large].iloc[0]!r}, which a float does not hold exactly",
                'keep it an integer: .astype("Int64") before a merge or fillna',
            )
    try:
        if pa.types.is_timestamp(kind) and series.dtype.kind == "M":
            return _cast(pa.array(series, from_pandas=True), field)
        return pa.array(series, type=kind, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
        raise _refused(field, str(series.dtype), error) from error


def _cast(column: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if column.type == field.type:
        return column
    try:
        options = pc.CastOptions(target_type=field.type, allow_time_truncate=True)
        return pc.cast(column, options=options)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise _refused(field, str(column.type), error) from error


def _refused(field: pa.Field, found: str, error: Exception) -> Misfit:
    return Misfit(
        f"column {field.name!r} is declared {field.type} and came back as {found}: {error}",
        "convert it in the function, or declare the type it has",
    )


def _listed(names: list) -> str:
    return ", ".join(map(str, names)) or "none"
