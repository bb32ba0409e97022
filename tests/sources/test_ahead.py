"""A row ahead of the clock: declared what becomes of it, judged before it is logged, and nobody else's trouble."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.errors import SourceError, UsageError
from holdfast.frames.clock import FrameClock
from holdfast.sources import read
from holdfast.sources.live.wire import Record

from .conftest import SECOND
from .test_feed import Post, sent, zones
from .test_lines import Listening, answers

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
TEN_MINUTES = 600 * SECOND


def at(zone, **ahead):
    return Record(json.dumps({"ts": (NOW + timedelta(**ahead)).isoformat(), "zone": zone, "celsius": 1.5}).encode())


@pytest.fixture
def judged(driver):
    """A driver whose wall clock stands at NOW."""
    return driver.set(ahead_us=TEN_MINUTES, wall=NOW.timestamp)


def kept_apart(driver):
    folder = driver.context.directory / "quarantine"
    return [row["zone"] for path in sorted(folder.glob("ahead-*.parquet")) for row in pq.read_table(path).to_pylist()]


YEAR, TEN_DAYS, CENTURY = {"days": 365}, {"days": 10}, {"days": 73_000}


@pytest.mark.parametrize("far", [YEAR, TEN_DAYS, CENTURY, {"minutes": 10, "seconds": 1}])
def test_a_row_with_a_wrong_year_neither_stops_nor_floods_a_source(judged, far):
    """Next year: HF-S008 at every start, for the row was in the log. Ten days: 864,000 empty frames."""
    post = Post([sent("a", at(1), at(2, **far), at(3, seconds=2))])
    assert zones(judged, judged.frames(post)) == [[1], [], [3]]
    assert [token for token, _ in post.acked] == ["a"], "whoever sent it was answered"
    assert kept_apart(judged) == [2]


@pytest.mark.parametrize(("policy", "expected"), [("drop", [1, 3]), ("admit", [1, 2, 3]), ("quarantine", [1, 3])])
def test_what_is_declared_becomes_of_rows_ahead(judged, policy, expected):
    post = Post([sent("a", at(1), at(2, minutes=11), at(3, seconds=2))])
    frames = judged.set(on_ahead=policy).frames(post)
    assert sorted(zone for found in zones(judged, frames) for zone in found) == expected
    assert kept_apart(judged) == ([2] if policy == "quarantine" else [])


def test_a_row_ahead_stops_the_source_if_so_declared_and_is_not_logged(judged):
    """Not logged: after the sender's clock is set, or the declaration changed, the source goes on."""
    deliveries = [sent("a", at(1)), sent("b", at(2), at(3, **YEAR)), sent("c", at(4))]
    first = Post(deliveries)
    with pytest.raises(SourceError, match="HF-S050 AheadOfClock"):
        judged.set(on_ahead="fail").frames(first)
    assert [token for token, _ in first.acked] == ["a"]
    frames = judged.set(on_ahead="quarantine").frames(Post(deliveries[1:]))
    assert sorted(zone for found in zones(judged, frames) for zone in found) == [1, 2, 4]


def test_a_row_ahead_of_an_iterator_is_found_in_its_table(judged):
    """Of a function that yields, too: what it yielded before is logged."""
    import pyarrow as pa

    def rows(*zone_ahead):
        return pa.table(
            {
                "ts": [NOW + timedelta(days=d) for _, d in zone_ahead],
                "zone": [z for z, _ in zone_ahead],
                "celsius": [1.0] * len(zone_ahead),
            }
        )

    judged.set(on_ahead="fail")
    with pytest.raises(SourceError, match="element 3 .*ahead"):
        judged.frames(read.iterator(lambda: [rows((1, 0), (2, 0)), rows((3, 0), (4, 400)), rows((5, 0))]))
    judged.set(on_ahead="quarantine")
    frames = judged.frames(read.iterator(lambda: [rows((1, 0), (2, 0)), rows((3, 0), (4, 400)), rows((5, 0))]))
    assert sorted(zone for found in zones(judged, frames) for zone in found) == [1, 2, 3, 5]


def test_a_replay_does_not_judge_again(judged):
    """A row that was within the bound when it came stays, whatever the clock says at the next start."""
    assert zones(judged, judged.frames(Post([sent("a", at(1), at(2, minutes=9))])))[0] == [1]
    judged.set(wall=lambda: 0.0)  # the machine came up in 1970
    assert [zone for found in zones(judged, judged.frames(Post([]))) for zone in found] == [1, 2]


class Clocks:
    def __init__(self, wall_s):
        self.wall_s, self.monotonic_s = wall_s, 1000.0

    def pass_by(self, seconds):
        self.wall_s += seconds
        self.monotonic_s += seconds


