"""Rate, variability, movement; the page at the end; what devices send."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import holdfast as hf
from holdfast.apps.telemonitoring.devices import messages
from holdfast.apps.telemonitoring.page import limits_of, write_page
from holdfast.apps.telemonitoring.picture import Watched
from holdfast.apps.telemonitoring.rhythm import RHYTHM, rhythm
from holdfast.loading import load
from holdfast.testing import same_however_cut

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
START = pd.Timestamp("2026-01-05 06:00", tz="UTC")


def beats_of(rr_ms: list[float], patient: str = "ann") -> pd.DataFrame:
    at = START + pd.to_timedelta(np.cumsum([0.0, *rr_ms]), unit="ms")
    return pd.DataFrame(
        {"patient": patient, "lead": "II", "ts": at.as_unit("us"), "mv": 1.0, "rr_ms": [np.nan, *rr_ms]}
    )


def seconds(moving: list[bool], patient: str = "ann") -> pd.DataFrame:
    at = START + pd.to_timedelta(np.arange(len(moving)), unit="s")
    return pd.DataFrame({"patient": patient, "ts": at.as_unit("us"), "moving": moving})


@pytest.fixture
def process():
    made = hf.StreamProcess("r", frame="1 second", time="ts")
    made.source(
        "beats", hf.read.files("b.parquet"), schema="patient string, lead string, ts timestamp, mv double, rr_ms double"
    )
    made.source("motion", hf.read.files("m.parquet"), schema="patient string, ts timestamp, moving boolean")
    made.keyed("patient", **RHYTHM)(rhythm)
    return made


def test_rate_and_variability_of_a_known_heart(process):
    rr = [800.0, 820.0] * 30
    out = same_however_cut(rhythm, beats_of(rr), seconds([False] * 60), process=process).to_pandas()

    last = out.iloc[-1]
    assert last.bpm == pytest.approx(60_000 / 820)
    assert last.rmssd_ms == pytest.approx(20.0)
    assert last.sdnn_ms == pytest.approx(np.std(rr, ddof=1), rel=0.01)
    assert out.iloc[:5].rmssd_ms.isna().all()


def test_early_beats_and_beats_in_movement_do_not_count_as_variability(process):
    rr = [800.0] * 20 + [400.0, 1200.0] + [800.0] * 30
    moving = [20 <= second < 25 for second in range(60)]
    out = same_however_cut(rhythm, beats_of(rr), seconds(moving), process=process).to_pandas()

    assert out.iloc[-1].rmssd_ms == 0.0
    assert out[out.moving].ts.min() >= START + pd.Timedelta(seconds=20)
    assert out[out.moving].ts.max() < START + pd.Timedelta(seconds=25)


def test_a_threshold_is_drawn_from_the_frame_it_was_changed_at():
    changes = [{"frame": 3, "name": "pulse_max", "value": 90.0, "key": "ann"}]
    limits = limits_of(["ann", "bob"], {"pulse_max": 110.0}, changes, START, pd.Timedelta(seconds=5))

    assert (limits["ann", "pulse_max"].since, limits["ann", "pulse_max"].value) == (
        [START, START + pd.Timedelta(seconds=10)],
        [110.0, 90.0],
    )
    assert limits["bob", "pulse_max"].value == [110.0]


def test_the_page_stands_alone_and_shows_what_was_found(tmp_path, process):
    rhythm_found = same_however_cut(rhythm, beats_of([800.0] * 60), seconds([False] * 50 + [True] * 5), process=process)
    at = pd.date_range(START, periods=50 * 100, freq="10ms")
    every = pd.date_range(START, periods=10, freq="5s")
    watched = Watched(
        clean=pd.DataFrame(
            {"patient": "ann", "lead": "II", "ts": at, "mv": np.sin(np.arange(len(at)) / 20), "hz": 100.0}
        ),
        rhythm=rhythm_found.to_pandas(),
        oxygen=pd.DataFrame({"patient": "ann", "ts": every, "percent": 96.0}),
        motion=seconds([False] * 40 + [True] * 5),
        pressure=pd.DataFrame({"patient": "ann", "ts": every, "systolic": 120.0, "diastolic": 80.0}),
        alarms=pd.DataFrame({"patient": ["ann"], "ts": [START], "kind": ["pulse"], "value": [131.0], "limit": [110.0]}),
        limits=limits_of(
            ["ann"], {"pulse_max": 110.0, "oxygen_min": 94.0, "pressure_max": 150.0}, [], START, pd.Timedelta("5s")
        ),
    )
    change = {"frame": 2, "name": "pulse_max", "value": 120.0, "key": "ann", "note": "<night>"}
    write_page(watched, [change], tmp_path / "ward.html", tmp_path / "ward.png")

    text = (tmp_path / "ward.html").read_text()
    assert "131.0 /min" in text and "&lt;night&gt;" in text
    drawing = ElementTree.fromstring(re.search(r"<svg.*?</svg>", text, flags=re.DOTALL).group())
    assert drawing.tag.endswith("svg")
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names)) and set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) <= set(names)
    # Namespaces are names; anything else with an address would be fetched by a browser.
    fetched = re.findall(r'(?:src|href)="(?!#)([^"]+)"|url\((?!#)([^)]+)\)', text)
    assert fetched == []
    assert (tmp_path / "ward.png").read_bytes().startswith(b"\x89PNG")


def test_devices_send_every_element_once_in_order_of_time():
    sent = messages(EXAMPLES / "ward_data", ("acc", "pressure_generated"), seconds=10)

    assert [message.second for message in sent] == sorted(message.second for message in sent)
    elements = [json.loads(message.payload) for message in sent if message.topic.endswith("/acc")]
    serials = [row["serial"] for rows in elements for row in rows]
    assert len(serials) == len(set(serials)) == 3 * 10 * 50
    assert {message.topic for message in sent} >= {"ward4/bed_1/acc", "ward4/bed_3/pressure_generated"}


@pytest.mark.parametrize("program", ["ward.py", "ward_live.py"])
def test_both_wards_are_well_formed(program):
    assert all(finding.warning for finding in load(str(EXAMPLES / program)).check())


def test_both_wards_have_the_same_thresholds():
    recorded, live = (load(str(EXAMPLES / name)).graph() for name in ("ward.py", "ward_live.py"))

    assert [(p.name, p.default, p.by, p.between) for p in recorded.params] == [
        (p.name, p.default, p.by, p.between) for p in live.params
    ]
