"""The source of a unit's query, as a class of the JVM and in Python: one goes on where the other stopped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.engine.unit.frame_source import FrameTicks, publish_permits

PYTHON, JAVA = FrameTicks.name(), "holdfast.FrameTicks"


def taken(spark, kind: str, permits: Path, checkpoint: Path) -> list[list[int]]:
    """The frames of every batch until nothing is left, with this kind of source."""
    spark.dataSource.register(FrameTicks)
    batches = []
    query = (
        spark.readStream.format(kind).option("permits", str(permits)).option("after", "0").load()
        .writeStream.option("checkpointLocation", str(checkpoint))
        .foreachBatch(lambda df, n: batches.append([row.n for row in df.collect()]))
        .start()
    )  # fmt: skip
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return batches


def permit(n: int) -> dict:
    return {"n": n, "inputs": [["a", n, "S", 1, f"sum of {n}"]]}


@pytest.mark.parametrize("kinds", [(PYTHON, JAVA), (JAVA, PYTHON)], ids=["python first", "java first"])
def test_one_goes_on_where_the_other_stopped(spark, tmp_path, kinds):
    """A run in a user's own session may be taken up in ours, and the other way round."""
    permits, checkpoint = tmp_path / "permit.json", tmp_path / "checkpoint"
    publish_permits(permits, [permit(1), permit(2)])
    assert taken(spark, kinds[0], permits, checkpoint) == [[1, 2]]
    # Spark died before it wrote down that the batch was done: it is taken again, whatever is permitted now.
    (checkpoint / "commits" / "0").unlink()
    publish_permits(permits, [permit(3)])
    assert taken(spark, kinds[1], permits, checkpoint) == [[1, 2], [3]]

    offsets = [json.loads((checkpoint / "offsets" / batch).read_text().splitlines()[-1]) for batch in "01"]
    assert offsets == [
        {"n": 2, "inputs": [*permit(1)["inputs"], *permit(2)["inputs"]]},
        {"n": 3, "inputs": permit(3)["inputs"]},
    ]


def test_nothing_permitted_is_no_batch(spark, tmp_path):
    """A batch without a frame would have a number and nothing to do."""
    assert taken(spark, JAVA, tmp_path / "not there", tmp_path / "checkpoint") == []
