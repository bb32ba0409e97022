"""Whatever feeds a logged source: let go when it is synced, recognised when it comes again, bad ones as declared."""

import json
import threading
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest

from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from holdfast.sources.live.feed import Delivery
from holdfast.sources.live.log import SourceLog
from holdfast.sources.live.logged_source import OpenFeed
from holdfast.sources.live.wire import Record, split_payload
from tests.sources.subscriber import logged_rows

from .conftest import SCHEMA, SECOND, Driver


class Post:
    """A feed of deliveries handed in by the test, a batch at each `take`."""

    small, bounded = False, True

    def __init__(self, *batches, **options):
        self.batches, self.options = [list(batch) for batch in batches], options
        self.known, self.acked, self.said, self.log = None, [], "", None

    def open(self, context):
        self.log = context.directory / "log"
        return OpenFeed(self, context, bounded=self.bounded, **self.options)

    def start(self, known):
        self.known = known

    def take(self, wait_s):
        return self.batches.pop(0) if self.batches else []

    def logged(self, token):
        # What counts is on disk when this is called: read anew, as after a crash.
        self.acked.append((token, len(logged_rows(self.log, SCHEMA))))

    def has_ended(self):
        return not self.batches

    def part(self, delivery, items):
        return None

    def remark(self):
        return self.said

    def stop(self):
        pass


def record(second, zone, **more):
    body = {"ts": f"2024-01-01T00:00:{second:09.6f}Z", "zone": zone, "celsius": 20.5} | more
    return Record(json.dumps(body).encode())


def sent(token, *records, **about):
    return Delivery(list(records), token, **about)


def zones(driver, frames):
    return [driver.rows(frame.references).column("zone").to_pylist() for frame in frames]


def quarantined(driver):
    folder = driver.context.directory / "quarantine"
    return [json.loads(line) for path in sorted(folder.glob("bad-*.jsonl")) for line in path.open()]


@pytest.mark.parametrize("small", [False, True])
def test_a_delivery_is_let_go_only_when_its_rows_are_on_disk(driver, small):
    post = Post([sent("a", record(0, 1)), sent("b", record(0.5, 2), record(1, 3))], [sent("c", record(2, 4))])
    post.small = small
    assert zones(driver, driver.frames(post)) == [[1, 2], [3], [4]]
    assert post.acked == [("a", 3), ("b", 3), ("c", 4)]


def test_a_feed_is_told_after_a_restart_what_was_logged_last(driver):
    driver.frames(Post([sent(1, record(0, 1), mark={"batch": 7}), sent(2, record(0, 2), mark={"batch": 8})]))
    again = Post([])
    driver.frames(again)
    assert (again.known.rows, again.known.mark) == (2, {"batch": 8})


def test_an_id_that_was_logged_before_is_left_out_also_after_a_restart(driver):
    first = Post([sent(1, record(0, 1)), sent(2, record(0, 2), record(0, 1))], id_column="zone")
    assert zones(driver, driver.frames(first)) == [[1, 2]]
    again = Post([sent(2, record(0, 2)), sent(3, record(1, 3))], id_column="zone")
    assert zones(driver, driver.frames(again)) == [[1, 2], [3]]
    assert [token for token, _ in again.acked] == [2, 3], "what came twice is acknowledged, or it comes for ever"


def test_a_delivery_marked_as_repeated_is_known_by_its_key(driver):
    driver.frames(Post([sent(1, record(0, 1), key="17:ab")]))
    again = Post(
        [
            sent(1, record(0, 1), key="17:ab", again=True),
            sent(2, record(1, 2), key="17:cd", again=True),  # the number was used again, for another
            sent(3, record(2, 1), key="17:ab"),  # nobody says that it came before
        ]
    )
    assert zones(driver, driver.frames(again)) == [[1], [2], [1]]


def test_small_deliveries_make_few_files(driver):
    """A sensor heard message by message for a day would otherwise leave a file for each."""
    post = Post(*[[sent(at, record(at / 100, at))] for at in range(100)], id_column="zone")
    post.small = True
    source = driver.open(post)
    while post.batches:
        source._ingest(0)
    log = driver.context.directory / "log"
    assert len(list(log.glob("*.arrow"))) < 50
    assert len(logged_rows(log, SCHEMA)) == 100 == source.logged
    source.close()
    again = Post([sent(99, record(0.99, 99)), sent(100, record(1, 100))], id_column="zone")
    assert zones(driver, driver.frames(again)) == [list(range(100)), [100]]


