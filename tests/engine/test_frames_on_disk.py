"""Sealed frames as they are found, and a unit that goes on behind a gap: files and journals, no Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from holdfast.engine.recover.frames_on_disk import forget_leftovers, frames_on_disk
from holdfast.engine.recover.skip_lost import Neighbours, go_on_after
from holdfast.errors import HoldfastError
from holdfast.frames.files import frame_name, list_frames, read_record, seal_frame
from holdfast.frames.identity import Kind
from holdfast.graph.edge_ids import EdgeId
from holdfast.graph.schemas import Schema
from holdfast.journals.journal import Journal
from holdfast.protocols.wiring import InputEdge, OutputEdge, Wiring

SCHEMA = Schema.of("x bigint")


@pytest.fixture
def folder(tmp_path):
    """Frames 2 and 4 to 6."""
    for n in (2, 4, 5, 6):
        table = pa.table({"x": pa.array([n], pa.int64())})
        seal_frame(tmp_path, table, SCHEMA, None, stream="s", n=n, kind=Kind.STABLE, epoch=1, boundary_us=n)
    return tmp_path


def test_frames_are_found_back_to_the_first_gap(folder):
    assert sorted(frames_on_disk(folder, 6)) == [4, 5, 6]
    assert sorted(frames_on_disk(folder, 5)) == [4, 5]  # what is newer was not committed
    assert frames_on_disk(folder, 7) == {}


def test_a_damaged_frame_is_a_gap_where_it_can_be_made_again_and_else_an_error(folder):
    (folder / frame_name(5, Kind.STABLE)).write_bytes(b"rot")
    assert sorted(frames_on_disk(folder, 6, made_again=True)) == [6]
    with pytest.raises(HoldfastError, match="HF-F002"):
        frames_on_disk(folder, 6)


def test_frames_that_nobody_needs_any_more_are_deleted(folder):
    forget_leftovers(folder, 5)
    assert [n for n, _, _ in list_frames(folder)] == [5, 6]


READ, MADE = EdgeId.parse("in>u"), EdgeId.parse("s>v")
WIRING = Wiring("u", (InputEdge(READ, "source in", outside=True),), (OutputEdge(MADE, 0, MADE.consumer),))


def go_on(tmp_path, *, restored: int, reached: int | None, first: int | None):
    unit, stream = tmp_path / "unit", tmp_path / "stream"
    for each in (unit, stream):
        each.mkdir(exist_ok=True)
    journal = Journal(unit, "commits")
    journal.append({"n": restored, "epoch": 1, "state": {}})
    journal.close()
    placed = go_on_after(
        unit, WIRING, restored, Neighbours({MADE: reached}, {READ: first}), [(stream, "s", SCHEMA)],
        staging=tmp_path, epoch=2, boundary_us=9, tallies={},
    )  # fmt: skip
    return placed, Journal(unit, "commits").last(), stream


def test_a_unit_goes_on_behind_what_its_consumer_has_and_says_what_it_lacks(tmp_path):
    offsets = tmp_path / "unit" / "spark" / "1" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{"n": 2, "inputs": []}')
    (offsets / "1").write_text('v1\n{"n": 3, "inputs": [["in", 3]]}')
    placed, record, _ = go_on(tmp_path, restored=3, reached=6, first=1)
    assert (placed.frame, placed.lost) == (6, None)
    assert (record["n"], record["skipped"], record["lacks"]) == (6, 3, 3)
    assert json.loads((offsets / "1").read_text().splitlines()[-1]) == {"n": 6, "inputs": []}
    assert json.loads((offsets / "0").read_text().splitlines()[-1])["n"] == 2


def test_numbers_whose_input_is_gone_are_sealed_lost(tmp_path):
    placed, record, stream = go_on(tmp_path, restored=3, reached=4, first=8)
    assert (placed.frame, placed.lost) == (7, (5, 7))
    assert [(n, kind) for n, kind, _ in list_frames(stream)] == [(n, Kind.LOST) for n in (5, 6, 7)]
    assert all(read_record(path).epoch == 2 for _, _, path in list_frames(stream))
    assert record["n"] == 7


def test_a_unit_that_nobody_has_overtaken_stays_where_it_is(tmp_path):
    placed, record, stream = go_on(tmp_path, restored=3, reached=3, first=None)
    assert (placed.frame, record["n"], list_frames(stream)) == (3, 3, [])


def test_a_frame_whose_number_a_consumer_still_needs_is_lost_if_only_its_state_came_back(tmp_path):
    placed, _, stream = go_on(tmp_path, restored=3, reached=2, first=1)
    assert placed.lost == (3, 3)
    assert [n for n, _, _ in list_frames(stream)] == [3]
