"""Columns with the nastiest names go through every kind of operator and into every sink, and come out equal.

Equal to a twin: the same process on the same rows, whose columns have plain names.
"""

from __future__ import annotations

import re
import sqlite3

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import holdfast as hf
from holdfast.engine.check.types import infer
from holdfast.graph.reserved import RESERVED
from holdfast.graph.schemas import Column, Schema, named
from holdfast.graph.units import cut
from holdfast.quoting import quoted
from tests.names import NASTY, WORST

SECONDS = 4  # enough that a unit takes several frames at once
# Names of the aggregates' and joins' own state may not be those of a key; they stand among the columns.
TIME, KEY, OTHER, STATE = "Zeit.`punkt` \U0001f600", "Schl\u00fc\u00df`e``l", "x\"y'?%s", "select \\"
NAMES = {"ts": TIME, "k": KEY, "m": OTHER, "s": STATE} | {f"c{at}": name for at, name in enumerate(WORST)}
PLAIN = {plain: plain for plain in NAMES}


def rows(names: dict[str, str]) -> pa.Table:
    random = np.random.default_rng(11)
    count = SECONDS * 5
    columns = {
        "ts": pa.array(np.arange(count) * 200_000 + 1, pa.timestamp("us", tz="UTC")),
        "k": pa.array([f"k{each}" for each in random.integers(0, 3, count)]),
        "m": pa.array(random.integers(0, 2, count)),
    } | {f"c{at}": pa.array(random.integers(-5, 50, count)) for at in range(len(WORST))}
    return pa.table(list(columns.values()), names=[names[plain] for plain in columns])


def declare(folder, names: dict[str, str], postgres: str) -> hf.StreamProcess:
    """Each kind of operator once, each kind of sink with keys and without."""
    time, key, other, state = (names[each] for each in ("ts", "k", "m", "s"))
    cs = [names[f"c{at}"] for at in range(len(WORST))]
    pq.write_table(rows(names), folder / "probes.parquet")
    process = hf.StreamProcess("names", frame="1 second", time=time, state=str(folder / "state"))
    process.param("least", 0, per=key)
    process.source("probes", hf.read.files(str(folder / "probes.parquet")), schema=Schema.of(rows(names).schema).ddl)

    @process.operator
    def framed(probes, *, least):
        return probes.where(F.col(quoted(cs[0])) >= least).select(*map(F.col, map(quoted, probes.columns)))

    @process.operator(over="stream")
    def streamed(probes):
        by = (F.col(quoted(time)), F.col(quoted(key)))
        return probes.groupBy(*by).agg(*(F.sum(quoted(c)).alias(c) for c in cs))

    @process.keyed(
        key, other, state=f"{quoted(state)} bigint", emits=Schema.of(rows(names).select([key, other, *cs]).schema).ddl
    )
    def keyed(state, framed):
        tops = framed.groupby([key, other], as_index=False)[cs].max()
        both = state.merge(tops[[key, other, cs[0]]], on=[key, other], how="right")
        both[names["s"]] = both[names["s"]].fillna(0).astype("int64") + both[cs[0]]
        tops[cs[0]] = both[names["s"]].to_numpy()
        return both[[key, other, names["s"]]], tops

    process.filter("filtered", of="probes", where=" and ".join(f"{quoted(c)} > -6" for c in cs))
    process.map("starred", of="filtered", select=["*"])
    process.map(
        "mapped", of="probes", select=[quoted(time), quoted(key), *(f"{quoted(c)} + 1 as {quoted(c)}" for c in cs)]
    )
    process.split("parts", of="mapped", into={"low": f"{quoted(cs[1])} < 20", "high": f"{quoted(cs[1])} >= 20"})
    process.union("both", of=["parts.low", "parts.high"])
    emits = {
        c: f"{function}({quoted(c)})"
        for c, function in zip(cs, ["max", "sum", "first", "last", "count_distinct"] * 20, strict=False)
    }
    process.aggregate("running", of="mapped", by=[key], emits=emits)
    process.aggregate(
        "windows", of="mapped", by=[key], window="2 seconds", every="1 second", emits={time: "window_start", **emits}
    )
    process.aggregate("sessions", of="mapped", by=[key], session="300 ms", emits={time: "window_start", **emits})
    process.aggregate("counted", of="mapped", by=[key], window=hf.rows(3), emits=emits)
    picked = [quoted(key), *(f"{quoted(c)} as {quoted(c + '~')}" for c in cs), *(quoted(f"{c}_right") for c in cs[:9])]
    process.join("joined", left="mapped", right="framed", on=[key], within="150 ms", how="left", emits=picked)

    for stream in STREAMS:
        process.sink(stream, hf.write.sqlite(str(folder / "out.db"), stream.replace(".", "_")))
    for kind, address in (("sqlite", folder / "more.db"), ("duckdb", folder / "out.duckdb"), ("postgres", postgres)):
        writer = getattr(hf.write, kind)
        process.sink("framed", writer(str(address), f"of_{kind}_rows"), name=f"of_{kind}_rows")
        process.sink("keyed", writer(str(address), f"of_{kind}_keys", keys=[key, other]), name=f"of_{kind}_keys")
    process.sink("framed", hf.write.parquet(str(folder / "parquet")), name="parquet")
    return process


STREAMS = (
    "framed", "streamed", "keyed", "filtered", "starred", "mapped", "parts.low", "both", "running", "windows", "sessions", "counted", "joined",
)  # fmt: skip


