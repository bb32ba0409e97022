"""Beats are found in any lead at any rate, and however the samples are handed in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import wfdb
from scipy.signal import resample_poly

from holdfast.apps.telemonitoring import cleaning, qrs, records, scoring
from holdfast.apps.telemonitoring.operators import beats, clean
from holdfast.errors import UsageError
from holdfast.testing import same_however_cut
from tests.apps.hearts import heart

RECORD = Path(__file__).resolve().parents[2] / "examples" / "records" / "100"
START_US = 1_767_592_800_000_000


def found(mv: np.ndarray, hz: float) -> np.ndarray:
    """Seconds of the beats, through noise filter and detection."""
    us = START_US + np.floor(np.arange(len(mv)) * 1e6 / hz).astype(np.int64)
    lead, memory = cleaning.Lead(), qrs.Memory(float(hz))
    made = cleaning.feed(lead, us, mv)
    assert lead.hz == hz
    parts = [qrs.feed(memory, made.us, made.mv), qrs.finish(memory)]
    return (np.concatenate([part.us for part in parts]) - START_US) / 1e6


def scored(mv: np.ndarray, hz: float, expected_s: np.ndarray) -> tuple[float, float]:
    record = records.Record("made", "x", hz, mv, 0, np.round(expected_s * hz).astype(int), np.zeros((0, 2), int))
    score = records.score(record, (found(mv, hz) * 1e6).astype(np.int64))
    return score.sensitivity, score.precision


@pytest.fixture(scope="module")
def record_100():
    return {lead: records.read(RECORD, lead) for lead in ("MLII", "V5")}


@pytest.mark.parametrize("lead", ["MLII", "V5"])
def test_record_100_is_found_in_both_leads(record_100, lead):
    record = record_100[lead]
    us = (found(record.mv, record.hz) * 1e6).astype(np.int64) + record.start_us
    score = records.score(record, us)

    assert min(score.sensitivity, score.precision) >= 0.99


@pytest.mark.parametrize("hz, up, down", [(128, 16, 45), (250, 25, 36), (500, 25, 18), (1000, 25, 9)])
def test_the_rate_of_the_recording_does_not_matter(record_100, hz, up, down):
    record = record_100["MLII"]
    mv = resample_poly(record.mv[: 120 * 360], up, down)
    expected = record.beats[record.beats < 119 * 360] / 360

    assert scored(mv, hz, expected) == (1.0, pytest.approx(1.0, abs=0.01))


@pytest.mark.parametrize("gain, zero", [(-1, 0), (0.02, 0), (300, 32_768)], ids=["inverted", "small", "raw counts"])
def test_sign_gain_and_zero_of_a_lead_do_not_matter(record_100, gain, zero):
    mv = record_100["MLII"].mv[: 120 * 360]

    assert found(gain * mv + zero, 360) == pytest.approx(found(mv, 360), abs=0.02)


@pytest.mark.parametrize("bpm", [35, 60, 100, 140, 190])
@pytest.mark.parametrize("hz", [128, 360, 1000])
def test_slow_and_fast_hearts(bpm, hz):
    mv, expected = heart(hz, bpm, 60, seed=bpm)

    assert min(scored(mv, hz, expected)) >= 0.99


@pytest.mark.parametrize(
    "trouble",
    [
        {"wander": 1.5},
        {"hum": 0.4},
        {"noise": 0.12},
        {"swell": 0.6},
        {"early": True},
        {"early": True, "wander": 1.0, "hum": 0.2, "noise": 0.06, "swell": 0.3},
        {"pause_s": 3.0},
    ],
    ids=lambda trouble: "+".join(trouble),
)
def test_what_disturbs_a_lead_costs_few_beats(trouble):
    mv, expected = heart(250, 75, 120, seed=3, **trouble)

    assert min(scored(mv, 250, expected)) >= 0.98


def test_a_flat_lead_has_no_beats():
    assert len(found(np.zeros(3600), 360)) == 0


def test_the_samples_may_come_in_any_portions(record_100):
    """State that depends on the cut would give other beats after a restart or with another frame."""
    record = record_100["V5"]
    us, mv = record.times_us()[: 20 * 360], record.mv[: 20 * 360]
    rng = np.random.default_rng(5)

    def beats_of(portions) -> list[bytes]:
        memory, parts, at = qrs.Memory(360.0), [], 0
        while at < len(mv):
            size = portions()
            parts.append(qrs.feed(memory, us[at : at + size], mv[at : at + size]))
            at += size
        parts.append(qrs.finish(memory))
        return [np.concatenate([getattr(part, name) for part in parts]).tobytes() for name in ("us", "mv", "rr_ms")]

    whole = beats_of(lambda: len(mv))
    for portions in (lambda: 1, lambda: 7, lambda: 360, lambda: int(rng.integers(1, 900))):
        assert beats_of(portions) == whole


def test_operators_give_the_same_however_the_stream_is_cut(tmp_path):
    """Two leads of two rates; in one samples are missing, have no value, come twice, and stop for five seconds."""
    parts, expected = [], {}
    for patient, hz in (("ann", 128), ("bob", 360)):
        mv, at_s = heart(hz, 80, 24, seed=hz)
        us = START_US + np.floor(np.arange(len(mv)) * 1e6 / hz).astype(np.int64)
        rows = pd.DataFrame({"patient": patient, "lead": "II", "us": us, "mv": mv})
        if patient == "bob":
            rows.loc[1000:1003, "mv"] = np.nan
            rows = rows.drop(index=[*range(2000, 2040), *range(4000, 5800)])
            rows = pd.concat([rows, rows.loc[1500:1500]])
            at_s = at_s[(at_s < 4000 / hz) | (at_s > 5800 / hz)]
        expected[patient] = len(at_s)
        parts.append(rows)
    rows = pd.concat(parts).sort_values(["us", "patient"], kind="stable", ignore_index=True)
    rows["ts"] = rows.pop("us").astype("datetime64[us]").dt.tz_localize("UTC")
    process = scoring.pipeline(tmp_path, "1s")

    cuts = ("10 seconds", "1 second", "370 ms")
    cleaned = same_however_cut(clean, rows, process=process, cuts=cuts)
    out = same_however_cut(beats, cleaned, process=process, cuts=cuts).to_pandas()

    assert out.groupby("patient").size().to_dict() == expected
    # The lead that stopped began anew: no interval across the silence.
    assert out[out.patient == "bob"].rr_ms.isna().sum() == 2


def test_each_detection_counts_for_one_beat():
    record = records.Record("r", "x", 100.0, np.zeros(1000), 0, np.array([100, 200, 300]), np.array([[590, 710]]))

    score = records.score(record, np.array([95, 104, 215, 600]) * 10_000)

    assert (score.found, score.missed, score.extra) == (1, 2, 2)


@pytest.mark.parametrize("names, units, expected", [
    (["RESP", "ABP", "V2"], ["mV", "mmHg", "mV"], "V2"),
    (["II", "V5"], ["mV", "mV"], "II"),
    (["a", "b"], ["NU", "NU"], "a"),
])  # fmt: skip
def test_without_a_name_the_first_ecg_is_taken(tmp_path, names, units, expected):
    samples = np.column_stack([np.sin(np.arange(500) / (5 + at)) for at in range(len(names))])
    wfdb.wrsamp(
        "bed", fs=250, units=units, sig_name=names, p_signal=samples, fmt=["16"] * len(names), write_dir=str(tmp_path)
    )
    wfdb.wrann("bed", "atr", np.array([100]), symbol=["N"], write_dir=str(tmp_path))

    assert records.read(tmp_path / "bed.hea").lead == expected


@pytest.mark.parametrize(
    "words, code",
    [(("nowhere", None, "atr"), "HF-A001"), ((RECORD, None, "qrs"), "HF-A002"), ((RECORD, "ML2", "atr"), "HF-A003")],
)
def test_what_cannot_be_scored_is_said(words, code):
    with pytest.raises(UsageError) as error:
        records.read(*words)

    assert error.value.code == code
