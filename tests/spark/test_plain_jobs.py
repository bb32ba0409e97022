"""A plain Structured Streaming job with nothing of ours but hf.once, hf.supervise and adopt."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.engine.plain.adopt import read_checkpoint

FILES = 4
SCHEMA = "shop string, ts timestamp, amount int"


@pytest.fixture
def orders(spark, tmp_path):
    """One small file is one batch."""
    folder = tmp_path / "orders"
    folder.mkdir()
    for n in range(FILES):
        rows = [{"shop": f"s{i % 3}", "ts": f"2026-11-15T10:0{n}:{i:02}Z", "amount": n * 100 + i} for i in range(30)]
        file = folder / f"{n}.json"
        file.write_text("\n".join(map(json.dumps, rows)))
        os.utime(
            file, (1_700_000_000 + n, 1_700_000_000 + n)
        )  # Spark takes them by age; two may be of one tick of the disk
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def databases(request, kind, tmp_path):
    if kind == "postgres":
        url = request.getfixturevalue("postgres").url
        return (lambda: psycopg.connect(url)), "%s"
    return (lambda: sqlite3.connect(tmp_path / "sales.db")), "?"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_batch_that_comes_again_changes_nothing_in_the_table(request, orders, tmp_path, kind):
    """The last commit entry is lost, as by a crash: Spark hands the batch over again."""
    connect, mark = databases(request, kind, tmp_path)
    with closing(connect()) as connection:
        connection.cursor().execute("create table sales (shop text, amount integer)")
        connection.commit()
    handed = []

    def store(df, batch_id):
        rows = [(row.shop, row.amount) for row in df.collect()]
        handed.append(batch_id)
        with closing(connect()) as connection, hf.once(connection, batch_id, process="sales") as fresh:
            if fresh:
                connection.cursor().executemany(f"insert into sales values ({mark}, {mark})", rows)

    def run():
        writer = orders.writeStream.foreachBatch(store).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def table():
        with closing(connect()) as connection:
            cursor = connection.cursor()
            cursor.execute("select shop, amount from sales order by 1, 2")
            return cursor.fetchall()

    run()
    whole = table()
    assert handed == list(range(FILES)) and len(whole) == 30 * FILES

    _delete_entry(tmp_path / "checkpoint" / "commits" / str(FILES - 1))
    run()
    assert handed == [*range(FILES), FILES - 1], "the batch did not come again, so nothing was shown"
    assert table() == whole


def _delete_entry(path: Path) -> None:
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_a_dead_query_is_restarted_and_reported_and_adopt_says_where_it_stands(spark, orders, tmp_path, caplog):
    caplog.set_level(logging.INFO, "holdfast.supervise")
    checkpoint, told, written, deaths = tmp_path / "checkpoint", [], {}, []

    def store(df, batch_id):
        if batch_id == 1 and len(deaths) < 2:
            deaths.append(batch_id)
            raise ConnectionError("the database is away")
        written[batch_id] = df.collect()

    per_shop = (
        orders.withWatermark("ts", "1 minute")
        .groupBy(F.window("ts", "1 minute"), "shop")
        .agg(F.sum("amount").alias("amount"))
    )
    writer = (
        per_shop.writeStream.queryName("sales").outputMode("update").foreachBatch(store)
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    )  # fmt: skip
    with hf.supervise(spark, first="10 ms", longest="20 ms", on_degraded=told.append) as watch:
        watch.start(writer)
        watch.wait()

    assert [(state.query, state.state, state.attempt) for state in told] == [
        ("sales", "RESTARTING", 1), ("sales", "RUNNING", 1), ("sales", "RESTARTING", 2), ("sales", "RUNNING", 2),
    ]  # fmt: skip
    assert "ConnectionError: the database is away" in told[0].error
    assert "query sales died" in caplog.text and "query sales runs again after try 2 of 8" in caplog.text
    last = {(row.window.start, row.shop): row.amount for rows in written.values() for row in rows}
    assert sum(last.values()) == sum(n * 100 + i for n in range(FILES) for i in range(30))
    assert [state.state for state in watch.status()] == ["ENDED"]

    found = read_checkpoint(checkpoint)
    assert found.batch == max(written) and found.begun is None
    [files] = found.sources
    assert (files.kind, files.offset["files"]) == ("files", FILES)
    assert found.state == ("stateStoreSave",) and found.watermark_ms > 0


def test_plain_spark_reads_a_parquet_folder_by_its_manifest(spark, tmp_path):
    """docs/howto/parquet.md: the folder as it is, and exactly what is committed."""
    from tests.sinks.killed_child import frames, open_sink
    from tests.sinks.test_parquet_readers import committed

    with closing(open_sink("parquet", tmp_path, 1, False)) as sink:
        sink.write(frames())
    folder = tmp_path / "out"
    rows = sum(record.rows for record, _ in frames())
    assert spark.read.parquet(*map(str, committed(folder))).count() == rows

    manifest = folder / "_holdfast" / "ledger.jsonl"  # as after a kill between the rename and the line
    manifest.write_text("".join(manifest.read_text().splitlines(keepends=True)[:-1]))
    assert spark.read.parquet(*map(str, committed(folder))).count() == rows - frames()[-1][0].rows
    assert spark.read.parquet(str(folder)).count() == rows
