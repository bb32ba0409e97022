"""Frames that waited while their operator was changed: the same rows in other columns, or refused."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from holdfast.frames.waiting import NotAsDeclared, as_declared
from holdfast.graph.schemas import Schema


def sealed(ddl: str, *rows: tuple) -> pa.Table:
    schema = Schema.of(ddl).arrow
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.Table.from_arrays([pa.array(values, field.type) for values, field in columns], schema=schema)


def test_columns_are_found_by_name():
    table = sealed("a int, b int", (1, 2))
    assert as_declared(table, Schema.of("b int, a int"), fills=False).to_pylist() == [{"b": 2, "a": 1}]


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("was", "value", "now"),
    [
        ("double", 0.1, "float"),
        ("double", 1e300, "float"),
        ("double", 1.005, "decimal(5,2)"),
        ("double", 0.5, "boolean"),
        ("double", 1.5, "int"),
        ("int", 300, "tinyint"),
        ("decimal(10,4)", Decimal("1.2345"), "decimal(10,2)"),
        ("timestamp", NOON, "date"),
        ("string", "012", "int"),
        ("string", "x", "int"),
        ("struct<a: int, b: int>", {"a": 1, "b": 2}, "struct<b: int>"),
        ("array<double>", [0.1], "array<float>"),
        ("map<string, int>", [("a", 1)], "int"),
    ],
)
def test_a_value_that_would_become_another_is_refused(was, value, now):
    with pytest.raises(NotAsDeclared, match="'x'"):
        as_declared(sealed(f"x {was}", (value,)), Schema.of(f"x {now}"), fills=True)


@pytest.mark.parametrize(
    ("was", "value", "now"),
    [
        ("float", 0.5, "double"),
        ("double", -0.0, "float"),
        ("double", math.inf, "float"),
        ("double", None, "float"),
        ("int", 7, "bigint"),
        ("bigint", 7, "int"),
        ("date", date(2026, 1, 1), "timestamp"),
        ("struct<a: int, b: int>", {"a": 1, "b": None}, "struct<a: int>"),
    ],
)
def test_a_value_that_stays_what_it_is_is_taken(was, value, now):
    schema = Schema.of(f"x {now}")
    table = as_declared(sealed(f"x {was}", (value,)), schema, fills=False)
    assert table.schema == schema.arrow
    assert table.column("x").cast(Schema.of(f"x {was}").arrow.field("x").type).to_pylist() == [value]


def test_nan_is_nan():
    table = as_declared(sealed("x double", (math.nan,)), Schema.of("x float"), fills=False)
    assert math.isnan(table.column("x")[0].as_py())


def test_values_of_a_column_that_is_gone_are_missed_and_nulls_are_not():
    with pytest.raises(NotAsDeclared, match="'note', which the stream no longer has"):
        as_declared(sealed("a int, note string", (1, "x")), Schema.of("a int"), fills=True)
    assert as_declared(sealed("a int, note string", (1, None)), Schema.of("a int"), fills=True).num_rows == 1


def test_a_column_that_came_later_is_null_where_that_may_be():
    table = sealed("a int", (1,))
    now = Schema.of("a int, b int")
    assert as_declared(table, now, fills=True).to_pylist() == [{"a": 1, "b": None}]
    with pytest.raises(NotAsDeclared, match="no column 'b'"):
        as_declared(table, now, fills=False)
    assert as_declared(table.slice(0, 0), now, fills=False).schema == now.arrow, "without rows there is nothing to miss"
