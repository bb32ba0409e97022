"""Promises while a run goes on: when a delay breaks, when it is kept again, what counts as lost."""

from __future__ import annotations

import random
import sys
import threading

import pytest

import holdfast as hf
from holdfast.engine.flow.promises import PromiseWatch


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
    watch.sealed("ecg", 1, 0.0)
    watch.written("beats", 0, 1, 100.0)
    assert states(watch, 100.0)["beats", "within"].state == "not measured"


def test_a_frame_in_time_keeps_and_a_late_one_breaks(graph):
    watch = PromiseWatch(graph)
    watch.is_paced = True
    watch.sealed("ecg", 1, 0.0)
    watch.written("beats", 0, 1, 4.9)
    assert states(watch, 5.0)["beats", "within"].state == "kept"
    watch.sealed("ecg", 2, 5.0)
    watch.sealed("ecg", 3, 6.0)
    watch.written("beats", 1, 2, 12.0)
    found = states(watch, 13.0)["beats", "within"]
    assert (found.state, found.since_s, found.frames) == ("BROKEN", 1.0, 1)
    assert "the first 2, at worst 7 s" in found.why
    watch.written("beats", 2, 3, 10.5)
    assert states(watch, 14.0)["beats", "within"].state == "kept"
    assert states(watch, 14.0)["beats", "within"].frames == 1  # it is not forgotten


def test_frames_that_an_earlier_run_left_waiting_are_due(graph):
    """The table was away when it was stopped, and still is: the next run called the promise kept for as long as it lasted."""
    watch = PromiseWatch(graph)
    watch.is_paced = True
    watch.found("beats", 3, 9, 0.0)
    watch.sealed("ecg", 10, 1.0)
    watch.look({"beats": 3, "other": 9}, 4.0)
    assert states(watch, 4.0)["beats", "within"].state == "kept"
    watch.look({"beats": 3, "other": 9}, 5.1)
    assert states(watch, 5.1)["beats", "within"].state == "BROKEN"
    watch.written("beats", 3, 9, 20.0)
    assert "6 frames late, the first 4" in states(watch, 20.0)["beats", "within"].why


def test_a_frame_is_overdue_though_nobody_knows_when_the_one_before_it_was_due(graph):
    watch = PromiseWatch(graph)
    watch.is_paced = True
    watch.sealed("ecg", 10, 1.0)
    watch.look({"beats": 3, "other": 3}, 6.1)
    assert states(watch, 6.1)["beats", "within"].state == "BROKEN"


def test_a_frame_that_does_not_come_breaks_when_its_time_is_up(graph):
    watch = PromiseWatch(graph)
    watch.is_paced = True
    watch.sealed("ecg", 1, 0.0)
    watch.look({"beats": 0, "other": 0}, 4.0)
    assert states(watch, 4.0)["beats", "within"].state == "kept"
    watch.look({"beats": 0, "other": 0}, 5.5)
    assert states(watch, 6.5)["beats", "within"].since_s == 1.0


@pytest.fixture
def two_sources(tmp_path):
    p = hf.StreamProcess("ward", frame="1 second", time="ts")
    for name in ("ecg", "acc", "room"):
        p.source(name, hf.read.files(str(tmp_path / f"{name}.parquet")), schema="ts timestamp, mv double")
    p.union("both", of=["ecg", "acc"])
    p.filter("warm", of="room", where="mv > 1")
    p.sink("both", hf.write.console(), promise=hf.within("5 seconds"))
    p.sink("warm", hf.write.console(), promise=hf.within("5 seconds"))
    watch = PromiseWatch(p.graph())
    watch.is_paced = True
    return watch


def test_a_frame_is_due_from_its_first_source_on(two_sources):
    """A source that is silent for seven seconds would else move the due time, and the promise would look kept."""
    two_sources.sealed("ecg", 1, 0.0)
    two_sources.look({"both": 0, "warm": 0}, 6.0)
    assert states(two_sources, 6.0)["both", "within"].state == "BROKEN"
    two_sources.sealed("acc", 1, 7.0)
    two_sources.written("both", 0, 1, 7.5)
    found = states(two_sources, 8.0)["both", "within"]
    assert (found.state, found.frames) == ("BROKEN", 1)
    assert "at worst 7.5 s" in found.why


def test_a_source_that_is_not_above_a_sink_makes_nothing_due_there(two_sources):
    two_sources.sealed("ecg", 1, 0.0)
    two_sources.sealed("room", 1, 8.0)
    two_sources.written("warm", 0, 1, 9.0)
    assert states(two_sources, 9.0)["warm", "within"].state == "kept"


def test_the_first_input_of_a_frame_counts_whatever_the_order_of_the_sources(two_sources):
    """Any order, any number of seals of the same frame: due is the earliest."""
    chance = random.Random(9)
    for n in range(1, 200):
        times = {name: chance.uniform(n * 100, n * 100 + 20) for name in ("ecg", "acc")}
        for name in sorted(times, key=times.get):
            two_sources.sealed(name, n, times[name])
            two_sources.sealed(name, n, times[name] + 1)  # by another run of the same source
        broken = states(two_sources, 0.0)["both", "within"].frames
        two_sources.written("both", n - 1, n, max(times.values()))
        late = max(times.values()) - min(times.values()) > 5
        assert states(two_sources, 0.0)["both", "within"].frames == broken + late


def test_sources_may_seal_while_the_run_looks(graph):
    """Source threads hold no lock of the board: 'dictionary changed size during iteration' would end the run."""
    watch = PromiseWatch(graph)
    watch.is_paced = True

    def seal(first):
        for n in range(first, 60_000, 4):
            watch.sealed("ecg", n, 0.0)

    threads = [threading.Thread(target=seal, args=(first,)) for first in range(1, 5)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            watch.look({"beats": 100, "other": 100}, 1.0)
    finally:
        for thread in threads:
            thread.join()
        sys.setswitchinterval(before)


def test_dropped_rows_break_lossless_below_and_only_there(graph):
    found = states(PromiseWatch(graph), 0.0, dropped={"beats": 2})
    assert (found["beats", "lossless"].state, found["beats", "lossless"].why) == ("BROKEN", "2 rows dropped by beats")
    assert found["other", "lossless"].state == "kept"


def test_rows_in_quarantine_are_not_lost(graph):
    found = states(PromiseWatch(graph), 0.0, quarantined={"beats": 3})
    assert (found["beats", "lossless"].state, found["beats", "lossless"].why) == ("kept", "3 rows in quarantine")
