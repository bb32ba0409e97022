"""What the checksum sees, and what it must not see."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UnitError
from holdfast.frames.content import canonical, checksum
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from tests.frames.disguises import (
    EXAMPLES,
    VALUES,
    dirty,
    disguised,
    rows_of,
    schemas,
    sort_key,
    table_of,
)

ECG = Schema.of("patient string, ts timestamp, mv double")


def digest(table: pa.Table, schema: Schema, time: str | None = None) -> str:
    return checksum(canonical(table, schema, time), n=3, boundary_us=50, kind=Kind.STABLE)


@given(st.data())
def test_a_disguise_does_not_change_the_checksum(data: st.DataObject):
    """A replica that chunks or encodes otherwise would be taken for a liar."""
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema))
    plain_table = table_of(rows, schema)
    time = data.draw(st.sampled_from([None, *schema.names]))
    other = data.draw(disguised(rows, schema))
    actual, expected = canonical(other, schema, time), canonical(plain_table, schema, time)
    actual.validate(full=True)
    assert repr(actual.to_pylist()) == repr(expected.to_pylist())
    assert digest(other, schema, time) == digest(plain_table, schema, time)


@given(st.data())
def test_checksums_are_equal_exactly_when_the_rows_are(data: st.DataObject):
    """A changed value that keeps the checksum would pass every comparison we make."""
    schema = data.draw(schemas())
    left, right = data.draw(rows_of(schema, 3)), data.draw(rows_of(schema, 3))
    same = Counter(sort_key(r, schema) for r in left) == Counter(sort_key(r, schema) for r in right)
    equal = digest(table_of(left, schema), schema) == digest(table_of(right, schema), schema)
    assert equal == same


@given(st.data())
def test_one_changed_value_changes_the_checksum(data: st.DataObject):
    """Random pairs of tables seldom differ in one cell only; damage does."""
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema, least=1))
    changed = list(rows)
    at = data.draw(st.integers(0, len(rows) - 1))
    changed[at] = data.draw(rows_of(schema, 1, least=1))[0]
    same = sort_key(changed[at], schema) == sort_key(rows[at], schema)
    equal = digest(table_of(rows, schema), schema) == digest(table_of(changed, schema), schema)
    assert equal == same


@given(st.data())
def test_rows_come_in_the_total_order(data: st.DataObject):
    """Stream time is the place after the sort; it may depend on values alone."""
    schema = data.draw(schemas())
    rows = data.draw(rows_of(schema, 12))
    actual = canonical(table_of(rows, schema), schema, None)
    expected = sorted(rows, key=lambda row: sort_key(row, schema))
    found = [tuple(row.values()) for row in actual.to_pylist()]
    assert [sort_key(r, schema) for r in found] == [sort_key(r, schema) for r in expected]


@given(st.data())
def test_canonical_is_its_own_canonical_form(data: st.DataObject):
    """A frame read back and sealed again must be the same frame."""
    schema = data.draw(schemas())
    once = canonical(table_of(data.draw(rows_of(schema)), schema), schema, None)
    twice = canonical(once, schema, None)
    assert all(column.num_chunks == 1 for column in once.columns)
    assert once.schema.equals(schema.arrow, check_metadata=True)
    assert [c.chunk(0).buffers() for c in once.columns] == [c.chunk(0).buffers() for c in twice.columns]


@given(st.integers(0, 2**32 - 1))
def test_large_frames_sort_as_small_ones(seed: int):
    """Ties over several columns take other paths in the sort than a handful of rows."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 3000))
    texts = pa.array([f"p{i}" for i in range(int(rng.integers(1, 60)))])
    table = pa.table(
        {
            "patient": texts.take(pa.array(rng.integers(0, len(texts), size))),
            "ts": pa.array(rng.integers(0, rng.integers(1, 50), size), pa.timestamp("us", "UTC")),
            "mv": pa.array(rng.integers(-3, 3, size) / 2, mask=rng.random(size) < 0.1),
        }
    )
    again = table.take(pa.array(rng.permutation(size)))
    found = canonical(table, ECG, "ts")
    by_time = Schema.of("ts timestamp, patient string, mv double")
    rows = zip(*(table[name].to_pylist() for name in by_time.names), strict=True)
    expected = sorted(rows, key=lambda row: sort_key(row, by_time))
    actual = zip(*(found[name].to_pylist() for name in by_time.names), strict=True)
    assert list(actual) == expected
    assert digest(again, ECG, "ts") == digest(table, ECG, "ts")


