"""watched.py: a process of patients whose values nobody may read, with a secret, that fails at a known row."""

import pandas as pd

import holdfast as hf

watched = hf.StreamProcess("watched", frame="1 second", time="ts", values="hide")
watched.source(
    "readings", hf.read.files("readings/*.parquet", rate="as recorded"), schema="ts timestamp, zone int, celsius double"
)


@watched.keyed("zone", state="seen bigint", emits="zone int, seen bigint, celsius double")
def counted(state: pd.DataFrame, readings: pd.DataFrame):
    if (readings.celsius == 451.7317).any():
        raise ValueError(f"{readings.celsius.max()} is too hot")
    x = readings.merge(state, on="zone", how="left").fillna({"seen": 0})
    x["seen"] = x.seen + x.groupby("zone").cumcount() + 1
    after = x.groupby("zone", as_index=False).seen.max()
    return after.astype({"seen": "int64"}), x[["zone", "seen", "celsius"]].astype({"seen": "int64"})


def notify(table, frame):
    token = hf.secret("WARD_TOKEN").open()
    print("told", len(token) > 0, frame)


watched.sink("counted", hf.write.sqlite("watched.db", "counted"))
watched.sink("counted", hf.write.callback(notify), name="told")
