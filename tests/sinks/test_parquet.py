"""A folder with a file per frame: whole files only, each frame once, old runs out."""

from __future__ import annotations

import os
import random
from contextlib import closing
from dataclasses import replace

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.engine.flow import sink_runner as outlet
from holdfast.errors import FrameDiffers, SinkError
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.sinks import parquet, write
from holdfast.sinks.owners import Owner

from .conftest import make_frame


def open_sink(context):
    return write.parquet("out").open(context)


def zones(tmp_path):
    return [pq.read_table(file).column("zone").to_pylist() for file in sorted((tmp_path / "out").glob("*.parquet"))]


def test_a_frame_sent_twice_is_written_once(tmp_path, context):
    frame = make_frame(1, [(1, 1, 1.0), (2, 2, 2.0)])
    sink = open_sink(context())
    assert sink.last() == 0
    assert sink.write([frame, frame]) == [True, False]
    assert open_sink(context(epoch=2)).write([frame, make_frame(2, [(3, 3, 3.0)])]) == [False, True]
    assert zones(tmp_path) == [[1, 2], [3]]
    assert pq.read_schema(tmp_path / "out" / "frame-00000001.parquet").names == ["zone", "ts", "mean"]


def test_the_folder_reads_as_one_table(tmp_path, context):
    """Our own files must not get in the way of anybody's reader."""
    open_sink(context()).write([make_frame(n, [(n, n, 1.0)]) for n in (1, 2, 3)])
    assert pq.read_table(tmp_path / "out").num_rows == 3
    with closing(duckdb.connect()) as connection:
        assert connection.execute(f"select sum(zone) from '{tmp_path}/out/*.parquet'").fetchall() == [(6,)]


def test_frames_without_rows_leave_a_line_and_no_file(tmp_path, context):
    sink = open_sink(context())
    assert sink.write([make_frame(1), make_frame(2, kind=Kind.LOST)]) == [True, True]
    assert sink.last() == open_sink(context()).last() == 2
    assert zones(tmp_path) == []


