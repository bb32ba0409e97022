"""Fields that are declared and not there, and fields that are there and not declared: at any depth.

A field that is missing reads like a null, so a misspelt name would be a column of nulls; inside of
a struct as well. What nobody declared is kept as it was written: a number that is read and
written anew is another one.

Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

__all__ = [
    "LAX",
    "check_there",
    "missing_in",
    "more_of_row",
    "more_of_text",
    "names_in",
    "rows_with_nulls",
    "undeclared_columns",
    "undeclared_in",
]

# Numbers as they are written: no digit is lost, and none is too many.
LAX = json.JSONDecoder(parse_int=str, parse_float=str)
_BLANK = re.compile(r"[ \t\r\n]*")

Fields = Mapping[str, pa.DataType]


def _fields(kind: pa.DataType) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in kind}


# -- declared and not there --------------------------------------------------------


def check_there(raws: Sequence[bytes], table: pa.Table) -> None:
    """ValueError if one of the rows, as JSON, lacks a field; a null is fine where it says null."""
    declared = _fields(table.schema)
    for column in table.columns:
        for at in rows_with_nulls(column.combine_chunks()).tolist():
            found = LAX.decode(raws[at].decode())
            missing = next(missing_in(found, declared), None)
            if missing is not None:
                path, there = missing
                raise ValueError(f"there is no field {path!r}; the fields are {', '.join(there)}")


def rows_with_nulls(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """In which rows there is a null, at any depth."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    parts = [pc.indices_nonzero(array.is_null()).to_numpy(zero_copy_only=False)] if array.null_count else []
    if kinds.is_struct(array.type):
        parts += [rows_with_nulls(pc.struct_field(array, [at])) for at in range(array.type.num_fields)]
    elif kinds.is_list(array.type):
        inner = rows_with_nulls(pc.list_flatten(array))
        if len(inner):
            parts.append(pc.list_parent_indices(array).to_numpy(zero_copy_only=False)[inner])
    return np.unique(np.concatenate(parts)).astype(np.int64) if parts else np.zeros(0, np.int64)


def missing_in(value: Any, declared: Fields, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """(path of a declared field, the names beside it) of each that is not there."""
    if not isinstance(value, Mapping):
        return
    for name, kind in declared.items():
        if name not in value:
            yield path + name, [str(each) for each in value]
        else:
            yield from _missing_below(value[name], kind, path + name)


def _missing_below(value: Any, kind: pa.DataType, path: str) -> Iterator[tuple[str, list[str]]]:
    if kinds.is_struct(kind):
        yield from missing_in(value, _fields(kind), f"{path}.")
    elif kinds.is_list(kind) and kinds.is_nested(kind.value_type) and isinstance(value, Sequence | np.ndarray):
        for each in value:
            yield from _missing_below(each, kind.value_type, path)


def names_in(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(path of an object, name of a field in it) at every depth; of arrays, those of their elements."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield path, name
            yield from names_in(each, f"{path}{name}.")
    elif isinstance(value, list):
        for each in value:
            yield from names_in(each, path)


# -- there and not declared --------------------------------------------------------


def undeclared_in(value: Any, declared: Fields, path: str = "") -> Iterator[str]:
    """The path of each field that is there and not declared."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in declared:
                yield f"{path}{name}"
            else:
                yield from _undeclared_below(each, declared[name], f"{path}{name}")


def _undeclared_below(value: Any, kind: pa.DataType, path: str) -> Iterator[str]:
    if kinds.is_struct(kind):
        yield from undeclared_in(value, _fields(kind), f"{path}.")
    elif kinds.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value or ()
        for _, each in pairs:
            yield from _undeclared_below(each, kind.item_type, path)
    elif kinds.is_list(kind) and isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        for each in value:
            yield from _undeclared_below(each, kind.value_type, path)


def undeclared_columns(found: Iterable[pa.Field], declared: Fields, path: str = "") -> Iterator[str]:
    """The same of a schema."""
    for field in found:
        kind = declared.get(field.name)
        if kind is None:
            yield f"{path}{field.name}"
        else:
            yield from _columns_below(field.type, kind, f"{path}{field.name}")


def _columns_below(found: pa.DataType, kind: pa.DataType, path: str) -> Iterator[str]:
    if kinds.is_struct(kind) and kinds.is_struct(found):
        yield from undeclared_columns(found, _fields(kind), f"{path}.")
    elif kinds.is_map(kind) and kinds.is_map(found):
        yield from _columns_below(found.item_type, kind.item_type, path)
    elif kinds.is_list(kind) and hasattr(found, "value_type"):
        yield from _columns_below(found.value_type, kind.value_type, path)


def more_of_text(text: str, declared: Fields) -> str | None:
    """The fields of a JSON object that are not declared, as they were written; None: there are none.

    Of a struct those inside of it; of an array whose elements have some, the whole array.
    """
    return _more_at(text, _BLANK.match(text).end(), declared)


def _more_at(text: str, at: int, declared: Fields) -> str | None:
    kept = []
    for name, key, value, start, stop in _members(text, at):
        kind = declared.get(name)
        if kind is None:
            kept.append((name, key, text[start:stop]))
        elif kinds.is_struct(kind) and isinstance(value, dict):
            inner = _more_at(text, start, _fields(kind))
            if inner is not None:
                kept.append((name, key, inner))
        elif next(_undeclared_below(value, kind, name), None) is not None:
            kept.append((name, key, text[start:stop]))
    kept.sort(key=lambda each: each[0])
    return "{" + ", ".join(f"{key}: {raw}" for _, key, raw in kept) + "}" if kept else None


def _members(text: str, at: int) -> Iterator[tuple[str, str, Any, int, int]]:
    """(name, name as written, value, where it begins, where it ends) of an object that begins at `at`."""
    at = _BLANK.match(text, at + 1).end()
    while text[at] != "}":
        name, end = scanstring(text, at + 1)
        key = text[at:end]
        at = _BLANK.match(text, end).end() + 1  # behind the colon
        start = _BLANK.match(text, at).end()
        value, stop = LAX.raw_decode(text, start)
        yield name, key, value, start, stop
        at = _BLANK.match(text, stop).end()
        if text[at] == ",":
            at = _BLANK.match(text, at + 1).end()


def more_of_row(row: Mapping, declared: Fields) -> str | None:
    """The same of a Python row."""
    more = _more_in(row, declared)
    return json.dumps(more, default=str, sort_keys=True) if more else None


def _more_in(row: Mapping, declared: Fields) -> dict:
    more = {}
    for name, value in row.items():
        kind = declared.get(name)
        if kind is None:
            more[name] = value
        elif kinds.is_struct(kind) and isinstance(value, Mapping):
            inner = _more_in(value, _fields(kind))
            if inner:
                more[name] = inner
        elif next(_undeclared_below(value, kind, str(name)), None) is not None:
            more[name] = value
    return more
