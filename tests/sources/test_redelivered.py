"""Ids are known again whatever their values, in this run and the next, and after the log has let them go."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

from holdfast.frames.sums import write_arrow
from holdfast.graph.schemas import Schema
from holdfast.sources.live.log import SourceLog
from holdfast.sources.live.redelivered import Redelivered

#: Dates and times before the year 1 and after 9999, which Python's own types cannot hold, beside ordinary ones.
IDS = [
    ("date", pa.array([-800_000, 19_000, 3_000_000], pa.date32())),
    ("timestamp", pa.array([-(2**56), 0, 2**58], pa.timestamp("us", "UTC"))),
    ("timestamp_ntz", pa.array([-(2**56), 0, 2**58], pa.timestamp("us"))),
    ("binary", pa.array([b"", b"\xff", b"a"])),
    ("string", pa.array(["", "\0", "a"])),
    ("boolean", pa.array([True, False, None])),
]


@pytest.mark.parametrize(("kind", "ids"), IDS, ids=[kind for kind, _ in IDS])
def test_ids_are_known_again_in_the_next_run(tmp_path, kind, ids):
    log, file = SourceLog(tmp_path / "log", Schema.of(f"id {kind}")), tmp_path / "redelivered.arrow"
    known, table = Redelivered(file, log, "id"), pa.table({"id": ids})
    assert known.without_known(pa.concat_tables([table, table])).num_rows == 3 + ids.null_count
    known.saw(1, table, {})
    assert known.without_known(table).num_rows == ids.null_count
    known.outlive({1})
    assert Redelivered(file, log, "id").without_known(table).num_rows == ids.null_count
    log.close()


def test_ids_that_an_earlier_version_saved_are_known(tmp_path):
    log, file = SourceLog(tmp_path / "log", Schema.of("id date")), tmp_path / "redelivered.arrow"
    saved = pa.table({"id": pa.array([date(2026, 1, 1)])}).replace_schema_metadata({"batches": "[[1, 1, [], 1]]"})
    write_arrow(file, saved)
    assert Redelivered(file, log, "id").without_known(pa.table({"id": pa.array([date(2026, 1, 1)])})).num_rows == 0
    saved = pa.table({"id": pa.array([datetime(2026, 1, 1, tzinfo=UTC)])}).replace_schema_metadata(
        {"batches": "[[1, 1, [], 1]]"}
    )
    write_arrow(file, saved)
    again = pa.table({"id": pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))})
    assert Redelivered(file, log, "id").without_known(again).num_rows == 0
    log.close()


@pytest.mark.parametrize("other", ["b", "c"], ids=["same type", "other type"])
def test_values_of_the_column_that_id_named_before_are_no_ids_of_another(tmp_path, other):
    """A new element whose serial equals an old station number was left out; of other types, the source stopped for ever."""
    log, file = SourceLog(tmp_path / "log", Schema.of("a bigint, b bigint, c string")), tmp_path / "redelivered.arrow"
    before = Redelivered(file, log, "a")
    before.saw(1, pa.table({"a": [7], "b": [1], "c": ["x"]}), {"keys": ["k"]})
    before.outlive({1})
    fresh, now = pa.table({"a": [8], "b": [7], "c": ["7"]}), Redelivered(file, log, other)
    assert now.without_known(fresh).num_rows == 1
    now.saw(2, fresh, {})
    now.outlive({2})
    again = Redelivered(file, log, other)
    assert again.without_known(fresh).num_rows == 0 and again._keys == {"k": 1}
    log.close()


def test_ids_outlive_a_run_without_id(tmp_path):
    log, file, table = (
        SourceLog(tmp_path / "log", Schema.of("a bigint")),
        tmp_path / "redelivered.arrow",
        pa.table({"a": [7]}),
    )
    before = Redelivered(file, log, "a")
    before.saw(1, table, {})
    before.outlive({1})
    without = Redelivered(file, log, None)
    without.saw(2, table, {"keys": ["k"]})
    without.outlive({2})
    assert Redelivered(file, log, "a").without_known(table).num_rows == 0
    log.close()
