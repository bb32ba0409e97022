"""Promises while a run goes on: when a delay breaks, when it is kept again, what counts as lost."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.engine.promises import PromiseWatch


@pytest.fixture
def graph(tmp_path):
    p = hf.StreamProcess("ward", frame="1 second", time="ts")
    p.source("ecg", hf.read.files(str(tmp_path / "*.parquet")), schema="ts timestamp, mv double")
    p.filter("beats", of="ecg", where="mv > 1")
    p.filter("other", of="ecg", where="mv < 1")
    promise = [hf.lossless, hf.within("5 seconds"), hf.in_order]
    p.sink("beats", hf.write.console(), promise=promise)
    p.sink("other", hf.write.console(), promise=hf.lossless)
    return p.graph()


def states(watch, now_s, dropped=(), quarantined=()):
    found = watch.statuses(dict(dropped), dict(quarantined), now_s)
    return {(each.sink, each.promise.split()[0]): each for each in found}


def test_a_delay_at_full_speed_is_not_judged(graph):
    watch = PromiseWatch(graph)
    watch.sealed(1, 0.0)
    watch.written("beats", 0, 1, 100.0)
    assert states(watch, 100.0)["beats", "within"].state == "not measured"


def test_a_frame_in_time_keeps_and_a_late_one_breaks(graph):
    watch = PromiseWatch(graph)
    watch.is_paced = True
    watch.sealed(1, 0.0)
    watch.written("beats", 0, 1, 4.9)
    assert states(watch, 5.0)["beats", "within"].state == "kept"
    watch.sealed(2, 5.0)
    watch.sealed(3, 6.0)
    watch.written("beats", 1, 2, 12.0)
    found = states(watch, 13.0)["beats", "within"]
    assert (found.state, found.since_s, found.frames) == ("BROKEN", 1.0, 1)
    assert "the first 2, at worst 7 s" in found.why
    watch.written("beats", 2, 3, 10.5)
    assert states(watch, 14.0)["beats", "within"].state == "kept"
    assert states(watch, 14.0)["beats", "within"].frames == 1  # it is not forgotten


def test_a_frame_that_does_not_come_breaks_when_its_time_is_up(graph):
    watch = PromiseWatch(graph)
    watch.is_paced = True
    watch.sealed(1, 0.0)
    watch.look({"beats": 0, "other": 0}, 4.0)
    assert states(watch, 4.0)["beats", "within"].state == "kept"
    watch.look({"beats": 0, "other": 0}, 5.5)
    assert states(watch, 6.5)["beats", "within"].since_s == 1.0


def test_the_last_source_makes_a_frame_due(graph):
    watch = PromiseWatch(graph)
    watch.is_paced = True
    watch.sealed(1, 0.0)
    watch.sealed(1, 3.0)
    watch.written("beats", 0, 1, 7.0)
    assert states(watch, 7.0)["beats", "within"].state == "kept"


def test_dropped_rows_break_lossless_below_and_only_there(graph):
    found = states(PromiseWatch(graph), 0.0, dropped={"beats": 2})
    assert (found["beats", "lossless"].state, found["beats", "lossless"].why) == ("BROKEN", "2 rows dropped by beats")
    assert found["other", "lossless"].state == "kept"


def test_rows_in_quarantine_are_not_lost(graph):
    found = states(PromiseWatch(graph), 0.0, quarantined={"beats": 3})
    assert (found["beats", "lossless"].state, found["beats", "lossless"].why) == ("kept", "3 rows in quarantine")
