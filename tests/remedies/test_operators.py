"""What an error about a built-in operator tells the user to write is written, and the operator is made."""

from __future__ import annotations

import pyarrow as pa
import pytest

from holdfast.errors import HoldfastError, OperatorError
from holdfast.graph.schemas import Schema
from holdfast.operators.aggregate import make_aggregate
from holdfast.operators.join import make_join
from tests.operators.small_machine import START, SmallMachine, projected, reduced

SCHEMA = Schema.of("ts timestamp, zone int, name string, celsius double, hits bigint, tags array<int>, wake timestamp")
LEFT, RIGHT = (
    Schema.of("ts timestamp, item string, bid double, tags array<int>"),
    Schema.of("ts timestamp, item string, ask double"),
)
COUNT = {"n": "count(*)"}


def codes(error: HoldfastError) -> tuple[str, str]:
    findings = getattr(error, "findings", None)
    return (findings[0].code, findings[0].do) if findings else (error.code, error.do)


@pytest.mark.parametrize(
    ("code", "bad", "said", "mended"),
    [
        ("HF-O020", {"by": "zone", "emits": {"x": "avg(celsius * 2)"}}, "name a column", {"by": "zone", "emits": {"x": "avg(celsius)"}}),
        ("HF-O021", {"by": "zone", "emits": {"x": "median(celsius)"}}, "avg", {"by": "zone", "emits": {"x": "avg(celsius)"}}),
        ("HF-O021", {"by": "zone", "emits": {"x": "window_end"}}, "give it window=",
         {"by": "zone", "emits": {"x": "window_end"}, "window_ms": 1000, "every_ms": 1000, "time": "ts"}),
        ("HF-O022", {"by": "zone", "emits": {"x": "sum(name)"}}, "of a fitting type", {"by": "zone", "emits": {"x": "sum(hits)"}}),
        ("HF-O022", {"by": "tags", "emits": COUNT}, "a key of a plain type", {"by": "name", "emits": COUNT}),
        ("HF-O024", {"by": "zone", "emits": COUNT, "window_ms": 1000, "every_ms": 1000}, "time=",
         {"by": "zone", "emits": COUNT, "window_ms": 1000, "every_ms": 1000, "time": "ts"}),
        ("HF-O025", {"by": "zoen", "emits": COUNT}, "'zone'", {"by": "zone", "emits": COUNT}),
        ("HF-O026", {"by": "zone", "emits": {"zone": "count(*)"}}, "not like a key", {"by": "zone", "emits": COUNT}),
    ],
)  # fmt: skip
def test_an_aggregate_is_made_once_it_is_written_as_its_error_says(code, bad, said, mended):
    with pytest.raises(HoldfastError) as refused:
        make_aggregate(bad, SCHEMA)
    found, do = codes(refused.value)
    assert found == code and said in do
    assert make_aggregate(mended, SCHEMA).emits.names


def test_a_reserved_key_is_taken_under_the_name_the_error_gives():
    """HF-O027: what `do` writes is the expression for map()."""
    with pytest.raises(HoldfastError) as refused:
        make_aggregate({"by": "wake", "emits": COUNT}, SCHEMA)
    code, do = codes(refused.value)
    assert code == "HF-O027"
    name = do.split("'")[1].removeprefix("wake as ")
    assert make_aggregate({"by": name, "emits": COUNT}, Schema.of(f"ts timestamp, {name} timestamp")).emits.names == (
        name,
        "n",
    )


@pytest.mark.parametrize(
    ("code", "bad", "said", "mended"),
    [
        ("HF-O024", {"time": None}, "time=", {}),
        ("HF-O024", {"within_ms": None}, "within=", {}),
        ("HF-O025", {"emits": ("bid + 1 as more",)}, "map() after the join", {"emits": ("bid",)}),
        ("HF-O026", {"emits": ("ts", "bid as ts")}, "emits=['column as name', ...]", {"emits": ("ts", "bid as offer")}),
    ],
)
def test_a_join_is_made_once_it_is_written_as_its_error_says(code, bad, said, mended):
    good = {"on": ("item",), "within_ms": 1000, "how": "inner", "time": "ts", "emits": None}
    with pytest.raises(HoldfastError) as refused:
        make_join({**good, **bad}, LEFT, RIGHT)
    found, do = codes(refused.value)
    assert found == code and said in do
    assert make_join({**good, **mended}, LEFT, RIGHT).emits.names


def test_a_sum_that_passes_bigint_is_right_as_a_decimal():
    """HF-O023: cast to decimal(38,0) before the aggregate."""

    def total(kind: str) -> object:
        schema = Schema.of(f"ts timestamp, zone int, hits {kind}")
        keyed = make_aggregate({"by": "zone", "emits": {"s": "sum(hits)"}}, schema)
        rows = pa.table({"ts": [START.to_pydatetime()] * 2, "zone": [1, 1], "hits": [2**62, 2**62]})
        rows = pa.table([rows[name].cast(schema.arrow.field(name).type) for name in schema.names], schema=schema.arrow)
        machine = SmallMachine(keyed, arrow=True)
        made = machine.frame(reduced(keyed, projected(keyed, rows), {}), n=1, boundary=START, since=START)
        return made["s"].to_pylist()

    with pytest.raises(OperatorError, match="HF-O023") as refused:
        total("bigint")
    assert "decimal(38,0)" in refused.value.do
    assert total("decimal(38,0)") == [2**63]