@pytest.mark.parametrize("in_flight_max", [65_535, 4])
def test_what_may_still_be_in_flight_is_known_when_the_log_has_forgotten_it(driver, monkeypatch, in_flight_max):
    """A broker that was away for an hour sends again what was logged an hour ago."""
    monkeypatch.setattr("holdfast.sources.live.redelivered.IN_FLIGHT_MAX", in_flight_max)

    def deliveries(numbers, again):
        return [[sent(at, record(at, at), key=f"{at}:x", again=again)] for at in numbers]

    for options in ({"id_column": "zone"}, {}):
        fresh = Driver(driver.folder / str(len(options)))
        source = fresh.open(Post(*deliveries(range(9), False), **options))
        for frame in source.frames(threading.Event()):
            source.trim(before_n=frame.n)
        source.close()
        log = fresh.context.directory / "log"
        assert len(list(log.glob("*.arrow"))) <= 2
        again = Post(*deliveries(range(10), True), **options)
        source = fresh.open(again, from_n=9)
        while again.batches:
            source._ingest(0)
        source.close()
        known = [at for at in range(9) if at > 8 - in_flight_max]
        assert source.logged == 9 + 10 - len(known), "the last ones are known, however few the log still has"


# -- bad records -------------------------------------------------------------

GOOD, NOT_JSON, NO_ZONE = record(0, 1), Record(b'{"ts": '), Record(b'{"ts": "2024-01-01T00:00:00Z", "celsius": 1}')


def test_a_bad_record_stops_the_source_and_its_delivery_is_not_let_go(driver):
    """Acknowledged, it would be gone; half logged, its rows would come twice."""
    post = Post([sent("a", GOOD), sent("b", record(0, 2), NO_ZONE), sent("c", record(0, 3))])
    with pytest.raises(SourceError, match=r"HF-S013 BadRecord(.|\n)*no field 'zone'"):
        driver.frames(post)
    assert post.acked == [("a", 1)]
    mended = Post([sent("b", record(0, 2), record(0, 9)), sent("c", record(0, 3))])
    assert zones(driver, driver.frames(mended)) == [[1, 2, 9, 3]]


@pytest.mark.parametrize("bad", ["drop", "quarantine"])
def test_bad_records_are_left_out_as_declared_and_counted(driver, bad):
    post = Post([sent("a", NOT_JSON, GOOD, NO_ZONE)], [sent("b", NOT_JSON)], [sent("c", record(1, 2))])
    source = driver.set(bad=bad).open(post)
    assert zones(driver, source.frames(threading.Event())) == [[1], [2]]
    assert source.bad == 3
    assert [token for token, _ in post.acked] == ["a", "b", "c"]
    kept = quarantined(driver)
    assert [each["raw"].encode() for each in kept] == (
        [] if bad == "drop" else [NOT_JSON.raw, NO_ZONE.raw, NOT_JSON.raw]
    )
    assert all(each["reason"] and each["frame"] is None for each in kept)


def test_a_bad_record_behind_staged_rows_is_kept_apart_once_whenever_we_are_killed(driver, monkeypatch):
    """Its file had the number of the staged rows' batch: come again, it got a second file."""
    first = Post([sent("a", record(0, 1))], [sent("b", NOT_JSON)])
    second = Post([sent("b", NOT_JSON)], [sent("c", record(1, 2))])
    first.small = second.small = True
    driver.set(bad="quarantine")
    real = SourceLog.append

    def append(log, batch, table, *more):
        if not table.num_rows:
            raise KeyboardInterrupt  # dead before the batch of the bad one is there
        return real(log, batch, table, *more)

    monkeypatch.setattr(SourceLog, "append", append)
    with pytest.raises(KeyboardInterrupt):
        driver.frames(first)
    monkeypatch.setattr(SourceLog, "append", real)

    assert zones(driver, driver.frames(second)) == [[1], [2]]
    assert [token for token, _ in first.acked] == ["a"]
    assert [each["raw"].encode() for each in quarantined(driver)] == [NOT_JSON.raw]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "empty"),
        (b'{"ts": null, "zone": 1, "celsius": 1} {"ts": null, "zone": 1, "celsius": 1}', "more than one"),
        (b'{"ts": null, "zone": "1", "celsius": 1}', "zone"),
        (b'{"ts": "yesterday", "zone": 1, "celsius": 1}', "timestamp"),
        (b'{"ts": null, "zone": 9999999999, "celsius": 1}', "9999999999"),
        (b'{"ts": null, "zone": 1, "celsius": "\xff"}', "decode"),
        (b"17", ""),
        (b"[" * 100_000, ""),
        (b"[1, 2]", ""),
    ],
)
def test_what_is_wrong_with_a_record_is_said(driver, raw, reason):
    good = [record(0, zone) for zone in range(5)]
    post = Post([sent("a", *good[:3], Record(raw), *good[3:])])
    assert zones(driver, driver.set(bad="quarantine", late="quarantine").frames(post)) == [[0, 1, 2, 3, 4]]
    [kept] = quarantined(driver)
    assert kept["raw"] == raw.decode(errors="backslashreplace")
    assert reason in kept["reason"]


def test_a_declared_null_is_not_a_missing_field(driver):
    post = Post([sent("a", Record(b'{"ts": "2024-01-01T00:00:00Z", "zone": null, "celsius": 1}'))])
    assert zones(driver, driver.frames(post)) == [[None]]
    post = Post([sent("b", NO_ZONE)], missing="null")
    assert zones(driver, driver.frames(post)) == [[None], [None]]


