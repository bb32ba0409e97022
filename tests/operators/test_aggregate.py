"""Running aggregates: any cut into frames gives what one batch over all rows gives."""

from __future__ import annotations

import datetime
import math
import pickle
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import OperatorError, ProcessRefused
from holdfast.graph.schemas import Schema
from holdfast.operators.aggregate import make_aggregate
from holdfast.operators.measures import parse_call
from tests.operators.small_machine import START, SmallMachine, projected, reduced

SCHEMA = Schema.of("ts timestamp, zone int, name string, celsius double, hits bigint, price decimal(12,2)")
EMITS = {
    "n": "count(*)",
    "known": "count(celsius)",
    "total": "sum(hits)",
    "exact": "sum(price)",
    "mean_hits": "avg(hits)",
    "mean": "avg(celsius)",
    "low": "min(celsius)",
    "high": "max(celsius)",
    "least": "min(name)",
    "spread": "stddev(celsius)",
    "spread_all": "var_pop(celsius)",
    "oldest": "first(name)",
    "newest": ("last", "celsius"),
    "names": "count_distinct(name)",
}
# Eighths add up exactly, so that order does not show and equality can be asked for.
eighths = st.integers(-800, 800).map(lambda i: i / 8)
row = st.tuples(
    st.integers(0, 30),
    st.sampled_from([1, 2, 3, None]),
    st.sampled_from(["a", "b", "c", None]),
    st.none() | eighths | st.just(math.nan),
    st.none() | st.integers(-1000, 1000),
    st.none() | st.integers(-10_000, 10_000).map(lambda i: Decimal(i).scaleb(-2)),
)


def table_of_rows(rows) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [[]] * len(SCHEMA.names)
    times = [START.to_pydatetime() + datetime.timedelta(seconds=s) for s in columns[0]]
    return pa.table([pa.array(c, f.type) for c, f in zip([times, *columns[1:]], SCHEMA.arrow)], schema=SCHEMA.arrow)


def run(keyed, frames, *, arrow=True) -> list[pa.Table]:
    machine = SmallMachine(keyed, arrow=arrow)
    return [
        machine.frame(reduced(keyed, projected(keyed, rows), {}), n=n, boundary=START, since=START)
        for n, rows in enumerate(frames, start=1)
    ]


def batch(rows: list[tuple]) -> dict:
    """The same in plain Python and pandas, over all rows at once."""
    found = {}
    for zone in {r[1] for r in rows}:
        mine = [r for r in rows if r[1] == zone]
        order = sorted(mine, key=lambda r: tuple(_rank(v) for v in r))
        celsius = [r[3] for r in mine if r[3] is not None]
        real = [c for c in celsius if not math.isnan(c)]
        nan = len(real) < len(celsius)
        hits = [r[4] for r in mine if r[4] is not None]
        prices = [r[5] for r in mine if r[5] is not None]
        names = [r[2] for r in mine if r[2] is not None]
        series = pd.Series(celsius, dtype=float)
        found[zone] = {
            "n": len(mine),
            "known": len(celsius),
            "total": sum(hits) if hits else None,
            "exact": sum(prices) if prices else None,
            "mean_hits": sum(hits) / len(hits) if hits else None,
            "mean": None if not celsius else math.nan if nan else sum(real) / len(real),
            "low": min(real) if real else math.nan if nan else None,
            "high": math.nan if nan else max(real) if real else None,
            "least": min(names) if names else None,
            "spread": None if len(celsius) < 2 else math.nan if nan else series.std(),
            "spread_all": None if not celsius else math.nan if nan else series.var(ddof=0),
            "oldest": order[0][2],
            "newest": order[-1][3],
            "names": len(set(names)),
        }
    return found


def _rank(value):
    if value is None:
        return (0, 0)
    if isinstance(value, float) and math.isnan(value):
        return (2, 0)
    return (1, value)


def assert_same(actual: dict, expected: dict) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, float):
            assert actual[name] == pytest.approx(value, nan_ok=True, abs=1e-9), name
        else:
            assert actual[name] == value, name


@settings(max_examples=60, deadline=None)
@given(st.lists(row, max_size=30), st.lists(st.integers(0, 30), max_size=5), st.booleans())
def test_any_cut_gives_the_batch_result(rows, cuts, arrow):
    """A merge that is not associative would make results depend on the frame length."""
    keyed = make_aggregate({"by": ("zone",), "emits": EMITS, "time": "ts"}, SCHEMA)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    frames = [rows[low:high] for low, high in zip(edges, edges[1:])]
    outs = run(keyed, [table_of_rows(frame) for frame in frames], arrow=arrow)

    newest: dict = {}
    for frame, out in zip(frames, outs, strict=True):
        assert {r["zone"] for r in out.to_pylist()} == {r[1] for r in frame}
        newest.update({r.pop("zone"): r for r in out.to_pylist()})
    for zone, expected in batch(rows).items():
        if not arrow:  # plain pandas has one sign for null and NaN
            for name in ("oldest", "newest"):
                del expected[name], newest[zone][name]
        assert_same(newest[zone], expected)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.floats(-1e12, 1e12), max_size=5), min_size=1, max_size=6))
