"""A frame is followed back to file and row, whatever is left of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.frames.files import read_frame
from holdfast.records.kept import Kept
from holdfast.records.search import find_rows
from holdfast.records.trace import trace_frame, trace_lines
from holdfast.sinks import write
from holdfast.sinks.ledger_reader import entry_in, target_of
from holdfast.sinks.writer import SinkContext
from tests.records.conftest import ROWS, SCHEMA


def test_a_frame_leads_back_to_file_and_rows(folder):
    found = trace_frame(Kept(folder.root), "hot", 2)

    assert (found.state, found.rows, found.unit, found.epoch) == ("queued", 4, "hot", 1)
    assert found.checksum == read_frame(folder.queue(2))[0].checksum
    source, before = found.inputs
    assert (source.stream, source.n, source.rows) == ("probes", 2, 4)
    assert source.references[0]["path"] == str(folder.base / "probes.parquet")
    assert source.references[0]["ranges"] == [[4, 8]]
    assert (before.stream, before.n, before.feedback, before.inputs) == ("hot", 1, True, ())


def test_a_forgotten_frame_is_known_from_its_journal(folder):
    found = trace_frame(Kept(folder.root), "hot", 1)

    assert (found.state, found.rows, found.file) == ("forgotten", 4, "")
    assert [(sink.sink, sink.has, sink.rows) for sink in found.sinks] == [("hot", True, 4)]


def test_the_ledger_says_which_frames_the_sink_has(folder):
    kept = Kept(folder.root)

    assert [trace_frame(kept, "hot", n).sinks[0].has for n in (1, 2, 3)] == [True, True, False]


def test_attempts_and_errors_belong_to_their_frame(folder):
    folder.fail(3)
    kept = Kept(folder.root)

    found = trace_frame(kept, "hot", 3)

    assert found.attempts == (1, 2)
    assert [(error["code"], error["attempt"]) for error in found.errors] == [("HF-O001", 2)]
    assert trace_frame(kept, "hot", 2).errors == ()
    assert any("HF-O001 OperatorRaised" in line for line in trace_lines(found))


def test_what_is_not_sealed_is_said_to_be_so(folder):
    """An operator on call must not take silence for an empty frame."""
    kept = Kept(folder.root)

    assert trace_frame(kept, "hot", 4).state == "in work"
    assert trace_frame(kept, "hot", 9).state == "not sealed"
    assert "up to frame 3" in trace_frame(kept, "probes", 9).note


def test_a_frame_sealed_again_by_a_new_run_keeps_its_first_moment(folder):
    first = trace_frame(Kept(folder.root), "probes", 1)
    folder.seal_source(epoch=2)

    again = trace_frame(Kept(folder.root), "probes", 1)

    assert (again.epoch, again.attempts) == (2, (1, 2))
    assert again.sealed_at == first.sealed_at
    assert again.checksum == first.checksum


def test_an_input_that_is_not_what_the_frame_was_made_of_is_seen(folder):
    """A source journal of another run beside these commits would tell a false story."""
    shutil.rmtree(folder.root / "sources" / "probes")
    moved = ROWS[2:]
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(moved, SCHEMA.arrow), folder.base / "probes.parquet")
    folder.seal_source()

    assert "made of content" in trace_frame(Kept(folder.root), "hot", 2).inputs[0].note


def test_an_unknown_stream_is_named(folder):
    with pytest.raises(UsageError, match="HF-E015.*\n.*\n.*streams are: probes, hot") as caught:
        trace_frame(Kept(folder.root), "hto", 1)
    assert caught.value.do == "did you mean 'hot'?"


@pytest.mark.parametrize(("stream", "frames"), [("probes", {3: 2}), ("hot", {3: 2})])
def test_rows_are_found_in_queues_and_files(folder, stream, frames):
    found = find_rows(Kept(folder.root), stream, "zone >= 2 and celsius > 79")

    assert found.frames == frames
    assert [row["celsius"] for row in found.rows] == [80.0, 81.0]
    assert {row["_frame"] for row in found.rows} == {3}


def test_frames_that_cannot_be_read_again_are_not_passed_over(folder):
    (folder.base / "probes.parquet").unlink()

    found = find_rows(Kept(folder.root), "probes", "zone = 1")

    assert found.frames == {}
    assert sorted(found.unreadable) == [1, 2, 3]


@pytest.mark.parametrize(
    "where", ["zon = 1", "zone = 1); drop table x; --", "zone in (select * from read_csv('/etc/passwd'))"]
)
def test_a_condition_is_a_condition_and_nothing_else(folder, where):
    with pytest.raises(UsageError, match="HF-E016"):
        find_rows(Kept(folder.root), "hot", where)


def test_hidden_values_are_shown_as_types(make_folder):
    kept = Kept(make_folder(values="hide").root)

    found = find_rows(kept, "hot", "celsius > 80.5")

    assert found.rows == [{"ts": "<time>", "zone": "<int>", "celsius": "<float>", "_frame": 3}]


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "parquet"])
def test_a_ledger_is_read_without_claiming_the_sink(folder, kind):
    """A look from outside with a newer epoch would fence off the run that writes."""
    make = {
        "sqlite": lambda: write.sqlite("own.db", "hot"),
        "duckdb": lambda: write.duckdb("own.duckdb", "hot"),
        "parquet": lambda: write.parquet("own"),
    }
    writer, base = make[kind](), folder.base
    target = target_of(writer, str(base))
    assert entry_in(target, "kiln", "hot", 2).has is False
    sink = writer.open(SinkContext("kiln", "hot", SCHEMA, "ts", base, 1))
    sink.write([read_frame(folder.queue(2))])
    sink.close()

    assert target["kind"] == kind
    entry = entry_in(target, "kiln", "hot", 2)
    assert (entry.has, entry.epoch, entry.rows) == (True, 1, 4)
    assert entry.checksum == read_frame(folder.queue(2))[0].checksum
    assert entry_in(target, "kiln", "hot", 3).has is False
    sink = writer.open(SinkContext("kiln", "hot", SCHEMA, "ts", base, 1))  # the same epoch may still write
    assert sink.write([read_frame(folder.queue(3))]) == [True]
    sink.close()


def test_a_target_that_cannot_be_asked_says_so(tmp_path):
    (tmp_path / "x.db").write_bytes(b"no database at all, but long enough to be taken for one" * 20)

    assert entry_in({"kind": "callback"}, "kiln", "hot", 1).has is None
    assert entry_in({"kind": "sqlite", "path": str(tmp_path / "x.db"), "table": "t"}, "kiln", "hot", 1).has is None
    assert Path(tmp_path / "x.db").stat().st_size > 1000
