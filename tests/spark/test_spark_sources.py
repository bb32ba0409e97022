"""A Spark stream as a source: its own query, each batch in the source log once, whatever is killed between."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import ProcessRefused, SourceError
from holdfast.sources.live.log import SourceLog

SCHEMA = "shop string, ts timestamp, amount decimal(12,2)"
START = datetime(2026, 1, 1, tzinfo=UTC)
PER_FILE = 50


def orders_of(number: int) -> list[dict]:
    return [
        {
            "shop": f"s{at % 3}",
            "ts": START + timedelta(seconds=number * 60 + at),
            "amount": Decimal(number * PER_FILE + at),
        }
        for at in range(PER_FILE)
    ]


def add_file(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    kinds = pa.schema([("shop", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("amount", pa.decimal128(12, 2))])
    whole = folder / f"_{number}.parquet"
    pq.write_table(pa.Table.from_pylist(orders_of(number), kinds), whole)
    whole.rename(folder / f"{number}.parquet")


def sales(folder: Path, kept: dict, called: list, **options) -> hf.StreamProcess:
    """The job of someone who came with a Spark stream, a watermark and an upsert."""
    process = hf.StreamProcess("sales", frame="1 second", time=hf.ARRIVAL)

    @process.source(keep="1 day", **options)
    def orders(spark):
        called.append(spark)
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))

    @process.operator(over="stream", mode="update")
    def per_minute(orders):
        return (
            orders.withWatermark("ts", "2 hours")
            .groupBy(F.window("ts", "1 minute"), "shop")
            .agg(F.sum("amount").cast("decimal(12,2)").alias("amount"))
            .select("shop", F.col("window.start").alias("minute"), "amount")
        )

    def upsert(df, batch_id):
        kept.update({(row.shop, row.minute.astimezone(UTC)): row.amount for row in df.collect()})

    process.sink("per_minute", hf.write.foreach_batch(upsert))
    return process


def expected(files: int) -> dict:
    found: Counter = Counter()
    for number in range(files):
        for row in orders_of(number):
            found[row["shop"], row["ts"].replace(second=0)] += row["amount"]
    return dict(found)


def until(is_so) -> None:
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.05)


def test_a_job_moves_with_its_spark_stream_and_no_row_is_counted_twice(spark, tmp_path):
    """Spark repeats a batch whose commit it lost; the log has it already."""
    folder, state, kept, called = tmp_path / "in", tmp_path / "state", {}, []
    process = sales(folder, kept, called)
    for number in range(3):
        add_file(folder, number)
    assert process.graph().sources[0].schema is None
    assert called == [], "a declaration calls nothing"
    with process.start(spark=spark, state=state) as run:
        until(lambda: kept == expected(3))
    assert run.status().sources[0].rows == 3 * PER_FILE
    commits = state / "sources" / "orders" / "spark" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    add_file(folder, 3)
    with process.start(spark=spark, state=state) as run:
        until(lambda: kept == expected(4))
    log = SourceLog(state / "sources" / "orders" / "log", run.graph.sources[0].schema)
    amounts = [amount for chunk in log.chunks() for amount in log.read(chunk, "amount").to_pylist()]
    assert sorted(amounts) == [Decimal(at) for at in range(4 * PER_FILE)]
    assert [chunk.mark["batch"] for chunk in log.chunks()] == [0, 1, 2, 3]


def test_an_ingest_query_that_died_goes_on_once_what_it_reads_is_mended(spark, tmp_path):
    """HF-S019."""
    folder, rows = tmp_path / "in", []
    process = hf.StreamProcess("sales", frame="1 second", time=hf.ARRIVAL)

    @process.source(schema=SCHEMA)
    def orders(spark):
        return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))

    process.map("all", of="orders", select=["amount"])
    process.sink("all", hf.write.callback(lambda table, frame: rows.extend(table["amount"].to_pylist())))
    add_file(folder, 0)
    add_file(folder, 1)
    whole = (folder / "1.parquet").read_bytes()
    (folder / "1.parquet").write_bytes(b"no parquet")
    with pytest.raises(SourceError, match="HF-S019") as died:
        process.run(spark=spark, state=tmp_path / "state")
    assert "mend what the query reads" in died.value.do
    (folder / "1.parquet").write_bytes(whole)
    with process.start(spark=spark, state=tmp_path / "state"):
        until(lambda: len(rows) >= 2 * PER_FILE)
    assert sorted(rows) == [Decimal(at) for at in range(2 * PER_FILE)]


def test_a_stream_is_cut_by_its_time_and_a_silent_one_holds_its_frame(spark, tmp_path):
    folder, seen = tmp_path / "in", []
    process = hf.StreamProcess("sales", frame="10 seconds", time="ts")

    @process.source(schema="ts timestamp, amount decimal(12,2)", boundary="hold")
    def orders(spark):
        return spark.readStream.schema(SCHEMA).parquet(str(folder))

    process.map("big", of="orders", select=["ts", "amount"])
    process.sink("big", hf.write.callback(lambda table, frame: seen.append((frame, table.num_rows))))
    add_file(folder, 0)
    with process.start(spark=spark, state=tmp_path / "state") as run:
        run.wait(frame=4)
        until(lambda: "is silent since" in run.status().units[0].why)
        assert run.status().sources[0].why.startswith("silent since")
    assert seen[:4] == [(1, 10), (2, 10), (3, 10), (4, 10)], "the fifth frame waits for an element after its end"


def test_what_is_wrong_with_a_stream_is_found_before_it_is_read(spark):
    process = hf.StreamProcess("sales", frame="1 second", time="when")

    @process.source()
    def orders(spark):
        return spark.readStream.format("rate").load()

    process.filter("odd", of="orders", where="value % 2 = 1")
    process.sink("odd", hf.write.console())
    with pytest.raises(ProcessRefused, match=r"HF-G011(.|\n)*timestamp"):
        process.check(types=True)

    @process.source("broken")
    def broken(spark):
        return spark.readStream.format("no such thing").load()

    process.map("all", of="broken", select=["*"])
    process.sink("all", hf.write.console())
    with pytest.raises(ProcessRefused, match="HF-S015 SparkSourceRaised"):
        process.check(types=True)


@pytest.mark.parametrize(
    ("schema", "stream", "told"),
    [
        ("ts timestamp, value bigint", lambda spark: spark.readStream.format("rate").load(), "HF-S002"),
        ("timestamp timestamp, value int", lambda spark: spark.range(1), "HF-S018"),
        ("timestamp timestamp, value boolean", lambda spark: spark.readStream.format("rate").load(), "HF-S003"),
    ],
)
def test_a_declared_schema_the_stream_does_not_have_is_found_before_it_is_read(spark, schema, stream, told):
    process = hf.StreamProcess("sales", frame="1 second", time=hf.ARRIVAL)

    @process.source(schema=schema)
    def orders(spark):
        return stream(spark)

    process.map("all", of="orders", select=["*"])
    process.sink("all", hf.write.console())
    with pytest.raises(ProcessRefused, match=told):
        process.check(types=True)
