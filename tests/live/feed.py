"""A source that cannot be read again: numbered elements at their own pace, told where to go on.

Frames by element time. The sink's table must hold every number once.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pandas as pd

import holdfast as hf

ELEMENTS, PER_FRAME = 2400, 40
START = datetime(2026, 1, 1, tzinfo=UTC)

feed = hf.StreamProcess("feed", frame="1 second", time="ts")


@feed.source("pulses", schema="ts timestamp, number bigint")
def pulses(logged):
    for number in range(logged, ELEMENTS):
        time.sleep(0.005)  # a sensor: 200 a second, whether anybody listens or not
        yield {"ts": START + timedelta(seconds=number / PER_FRAME), "number": number}


feed.map("marked", of="pulses", select=["ts", "number", "number % 2 as parity"])


@feed.keyed("parity", state="sum bigint", emits="ts timestamp, parity bigint, number bigint, sum bigint")
def summed(state: pd.DataFrame, marked: pd.DataFrame):
    before = marked.parity.map(state.set_index("parity")["sum"]).fillna(0).astype("int64")
    out = marked.assign(sum=marked.groupby("parity").number.cumsum() + before)
    return out.groupby("parity", as_index=False)["sum"].last(), out[["ts", "parity", "number", "sum"]]


feed.sink("summed", hf.write.sqlite("summed.db", "summed"))
