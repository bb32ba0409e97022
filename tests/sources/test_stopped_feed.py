"""A live source that a row has stopped: no row that was acknowledged vanishes, and what the error tells to do helps."""

import json
import os
import threading
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import SourceError
from holdfast.frames.cut import times_of
from holdfast.journals.asides import write_aside
from holdfast.sources.live.logged_source import OpenFeed
from holdfast.sources.live.wire import Record
from holdfast.sources.parse.bad import Terms

from .conftest import SCHEMA, SECOND, Driver
from .test_feed import Post, quarantined, record, sent, zones

LATE = record(0, 4)
NO_TIME = Record(json.dumps({"ts": None, "zone": 4, "celsius": 1.5}).encode())


def flat(driver, frames):
    return [zone for found in zones(driver, frames) for zone in found]


def apart(driver, frames):
    return [zone for frame in frames for zone in driver.rows(frame.quarantined).column("zone").to_pylist()]


def test_what_came_with_a_late_row_is_there_when_it_is_declared_what_becomes_of_it(driver):
    """One chunk: rows that close frames, the late one, and rows after it."""
    post = Post([sent("a", record(0, 1), record(1, 2), record(2, 3), LATE, record(3, 5), record(4, 6))])
    with pytest.raises(SourceError, match="HF-F004"):
        driver.set(late="fail").frames(post)
    with pytest.raises(SourceError, match=r"HF-F004(.|\n)*row 3"):
        driver.frames(Post([]))
    assert post.acked, "the sender was told that all is well"
    again = driver.set(late="quarantine").frames(Post([]))
    assert flat(driver, again) == [1, 2, 3, 5, 6]
    assert apart(driver, again) == [4]
    assert zones(driver, driver.set(late="fail").frames(Post([]))) == zones(driver, again), "sealed is sealed"


@pytest.mark.parametrize("late", ["admit", "fail"])
def test_a_row_without_a_time_is_a_bad_record_and_not_logged(driver, late):
    """Logged, it stopped the source with HF-S007 at every start, though its sender was answered ok."""
    deliveries = [sent("a", record(0, 1)), sent("b", NO_TIME), sent("c", record(1, 5))]
    first = Post(deliveries)
    with pytest.raises(SourceError, match="HF-S007 TimeMissing") as raised:
        driver.set(late=late).frames(first)
    assert "bad='quarantine'" in raised.value.do
    assert [token for token, _ in first.acked] == ["a"]
    again = Post(deliveries[1:])
    assert flat(driver, driver.set(bad="quarantine").frames(again)) == [1, 5]
    assert [token for token, _ in again.acked] == ["b", "c"]
    assert [(each["reason"], json.loads(each["raw"])["zone"]) for each in quarantined(driver)] == [
        ("an element has no usable time in 'ts'.", 4)
    ]


@pytest.mark.parametrize("late", ["quarantine", "drop"])
def test_where_late_rows_are_left_out_one_without_a_time_goes_where_they_go(driver, late):
    frames = driver.set(late=late).frames(Post([sent("a", record(0, 1), NO_TIME, record(1, 5))]))
    assert flat(driver, frames) == [1, 5]
    assert apart(driver, frames) == ([4] if late == "quarantine" else [])
    assert sum(frame.late_rows for frame in frames) == 1


@pytest.mark.parametrize("late", ["quarantine", "drop"])
def test_a_row_without_a_time_that_is_in_the_log_from_before_is_passed_as_the_error_says(driver, monkeypatch, late):
    rows = [record(0, 1), record(1, 2), record(2, 3), NO_TIME, record(3, 5), record(4, 6)]
    with monkeypatch.context() as before:
        before.setattr(OpenFeed, "_declared", lambda self, missing: Terms(SCHEMA, "probes"))  # as it was
        with pytest.raises(SourceError, match="HF-S007"):
            driver.frames(Post([sent("a", *rows)]))
    with pytest.raises(SourceError, match="HF-S007") as raised:
        driver.frames(Post([]))
    assert f"late='{late}'" in raised.value.do
    frames = driver.set(late=late).frames(Post([]))
    assert flat(driver, frames) == [1, 2, 3, 5, 6]
    assert apart(driver, frames) == ([4] if late == "quarantine" else [])
    assert flat(driver, driver.set(late="admit").frames(Post([sent("b", record(5, 7))]))) == [1, 2, 3, 5, 6, 7]


YEARS = "2060-01-01T00:00:00Z"


@pytest.mark.parametrize("policy", ["quarantine", "drop"])
def test_a_row_that_jumps_is_not_logged_and_passed_as_the_error_says(driver, policy):
    """Logged, it stopped the source with HF-S008 at every start, and no declaration helped."""
    deliveries = [sent("a", record(0, 1), record(1, 2)), sent("b", record(0, 4, ts=YEARS)), sent("c", record(2, 5))]
    first = Post(deliveries)
    with pytest.raises(SourceError, match="HF-S008 TimeJumps: element 2 ") as raised:
        driver.frames(first)
    assert "on_ahead='quarantine'" in raised.value.do
    assert [token for token, _ in first.acked] == ["a"]
    now = datetime(2024, 1, 1, 0, 0, 3, tzinfo=UTC)
    driver.set(ahead_us=600 * SECOND, on_ahead=policy, wall=now.timestamp)
    assert flat(driver, driver.frames(Post(deliveries[1:]))) == [1, 2, 5]


