"""Does what a file holds fit what the source declares, and the cast that makes it so.

Columns are found by name; columns nobody declared are not read. A cast may
widen, may narrow when every value survives it (checked value by value), and may
drop what Spark's types cannot hold anyway (nanoseconds; a zone becomes UTC, a
time without one is taken as UTC). It never reads text as numbers: a file that
says "12" where an int was declared is refused, as Spark refuses it.

The indexer and the workers use the same cast, so both see the same times.
"""

from __future__ import annotations

import difflib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema

__all__ = ["NOTHING_READ", "check_fits", "fit", "grown", "no_column"]

NOTHING_READ = "no frame was made from this file; sealed frames and sinks are as they were"


def check_fits(found: pa.Schema, declared: Schema, path: str) -> None:
    """Raise HF-S002 or HF-S003 unless every declared column is there and castable."""
    for field in declared.arrow:
        at = found.get_all_field_indices(field.name)
        if len(at) != 1:
            raise no_column(field.name, list(found.names), path, twice=len(at) > 1)
        actual = found.field(at[0]).type
        if not _castable(actual, field.type):
            raise SourceError(
                "HF-S003",
                "TypesDiffer",
                f"column {field.name!r} is {actual} in the file, declared as {declared.type_of(field.name)}.",
                where=path,
                effect=NOTHING_READ,
                do=f"declare the type the file has, or convert the file: found {_show(found)}",
            )


def fit(table: pa.Table, declared: Schema, path: str) -> pa.Table:
    """The declared columns in declared order with the declared Arrow types."""
    target = declared.arrow
    columns = []
    for field in target:
        column = table.column(field.name)
        if column.type != field.type:
            column = _cast(column, field, declared, path)
        _check_valid(column, field, declared, path)
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=target)


def grown(table: pa.Table, declared: Schema, path: str) -> pa.Table:
    """The same for rows of our own log: a column that was declared after they were logged is null in them."""
    for field in declared.arrow:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    check_fits(table.schema, declared, path)
    return fit(table, declared, path)


def _cast(column: pa.ChunkedArray, field: pa.Field, declared: Schema, path: str):
    try:
        if _drops_only_what_spark_cannot_hold(column.type, field.type):
            return _floored(column).cast(field.type, safe=False)
        narrowed = column.cast(field.type)
        if _narrows(column.type, field.type):
            for before, after in zip(column.chunks, narrowed.chunks, strict=True):
                _check_survives(before, after)  # Arrow looks at every narrower number but these
        return narrowed
    except pa.ArrowInvalid as error:
        raise SourceError(
            "HF-S003",
            "TypesDiffer",
            f"a value of column {field.name!r} does not fit {declared.type_of(field.name)}.",
            where=path,
            why=str(error).splitlines()[0],
            effect="its frame was not made; frames before it stand",
            do=f"declare a wider type for {field.name!r}; the file has {column.type}",
        ) from error


