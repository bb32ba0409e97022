"""What an error of a source tells a person to do is done here as it is written; the source then gives its rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from holdfast.errors import SourceError
from holdfast.graph.schemas import Schema
from holdfast.sources import read
from holdfast.sources.live.log import SourceLog
from tests.engine.test_intake import SCHEMA as PULSES
from tests.engine.test_intake import START, taken_in
from tests.sources.conftest import Driver
from tests.sources.test_feed import Post, record, sent, zones
from tests.sources.test_lines import Listening
from tests.sources.test_unheld import NUL, raw

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
HEADER = "ts,zone,celsius\n"


def line(second: float, zone: object = 1, celsius: object = 20.5) -> str:
    return f"{(BEGIN + timedelta(seconds=second)).isoformat()},{zone},{celsius}\n"


@pytest.fixture
def driver(tmp_path):
    return Driver(tmp_path)


def refused(code, asking) -> SourceError:
    with pytest.raises(SourceError) as caught:
        asking()
    assert caught.value.code == code, caught.value
    return caught.value


def all_zones(driver, frames) -> list[int]:
    return [zone for rows in zones(driver, frames) for zone in rows]


def test_a_file_that_frames_need_is_put_back(driver, tmp_path):
    """HF-S001: of a file that is gone; a misspelt one in tests/spark/test_remedies.py."""
    path = tmp_path / "a.csv"
    path.write_text(HEADER + line(0) + line(1, 2))
    frames = driver.frames(read.files("a.csv"))
    path.rename(tmp_path / "elsewhere")
    error = refused("HF-S001", lambda: zones(driver, frames))
    assert "put the file back" in error.do
    (tmp_path / "elsewhere").rename(path)
    assert zones(driver, frames) == [[1], [2]]


@pytest.mark.parametrize(
    ("column", "declared", "said"),
    [(pa.array(["1", "2"]), "ts timestamp, zone string, celsius double", "declare the type the file has"),
     (pa.array([2**40, 1]), "ts timestamp, zone bigint, celsius double", "declare a wider type for 'zone'")],
)  # fmt: skip
def test_a_column_is_read_under_the_type_that_the_error_names(driver, tmp_path, column, declared, said):
    """HF-S003."""
    times = pa.array([BEGIN, BEGIN], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ts": times, "zone": column, "celsius": [1.0, 2.0]}), tmp_path / "a.parquet")
    error = refused("HF-S003", lambda: zones(driver, driver.frames(read.files("a.parquet"))))
    assert said in error.do
    driver.set(schema=Schema.of(declared), directory=tmp_path / "another")
    assert all_zones(driver, driver.frames(read.files("a.parquet"))) == column.to_pylist()


def test_a_file_is_read_once_its_format_is_named_or_it_is_replaced(driver, tmp_path):
    """HF-S005."""
    (tmp_path / "a.log").write_text(HEADER + line(0))
    error = refused("HF-S005", lambda: driver.frames(read.files("a.log")))
    assert "format='csv'" in error.do
    assert all_zones(driver, driver.frames(read.files("a.log", format="csv"))) == [1]
    (tmp_path / "b.parquet").write_bytes(b"no parquet")
    second = Driver(tmp_path).set(directory=tmp_path / "second")
    error = refused("HF-S005", lambda: second.frames(read.files("b.parquet")))
    assert "replace the damaged file" in error.do
    times = pa.array([BEGIN], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ts": times, "zone": pa.array([7], pa.int32()), "celsius": [1.0]}), tmp_path / "b.parquet")
    assert all_zones(second, second.frames(read.files("b.parquet"))) == [7]


@pytest.mark.parametrize("remedy", ["correct the time", "with a longer frame", "after the gap"])
def test_a_jump_of_years_is_mended_in_each_of_the_ways_its_error_names(driver, tmp_path, remedy):
    """HF-S008."""
    path = tmp_path / "a.csv"
    path.write_text(HEADER + line(0) + line(1, 2) + line(400_000_000, 3))
    error = refused("HF-S008", lambda: driver.frames(read.files("a.csv")))
    assert remedy in error.do
    if remedy == "correct the time":
        path.write_text(HEADER + line(0) + line(1, 2) + line(2, 3))
    elif remedy == "with a longer frame":
        driver = Driver(tmp_path).set(directory=tmp_path / "another", frame_us=86_400 * 1_000_000)
    else:
        driver = Driver(tmp_path).set(directory=tmp_path / "another")
        path.write_text(HEADER + line(400_000_000, 3))
    assert all_zones(driver, driver.frames(read.files("a.csv")))[-1] == 3


def test_a_damaged_log_is_put_back_from_a_copy(driver, tmp_path):
    """HF-S009: the batches of a log and its list of files; then without a copy."""
    driver.frames(Post([sent("a", record(0, 1), record(1, 2))], [sent("b", record(2, 3))]))
    log = driver.context.directory / "log"
    for path in sorted(log.glob("*.arrow")):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2] + bytes([whole[len(whole) // 2] ^ 1]) + whole[len(whole) // 2 + 1 :])
        error = refused("HF-S009", lambda: all_zones(driver, driver.frames(Post())))
        assert "from a copy" in error.do
        path.write_bytes(whole)
    assert all_zones(driver, driver.frames(Post())) == [1, 2, 3]
    path.write_bytes(whole[:-1])
    assert "fresh state folder" in refused("HF-S009", lambda: list(SourceLog(log, driver.context.schema).sealed(1))).do
    driver.set(directory=tmp_path / "fresh")
    assert all_zones(driver, driver.frames(Post([sent("a", record(0, 4))]))) == [4]


def test_frames_that_were_forgotten_are_read_again_in_a_fresh_folder(driver, tmp_path):
    """HF-S010."""
    driver.frames(Post(*[[sent(str(n), record(n, n))] for n in range(4)]))
    SourceLog(driver.context.directory / "log", driver.context.schema).trim(before_n=3)
    error = refused("HF-S010", lambda: driver.frames(Post()))
    assert "begin with a fresh state folder" in error.do
    driver.set(directory=tmp_path / "fresh")
    assert all_zones(driver, driver.frames(Post([sent("x", *[record(n, n) for n in range(4)])]))) == [0, 1, 2, 3]


def test_a_function_that_yields_rubbish_or_raises_is_corrected(driver):
    """HF-S011, HF-S012: it is asked for what comes after the elements that were logged."""
    rows = [{"ts": BEGIN + timedelta(seconds=n), "zone": n, "celsius": 1.0} for n in range(4)]

    def raises():
        yield from rows[:2]
        raise KeyError("sensor")

    error = refused("HF-S012", lambda: driver.frames(read.iterator(raises)))
    assert "correct the function and run again" in error.do
    error = refused("HF-S011", lambda: driver.frames(read.iterator(lambda n: iter([rows[2], "rubbish"]))))
    assert "yield dicts" in error.do
    assert all_zones(driver, driver.frames(read.iterator(lambda n: iter(rows[n:])))) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "settings",
    [{"schema": "unit string"}, {"new_columns": "ignore"}, {"new_columns": "keep", "schema": "_more string"}],
)
def test_new_fields_are_taken_in_each_of_the_ways_their_error_names(driver, settings):
    """HF-S014."""
    deliveries = [sent("a", record(0, 1, unit="C"))]
    error = refused("HF-S014", lambda: driver.set(new_columns="fail").frames(Post(deliveries)))
    assert "add them to schema=" in error.do and "'_more string'" in error.do
    if more := settings.pop("schema", ""):
        settings["schema"] = Schema.of(f"ts timestamp, zone int, celsius double, {more}")
    frames = driver.set(**settings).frames(Post(deliveries))
    [row] = driver.rows(frames[0].references).to_pylist()
    assert (
        row["zone"] == 1
        and row.get("unit", "C") == "C"
        and json.loads(row.get("_more", '{"unit": "C"}')) == {"unit": "C"}
    )


def test_another_port_is_listened_to(driver, tmp_path):
    """HF-S017."""
    with Listening(driver, "tcp://127.0.0.1:0") as taken:
        other = Driver(tmp_path).set(directory=tmp_path / "other")
        error = refused("HF-S017", lambda: read.lines(f"tcp://127.0.0.1:{taken.port}").open(other.context)._ingest(0))
        assert "or declare another" in error.do
        with Listening(other, "tcp://127.0.0.1:0") as listening:
            assert listening.port != taken.port


def pulses(tmp_path, **options) -> hf.StreamProcess:
    process = hf.StreamProcess("feed", frame="1 second", time="ts")
    process.source("pulses", hf.read.files(str(tmp_path / "in" / "*.parquet"), **options), schema=PULSES)
    return process


def test_a_source_that_grew_after_its_end_is_read_in_a_folder_of_its_own(tmp_path):
    """HF-S020."""
    (tmp_path / "in").mkdir()

    def write(name, *seconds):
        times = pa.array([START + timedelta(seconds=s) for s in seconds], pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"ts": times, "number": list(range(len(seconds)))}), tmp_path / "in" / name)

    write("a.parquet", 0.5, 1.5)
    board = taken_in(pulses(tmp_path), tmp_path / "state")
    assert board.error is None
    write("b.parquet", 2.5)
    board = taken_in(pulses(tmp_path), tmp_path / "state", committed=4)
    assert board.error.code == "HF-S020" and "--state DIR" in board.error.do
    board = taken_in(pulses(tmp_path), tmp_path / "another")
    assert board.error is None and board.streams["pulses"].sealed >= 3


def test_a_source_that_raised_goes_on_once_it_is_mended(tmp_path, monkeypatch):
    """HF-S021: nothing of ours raises like this; a defect in a reader, or a disk that answers with an error, does."""
    (tmp_path / "in").mkdir()
    times = pa.array([START + timedelta(seconds=s) for s in (0.5, 1.5, 2.5)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ts": times, "number": [1, 2, 3]}), tmp_path / "in" / "a.parquet")

    def failing(board, n):
        if n == 2:
            raise OSError(5, "Input/output error")

    board = taken_in(pulses(tmp_path), tmp_path / "state", on_seal=failing)
    assert board.error.code == "HF-S021" and "run again" in board.error.do
    board = taken_in(pulses(tmp_path), tmp_path / "state", committed=2)
    assert board.error is None and board.streams["pulses"].sealed >= 3


def test_a_value_that_no_sink_below_can_hold_is_kept_apart(driver):
    """HF-S051."""
    deliveries = [sent("c", raw(name="b")), sent("d", raw(name="a\0b"))]
    driver.set(schema=Schema.of("ts timestamp, name string"), bad="fail", unheld={NUL: "table"})
    error = refused("HF-S051", lambda: driver.frames(Post(deliveries)))
    assert "bad='quarantine'" in error.do
    frames = driver.set(bad="quarantine").frames(Post(deliveries[1:]))
    assert [row["name"] for frame in frames for row in driver.rows(frame.references).to_pylist()] == ["b"]
