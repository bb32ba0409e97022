"""hf.write.foreach_batch: a DataFrame per frame, and a number that means the same for ever."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.errors import SinkError

SECONDS = 6


def process(folder, function):
    kiln = hf.StreamProcess("kiln", frame="1 second", time="ts", state=str(folder / "state"))
    kiln.source(
        "probes", hf.read.files(str(folder / "probes.parquet")), schema="ts timestamp, zone int, celsius double"
    )
    kiln.filter("warm", of="probes", where="celsius > 60")
    kiln.sink("warm", hf.write.foreach_batch(function))
    return kiln


@pytest.fixture
def probes(tmp_path):
    times = [second * 1_000_000 + 1 for second in range(SECONDS) for _ in range(2)]
    pq.write_table(
        pa.table({
            "ts": pa.array(times, pa.timestamp("us", tz="UTC")),
            "zone": pa.array([at % 2 for at in range(len(times))], pa.int32()),
            "celsius": [50.0 if second == 3 else 70.0 + second for second in range(SECONDS) for _ in range(2)],
        }),
        tmp_path / "probes.parquet",
    )  # fmt: skip
    return tmp_path


def test_the_batch_id_is_the_frame_over_restarts_and_new_checkpoints(spark, probes):
    handed = []

    def store(df, batch_id):
        assert df.sparkSession.sparkContext is spark.sparkContext
        assert df.sparkSession.sql("select 1 as one").first().one == 1  # a session that works
        df.createOrReplaceTempView("batch")
        rows = df.sparkSession.sql("select zone, celsius from batch order by zone").collect()
        if batch_id == 4 and not failed:
            failed.append(batch_id)
            raise ConnectionError("away")
        handed.append((batch_id, df.schema.simpleString(), [tuple(row) for row in rows]))

    failed = []
    findings = process(probes, store).check(types=False)
    assert [finding.code for finding in findings if not finding.warning] == []
    with pytest.raises(SinkError) as caught:
        process(probes, store).run(spark=spark)
    assert caught.value.code == "HF-K010" and "ConnectionError: away" in caught.value.why
    process(probes, store).run(spark=spark)

    schema = "struct<ts:timestamp,zone:int,celsius:double>"
    expected = [(n, schema, [] if n == 4 else [(0, 69.0 + n), (1, 69.0 + n)]) for n in range(1, SECONDS + 1)]
    assert handed[:SECONDS] == expected
    assert [rows for _, _, rows in handed[SECONDS:]] == [[]] * len(handed[SECONDS:])  # closing frames
    assert [n for n, _, _ in handed] == list(range(1, len(handed) + 1))
