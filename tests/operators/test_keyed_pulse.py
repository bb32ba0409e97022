"""The pulse operator of the telemonitoring example, run as it is printed there."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from holdfast.frames.clock import FrameClock
from holdfast.graph.schemas import Schema
from holdfast.operators.keyed import FrameContext, FrameStep, KeyedSpec, run_keyed
from holdfast.operators.spec import read_notes
from holdfast.operators.state import drop_cache


def pulse(state: pd.DataFrame, ecg: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """All patients of the frame at once; state has a row for each one seen before."""
    x = ecg.merge(state, on="patient", how="left")
    before = x.groupby("patient").mv.shift().fillna(x.last_mv)
    beat = x[(before < 0.6) & (x.mv >= 0.6)]
    since = beat.groupby("patient").ts.shift().fillna(beat.last_beat)
    out = beat.assign(bpm=60 / (beat.ts - since).dt.total_seconds()).dropna(subset="bpm")
    after = x.groupby("patient").agg(last_mv=("mv", "last"), last_beat=("last_beat", "last"))
    after["last_beat"] = beat.groupby("patient").ts.last().combine_first(after.last_beat)
    return after.reset_index(), out[["patient", "ts", "bpm"]]


SPEC = KeyedSpec(
    name="pulse",
    keys=("patient",),
    ports=(("ecg", Schema.of("patient string, ts timestamp, mv double")),),
    state=Schema.of("last_mv double, last_beat timestamp"),
    emits=(("pulse", Schema.of("patient string, ts timestamp, bpm double")),),
    function=pulse,
    time="ts",
)


def hearts() -> pd.DataFrame:
    """Three patients, 50 readings a second, for 20 seconds; one comes late, one leaves."""
    parts = []
    for patient, rate, start, stop in (("ann", 72, 0, 20), ("bob", 131, 4.2, 20), ("eve", 55, 0, 9.9)):
        seconds = np.arange(start, stop, 0.02)
        mv = np.maximum(0, np.sin(2 * np.pi * seconds * rate / 60)) ** 3
        parts.append(pd.DataFrame({"patient": patient, "us": (seconds * 1e6).astype("int64"), "mv": mv}))
    return pd.concat(parts, ignore_index=True).sort_values("us", kind="stable")


def run(directory, frame_us: int, *, cold: bool = False) -> list[tuple]:
    rows = hearts()
    clock = FrameClock.starting(0, frame_us)
    rows["n"] = clock.frame_of(rows.us.to_numpy())
    (directory / "runs").mkdir()
    (directory / "notes").mkdir()
    runs, out = {}, []
    for n, own in rows.groupby("n"):
        if cold:
            drop_cache()
        size = len(own)
        columns = {
            "_n": pa.array(np.full(size, n), pa.int64()),
            "_shard": pa.array(np.zeros(size), pa.int32()),
            "_port": pa.array(np.zeros(size), pa.int32()),
            "p0_patient": pa.array(own.patient),
            "p0_ts": pa.array(own.us.to_numpy()).cast(pa.timestamp("us", tz="UTC")),
            "p0_mv": pa.array(own.mv),
        }
        step = FrameStep(n, clock.boundary_us(n))
        context = FrameContext((step,), (0,), runs, str(directory / "runs"), str(directory / "notes"))
        for batch in run_keyed(SPEC, iter([pa.record_batch(columns)]), context):
            out += [(row["o0_patient"], row["o0_ts"], row["o0_bpm"]) for row in batch.to_pylist()]
        for note in read_notes(directory / "notes", n, (0,)):
            runs |= note.runs
    return sorted(out)


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("frame_us", [10_000_000, 1_000_000, 370_000])
def test_beats_are_the_same_however_the_stream_is_cut(tmp_path, frame_us, cold):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    whole = run(tmp_path / "whole", 60_000_000)

    assert run(tmp_path / "cut", frame_us, cold=cold) == whole
    rates = pd.DataFrame(whole, columns=["patient", "ts", "bpm"]).groupby("patient").bpm.mean()
    assert rates.to_dict() == pytest.approx({"ann": 72, "bob": 131, "eve": 55}, rel=0.05)