def flip(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def test_a_rotten_line_of_the_ledger_is_an_error_and_what_it_says_to_do_works(tmp_path, context):
    """It was a bare JSONDecodeError where it was no JSON any more, and believed where it was."""
    for n in (1, 2, 3):
        open_sink(context()).write([make_frame(n, [(n, n, 1.0)])])
    ledger = tmp_path / "out" / "_holdfast" / "ledger.jsonl"
    flip(ledger, b'[2, "stable"', b'[6, "stable"')
    with pytest.raises(SinkError, match="HF-R044") as caught:
        open_sink(context())
    assert "line 3" in caught.value.why
    command = caught.value.do.partition("delete the line, ")[2].partition("\n")[0]
    assert os.system(command) == 0
    with pytest.raises(SinkError, match="adopt-table"):  # it tells what has no line, and takes it over when told to
        open_sink(context())
    sink = write.parquet("out", shared=True).open(context())
    assert sink.last() == 3 and sink.write([make_frame(2, [(2, 2, 1.0)]), make_frame(4, [(4, 4, 1.0)])]) == [True, True]
    assert zones(tmp_path) == [[1], [2], [3], [4]]


def test_a_rotten_epoch_is_an_error_and_what_it_says_to_do_works(tmp_path, context):
    open_sink(context(epoch=12)).write([make_frame(1, [(1, 1, 1.0)])])
    flip(tmp_path / "out" / "_holdfast" / "epoch", b"=12", b"=32")
    with pytest.raises(SinkError, match="HF-R044") as caught:
        open_sink(context(epoch=13))
    assert os.system(caught.value.do.partition("into it: ")[2]) == 0
    assert open_sink(context(epoch=13)).last() == 1


def test_a_rotten_head_is_an_error(tmp_path, context):
    open_sink(context())
    flip(tmp_path / "out" / "_holdfast" / "ledger.jsonl", b'"last": 0', b'"last": 8')
    with pytest.raises(SinkError, match="HF-R044"):
        open_sink(context())


def test_another_checksum_is_refused_and_nothing_of_the_call_is_kept(tmp_path, context):
    sink = open_sink(context())
    sink.write([make_frame(1, [(1, 1, 1.0)])])
    with pytest.raises(FrameDiffers) as caught:
        sink.write([make_frame(2, [(2, 2, 2.0)]), make_frame(1, [(9, 9, 9.0)])])
    assert caught.value.code == "HF-F001"
    assert zones(tmp_path) == [[1]] and sink.last() == 1


def test_a_file_without_a_ledger_line_is_compared_by_its_own_checksum(tmp_path, context):
    """A run killed between rename and line left it; another content is still an error."""
    sink = open_sink(context())
    sink._put(*make_frame(1, [(1, 1, 1.0)]))
    with pytest.raises(FrameDiffers):
        sink.write([make_frame(1, [(2, 2, 2.0)])])
    assert sink.write([make_frame(1, [(1, 1, 1.0)])]) == [True]
    assert sink.last() == 1


def test_stable_takes_the_place_of_tentative_even_when_it_is_empty(tmp_path, context):
    sink = open_sink(context())
    guesses = [make_frame(n, [(n, 1, 1.0)], kind=Kind.TENTATIVE) for n in (1, 2)]
    sink.write(guesses)
    assert sink.write([make_frame(1, [(7, 1, 1.0)]), make_frame(2)]) == [True, True]
    assert sink.write(guesses) == [False, False]
    assert zones(tmp_path) == [[7]]


def test_an_old_epoch_is_refused_as_soon_as_the_new_run_has_opened(tmp_path, context):
    orphan = open_sink(context(epoch=1))
    new = open_sink(context(epoch=2))
    for refused in (lambda: orphan.write([make_frame(1, [(1, 1, 1.0)])]), lambda: open_sink(context(epoch=1))):
        with pytest.raises(SinkError) as caught:
            refused()
        assert caught.value.code == "HF-K003"
    assert new.write([make_frame(1, [(2, 2, 2.0)])]) == [True]
    assert zones(tmp_path) == [[2]]


def test_a_torn_last_line_is_cut_off(tmp_path, context):
    open_sink(context()).write([make_frame(1, [(1, 1, 1.0)])])
    with open(tmp_path / "out" / "_holdfast" / "ledger.jsonl", "a") as file:
        file.write('[2, "sta')
    sink = open_sink(context())
    assert sink.last() == 1
    assert sink.write([make_frame(2, [(2, 2, 2.0)])]) == [True]
    assert open_sink(context()).last() == 2


PAGE = 256  # pages of a disk are larger; so the lines of one call lie in several


def torn(content: bytes, synced: int, chance: random.Random) -> bytes:
    """What a loss of power leaves of a file that was synced up to here: any pages of the rest, zeros for the others, any size."""
    data = bytearray(content[: chance.randrange(synced, len(content) + 1)])
    for page in range(synced // PAGE, len(data) // PAGE + 1):
        if chance.random() < 0.5:
            first, end = max(synced, page * PAGE), min(len(data), (page + 1) * PAGE)
            data[first:end] = bytes(max(0, end - first))
    return bytes(data)


@pytest.mark.parametrize("seed", range(24))
def test_a_call_that_a_loss_of_power_left_in_part_is_cut_off_and_written_again(tmp_path, context, seed):
    """Its lines are synced together: none of them was acknowledged. Before, it was HF-R044 when one was whole behind a torn one."""
    chance = random.Random(seed)
    owner = Owner("home", "first", frozenset({"first"}), frozenset({"average"}))
    frames = [make_frame(n, [(n, n, float(n))]) for n in range(1, 17)]
    synced = chance.randrange(0, 8)
    sink = open_sink(replace(context(), owner=owner))
    sink.write(frames[:synced])
    ledger = tmp_path / "out" / "_holdfast" / "ledger.jsonl"
    size = ledger.stat().st_size
    sink.write(frames[synced:])
    ledger.write_bytes(torn(ledger.read_bytes(), size, chance))

    sink = open_sink(replace(context(), owner=replace(owner, may_be_torn=True)))
    assert sink.last() >= synced
    sink.write(frames[sink.last() :])
    again = open_sink(replace(context(), owner=owner))
    assert again.last() == 16 and again.write(frames) == [False] * 16
    assert zones(tmp_path) == [[n] for n in range(1, 17)]


def test_no_call_adds_more_lines_than_are_taken_for_one():
    assert outlet._FRAMES_AT_ONCE <= parquet._TOGETHER


@pytest.mark.parametrize("may_be_torn", [False, True])
def test_a_line_that_changed_is_damage_also_after_a_loss_of_power(tmp_path, context, may_be_torn):
    """Whole lines behind it show that it was synced, and no zeros that a page of it is missing. HF-R044."""
    owner = Owner("home", "first", frozenset({"first"}), frozenset({"average"}))
    sink = open_sink(replace(context(), owner=owner))
    for n in (1, 2, 3):
        sink.write([make_frame(n, [(n, n, 1.0)])])
    flip(tmp_path / "out" / "_holdfast" / "ledger.jsonl", b'[2, "stable"', b'[6, "stable"')
    with pytest.raises(SinkError, match="HF-R044"):
        open_sink(replace(context(), owner=replace(owner, may_be_torn=may_be_torn)))


def test_without_a_loss_of_power_missing_pages_are_damage(tmp_path, context):
    sink = open_sink(context())
    sink.write([make_frame(n, [(n, n, 1.0)]) for n in (1, 2, 3)])
    flip(tmp_path / "out" / "_holdfast" / "ledger.jsonl", b'[2, "stable"', b"\0" * 12)
    with pytest.raises(SinkError, match="HF-R044"):
        open_sink(context())


def test_the_ledger_stays_bounded(tmp_path, context, monkeypatch):
    monkeypatch.setattr(parquet, "KEPT_FRAMES", 10)
    sink = open_sink(context())
    for n in range(1, 101):
        sink.write([make_frame(n, checksum=str(n))])
    lines = (tmp_path / "out" / "_holdfast" / "ledger.jsonl").read_text().splitlines()
    assert len(lines) <= 1 + 20
    again = open_sink(context())
    assert again.last() == 100 and again.write([make_frame(95, checksum="95")]) == [False]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"schema": Schema.of("zone int, ts timestamp")}, "HF-K001"),
        ({"sink": "damped"}, "HF-K006"),
        ({"process": "oven"}, "HF-K006"),
    ],
)
def test_a_folder_of_another_stream_is_refused(tmp_path, context, change, code):
    open_sink(context()).write([make_frame(1, [(1, 1, 1.0)])])
    with pytest.raises(SinkError) as caught:
        open_sink(context(epoch=5, **change))
    assert caught.value.code == code
    assert open_sink(context(epoch=1)).last() == 1  # the refused one has not raised the epoch


def test_a_folder_with_files_of_others_is_refused_and_left_alone(tmp_path, context):
    (tmp_path / "out").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "out" / "mine.parquet")
    with pytest.raises(SinkError, match="mine.parquet"):
        open_sink(context())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.parquet"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path, context):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(SinkError) as caught:
        open_sink(context())
    assert caught.value.code == "HF-K004"
