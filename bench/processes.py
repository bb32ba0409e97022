"""The four stream processes of the thesis' evaluation (7.2.3), with state that shows any element lost or doubled.

    sp1  ecg -> smooth -> qrs                     a chain
    sp2  sensor1, sensor2 -> both -> mean         a join
    sp3  as sp2, and mean goes back to sensor1    a cycle
    sp4  as sp2, and mean goes back to both       two cycles through one operator
    window  ecg -> smooth                         the beginning of sp1, for protections that may lose

Every operator is a unit of its own and counts what it has seen in its life (`seen`), so
one element too few or too many shows in every row that follows (`smooth` hands on what came:
where it forgets its window, the rows of a window differ and no more). Values are whole
numbers: sums do not depend on how frames were cut. The sensors of sp3 and sp4 halve
their values while the mean they get back is above a threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf

__all__ = ["PROCESSES", "make_data", "process"]

PROCESSES = ("sp1", "sp2", "sp3", "sp4")
KEYS = 4
# Of a mean of 500: it is crossed again and again, and no sensor is quiet for long.
THRESHOLD = 400
WINDOW = 100
_MEAN = "ts timestamp, k int, mean bigint, seen bigint, total bigint"
_VALUE = "ts timestamp, k int, value bigint, seen bigint"
_START_US = 1_700_000_000_000_000


def make_data(folder: Path, frames: int, *, rows: int = 12) -> None:
    """`rows` elements a second of each of the three recordings, for so many seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(("ecg", "one", "two")):
        draw = np.random.default_rng(seed)
        times = np.sort(draw.integers(0, frames * 1_000_000, frames * rows))
        table = pa.table(
            {
                "ts": pa.array(_START_US + times, pa.timestamp("us", "UTC")),
                "k": pa.array(draw.integers(0, KEYS, len(times)), pa.int32()),
                "value": pa.array(draw.integers(0, 1000, len(times))),
            }
        )
        pq.write_table(table, folder / f"{name}.parquet")


def process(
    name: str,
    data: Path,
    protection: Any,
    *,
    sink: Any,
    promise: Sequence[Any] = (hf.lossless, hf.in_order),
    **settings: Any,
) -> hf.StreamProcess:
    """One of PROCESSES, or "window", on the recordings in `data`; `sink` takes its last stream."""
    made = hf.StreamProcess(name, frame="1 second", time="ts", **settings)
    made.protect(protection)
    if name in ("sp1", "window"):
        _read(made, data, "recorded", "ecg")
        _ecg(made)
        if name == "sp1":
            _qrs(made)
        made.sink("qrs" if name == "sp1" else "smooth", sink, promise=list(promise))
        return made
    _read(made, data, "test1", "one")
    _read(made, data, "test2", "two")
    _sensor(made, "sensor1", "test1", is_fed_back=name in ("sp3", "sp4"))
    _sensor(made, "sensor2", "test2", is_fed_back=name == "sp4")
    _joined(made)
    made.sink("mean", sink, promise=list(promise))
    return made


def _read(made: hf.StreamProcess, data: Path, source: str, file: str) -> None:
    made.source(source, hf.read.files(str(data / f"{file}.parquet")), schema="ts timestamp, k int, value bigint")


# ---- sp1 ----


def _ecg(made: hf.StreamProcess) -> None:
    @made.keyed("k", state="seen bigint", emits=_VALUE, apart=True)
    def ecg(state: pd.DataFrame, recorded: pd.DataFrame):
        out = _counted(state, recorded)
        return _last(out, "seen"), out[["ts", "k", "value", "seen"]]

    @made.keyed("k", state="a bigint, b bigint, c bigint, d bigint", emits=_VALUE, apart=True)
    def smooth(state: pd.DataFrame, ecg: pd.DataFrame):
        """The sum of five neighbours: a filter of order four."""
        out = ecg.merge(state, on="k", how="left")
        delayed = {}
        for back, name in enumerate("abcd", 1):
            # What lies before this frame is in the state: the newest first.
            shifted = out.groupby("k").value.shift(back)
            at = out.groupby("k").cumcount()
            kept = [out[each].fillna(0) for each in "abcd"]
            before = np.choose(np.clip(back - 1 - at, 0, 3), kept)
            delayed[name] = shifted.where(shifted.notna(), before).astype("int64")
        now = out.assign(**delayed)
        after = now.groupby("k", as_index=False).last()
        after = after.assign(d=after.c, c=after.b, b=after.a, a=after.value)[["k", "a", "b", "c", "d"]]
        value = now.value + now.a + now.b + now.c + now.d
        return after, now.assign(value=value)[["ts", "k", "value", "seen"]]