@pytest.mark.parametrize(("new_columns", "expected"), [("ignore", None), ("keep", '{"unit": "C"}')])
def test_fields_nobody_declared_are_ignored_or_kept(driver, new_columns, expected):
    schema = Schema.of("ts timestamp, zone int, celsius double, _more string")
    declared = schema if new_columns == "keep" else SCHEMA
    frames = driver.set(schema=declared, new_columns=new_columns).frames(
        Post([sent("a", record(0, 1, unit="C"), GOOD)])
    )
    rows = driver.rows(frames[0].references).to_pylist()
    assert [row.get("_more") for row in rows] == [expected, None]


def test_fields_nobody_declared_stop_the_source_if_so_declared(driver):
    with pytest.raises(SourceError, match=r"HF-S014 NewColumns(.|\n)*unit"):
        driver.set(new_columns="fail").frames(Post([sent("a", record(0, 1, unit="C"))]))


def test_a_payload_is_an_object_or_an_array_of_them():
    assert [each.raw for each in split_payload(b' {"a": 1} ')] == [b'{"a": 1}']
    assert [each.raw for each in split_payload(b'[{"a": 1},\n {"a": 2}]')] == [b'{"a": 1}', b'{"a": 2}']
    assert [each.raw for each in split_payload(b'{\n"a": 1\n}')] == [b'{"a": 1}']
    assert [each.raw for each in split_payload(b"[")] == [b"["]
    deep = b"[" * 100_000
    assert [each.raw for each in split_payload(deep)] == [deep], "a message must not be able to end the feed"
    assert list(split_payload(b"[ ]")) == []


def test_a_number_in_an_array_keeps_every_digit():
    """Read and written anew, a price of twenty digits came out with seventeen."""
    prices = [b'{"p":0.12345678901234567890, "x": ["a,\\n]", {}]}', b'{"p" : 1e-20}']
    assert [each.raw for each in split_payload(b"[" + b" ,\n".join(prices) + b" ]")] == prices
    assert [each.raw for each in split_payload(b'{"p":\r\n0.10}')] == [b'{"p":0.10}']


# -- silence and rows put back -----------------------------------------------


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_a_source_that_holds_its_frames_is_named_when_it_is_silent(driver):
    clock = Clock()
    post = Post([sent("a", record(0.5, 1))], *[[]] * 40, [sent("b", record(2.5, 2))])
    post.bounded = False
    source = driver.set(monotonic=clock, boundary="hold").open(post)
    assert source.remark() == ""
    clock.now_s += 3600
    assert source.remark().startswith("silent since 20")
    assert [frame.rows for frame in driver_takes(source, 2)] == [1, 0], "an hour passed, and no frame was closed by it"
    assert source.remark() == ""
    post.said = "away"
    assert source.remark() == "away"


def driver_takes(source, count):
    frames = source.frames(threading.Event())
    return [next(frames) for _ in range(count)]


def test_rows_put_back_are_admitted_once_whatever_is_declared_for_late_ones(driver):
    """They were late once and are late again; somebody has decided that they count."""
    driver.set(late="quarantine")
    post = Post([sent(1, record(1, 1)), sent(2, record(3, 2)), sent(3, record(0, 3))])
    frames = driver.frames(post)
    apart = [reference for frame in frames for reference in frame.quarantined]
    rows = driver.rows(apart)
    assert rows.column("zone").to_pylist() == [3]
    folder = driver.context.directory / "put-back"
    folder.mkdir()
    pq.write_table(rows, folder / "00000003.parquet")
    assert zones(driver, driver.frames(Post([])))[3:] == [[3]]
    assert not list(folder.iterdir())
    pq.write_table(rows, folder / "00000003.parquet")  # killed after it was logged, before it was deleted
    assert sum(zones(driver, driver.frames(Post([]))), []) == [1, 2, 3]


def test_a_file_put_back_that_does_not_fit_is_set_aside(driver, caplog):
    driver.frames(Post([sent(1, record(0, 1))]))
    folder = driver.context.directory / "put-back"
    folder.mkdir()
    (folder / "x.parquet").write_bytes(b"nothing")
    assert zones(driver, driver.frames(Post([sent(2, record(1, 2))]))) == [[1], [2]]
    assert sorted(path.name for path in folder.iterdir()) == ["x.json", "x.refused"]
    assert "x.parquet was not put back" in caplog.text


def test_a_function_goes_on_after_what_it_yielded_not_after_what_was_logged(driver):
    """A dropped element was yielded and not logged: counted by rows, the next one would come twice."""

    def probes():
        yield {"ts": None, "zone": "no", "celsius": 0.0}
        for zone in range(3):
            yield {"ts": datetime(2024, 1, 1, 0, 0, zone, tzinfo=UTC), "zone": zone, "celsius": 0.0}

    reader = read.iterator(probes)
    first = driver.set(bad="drop", frame_us=SECOND).frames(reader)
    assert zones(driver, first) == zones(driver, driver.frames(reader)) == [[0], [1], [2]]
