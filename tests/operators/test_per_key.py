"""A value that was set for a key is found by whoever asks for that key, in SQL and in Python alike."""

from __future__ import annotations

from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast.operators.exchange import to_df
from holdfast.operators.per_key import PerKey

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# Key columns, and each key as `cast(key as string)` writes it in a session in UTC.
KEYS = [
    (pa.array([True, False]), ["true", "false"]),
    (pa.array([True, None, False]), ["true", None, "false"]),
    (pa.array([7, -1], pa.int32()), ["7", "-1"]),
    (pa.array([7, None], pa.int64()), ["7", None]),
    (pa.array(["p7", "True", "x"]), ["p7", "True", "x"]),
    (pa.array([NOON, NOON.replace(microsecond=250_000)], pa.timestamp("us", "UTC")), ["2026-01-01 12:00:00", "2026-01-01 12:00:00.25"]),
    (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), ["2026-01-01 12:00:00"]),
    (pa.array([date(2026, 1, 1)]), ["2026-01-01"]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "written"), KEYS, ids=[str(column.type) for column, _ in KEYS])
def test_a_key_is_found_as_spark_writes_it(column, written):
    values = {text: 10.0 + at for at, text in enumerate(written) if text is not None}
    limit = PerKey(1.0, values)
    keys = to_df(pa.table({"key": column}))["key"]
    expected = [values.get(text, 1.0) for text in written]
    assert limit.of(keys).tolist() == expected
    assert [limit[key] for key in keys] == expected


def test_a_numpy_truth_is_one():
    assert PerKey(0, {"true": 1})[np.bool_(True)] == 1
    assert PerKey(0, {"2026-01-01 12:00:00": 1})[pd.Timestamp(NOON)] == 1