def _qrs(made: hf.StreamProcess) -> None:
    @made.keyed("k", state="seen bigint, beats bigint, last bigint", emits=f"{_VALUE}, beats bigint", apart=True)
    def qrs(state: pd.DataFrame, smooth: pd.DataFrame):
        """A beat is where the sum goes up through its threshold."""
        out = _counted(state, smooth.drop(columns="seen"))
        before = out.groupby("k").value.shift().fillna(out["last"]).fillna(0)
        up = ((before <= 2500) & (out.value > 2500)).astype("int64")
        out = out.assign(last=out.value, beats=(up.groupby(out.k).cumsum() + out.beats.fillna(0)).astype("int64"))
        return _last(out, "seen", "beats", "last"), out[["ts", "k", "value", "seen", "beats"]]


# ---- sp2 to sp4 ----


def _sensor(made: hf.StreamProcess, name: str, source: str, *, is_fed_back: bool) -> None:
    def alone(state: pd.DataFrame, own: pd.DataFrame):
        out = _counted(state, own)
        return _last(out, "seen"), out[["ts", "k", "value", "seen"]]

    def damped(state: pd.DataFrame, own: pd.DataFrame, last: pd.DataFrame):
        """The newest mean that came back stays in force until the next one."""
        came = last.groupby("k", as_index=False).agg(mean=("mean", "last"), back=("mean", "size"))
        known = state.merge(came, on="k", how="outer", suffixes=("", "_new"))
        known["mean"] = known.mean_new.fillna(known["mean"]).fillna(0).astype("int64")
        known["back"] = (known.back.fillna(0) + known.back_new.fillna(0)).astype("int64")
        known["seen"] = known.seen.fillna(0).astype("int64")
        out = _counted(known[["k", "seen", "mean", "back"]], own)
        value = out.value.where(out["mean"].fillna(0) <= THRESHOLD, out.value // 2)
        # What came back counts too: one frame of it lost shows in `seen` for good.
        out = out.assign(value=value, seen_out=out.seen + 1000 * out.back.fillna(0).astype("int64"))
        newest = out.groupby("k").seen.last()
        known = pd.concat(
            [known, pd.DataFrame({"k": [k for k in newest.index if k not in set(known.k)]})], ignore_index=True
        )
        known["seen"] = known.k.map(newest).fillna(known.seen).astype("int64")
        after = known[["k", "seen", "mean", "back"]].fillna(0).astype("int64").astype({"k": "int32"})
        return after, out[["ts", "k", "value", "seen_out"]].rename(columns={"seen_out": "seen"})

    function = damped if is_fed_back else alone
    function.__name__ = name
    inputs: dict[str, Any] = {"own": source}
    if is_fed_back:
        inputs["last"] = hf.feedback("mean", schema=_MEAN)
    state = "seen bigint, mean bigint, back bigint" if is_fed_back else "seen bigint"
    made.keyed("k", state=state, emits=_VALUE, inputs=inputs, apart=True)(function)


def _joined(made: hf.StreamProcess) -> None:
    @made.keyed("k", state="seen bigint, total bigint", emits=f"{_VALUE}, total bigint", apart=True)
    def both(state: pd.DataFrame, sensor1: pd.DataFrame, sensor2: pd.DataFrame):
        """The integral of the sum of both streams; `total` holds every count that came along too."""
        x = pd.concat([sensor1, sensor2], ignore_index=True).sort_values(
            ["ts", "seen", "value"], kind="stable", ignore_index=True
        )
        out = _counted(state, x.rename(columns={"seen": "came"}))
        total = (out.value + out.came).groupby(out.k).cumsum() + out.total.fillna(0)
        out = out.assign(total=total.astype("int64"))
        return _last(out, "seen", "total"), out[["ts", "k", "value", "seen", "total"]]

    @made.keyed("k", state="seen bigint, last array<bigint>", emits=_MEAN, apart=True)
    def mean(state: pd.DataFrame, both: pd.DataFrame):
        """The mean of the last hundred elements."""
        kept = {row["k"]: row for row in state.to_dict("records")}
        after, out = [], []
        for k, own in both.groupby("k"):
            row = kept.get(k)
            values = ([] if row is None else row["last"].tolist()) + own.value.tolist()
            seen = (0 if row is None else row["seen"]) + len(own)
            first = len(values) - len(own)
            means = [int(np.mean(values[max(0, at - WINDOW + 1) : at + 1])) for at in range(first, len(values))]
            out.append(
                own.assign(mean=means, seen=range(seen - len(own) + 1, seen + 1))[["ts", "k", "mean", "seen", "total"]]
            )
            after.append({"k": k, "seen": seen, "last": np.array(values[-WINDOW:], np.int64)})
        columns = ["ts", "k", "mean", "seen", "total"]
        return (
            pd.DataFrame(after, columns=["k", "seen", "last"]),
            pd.concat(out, ignore_index=True) if out else pd.DataFrame(columns=columns),
        )


def _counted(state: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with their keys' state beside them, and `seen` counted on from there."""
    out = rows.drop(columns="seen", errors="ignore").merge(state, on="k", how="left")
    return out.assign(seen=(out.groupby("k").cumcount() + 1 + out.seen.fillna(0)).astype("int64"))


def _last(out: pd.DataFrame, *columns: str) -> pd.DataFrame:
    return out.groupby("k", as_index=False)[list(columns)].last()
