"""Whatever a column is called, it is read back as it was written, wherever its name becomes text that is parsed."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.graph.known import plain_column
from holdfast.graph.options import aggregate_options
from holdfast.graph.reserved import RESERVED, reserved_in
from holdfast.graph.schemas import Column, Schema, folded, named
from holdfast.operators.join import make_join
from holdfast.quoting import quoted
from tests.names import NASTY, lists_of_names, names

_PLAIN = st.sampled_from(["int", "string", "decimal(12,2)", "timestamp", "binary"])


def types(fields: st.SearchStrategy[list[str]]) -> st.SearchStrategy[str]:
    """Types of any depth, with names of fields in them."""

    def deeper(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        struct = fields.flatmap(
            lambda found: st.lists(inner, min_size=len(found), max_size=len(found)).map(
                lambda kinds: (
                    "struct<" + ",".join(f"{named(name)}:{kind}" for name, kind in zip(found, kinds, strict=True)) + ">"
                )
            )
        )
        return st.one_of(inner.map("array<{}>".format), inner.map("map<string,{}>".format), struct)

    return st.recursive(_PLAIN, deeper, max_leaves=4)


@given(lists_of_names(), st.data())
def test_a_schema_is_read_back_as_it_was_written(found, data):
    schema = Schema(tuple(Column(name, data.draw(types(lists_of_names(3)))) for name in found))
    assert Schema.of(schema.ddl) == schema
    assert (
        Schema.of(f"struct<{', '.join(f'{quoted(column.name)}: {column.type}' for column in schema.columns)}>")
        == schema
    )
    assert Schema.of(schema.arrow) == schema
    assert tuple(schema.arrow.names) == schema.names == tuple(found)


@given(lists_of_names(4), st.data())
def test_a_schema_of_sparks_is_read_as_it_is(found, data):
    """Its own text does not quote the names inside a struct."""
    from pyspark.sql import types as T

    inner = data.draw(lists_of_names(3))
    struct = T.StructType([T.StructField(name, T.LongType()) for name in inner])
    kinds = [T.LongType(), struct, T.ArrayType(struct), T.MapType(T.StringType(), struct)]
    fields = [T.StructField(name, data.draw(st.sampled_from(kinds))) for name in found]
    schema = Schema.of(T.StructType(fields))
    assert schema.names == tuple(found)
    assert Schema.of(schema.ddl) == schema


@given(names())
def test_an_aggregate_of_a_column_is_that_column(name):
    call = aggregate_options(by=[name], emits={name: f"sum({quoted(name)})"}, window=None, every=None, session=None,
                             time=None, process_time="ts", lateness=None)  # fmt: skip
    assert call["emits"] == {name: ("sum", quoted(name))}
    assert plain_column(quoted(name)) == name


@given(st.lists(names(), min_size=3, max_size=3, unique_by=folded), names())
def test_a_join_emits_a_column_under_any_name(found, other):
    key, one, two = found
    assume("ts" not in map(folded, found) and one != "_met" and folded(other + "2") != folded(two))
    assume(folded(key) not in ("wake", "_l_ts", "_r_ts", f"_l_{folded(one)}", f"_r_{folded(two)}"))  # refused: HF-O027
    left, right = (Schema((Column("ts", "timestamp"), Column(key, "int"), Column(each, "int"))) for each in (one, two))
    emits = (quoted(two), f"{quoted(one)} as {quoted(other + '2')}")
    joined = make_join({"on": (key,), "time": "ts", "within_ms": 1000, "emits": emits}, left, right)
    assert joined.emits.names == (two, other + "2")


@pytest.mark.parametrize("name", sorted(RESERVED) + [name.upper() for name in sorted(RESERVED)])
def test_ours_are_ours_in_any_case(name):
    """Spark does not tell _N from _n: a user's column would have been taken for the frame's number."""
    assert [finding.code for finding in reserved_in([name], "source 's'", "")] == ["HF-G044"]


@given(st.sampled_from(NASTY))
def test_two_that_spark_takes_for_one_are_refused(name):
    other = next(
        (
            each
            for each in (name.upper(), name.lower(), name.swapcase())
            if each != name and folded(each) == folded(name)
        ),
        None,
    )
    if other is not None:
        with pytest.raises(UsageError, match="HF-C051"):
            Schema.of(f"{quoted(name)} int, {quoted(other)} int")


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(UsageError, match="HF-C051"):
        Schema.of(f"ts timestamp, {quoted(name)} int")
    with pytest.raises(UsageError, match="HF-C051"):
        Schema.of(f"ts timestamp, s struct<a:int,{quoted(name)}:int>")