def test_a_row_put_back_that_jumps_is_refused(driver, caplog):
    driver.frames(Post([sent("a", record(0, 1))]))
    folder = driver.context.directory / "put-back"
    folder.mkdir()
    rows = [{"ts": datetime.fromisoformat(YEARS), "zone": 4, "celsius": 1.0}]
    with open(folder / "a.parquet", "wb") as file:
        write_aside(file, pa.Table.from_pylist(rows, SCHEMA.arrow))
    assert flat(driver, driver.frames(Post([sent("b", record(1, 5))]))) == [1, 5]
    assert sorted(each.name for each in folder.iterdir()) == ["a.json", "a.refused"]
    assert "HF-S008" in caplog.text


KINDS = ("honest", "honest", "honest", "late", "null", "missing", "unknown", "ahead", "jump", "broken")


def made(kind, number, now_s):
    stamp = {"late": now_s - 30, "ahead": now_s + 1000, "jump": now_s + 2_000_000}.get(kind, now_s)
    body = {"ts": datetime.fromtimestamp(1_704_067_200 + stamp, UTC).isoformat(), "zone": number, "celsius": 1.0}
    if kind == "null":
        body["ts"] = None
    elif kind == "missing":
        del body["ts"]
    elif kind == "unknown":
        body["ts"] = "9999-12-31T00:00:00Z"
    raw = json.dumps(body)
    return Record((raw[:-1] if kind == "broken" else raw).encode())


class Sender(Post):
    """Keeps what was not acknowledged, and sends it again."""

    def __init__(self, deliveries, random, **options):
        super().__init__(**options)
        self.left, self.small = list(deliveries), random.random() < 0.3
        at = 0
        while at < len(self.left):
            more = random.randint(1, 4)
            self.batches.append(self.left[at : at + more])
            at += more

    def open(self, context):
        self.source = super().open(context)
        return self.source

    def logged(self, token):
        self.acked.append(token)
        self.left = [each for each in self.left if each.token != token]


def admitted_late(driver, frame):
    times = times_of(driver.rows(frame.references).column("ts"))
    return int((times < driver.clock.start_us(frame.n)).sum())


# What the `do` lines say, as a change of the declaration.
REMEDIES = {
    "HF-F004": [{"late": "admit"}, {"late": "drop"}, {"late": "quarantine"}],
    "HF-S007": [{"late": "drop"}, {"late": "quarantine"}],  # met at the cut
    "HF-S008": [{"on_ahead": "drop"}, {"on_ahead": "quarantine"}],
    "HF-S013": [{"bad": "drop"}, {"bad": "quarantine"}],
    "HF-S050": [{"on_ahead": "quarantine"}],
}


@settings(max_examples=int(os.environ.get("HOLDFAST_EXAMPLES", "25")), deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_every_row_that_was_acknowledged_is_in_one_frame_or_apart_or_was_dropped(tmp_path_factory, random):
    driver = Driver(tmp_path_factory.mktemp("feed"))
    clock = {"s": 0.0}
    driver.set(
        late=random.choice(["admit", "drop", "quarantine", "fail", "fail"]),
        bad=random.choice(["fail", "drop", "quarantine"]),
        on_ahead=random.choice(["admit", "fail", "drop", "quarantine"]),
        ahead_us=600 * SECOND,
        grace_us=random.choice([0, 2 * SECOND]),
        wall=lambda: 1_704_067_200 + clock["s"],
    )
    number, todo = 1, [sent(0, made("honest", 0, 0.0))]
    for token in range(1, random.randint(2, 12)):
        kinds = [random.choice(KINDS) for _ in range(random.randint(1, 6))]
        records = []
        for kind in kinds:
            clock["s"] += random.choice([0.0, 0.3, 1.0, 4.0])
            records.append(made(kind, number, clock["s"]))
            number += 1
        todo.append(sent(token, *records))
    sizes, dropped, acked = {each.token: each.items for each in todo}, 0, set()
    missing = random.choice(["null", "error"])
    handed: dict[int, str] = {}
    for _ in range(60):
        post = Sender(todo, random, missing=missing)
        kill_after = random.choice([None, None, None, 1, 3])
        error, frames = None, []
        try:
            for frame in driver.open(post).frames(threading.Event()):
                assert handed.setdefault(frame.n, frame.checksum) == frame.checksum, (
                    "a frame that was handed out changed"
                )
                frames.append(frame)
                if kill_after is not None and len(frames) >= kill_after:
                    break
        except SourceError as raised:
            error = raised
        post.source.close()
        acked |= set(post.acked)
        todo, dropped = post.left, dropped + post.source.bad
        if error is not None:
            options = REMEDIES[error.code]
            if error.code == "HF-S007" and "bad=" in error.do:
                options = REMEDIES["HF-S013"]
            driver.set(**random.choice(options))
        elif kill_after is None:
            break
    assert not todo and error is None and kill_after is None, "it did not get past"
    found = Counter(flat(driver, frames))
    aside = Counter(apart(driver, frames))
    bad = Counter(
        json.loads(each["raw"] + ("" if each["raw"].endswith("}") else "}"))["zone"] for each in quarantined(driver)
    )
    for path in sorted((driver.context.directory / "quarantine").glob("ahead-*.parquet")):
        bad.update(pq.read_table(path).column("zone").to_pylist())
    assert all(times == 1 for counted in (found, aside, bad) for times in counted.values())
    assert not (found & aside) and not (found & bad) and not (aside & bad)
    assert set(found | aside | bad) <= set(range(number))
    gone = number - sum((found + aside + bad).values())
    late = (
        sum(frame.late_rows for frame in frames)
        - sum(aside.values())
        - sum(admitted_late(driver, each) for each in frames)
    )
    assert gone == dropped - sum(bad.values()) + late, (
        f"{gone} rows are nowhere; {dropped} were counted as bad, {late} as late"
    )
    assert acked == set(sizes)
