"""No value is changed on its way in: it is taken as it is, or refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import SourceError, UsageError
from holdfast.graph.reaching import AFTER_9999
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from holdfast.sources.live.elements import table_of
from holdfast.sources.live.wire import Record
from holdfast.sources.parse.bad import Terms

from .conftest import SECOND

T0 = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.5),
        ("int", np.float32(1.5)),
        ("int", Fraction(3, 2)),
        ("array<int>", np.array([1.5], "f4")),
        ("struct<a: int>", [("a", 1.5)]),
        ("struct<a: int>", (1.5,)),
        ("date", 20260101),
        ("date", 1.5),
        ("timestamp", 1_767_225_600),
        ("timestamp", Fraction(3, 2)),
        ("bigint", Decimal("2.5")),
        ("float", 1e300),
        ("timestamp", 1_767_225_600.5),
        ("date", datetime(2026, 1, 1, 5, tzinfo=UTC)),
        ("array<int>", [1, 2.5]),
        ("struct<a: int>", {"a": 1.5}),
        ("map<string, int>", {"a": 1.5}),
        ("decimal(5, 2)", Decimal("1234.5")),
    ],
)
def test_a_python_value_that_would_become_another_is_a_bad_element(kind, value):
    table, bad = table_of([{"v": value}, {"v": None}], Terms(Schema.of(f"v {kind}"), "probes"), 0, first_only=False)
    assert (table.num_rows, [each.at for each in bad]) == (1, [0])


@pytest.mark.parametrize(
    ("kind", "value"),
    [("int", 2.0), ("int", np.int64(5)), ("int", np.float32(2.0)), ("struct<a: int>", (1,)), ("timestamp", datetime(2026, 1, 1)), ("float", 0.5), ("float", float("inf")), ("date", date(2026, 1, 1)), ("array<int>", [1, None]), ("map<string, int>", {"a": 1})],
)  # fmt: skip
def test_a_python_value_that_stays_what_it_is_is_taken(kind, value):
    table, bad = table_of([{"v": value}], Terms(Schema.of(f"v {kind}"), "probes"), 0, first_only=False)
    assert (table.num_rows, bad) == (1, [])


@pytest.mark.parametrize("written", ["0x10", "0xFFFFFFFF", "0XFF"])
def test_a_whole_number_in_hexadecimal_is_a_bad_record(written):
    """Arrow reads 0xFFFFFFFF as the int -1."""
    schema, raw = Schema.of("v int, s string"), f"{written},0x10"
    records = [Record(raw.encode(), format="csv"), Record(b"7,0x10", format="csv")]
    table, bad = table_of(records, Terms(schema, "probes"), 0, first_only=False)
    assert (table.to_pylist(), [each.at for each in bad]) == ([{"v": 7, "s": "0x10"}], [0])


@pytest.mark.parametrize(("kind", "level"), [("int", "0x10"), ("float", "1e39"), ("double", "1e400")])
def test_a_level_of_a_topic_that_would_become_another_value_is_a_bad_record(kind, level):
    records = [Record(b'{"s": "x"}', given={"v": each}) for each in (level, "7")]
    table, bad = table_of(records, Terms(Schema.of(f"v {kind}, s string"), "probes"), 0, first_only=False)
    assert (table.column("v").to_pylist(), [each.at for each in bad]) == ([7], [0])


def test_a_row_of_a_table_with_a_year_beyond_pythons_is_set_aside_as_its_error_says():
    times = pa.array([254_402_300_800_000_000, 5], pa.timestamp("us", "UTC"))
    terms = Terms(Schema.of("ts timestamp, n int"), "probes", unheld={AFTER_9999: "out"})
    table, bad = table_of([pa.table({"ts": times, "n": [1, 2]})], terms, 0, first_only=False)
    assert table.column("n").to_pylist() == [2] and "10031-09-09" in bad[0].raw


@pytest.mark.parametrize("first_only", [True, False])
def test_a_data_frame_of_mixed_values_is_said_to_be_what_does_not_fit(first_only):
    items = [pd.DataFrame({"v": [1, "x"]})]
    if first_only:
        _, bad = table_of(items, Terms(Schema.of("v string"), "probes"), 0, first_only=True)
        assert bad[0].error.code == "HF-S011"
    else:
        with pytest.raises(SourceError, match="HF-S011"):
            table_of(items, Terms(Schema.of("v string"), "probes"), 0, first_only=False)


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_decimal_with_more_digits_than_declared_is_a_bad_record(format):
    """Spark would fail on it in every frame that has it: by then it is logged and its sender was told that all is well."""
    raws = [b'{"v": 1234.5}', b'{"v": 123.45}'] if format == "json" else [b"1234.5", b"123.45"]
    records = [Record(raw, format=format) for raw in raws]
    table, bad = table_of(records, Terms(Schema.of("v decimal(5, 2)"), "probes"), 0, first_only=False)
    assert (table.column("v").to_pylist(), [each.at for each in bad]) == ([Decimal("123.45")], [0])


def test_text_of_a_json_file_that_is_not_utf8_is_a_bad_row(driver):
    driver.set(schema=Schema.of("ts timestamp, s string"))
    (driver.folder / "a.jsonl").write_bytes(
        b'{"ts": "2026-01-01T00:00:00Z", "s": "good"}\n{"ts": "2026-01-01T00:00:00Z", "s": "\xe9"}\n'
    )
    with pytest.raises(SourceError, match=r"HF-S006[^$]*line 2"):
        driver.frames(read.files("a.jsonl"))


def test_text_of_a_parquet_file_that_is_not_utf8_is_refused(driver):
    driver.set(schema=Schema.of("ts timestamp, s string"))
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xe9"], pa.binary()).buffers())
    pq.write_table(pa.table({"ts": pa.array([T0], pa.timestamp("us", "UTC")), "s": text}), driver.folder / "a.parquet")
    frames = driver.frames(read.files("a.parquet"))
    with pytest.raises(SourceError, match="HF-S003"):
        driver.rows(frames[0].references)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("array<float>", [0.5, 0.1]), ("struct<a: float>", {"a": 1e300}), ("map<string, float>", [("a", 0.1)]), ("array<array<float>>", [[], [0.1]])],
)  # fmt: skip
def test_a_number_inside_of_a_nested_value_is_not_narrowed_to_another(driver, kind, value):
    declared = Schema.of(f"ts timestamp, v {kind}")
    driver.set(schema=declared)
    wide = Schema.of(f"v {kind.replace('float', 'double')}").arrow.field("v").type
    table = pa.table({"ts": pa.array([T0], pa.timestamp("us", "UTC")), "v": pa.array([value], wide)})
    pq.write_table(table, driver.folder / "a.parquet")
    with pytest.raises(SourceError, match=r"HF-S003[^$]*would become"):
        driver.rows(driver.frames(read.files("a.parquet"))[0].references)
    halves = table.set_column(1, "v", pa.array([None], wide))
    pq.write_table(halves, driver.folder / "b.parquet")
    driver.set(directory=driver.folder / "other")
    assert driver.rows(driver.frames(read.files("b.parquet"))[0].references).column("v").to_pylist() == [None]


TOO_GREAT = [
    ("csv", "double", "1e400"),
    ("csv", "double", "-1e400"),
    ("csv", "float", "1e39"),
    ("json", "float", "1e39"),
    ("json", "double", "1e400"),
]


@pytest.mark.parametrize(("format", "kind", "value"), TOO_GREAT)
def test_a_number_that_the_declared_type_cannot_hold_is_no_infinite_one(driver, format, kind, value):
    infinite = "-inf" if format == "csv" else "-Infinity"
    raws = [
        (f"2023-11-14T22:13:20Z,{each}" if format == "csv" else f'{{"ts": "2023-11-14T22:13:20Z", "v": {each}}}')
        for each in (1.5, value, infinite)
    ]
    terms = Terms(Schema.of(f"ts timestamp, v {kind}"), "probes")
    table, bad = table_of([Record(raw.encode(), format=format) for raw in raws], terms, 0, first_only=False)
    assert (table.column("v").to_pylist(), [each.at for each in bad]) == ([1.5, float("-inf")], [1])
    driver.set(schema=terms.schema)
    name = f"a.{format}"
    (driver.folder / name).write_text("\n".join(["ts,v"] * (format == "csv") + raws) + "\n")
    with pytest.raises(SourceError, match=f"HF-S006[^$]*line {3 if format == 'csv' else 2}"):
        driver.frames(read.files(name, format=format))


@pytest.mark.parametrize("kind", ["array<float>", "struct<a: float>", "array<struct<a: float>>"])
def test_a_number_too_great_inside_of_a_nested_value_is_no_infinite_one(kind):
    value = {
        "array<float>": "[1, 1e39]",
        "struct<a: float>": '{"a": 1e39}',
        "array<struct<a: float>>": '[{"a": 1e39}]',
    }[kind]
    raws = [f'{{"v": {value}}}'.encode(), b'{"v": null}', f'{{"v": {value.replace("1e39", "Infinity")}}}'.encode()]
    table, bad = table_of(list(map(Record, raws)), Terms(Schema.of(f"v {kind}"), "probes"), 0, first_only=False)
    assert (table.num_rows, [each.at for each in bad]) == (2, [0])


def test_times_of_old_writers_are_the_times_they_wrote(driver):
    """INT96: Arrow made nanoseconds of them, which end in 2262, and begin anew in 1677."""
    driver.set(schema=Schema.of("ts timestamp, v timestamp"))
    times = [
        datetime(9999, 12, 31, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, microsecond=123456, tzinfo=UTC),
    ]
    naive = pa.array([each.replace(tzinfo=None) for each in times], pa.timestamp("us"))
    table = pa.table({"ts": pa.array([datetime(2026, 1, 1)] * 3, pa.timestamp("us")), "v": naive})
    pq.write_table(table, driver.folder / "a.parquet", use_deprecated_int96_timestamps=True)
    [frame] = driver.frames(read.files("a.parquet"))
    assert driver.rows(frame.references).column("v").to_pylist() == times


@pytest.mark.parametrize("kind", ["struct<a: float>", "array<float>", "map<string, float>", "float"])
def test_a_column_of_nulls_only_fits_any_type(driver, kind):
    driver.set(schema=Schema.of(f"ts timestamp, v {kind}"))
    pq.write_table(
        pa.table({"ts": pa.array([T0], pa.timestamp("us", "UTC")), "v": pa.nulls(1)}), driver.folder / "a.parquet"
    )
    [frame] = driver.frames(read.files("a.parquet"))
    assert driver.rows(frame.references).column("v").to_pylist() == [None]


@pytest.mark.parametrize(
    ("kind", "good", "bad", "value"),
    [
        ("date", '"2026-01-01"', "20260101", date(2026, 1, 1)),
        ("array<date>", '["2026-01-01", null]', "[20260101]", [date(2026, 1, 1), None]),
        ("struct<a: date>", '{"a": "2026-01-01"}', '{"a": "2026-01-01T05:00:00"}', {"a": date(2026, 1, 1)}),
    ],
)
def test_a_date_in_json_is_text_and_no_number_of_days(driver, kind, good, bad, value):
    records = [Record(f'{{"v": {each}}}'.encode()) for each in (good, bad, "null")]
    table, refused = table_of(records, Terms(Schema.of(f"v {kind}"), "probes"), 0, first_only=False)
    assert (table.column("v").to_pylist(), [each.at for each in refused]) == ([value, None], [1])
    driver.set(schema=Schema.of(f"ts timestamp, v {kind}"))
    (driver.folder / "a.jsonl").write_text(f'{{"ts": "2026-01-01T00:00:00Z", "v": {good}}}\n')
    [frame] = driver.frames(read.files("a.jsonl"))
    assert driver.rows(frame.references).column("v").to_pylist() == [value]
    (driver.folder / "b.jsonl").write_text(
        "".join(f'{{"ts": "2026-01-01T00:00:00Z", "v": {each}}}\n' for each in (good, bad))
    )
    with pytest.raises(SourceError, match=r"HF-S006[^$]*line 2"):
        driver.set(directory=driver.folder / "other").frames(read.files("b.jsonl"))


@pytest.mark.parametrize("growing", [False, True])
def test_maps_are_not_read_from_json_and_that_is_said(driver, growing):
    driver.set(schema=Schema.of("ts timestamp, v struct<m: map<string, int>>"))
    (driver.folder / "a.jsonl").write_text('{"ts": "2026-01-01T00:00:00Z", "v": {"m": {"a": 1}}}\n')
    with pytest.raises(SourceError, match="HF-S003"):
        driver.frames(read.files("a.jsonl", growing=growing))


@pytest.mark.parametrize(("format", "kind"), [("json", "array<map<string, int>>"), ("csv", "array<int>")])
def test_what_no_record_can_hold_is_said_when_it_is_declared(format, kind):
    with pytest.raises(UsageError, match="HF-C034"):
        read.lines("tcp://127.0.0.1:9000", format=format).check_schema("probes", Schema.of(f"v {kind}"))
    if format == "json":
        with pytest.raises(UsageError, match="HF-C034"):
            read.mqtt("mqtt://127.0.0.1/a/b").check_schema("probes", Schema.of(f"v {kind}"))