def test_number_boundary_kind_and_names_are_content():
    """Frame 3 delivered as frame 4 must not look right."""
    table = canonical(table_of([("a", None, 1.0)], ECG), ECG, "ts")
    renamed = table.rename_columns(["patients", "ts", "mv"])
    narrow = table.cast(Schema.of("patient string, ts timestamp, mv float").arrow)
    found = {
        checksum(table, n=3, boundary_us=50, kind=Kind.STABLE),
        checksum(table, n=4, boundary_us=50, kind=Kind.STABLE),
        checksum(table, n=3, boundary_us=51, kind=Kind.STABLE),
        checksum(table, n=3, boundary_us=50, kind=Kind.TENTATIVE),
        checksum(renamed, n=3, boundary_us=50, kind=Kind.STABLE),
        checksum(narrow, n=3, boundary_us=50, kind=Kind.STABLE),
        checksum(table.slice(0, 0), n=3, boundary_us=50, kind=Kind.STABLE),
    }
    assert len(found) == 7


def test_values_do_not_slide_between_columns_or_rows():
    """Hashing bytes end to end would take ('ab', 'c') for ('a', 'bc')."""
    schema = Schema.of("a string, b string")
    tables = [table_of(rows, schema) for rows in ([("ab", "c")], [("a", "bc")], [("abc", "")])]
    tables.append(table_of([("a", "c"), ("b", "")], schema))
    assert len({digest(table, schema) for table in tables}) == 4


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_what_lies_behind_a_null_is_not_content(kind: str):
    """Rows that arrive sorted are not copied, so nothing else cleans their null slots."""
    schema = Schema.of(f"x {kind}")
    something = EXAMPLES[kind]
    clean = table_of([(None,), (None,), (something,)], schema)
    full = dirty([None, None, something], schema.arrow.field("x").type, 0)
    soiled = pa.Table.from_arrays([full], schema=schema.arrow)
    assert digest(soiled, schema) == digest(clean, schema)
    # Not only the hash: what is written to disk is clean as well.
    actual, expected = canonical(soiled, schema, None), canonical(clean, schema, None)
    assert actual["x"].chunk(0).buffers() == expected["x"].chunk(0).buffers()


def test_checksum_is_fixed_for_all_time():
    """Queues and ledgers outlive a version: a silent change of the hash is data loss."""
    table = table_of([("a", None, 1.0), (None, None, float("nan"))], ECG)
    assert digest(table, ECG, "ts") == "8460a1adeb0a8dc7defa339598173210"


def test_a_missing_column_is_named():
    table = pa.table({"patient": ["a"], "mv": [1.0]})
    with pytest.raises(UnitError, match="HF-F003.*'ts'") as raised:
        canonical(table, ECG, "ts")
    assert "found patient, mv" in raised.value.why


def test_a_value_that_does_not_fit_is_refused():
    """300 in a tinyint must not become 44."""
    with pytest.raises(UnitError, match="HF-F003"):
        canonical(pa.table({"x": [300]}), Schema.of("x tinyint"), None)


def test_decimals_go_by_value_across_their_words():
    """A decimal is two words; the lower one has no sign."""
    schema = Schema.of("x decimal(38,0)")
    expected = [-(2**70), -(2**63) - 1, -1, 0, 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70]
    rows = [(Decimal(value),) for value in expected[::-1]]
    found = canonical(table_of(rows, schema), schema, None)
    assert [int(value) for value in found["x"].to_pylist()] == expected