def test_floating_sums_follow_the_order_of_frames(frames):
    """Replay must give the same bits: (state + frame 1) + frame 2, and no other order."""
    schema = Schema.of("zone int, celsius double")
    keyed = make_aggregate({"by": "zone", "emits": {"s": "sum(celsius)"}}, schema)
    assert keyed.float_sensitive
    tables = [
        pa.table({"zone": pa.array([1] * len(f), pa.int32()), "celsius": pa.array(f, pa.float64())}) for f in frames
    ]
    expected = None
    for frame, out in zip(frames, run(keyed, tables), strict=True):
        part = None
        for value in frame:
            part = value if part is None else part + value
        if part is not None:
            expected = part if expected is None else expected + part
            assert out.column("s").to_pylist() == [expected]


def test_without_keys_all_rows_are_one_group():
    keyed = make_aggregate({"by": (), "emits": {"n": "count(*)"}}, SCHEMA)
    outs = run(keyed, [table_of_rows([(1, 1, "a", 1.0, 1, None)] * 3)] * 2)
    assert [out.to_pylist() for out in outs] == [[{"n": 3}], [{"n": 6}]]


def test_integers_above_two_to_the_53_stay_exact():
    """As floats they would not; pandas makes floats of integers with nulls."""
    keyed = make_aggregate({"by": "zone", "emits": {"s": "sum(hits)"}}, SCHEMA)
    big = table_of_rows([(1, 1, "a", 1.0, 2**60 + 1, None), (1, 2, "a", 1.0, None, None)])
    assert run(keyed, [big, big])[1].to_pylist() == [
        {"zone": 1, "s": 2**61 + 2},
        {"zone": 2, "s": None},
    ]


def test_a_sum_that_passes_bigint_is_an_error_not_a_wrong_number():
    keyed = make_aggregate({"by": "zone", "emits": {"s": "sum(hits)"}}, SCHEMA)
    big = table_of_rows([(1, 1, "a", 1.0, 2**62, None)])
    with pytest.raises(OperatorError, match="HF-O023"):
        run(keyed, [big, big])


def test_a_mean_of_large_integers_does_not_overflow():
    keyed = make_aggregate({"by": "zone", "emits": {"m": "avg(hits)"}}, SCHEMA)
    assert not keyed.float_sensitive
    big = table_of_rows([(1, 1, "a", 1.0, 2**62, None)])
    assert run(keyed, [big, big, big])[2].to_pylist() == [{"zone": 1, "m": 2.0**62}]


def test_a_mean_of_decimals_is_a_decimal_rounded_half_up():
    keyed = make_aggregate({"by": "zone", "emits": {"m": "avg(price)"}}, SCHEMA)
    assert keyed.emits.ddl == "zone int, m decimal(16,6)"
    prices = [(1, 1, "a", 1.0, 1, Decimal(p)) for p in ("0.01", "0.01", "0.00")]
    assert run(keyed, [table_of_rows(prices)])[0].to_pylist() == [{"zone": 1, "m": Decimal("0.006667")}]


def test_pickles_into_workers():
    keyed = make_aggregate({"by": "zone", "emits": EMITS}, SCHEMA)
    assert pickle.loads(pickle.dumps(keyed)).emits == keyed.emits


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("avg(celsius)", ("avg", "celsius")),
        ("Mean( celsius * (2 + 1) )", ("avg", "celsius * (2 + 1)")),
        ("count(*)", ("count", "*")),
        ("count(distinct name)", ("count_distinct", "name")),
        (("count", "distinct name"), ("count_distinct", "name")),
        ("window_end", ("window_end", "")),
        (("window_end", ""), ("window_end", "")),
        ("stddev(x)", ("stddev_samp", "x")),
    ],
)
def test_calls_are_read_as_people_write_them(written, read):
    assert parse_call(written) == read


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"by": "zone", "emits": {"x": "avg(celsius * 2)"}}, "HF-O020"),
        ({"by": "zone", "emits": {"x": "median(celsius)"}}, "HF-O021"),
        ({"by": "zone", "emits": {"x": "window_end"}}, "HF-O021"),
        ({"by": "zone", "emits": {"x": "sum(name)"}}, "HF-O022"),
        ({"by": "zone", "emits": {"x": "count(*)"}, "window_ms": 1, "session_ms": 1}, "HF-O024"),
        ({"by": "zone", "emits": {"x": "count(*)"}, "window_ms": 1000}, "HF-O024"),
        ({"by": "zoen", "emits": {"x": "count(*)"}}, "HF-O025"),
        ({"by": "tags", "emits": {"x": "count(*)"}}, "HF-O022"),
        ({"by": "wake", "emits": {"x": "count(*)"}}, "HF-O027"),
        ({"by": "zone", "emits": {}}, "HF-O026"),
        ({"by": "zone", "emits": {"zone": "count(*)"}}, "HF-O026"),
    ],
)
def test_what_has_no_defined_result_is_refused(options, code):
    schema = Schema.of(SCHEMA.ddl + ", tags array<int>, wake int")
    with pytest.raises(ProcessRefused, match=code):
        make_aggregate(options, schema)


def test_expression_types_come_from_spark_when_it_is_there():
    options = {"by": "zone", "emits": {"x": "sum(hits + 1)"}}
    keyed = make_aggregate(options, SCHEMA, type_of={"hits + 1": "bigint"}.__getitem__)
    assert keyed.emits.ddl == "zone int, x bigint"


def test_ten_thousand_keys_in_one_frame():
    keys = np.arange(10_000, dtype=np.int32)
    schema = Schema.of("zone int, hits bigint")
    keyed = make_aggregate({"by": "zone", "emits": {"s": "sum(hits)"}}, schema)
    table = pa.table({"zone": keys, "hits": keys.astype(np.int64)})
    out = run(keyed, [table, table])[1]
    assert out.column("s").to_pylist() == (2 * keys.astype(np.int64)).tolist()