@pytest.mark.parametrize(
    ("started", "set_to"),
    [
        (0.0, NOW.timestamp()),  # came up in 1970, then asked the network
        (NOW.timestamp(), NOW.timestamp() - 86_400),  # set back a day by mistake
        (NOW.timestamp(), 0.0),
    ],
)
def test_honest_rows_are_taken_when_the_machines_clock_is_set(driver, started, set_to):
    clocks = Clocks(started)
    driver.clock = FrameClock.starting(int((NOW - timedelta(seconds=1)).timestamp() * 1e6), SECOND)
    driver.set(ahead_us=TEN_MINUTES, wall=lambda: clocks.wall_s, monotonic=lambda: clocks.monotonic_s, boundary="hold")
    source = Post([]).open(driver.context)
    source.set_clock(driver.clock)
    clocks.pass_by(5)
    clocks.wall_s = set_to
    source._log_deliveries([sent("a", at(1, seconds=5), at(2, **YEAR))])
    clocks.pass_by(100)
    source._log_deliveries([sent("b", at(3, seconds=105))])
    assert source.logged == 2
    assert kept_apart(driver) == [2]
    source.close()


def test_rows_kept_apart_come_back_when_their_time_has_come_and_not_before(judged, caplog):
    judged.frames(Post([sent("a", at(1), at(2, hours=1))]))
    [path] = (judged.context.directory / "quarantine").glob("ahead-*.parquet")
    folder = judged.context.directory / "put-back"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(path.read_bytes())
    assert [zone for found in zones(judged, judged.frames(Post([]))) for zone in found] == [1]
    assert caplog.text.count("still more than") == 1
    assert [each.name for each in folder.iterdir()] == ["a.parquet"], "it waits"
    judged.set(wall=(NOW + timedelta(hours=2)).timestamp)
    frames = judged.frames(Post([sent("c", at(3, hours=2))]))
    assert sorted(zone for found in zones(judged, frames) for zone in found) == [1, 2, 3]


def test_a_row_kept_apart_that_came_again_is_put_back_once(judged):
    """Its acknowledgement got lost, so it came twice and was kept apart twice; and once more when its time had come."""
    feed = {"id_column": "zone"}
    judged.frames(Post([sent("a", at(1), at(2, hours=1), at(4, hours=1))], [sent("b", at(2, hours=1))], **feed))
    assert kept_apart(judged) == [2, 4, 2]
    judged.set(wall=(NOW + timedelta(hours=2)).timestamp)
    judged.frames(Post([sent("c", at(2, hours=1))], **feed))
    folder = judged.context.directory / "put-back"
    folder.mkdir()
    for path in (judged.context.directory / "quarantine").glob("ahead-*.parquet"):
        path.rename(folder / f"probes-{path.name}")  # as holdfast quarantine put-back
    frames = judged.frames(Post([sent("d", at(3, hours=2))], **feed))
    assert sorted(zone for found in zones(judged, frames) for zone in found) == [1, 2, 3, 4]
    assert list(folder.iterdir()) == []


def test_a_client_is_answered_and_one_line_is_logged_for_many_rows(judged, caplog):
    with Listening(judged, "tcp://127.0.0.1:0") as listening, listening.tcp() as client:
        for number in range(1, 6):
            client.sendall(at(number, **YEAR).raw + b"\n")
            assert answers(client, number)[-1] == f"ok {number}"
        assert listening.zones() == []
    assert kept_apart(judged) == [1, 2, 3, 4, 5]
    assert caplog.text.count("ahead of the clock") == 1


def test_live_sources_have_a_bound_and_recordings_none():
    process = hf.StreamProcess("p", frame="1 second", time="ts")
    schema = "ts timestamp, zone int"
    process.source("a", hf.read.lines("tcp://127.0.0.1:9000"), schema=schema)
    process.source("b", hf.read.lines("tcp://127.0.0.1:9001"), schema=schema, ahead="1 minute", on_ahead="drop")
    process.source("c", hf.read.iterator(list), schema=schema)
    process.source("d", hf.read.files("x/*.csv"), schema=schema)
    found = {each.name: (each.ahead_ms, each.on_ahead) for each in process.graph().sources}
    assert found["a"] == (600_000, "quarantine")
    assert found["b"] == (60_000, "drop")
    assert found["c"][0] is found["d"][0] is None
    with pytest.raises(UsageError, match="HF-C032(.|\n)*ahead="):
        process.source("e", hf.read.files("x/*.csv"), schema=schema, ahead="1 minute")
    with pytest.raises(UsageError, match="HF-C032(.|\n)*arrival"):
        process.source("f", hf.read.lines("tcp://127.0.0.1:9002"), schema=schema, time=hf.ARRIVAL, ahead="1 minute")
