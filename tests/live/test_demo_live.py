"""The ward through a real broker into a real database; both are killed on the way, and nothing is lost or twice."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

from holdfast.engine.session.session import close_session, open_session

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def demo_live():
    spec = importlib.util.spec_from_file_location("demo_live", ROOT / "examples" / "demo_live.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_servers_killed_in_the_middle_change_no_row(tmp_path, demo_live, monkeypatch):
    for name in ("MQTT", "PG_URL"):
        monkeypatch.setenv(name, "")
    session = open_session(
        tmp_path / "session",
        conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"},
    )
    said: list[str] = []
    try:
        undisturbed = demo_live.run_live(tmp_path / "calm", 60, spark=session)
        disturbed = demo_live.run_live(tmp_path / "killed", 60, kills=True, spark=session, say=said.append)
    finally:
        close_session(session)

    assert [line.split(": ")[1] for line in said] == ["broker killed", "database killed"]
    assert len(undisturbed["alarms"]) > 0 and len(undisturbed["rhythm"]) > 150
    for name, expected in undisturbed.items():
        pd.testing.assert_frame_equal(disturbed[name], expected, obj=name)
