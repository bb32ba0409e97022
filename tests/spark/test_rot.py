"""Bits flip in what a run left behind: no sink ever gets a row that no source sent."""

from __future__ import annotations

import shutil

import pytest

import holdfast as hf
from holdfast.errors import FrameDiffers, SinkError
from tests.spark import hosted


def flip(path, byte):
    data = bytearray(path.read_bytes())
    data[byte] ^= 4
    path.write_bytes(data)


def test_damaged_frames_that_wait_for_a_sink_stop_the_run_and_go_on_when_they_are_put_back(spark, tmp_path):
    """The table had 38.1 for zone 1, which no source ever sent; one flip in thirteen ended the driver by a signal."""
    folder = hosted.fresh(tmp_path / "one")
    got, refused = {}, {5}

    def take(table, frame):
        if frame in refused:
            raise ConnectionError("the target is closed")
        got[frame] = table.to_pylist()

    def run():
        made = hf.StreamProcess("kiln", frame="1 second", time="ts")
        made.source(
            "readings",
            hf.read.files(str(folder / "readings" / "*.parquet")),
            schema="ts timestamp, zone int, celsius double",
        )

        @made.operator(over="frame")
        def warm(readings):
            return readings.where("celsius > 50")

        made.sink("warm", hf.write.callback(take))
        made.run(state=folder / "state", spark=spark)

    with pytest.raises(SinkError, match="HF-K010"):
        run()
    [*waiting] = sorted((folder / "state" / "streams" / "warm").glob("*.arrow"))
    whole = {path: path.read_bytes() for path in waiting}
    assert whole
    refused.clear()
    before = dict(got)
    for at in (9, -30):  # in what Arrow would parse first, and in the last of what it would
        for path in waiting:
            flip(path, at)
        with pytest.raises(FrameDiffers, match="HF-F002") as raised:
            run()
        assert any(path.name in raised.value.what for path in waiting) and "from a copy" in raised.value.do
        assert got == before
        for path in waiting:
            path.write_bytes(whole[path])
    run()
    found = dict(got)
    got.clear()
    shutil.rmtree(folder / "state")
    run()
    assert found == got and len(found) >= hosted.FRAMES
