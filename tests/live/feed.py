"""A source that cannot be read again: numbered elements, told where to go on.

It gives as many as the file `allowed` says, so that no machine is quick enough to see
the end before a test lets it. Frames by element time. The sink's table must hold every number once.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd

import holdfast as hf

ELEMENTS, PER_FRAME = 2400, 40
START = datetime(2026, 1, 1, tzinfo=UTC)

feed = hf.StreamProcess("feed", frame="1 second", time="ts")


@feed.source("pulses", schema="ts timestamp, number bigint")
def pulses(logged):
    for number in range(logged, ELEMENTS):
        while number >= int(Path("allowed").read_text()):
            time.sleep(0.005)
        yield {"ts": START + timedelta(seconds=number / PER_FRAME), "number": number}


feed.map("marked", of="pulses", select=["ts", "number", "number % 2 as parity"])


@feed.keyed("parity", state="sum bigint", emits="ts timestamp, parity bigint, number bigint, sum bigint")
def summed(state: pd.DataFrame, marked: pd.DataFrame):
    before = marked.parity.map(state.set_index("parity")["sum"]).fillna(0).astype("int64")
    out = marked.assign(sum=marked.groupby("parity").number.cumsum() + before)
    return out.groupby("parity", as_index=False)["sum"].last(), out[["ts", "parity", "number", "sum"]]


feed.sink("summed", hf.write.sqlite("summed.db", "summed"))
