"""A reference names rows; whoever reads it gets those rows or an error."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources.reference import Reference, digest_of, load, stat_of

SCHEMA = Schema.of("ts timestamp, zone int, celsius double")
ROWS = 1000


def readings(rows=ROWS):
    return pa.table(
        {
            "ts": pa.array(np.arange(rows) * 1000, pa.timestamp("us", "UTC")),
            "zone": pa.array((np.arange(rows) % 7).astype("int32")),
            "celsius": np.arange(rows) / 3,
        }
    )


def refer(path, *ranges, format="parquet", **more):
    size, mtime_ns = stat_of(str(path))
    return Reference(str(path), format, ranges, size, mtime_ns, digest_of(str(path)), **more)


def read(reference, schema=SCHEMA, chunk=0, chunks=1):
    return pa.Table.from_batches(load(reference, schema, chunk, chunks), schema.arrow)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "readings.parquet"
    pq.write_table(readings(), path, row_group_size=128)
    return path


@st.composite
def row_ranges(draw):
    cuts = sorted(draw(st.sets(st.integers(0, ROWS), min_size=2, max_size=60)))
    return tuple(zip(cuts[::2], cuts[1::2], strict=False))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ranges=row_ranges(), chunks=st.integers(1, 7))
def test_chunks_together_are_the_ranges_in_file_order(parquet, ranges, chunks):
    """A row read twice or never would change a frame with the number of chunks."""
    reference = refer(parquet, *ranges)
    whole = readings()
    expected = pa.concat_tables(whole.slice(a, b - a) for a, b in ranges)

    parts = [read(reference, chunk=chunk, chunks=chunks) for chunk in range(chunks)]

    assert pa.concat_tables(parts).equals(expected)
    assert reference.rows == expected.num_rows


@given(ranges=row_ranges())
def test_a_reference_survives_json(ranges):
    reference = Reference("x.csv", "csv", ranges, 1, 2, "ab", (("columns", ("a", "b")),))
    import json

    assert Reference.from_json(json.loads(json.dumps(reference.to_json()))) == reference


def test_a_whole_file_is_read_in_batches_of_at_most_250_000_rows(tmp_path):
    pq.write_table(readings(600_000), tmp_path / "large.parquet")
    batches = list(load(refer(tmp_path / "large.parquet", (0, 600_000)), SCHEMA))
    assert max(batch.num_rows for batch in batches) <= 250_000
    assert pa.Table.from_batches(batches).equals(readings(600_000))


def test_a_file_changed_after_it_was_cut_is_refused(tmp_path):
    """Read in silence, frame n of a replay would differ from frame n as sealed."""
    path = tmp_path / "readings.parquet"
    pq.write_table(readings(), path)
    reference = refer(path, (0, 10))
    pq.write_table(readings(999), path)
    with pytest.raises(SourceError, match="HF-S004 SourceChanged"):
        read(reference)


def test_the_same_bytes_with_another_mtime_are_the_same_file(tmp_path):
    path = tmp_path / "readings.parquet"
    pq.write_table(readings(), path)
    reference = refer(path, (0, 10))
    os.utime(path, ns=(1, 1))
    assert read(reference).num_rows == 10


def test_a_file_that_is_gone_is_named(tmp_path):
    reference = Reference(str(tmp_path / "gone.parquet"), "parquet", ((0, 1),), 1, 1, "")
    with pytest.raises(SourceError, match=r"HF-S001 SourceMissing(.|\n)*gone.parquet"):
        read(reference)


def test_declared_types_are_what_comes_out(tmp_path):
    """Pandas writes nanoseconds without a zone and 64-bit ints; Spark has neither here."""
    path = tmp_path / "pandas.parquet"
    table = pa.table(
        {
            "extra": ["x"] * 3,
            "celsius": pa.array([1, 2, 3], pa.int64()),
            "zone": pa.array([1, 2, 3], pa.int64()),
            "ts": pa.array([1001, 2000, 3999], pa.timestamp("ns")),
            "name": pa.array(["a", "b", "a"]).dictionary_encode(),
        }
    )
    pq.write_table(table, path)
    schema = Schema.of("ts timestamp, zone int, celsius double, name string")
    actual = read(refer(path, (0, 3)), schema)
    assert actual.schema.equals(schema.arrow)
    assert actual.column("ts").cast("int64").to_pylist() == [1, 2, 3]


def test_nanoseconds_before_1970_are_cut_off_as_those_after_it(tmp_path):
    """Arrow cuts towards 1970: the last moment of the year before became the first of the next, and of another frame."""
    path = tmp_path / "old.parquet"
    counts = [-1, -999, -1000, -1001, 999, None]
    pq.write_table(pa.table({"ts": pa.array(counts, pa.timestamp("ns"))}), path)
    actual = read(refer(path, (0, 6)), Schema.of("ts timestamp"))
    assert actual.column("ts").cast("int64").to_pylist() == [-1, -1, -1, -2, 0, None]


def test_a_value_that_does_not_fit_is_refused_not_wrapped(tmp_path):
    path = tmp_path / "wide.parquet"
    pq.write_table(pa.table({"zone": [1, 2**40]}), path)
    with pytest.raises(SourceError, match="HF-S003 TypesDiffer"):
        read(refer(path, (0, 2)), Schema.of("zone int"))


@pytest.mark.parametrize("value", [1e39, 1e-50, 16777217.0, 0.1])
def test_a_double_that_a_float_cannot_hold_is_refused_not_rounded(tmp_path, value):
    """1e39 came out as infinity; whole numbers and every other narrower type were looked at."""
    good, path = [0.5, None, float("inf"), -0.0], tmp_path / "bad.parquet"
    pq.write_table(pa.table({"x": good}), tmp_path / "good.parquet")
    assert read(refer(tmp_path / "good.parquet", (0, 4)), Schema.of("x float")).column("x").to_pylist() == good
    pq.write_table(pa.table({"x": [value]}), path)
    with pytest.raises(SourceError, match="HF-S003 TypesDiffer(.|\n)*would become"):
        read(refer(path, (0, 1)), Schema.of("x float"))


def test_an_arrow_file_is_read_by_ranges(tmp_path):
    path = tmp_path / "chunk.arrow"
    with pa.ipc.new_file(str(path), SCHEMA.arrow) as writer:
        writer.write_table(readings(), max_chunksize=100)
    actual = read(refer(path, (50, 250), (900, 901), format="arrow"))
    expected = pa.concat_tables([readings().slice(50, 200), readings().slice(900, 1)])
    assert actual.equals(expected)
