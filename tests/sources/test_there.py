"""Fields that are declared and not there, and fields that are there and not declared: at any depth."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from holdfast.sources.live.elements import table_of
from holdfast.sources.live.wire import Record
from holdfast.sources.parse.bad import Terms

from .growing_files import at_once, driven  # noqa: F401

DEEP = "v int, s struct<a: int, t: struct<b: int>>, l array<struct<a: int>>"
WHOLE = '{"v": 1, "s": {"a": 1, "t": {"b": 2}}, "l": [{"a": 1}]}'


def taken(items, schema, **terms):
    table, bad = table_of(items, Terms(Schema.of(schema), "probes", **terms), 0, first_only=False)
    return table.to_pylist(), bad


LACKING = [
    ('{"v": 1, "s": {"a": 1, "t": {"bb": 2}}, "l": [{"a": 1}]}', "s.t.b"),
    ('{"v": 1, "s": {"t": {"b": 2}}, "l": []}', "s.a"),
    ('{"v": 1, "s": null, "l": [{"a": 1}, {"A": 1}]}', "l.a"),
]


@pytest.mark.parametrize(("raw", "name"), LACKING)
def test_a_field_missing_inside_of_a_struct_is_missed(raw, name):
    for item in (Record(raw.encode()), json.loads(raw)):
        whole = Record(WHOLE.encode()) if isinstance(item, Record) else json.loads(WHOLE)
        rows, [bad] = taken([whole, item, whole], DEEP)
        assert len(rows) == 2 and bad.at == 1 and repr(name) in bad.reason
    rows, bad = taken([Record(raw.encode())], DEEP, missing="null")
    assert len(rows) == 1 and not bad


@pytest.mark.parametrize(
    "raw",
    [WHOLE, '{"v": null, "s": null, "l": null}', '{"v": 1, "s": {"a": null, "t": null}, "l": [null, {"a": null}]}'],
)
def test_a_null_inside_of_a_struct_is_none_that_is_missing(raw):
    for item in (Record(raw.encode()), json.loads(raw)):
        assert taken([item], DEEP) == ([json.loads(raw)], [])


@pytest.mark.parametrize("growing", [False, True])
def test_a_field_missing_inside_of_a_struct_of_a_file_is_missed(driver, tmp_path, growing):
    driver.set(schema=Schema.of("ts timestamp, s struct<a: int>"))
    (tmp_path / "a.jsonl").write_text('{"ts": "2023-11-14T22:13:20Z", "s": {"aa": 1}}\n' * 3)
    reader = read.files("a.jsonl", growing=growing)
    with pytest.raises(SourceError, match=r"s\.a"):
        driven(driver, reader) if growing else driver.frames(reader)


@pytest.mark.parametrize(
    ("raw", "more"),
    [
        ('{"v": 1, "x": 12345678901234567890.1234567}', '{"x": 12345678901234567890.1234567}'),
        ('{"z": 1.0, "v": 1, "y": {"b": 1e2,  "a": "\\u00e9"}}', '{"y": {"b": 1e2,  "a": "\\u00e9"}, "z": 1.0}'),
        ('{"v": 1, "s": {"a": 1, "x": 2.50, "t": {"b": 2, "c": -0}}}', '{"s": {"t": {"c": -0}, "x": 2.50}}'),
        ('{"v": 1, "l": [{"a": 1}, {"a": 2, "x": 3}]}', '{"l": [{"a": 1}, {"a": 2, "x": 3}]}'),
        ('{"v": 1, "n": ' + "7" * 5000 + "}", '{"n": ' + "7" * 5000 + "}"),
        ('{"v": 1, "_more": "theirs"}', '{"_more": "theirs"}'),
        (WHOLE, None),
    ],
)
def test_what_nobody_declared_is_kept_as_it_was_written(raw, more):
    [row], bad = taken([Record(raw.encode())], DEEP + ", _more string", new_columns="keep", missing="null")
    assert (row["_more"], bad) == (more, [])


def test_what_nobody_declared_in_python_rows_and_tables_is_kept_or_refused():
    row = {"s": {"a": 1, "x": 0.1}, "l": [{"a": 1, "y": 2}], "_more": "theirs"}
    kept = {"s": {"x": 0.1}, "l": [{"a": 1, "y": 2}], "_more": "theirs"}
    schema = "s struct<a: int>, l array<struct<a: int>>"
    [found], _ = taken([row], schema + ", _more string", new_columns="keep")
    assert json.loads(found["_more"]) == kept
    [found], _ = taken([pa.Table.from_pylist([row])], schema + ", _more string", new_columns="keep")
    assert json.loads(found["_more"]) == kept
    [found], _ = taken([pa.table({"v": pa.array([1], pa.int32())})], "v int, _more string", new_columns="keep")
    assert found == {"v": 1, "_more": None}
    _, [bad] = taken([row], schema, new_columns="fail")
    assert "s.x, l.y, _more" in bad.reason
    with pytest.raises(SourceError, match=r"HF-S014[^$]*s\.x, l\.y, _more"):
        taken([pa.Table.from_pylist([row])], schema, new_columns="fail")
    table, [bad] = table_of(
        [{"v": 1}, pa.table({"v": [1], "x": [2]})],
        Terms(Schema.of("v int"), "probes", new_columns="fail"),
        0,
        first_only=True,
    )
    assert (table.num_rows, bad.at, bad.error.code) == (1, 1, "HF-S014")
    [found], _ = taken([{"v": 1, "d": Decimal("1.10")}], "v int, _more string", new_columns="keep")
    assert json.loads(found["_more"]) == {"d": "1.10"}


def test_a_record_too_deep_to_be_looked_at_is_bad_and_not_cut_short():
    raw = '{"v": 1, "x": ' + "[" * 5000 + "]" * 5000 + "}"
    rows, [bad] = taken([Record(raw.encode())], "v int, _more string", new_columns="keep")
    assert rows == [] and bad.at == 0