def _check_valid(column: pa.ChunkedArray, field: pa.Field, declared: Schema, path: str) -> None:
    """Nobody looked whether text is UTF-8, or a decimal has no more digits than its type: Spark would fail on both."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise SourceError(
            "HF-S003",
            "TypesDiffer",
            f"a value of column {field.name!r} is no {declared.type_of(field.name)}.",
            where=path,
            why=str(error).splitlines()[0],
            effect="its frame was not made; frames before it stand",
            do=f"mend the file, or declare {field.name!r} as binary or with more digits",
        ) from error


def _narrows(actual: pa.DataType, target: pa.DataType) -> bool:
    """Whether a float becomes a shorter one, at any depth."""
    if kinds.is_null(actual):
        return False
    if kinds.is_dictionary(actual):
        return _narrows(actual.value_type, target)
    if kinds.is_struct(target):
        return any(_narrows(actual.field(field.name).type, field.type) for field in target)
    if kinds.is_map(target):
        return _narrows(actual.key_type, target.key_type) or _narrows(actual.item_type, target.item_type)
    if kinds.is_list(target):
        return _narrows(actual.value_type, target.value_type)
    return kinds.is_floating(actual) and kinds.is_floating(target) and target.bit_width < actual.bit_width


def _check_survives(before: pa.Array, after: pa.Array) -> None:
    """ArrowInvalid if a float that was made shorter is another one now."""
    if not _narrows(before.type, after.type):
        return
    if kinds.is_dictionary(before.type):
        _check_survives(before.dictionary_decode(), after)
    elif kinds.is_struct(after.type):
        for field in after.type:
            _check_survives(pc.struct_field(before, field.name), pc.struct_field(after, field.name))
    elif kinds.is_map(after.type):
        _check_survives(before.keys, after.keys)
        _check_survives(before.items, after.items)
    elif kinds.is_list(after.type):
        _check_survives(before.flatten(), after.flatten())
    else:
        same = pc.or_(pc.equal(after.cast(before.type), before), pc.is_nan(before))
        if pc.all(same).as_py() is False:
            value = before.filter(pc.invert(same))[0]
            raise pa.ArrowInvalid(f"{value.as_py()!r} would become {value.cast(after.type).as_py()!r}")


def _drops_only_what_spark_cannot_hold(actual: pa.DataType, target: pa.DataType) -> bool:
    return kinds.is_timestamp(actual) and kinds.is_timestamp(target) and actual.unit == "ns"


def _floored(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Arrow cuts nanoseconds off towards 1970: a time before it would move on, over the end of its frame even."""
    count = column.cast(pa.int64())
    rest = pc.subtract(count, pc.multiply(pc.divide(count, 1000), 1000))
    if not pc.any(pc.less(rest, 0)).as_py():
        return column
    return pc.subtract(count, pc.if_else(pc.less(rest, 0), 999, 0)).cast(column.type)


def _castable(actual: pa.DataType, target: pa.DataType) -> bool:
    if actual == target or kinds.is_null(actual):
        return True
    if kinds.is_dictionary(actual):
        return _castable(actual.value_type, target)
    if kinds.is_struct(target):
        return kinds.is_struct(actual) and all(
            (at := actual.get_field_index(field.name)) >= 0 and _castable(actual.field(at).type, field.type)
            for field in target
        )
    if kinds.is_map(target):
        return (
            kinds.is_map(actual)
            and _castable(actual.key_type, target.key_type)
            and _castable(actual.item_type, target.item_type)
        )
    if kinds.is_list(target):
        lists = kinds.is_list(actual) or kinds.is_large_list(actual)
        lists = lists or kinds.is_fixed_size_list(actual)
        return lists and _castable(actual.value_type, target.value_type)
    return any(_is_one(actual) and _is_other(target) for _is_one, _is_other in _FAMILIES)


def _is_text(kind: pa.DataType) -> bool:
    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return (
        kinds.is_binary(kind)
        or kinds.is_large_binary(kind)
        or kinds.is_binary_view(kind)
        or kinds.is_fixed_size_binary(kind)
    )


_FAMILIES = (
    (_is_text, _is_text),
    (_is_bytes, _is_bytes),
    (kinds.is_integer, kinds.is_integer),
    (kinds.is_integer, kinds.is_floating),
    (kinds.is_integer, kinds.is_decimal),
    (kinds.is_floating, kinds.is_floating),
    (kinds.is_decimal, kinds.is_decimal),
    (kinds.is_date, kinds.is_date),
    (kinds.is_timestamp, kinds.is_timestamp),
    (kinds.is_boolean, kinds.is_boolean),
)


def _show(found: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in found)


def no_column(name: str, names: list[str], path: str, *, twice: bool = False) -> SourceError:
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]!r}? " if near and not twice else ""
    return SourceError(
        "HF-S002",
        "ColumnMissing",
        f"there is {'more than one' if twice else 'no'} column {name!r}.",
        where=path,
        why=f"the columns are {', '.join(names)}" if names else "there are no columns at all",
        effect=NOTHING_READ,
        do=f"{meant}the declared schema must name columns that are there",
    )
