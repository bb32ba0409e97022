"""What a sink below cannot hold is a bad record: refused before it is logged, for the sink would stand for ever."""

import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.errors import SourceError
from holdfast.graph.reaching import AFTER_9999, BEFORE_1, NUL, not_held_below
from holdfast.graph.schemas import Schema
from holdfast.sources.live.elements import table_of
from holdfast.sources.live.wire import Record
from holdfast.sources.parse.bad import Terms
from holdfast.sources.parse.unheld import held

from .test_feed import Post, quarantined, sent

SCHEMA = Schema.of(
    "ts timestamp, name string, at timestamp, day date, deep struct<s: array<string>, m: map<string, timestamp>>"
)
UNHELD = {NUL: "table", BEFORE_1: "table", AFTER_9999: "table"}


def raw(**changes):
    row = {"ts": "2024-01-01T00:00:00Z", "name": "a"} | changes
    return Record(json.dumps(row).encode())


def process(writer):
    made = hf.StreamProcess("p", frame="1 second", time="ts")
    made.source("probes", hf.read.lines("tcp://127.0.0.1:9000"), schema="ts timestamp, name string")
    made.source("others", hf.read.lines("tcp://127.0.0.1:9001"), schema="ts timestamp, name string")
    made.filter("some", of="probes", where="name is not null")
    made.filter("all", of="others", where="true")
    made.sink("some", writer, name="table")
    made.sink("all", hf.write.parquet("x"))
    return made.graph()


def test_a_source_knows_what_the_sinks_below_it_cannot_hold():
    graph = process(hf.write.postgres("postgresql://localhost/x", "t"))
    assert not_held_below(graph, "probes") == {NUL: "table", BEFORE_1: "table"}
    assert not_held_below(graph, "others") == {}
    assert not_held_below(process(hf.write.sqlite("x.db", "t")), "probes") == {BEFORE_1: "table", AFTER_9999: "table"}


def test_a_nul_is_a_bad_record_where_a_sink_below_cannot_hold_it(driver):
    """Valid JSON, taken by every live source: the sink refused it at every start, and no remedy worked."""
    good, bad = raw(name="b"), raw(name="a\0b")
    driver.set(schema=Schema.of("ts timestamp, name string"), bad="quarantine", unheld={NUL: "table"})
    rows = [driver.rows(frame.references).to_pylist() for frame in driver.frames(Post([sent("a", good, bad, good)]))]
    assert [row["name"] for row in rows[0]] == ["b", "b"]
    [kept] = quarantined(driver)
    assert "NUL" in kept["reason"] and kept["raw"] == bad.raw.decode()
    post = Post([sent("c", good), sent("d", bad)])
    with pytest.raises(SourceError, match=r"HF-S051 NotHeldBelow(.|\n)*probes(.|\n)*'table'"):
        driver.set(bad="fail").frames(post)
    assert [token for token, _ in post.acked] == ["c"]


@pytest.mark.parametrize("item", [
    {"deep": {"s": ["x", "y\0"], "m": []}},
    {"deep": {"s": [], "m": [("k\0", None)]}},
    {"deep": {"s": [], "m": [("k", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))]}, "name": "\0"},
    {"day": -719_163},
    {"at": -62_135_596_800_000_001},
    {"at": 253_402_300_800_000_000},
])  # fmt: skip
def test_values_are_found_wherever_they_are(item):
    columns = []
    for field in SCHEMA.arrow:
        columns.append(pa.array([item.get(field.name), None], field.type))
    with pytest.raises(SourceError, match="HF-S051"):
        held(pa.table(columns, schema=SCHEMA.arrow), UNHELD)


def test_what_every_sink_holds_is_taken():
    edge = {
        "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "day": date(1, 1, 1),
        "name": "\u0001",
        "ts": None,
    }
    row = edge | {"deep": {"s": ["x", None], "m": [("k", datetime(1, 1, 1, tzinfo=UTC))]}}
    table, bad = table_of([row, row], Terms(SCHEMA, "s", unheld=UNHELD), 0, first_only=False)
    assert table.num_rows == 2 and bad == []
    nul, bad = table_of([row | {"name": "a\0"}, row], Terms(SCHEMA, "s", unheld=UNHELD), 0, first_only=False)
    assert nul.num_rows == 1 and [each.at for each in bad] == [0]
