"""The four stream processes of the thesis' evaluation with states of the thesis' kind, and what it measured on them.

    sp1  ecg -> filter -> qrs                     a chain; a real ECG, restamped to the wanted rate
    sp2  sensor1, sensor2 -> both -> mean         a join
    sp3  as sp2, and mean goes back to sensor1    a cycle
    sp4  as sp2, and mean goes back to both       two cycles through one operator

An element is a time and a value; one key, as the thesis has none. Sensors count, the
filter keeps four elements, the detector its thresholds; `both` (the integral of the sum)
keeps the last hundred elements of each sensor, `mean` the last hundred of the sums. All
streams between operators run at the rate of a sensor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import holdfast as hf

__all__ = ["CIS", "EDGES", "ELEMENT_BYTES", "LAST", "MEASURED", "PROCESSES", "SENSORS", "UNITS", "make_data", "process"]

PROCESSES = ("sp1", "sp2", "sp3", "sp4")
UNITS = {"sp1": ("ecg", "filter", "qrs")} | dict.fromkeys(PROCESSES[1:], ("sensor1", "sensor2", "both", "mean"))
SENSORS = {"sp1": ("ecg",)} | dict.fromkeys(PROCESSES[1:], ("sensor1", "sensor2"))
LAST = {"sp1": ("qrs", "filter")} | dict.fromkeys(PROCESSES[1:], ("mean", "both"))  # who is lost: one, then both
EDGES = {"sp1": 2, "sp2": 3, "sp3": 4, "sp4": 5}  # between operators
# On the thesis' wire, if all its streams run at the rate of a sensor.
ELEMENT_BYTES = {"sp1": 73, "sp2": 80, "sp3": 80, "sp4": 80}

# Tables 7.5 to 7.8: 200 elements/s, checkpoint KB/s by interval in elements.
CIS = (500, 1000, 1500, 2000, 2500, 3000)
MEASURED = {
    "sp1": {
        "uncoordinated": (45.40, 29.46, 25.90, 24.39, 22.41, 20.31),
        "ecoc": (0.72, 0.35, 0.25, 0.18, 0.14, 0.11),
        "extended": (0.73, 0.37, 0.24, 0.17, 0.13, 0.11),
    },
    "sp2": {
        "uncoordinated": (73.15, 47.57, 41.82, 38.40, 34.25, 34.20),
        "ecoc": (11.88, 5.82, 3.99, 2.82, 2.31, 1.90),
        "extended": (8.95, 5.13, 3.55, 2.80, 2.15, 1.86),
    },
    "sp3": {
        "uncoordinated": (83.10, 56.16, 49.36, 42.33, 39.98, 39.77),
        "extended": (33.50, 26.89, 30.70, 28.25, 25.26, 22.62),
    },
    "sp4": {
        "uncoordinated": (69.95, 49.69, 44.61, 43.28, 40.37, 37.89),
        "extended": (48.44, 58.34, 43.64, 37.88, 34.07, 33.10),
    },
}

WINDOW = 100
TAPS = (0.0625, 0.25, 0.375, 0.25, 0.0625)
THRESHOLD = 0.6
_ELEMENT = "ts timestamp, k int, value double"
_START_US = 1_700_000_000_000_000
_ECG = Path(__file__).resolve().parents[1] / "examples" / "records" / "100"


def make_data(folder: Path, frames: int, rows: int, frame_ms: int) -> None:
    """`rows` elements of each sensor in each of so many frames."""
    folder.mkdir(parents=True, exist_ok=True)
    count = frames * rows
    ts = _START_US + np.arange(count, dtype=np.int64) * (frame_ms * 1000) // rows
    draw = np.random.default_rng(5)
    for name in ("ecg", "one", "two"):
        if name == "ecg":
            value = np.resize(_recorded(), count)
        else:
            value = np.sin(np.arange(count) / rows) + draw.normal(0, 0.2, count)
        columns = {"ts": pa.array(ts, pa.timestamp("us", "UTC")), "k": np.zeros(count, np.int32), "value": value}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet", row_group_size=max(rows, 10_000))


def _recorded() -> np.ndarray:
    import wfdb

    return np.nan_to_num(wfdb.rdrecord(str(_ECG), channels=[0]).p_signal[:, 0])


def process(name: str, data: Path, protection: Any, *, frame_ms: int, sink: Any, **settings: Any) -> hf.StreamProcess:
    """One of PROCESSES on the recordings in `data`; `sink` takes its last stream."""
    made = hf.StreamProcess(name, frame=f"{frame_ms} ms", time="ts", **settings)
    made.protect(protection)
    if name == "sp1":
        made.source("recorded", hf.read.files(str(data / "ecg.parquet")), schema=_ELEMENT)
        _chain(made)
        made.sink("qrs", sink)
        return made
    made.source("test1", hf.read.files(str(data / "one.parquet")), schema=_ELEMENT)
    made.source("test2", hf.read.files(str(data / "two.parquet")), schema=_ELEMENT)
    _sensor(made, "sensor1", "test1", is_fed_back=name in ("sp3", "sp4"))
    _sensor(made, "sensor2", "test2", is_fed_back=name == "sp4")
    _joined(made)
    made.sink("mean", sink)
    return made


def _chain(made: hf.StreamProcess) -> None:
    @made.keyed("k", state="seen bigint", emits=_ELEMENT, apart=True)
    def ecg(state: pd.DataFrame, recorded: pd.DataFrame):
        return _counted(state, recorded), recorded[["ts", "k", "value"]]

    def fir(state: pd.DataFrame, ecg: pd.DataFrame):
        """Of order four: five neighbours, weighted."""
        if ecg.empty:
            return state, ecg[["ts", "k", "value"]]
        before = state.iloc[0][["a", "b", "c", "d"]].to_numpy(float) if len(state) else np.zeros(4)
        x = np.concatenate([before, ecg.value.to_numpy()])
        y = sum(tap * x[4 - back : len(x) - back] for back, tap in enumerate(TAPS))
        after = pd.DataFrame({"k": [0], **{name: [x[at - 4]] for at, name in enumerate("abcd")}}).astype({"k": "int32"})
        return after, ecg.assign(value=y)[["ts", "k", "value"]]

    fir.__name__ = "filter"
    made.keyed("k", state="a double, b double, c double, d double", emits=_ELEMENT, apart=True)(fir)

    state = "last double, before double, height double, since bigint, beats bigint"

    @made.keyed("k", state=state, emits=f"{_ELEMENT}, beats bigint", inputs={"x": "filter"}, apart=True)
    def qrs(state: pd.DataFrame, x: pd.DataFrame):
        """In one scan: a beat is a slope of more than half the height of the last ones, a fifth of a second after one."""
        if x.empty:
            return state, pd.DataFrame({"ts": x.ts, "k": x.k, "value": x.value, "beats": pd.Series([], dtype="int64")})
        last, before, height, since, beats = (
            tuple(state.iloc[0][["last", "before", "height", "since", "beats"]])
            if len(state)
            else (0.0, 0.0, 0.1, 0, 0)
        )
        found, counts = [], []
        for at, value in enumerate(x.value.tolist()):
            slope = value - before
            since += 1
            if slope > 0.5 * height and since > 72:
                since, beats, height = 0, beats + 1, 0.8 * height + 0.2 * slope
                found.append(at)
                counts.append(beats)
            elif since > 720:
                height *= 0.999
            before, last = last, value
        after = pd.DataFrame(
            {"k": [0], "last": [last], "before": [before], "height": [height], "since": [since], "beats": [beats]}
        )
        out = x.iloc[found].assign(beats=np.array(counts, np.int64))
        return after.astype({"k": "int32", "since": "int64", "beats": "int64"}), out[["ts", "k", "value", "beats"]]


def _sensor(made: hf.StreamProcess, name: str, source: str, *, is_fed_back: bool) -> None:
    def alone(state: pd.DataFrame, own: pd.DataFrame):
        return _counted(state, own), own[["ts", "k", "value"]]

    def damped(state: pd.DataFrame, own: pd.DataFrame, back: pd.DataFrame):
        """The newest mean that came back stays in force until the next one."""
        mean, seen = (float(state["mean"].iloc[0]), int(state.seen.iloc[0])) if len(state) else (0.0, 0)
        mean = float(back.value.iloc[-1]) if len(back) else mean
        after = pd.DataFrame({"k": [0], "seen": [seen + len(own)], "mean": [mean]}).astype(
            {"k": "int32", "seen": "int64"}
        )
        return after, own.assign(value=own.value * (0.5 if mean > THRESHOLD else 1.0))[["ts", "k", "value"]]

    function = damped if is_fed_back else alone
    function.__name__ = name
    inputs: dict[str, Any] = {"own": source}
    if is_fed_back:
        inputs["back"] = hf.feedback("mean", schema=_ELEMENT)
    state = "seen bigint, mean double" if is_fed_back else "seen bigint"
    made.keyed("k", state=state, emits=_ELEMENT, inputs=inputs, apart=True)(function)


def _joined(made: hf.StreamProcess) -> None:
    window = "times1 array<double>, values1 array<double>, times2 array<double>, values2 array<double>"

    @made.keyed("k", state=window, emits=_ELEMENT, apart=True)
    def both(state: pd.DataFrame, sensor1: pd.DataFrame, sensor2: pd.DataFrame):
        """The integral of the sum of both over the last hundred elements, at every element of the first."""
        one, two = _window(state, "1", sensor1), _window(state, "2", sensor2)
        if sensor1.empty:
            return state, sensor1[["ts", "k", "value"]]
        total = one[1] + two[1]
        width = np.diff(one[0], prepend=one[0][0])
        area = _sums(total * width, len(sensor1))
        kept = {"times1": one[0], "values1": one[1], "times2": two[0], "values2": two[1]}
        after = pd.DataFrame({"k": [0], **{name: [part[-WINDOW:]] for name, part in kept.items()}}).astype(
            {"k": "int32"}
        )
        return after, sensor1.assign(value=area)[["ts", "k", "value"]]

    @made.keyed("k", state="times array<double>, values array<double>", emits=_ELEMENT, apart=True)
    def mean(state: pd.DataFrame, both: pd.DataFrame):
        if both.empty:
            return state, both[["ts", "k", "value"]]
        times, values = _window(state, "", both)
        counts = np.minimum(np.arange(len(values) - len(both), len(values)) + 1, WINDOW)
        out = both.assign(value=_sums(values, len(both)) / counts)
        after = pd.DataFrame({"k": [0], "times": [times[-WINDOW:]], "values": [values[-WINDOW:]]}).astype(
            {"k": "int32"}
        )
        return after, out[["ts", "k", "value"]]


def _window(state: pd.DataFrame, at: str, rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Times in seconds and values: what was kept, then what came."""
    times, values = rows.ts.dt.as_unit("us").astype("int64").to_numpy() / 1e6, rows.value.to_numpy()
    if len(state):
        times = np.concatenate([np.asarray(state[f"times{at}"].iloc[0], float), times])
        values = np.concatenate([np.asarray(state[f"values{at}"].iloc[0], float), values])
    return times, values


def _sums(values: np.ndarray, count: int) -> np.ndarray:
    """For each of the last `count`: the sum of the hundred that end there."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(len(values) - count, len(values)) + 1
    return sums[ends] - sums[np.maximum(ends - WINDOW, 0)]


def _counted(state: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    if rows.empty:
        return state
    seen = len(rows) + (int(state.seen.iloc[0]) if len(state) else 0)
    return pd.DataFrame({"k": [0], "seen": [seen]}).astype({"k": "int32", "seen": "int64"})