def tables(folder, postgres: str) -> dict[str, tuple[list[str], list[tuple]]]:
    """table -> names of its columns, rows"""
    found = {}
    for connection, names in (
        (sqlite3.connect(folder / "out.db"), [each.replace(".", "_") for each in STREAMS]),
        (sqlite3.connect(folder / "more.db"), ["of_sqlite_rows", "of_sqlite_keys"]),
        (duckdb.connect(str(folder / "out.duckdb")), ["of_duckdb_rows", "of_duckdb_keys"]),
        (psycopg.connect(postgres), ["of_postgres_rows", "of_postgres_keys"]),
    ):
        for name in names:
            cursor = connection.execute(f"select * from {name}")
            columns = [each[0] for each in cursor.description]
            found[name] = columns, sorted(cursor.fetchall(), key=repr)
        connection.close()
    table = pa.concat_tables(pq.read_table(path) for path in sorted((folder / "parquet").glob("*.parquet")))
    found["parquet"] = table.column_names, sorted(map(tuple, (row.values() for row in table.to_pylist())), key=repr)
    return found


def test_any_names_go_through_every_operator_into_every_sink(spark, tmp_path, postgres):
    found = {}
    for which, names in (("plain", PLAIN), ("nasty", NAMES)):
        folder = tmp_path / which
        folder.mkdir()
        with psycopg.connect(postgres.url, autocommit=True) as connection:
            connection.execute("set client_min_messages = error")
            connection.execute("drop schema public cascade; create schema public")
        process = declare(folder, names, postgres.url)
        kinds = {process.graph().operator(name).kind for unit in cut(process.graph()) for name in unit.operators}
        assert kinds == {"frame", "stream", "keyed", "filter", "map", "split", "union", "aggregate", "join"}
        process.run(spark=spark)
        found[which] = tables(folder, postgres.url)
    for name, (columns, plain) in found["plain"].items():
        renamed = [
            re.sub(r"^(c\d+|[a-z]+)(~|_right)?$", lambda each: NAMES.get(each[1], each[1]) + (each[2] or ""), old)
            for old in columns
        ]
        assert found["nasty"][name][0] == renamed, name
        assert found["nasty"][name][1] == plain and plain, name


def test_spark_reads_our_names_as_we_wrote_them(spark):
    schema = Schema(tuple(Column(name, f"struct<{named(name)}:int>") for name in NASTY))
    read = StructType.fromDDL(schema.ddl)
    assert tuple(read.names) == NASTY == tuple(field.dataType.names[0] for field in read)
    assert Schema.of(read) == schema
    # Words of Spark's SQL; ours goes without quotes where a name is letters and digits.
    words = [
        "add",
        "after",
        "all",
        "alter",
        "analyze",
        "and",
        "anti",
        "any",
        "array",
        "as",
        "asc",
        "at",
        "between",
        "both",
        "by",
        "case",
        "cast",
        "catalog",
        "check",
        "collate",
        "column",
        "commit",
        "constraint",
        "create",
        "cross",
        "current_date",
        "current_time",
        "current_user",
        "database",
        "day",
        "delete",
        "desc",
        "describe",
        "distinct",
        "div",
        "drop",
        "else",
        "end",
        "escape",
        "except",
        "exists",
        "explain",
        "false",
        "fetch",
        "filter",
        "for",
        "foreign",
        "from",
        "full",
        "function",
        "global",
        "grant",
        "group",
        "grouping",
        "having",
        "hour",
        "if",
        "ignore",
        "in",
        "index",
        "inner",
        "insert",
        "intersect",
        "interval",
        "into",
        "is",
        "join",
        "key",
        "lateral",
        "leading",
        "left",
        "like",
        "limit",
        "local",
        "map",
        "merge",
        "minus",
        "month",
        "natural",
        "no",
        "not",
        "null",
        "nulls",
        "of",
        "offset",
        "on",
        "only",
        "or",
        "order",
        "outer",
        "over",
        "overlaps",
        "partition",
        "pivot",
        "primary",
        "range",
        "references",
        "replace",
        "right",
        "rollup",
        "row",
        "rows",
        "schema",
        "select",
        "semi",
        "session",
        "set",
        "some",
        "struct",
        "table",
        "tablesample",
        "then",
        "time",
        "timestamp",
        "to",
        "trailing",
        "true",
        "truncate",
        "union",
        "unique",
        "unknown",
        "unpivot",
        "update",
        "use",
        "user",
        "using",
        "values",
        "view",
        "when",
        "where",
        "window",
        "with",
        "within",
        "year",
        "zone",
    ]
    assert StructType.fromDDL(Schema(tuple(Column(word, "int") for word in words)).ddl).names == words


@pytest.mark.parametrize("name", [*sorted(RESERVED), "_N", "_Frame"])
def test_what_an_operator_may_not_emit_is_refused(name, spark):
    process = hf.StreamProcess("names", frame="1 second", time="ts")
    process.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, v bigint")
    process.operator(lambda_named(name))
    process.map("mapped", of="probes", select=["ts", f"v as {quoted(name)}"])
    process.aggregate("summed", of="probes", by=["v"], emits={name: "count(*)"})
    for stream in ("framed", "mapped", "summed"):
        process.sink(stream, hf.write.callback(lambda table, n: None))
    findings = [finding for finding in infer(process.graph(), spark)[1] if not finding.warning]
    assert [finding.code for finding in findings] == ["HF-G044"] * 3


def lambda_named(name):
    def framed(probes):
        return probes.withColumnRenamed("v", name)

    return framed
