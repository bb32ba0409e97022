"""Callback and console: at least once, and they say so; declarations that make no sense."""

from __future__ import annotations

import pytest

from holdfast.errors import FrameDiffers, SinkError, UsageError
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.sinks import write
from holdfast.sinks.batches import ForeachBatchWriter
from holdfast.sinks.callback import CallbackWriter
from holdfast.sinks.writer import Writer

from .conftest import SCHEMA, make_frame


def test_a_function_gets_every_frame_with_its_number_once_in_a_run(context):
    got = []
    writer = write.callback(lambda table, frame: got.append((frame, table.num_rows, table.schema.metadata[b"kind"])))
    sink = writer.open(context())
    frames = [make_frame(1, [(1, 1, 1.0)]), make_frame(2), make_frame(3, kind=Kind.LOST)]
    assert sink.write(frames) == [True, True, True]
    assert sink.write(frames) == [False, False, False]
    assert got == [(1, 1, b"stable"), (2, 0, b"stable")]
    assert sink.last() == 3
    with pytest.raises(FrameDiffers):
        sink.write([make_frame(1, [(2, 2, 2.0)])])
    assert not writer.idempotent and "at least once" in writer.describe()


def test_a_function_that_raises_gets_the_frame_again(context):
    failing = [True]

    def store(table, frame):
        if failing:
            raise ValueError("no room in the fridge")

    sink = write.callback(store).open(context())
    with pytest.raises(SinkError) as caught:
        sink.write([make_frame(1, [(1, 1, 1.0)])])
    assert caught.value.code == "HF-K010"
    assert "no room in the fridge" in caught.value.why and "_hand_over" not in caught.value.why
    failing.clear()
    assert sink.write([make_frame(1, [(1, 1, 1.0)])]) == [True]


def test_the_console_prints_lines_that_tools_can_cut(context, capsys):
    sink = write.console(rows=2).open(context())
    sink.write([make_frame(1), make_frame(2, [(1, 1, 1.0), (2, 2, None), (3, 3, 3.0)])])
    assert capsys.readouterr().out.splitlines() == [
        "average  frame 2  3 rows",
        "  zone\tts\tmean",
        "  1\t1970-01-01T00:00:00.000001Z\t1.0",
        "  2\t1970-01-01T00:00:00.000002Z\t",
        "  and 1 more",
    ]


def test_the_console_shows_a_table_on_a_terminal(context, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    schema = Schema.of("name string")
    sink = write.console().open(context(schema=schema))
    sink.write([make_frame(1, [("[red]brackets[/red]",)], kind=Kind.TENTATIVE, schema=schema)])
    printed = capsys.readouterr().out
    assert "[red]brackets[/red]" in printed and "tentative" in printed


@pytest.mark.parametrize(
    "declare",
    [
        lambda: write.sqlite("", "t"),
        lambda: write.sqlite(":memory:", "t"),
        lambda: write.sqlite(7, "t"),
        lambda: write.sqlite("a.db", ""),
        lambda: write.duckdb("a.db", "_holdfast_ledger"),
        lambda: write.sqlite("a.db", "t", keys=["a", "a"]),
        lambda: write.sqlite("a.db", "t", keys=[1]),
        lambda: write.callback("print"),
        lambda: write.callback(lambda table: None),
        lambda: write.console(0),
    ],
)
def test_a_declaration_that_makes_no_sink_is_refused(declare):
    with pytest.raises(UsageError) as caught:
        declare()
    assert caught.value.code == "HF-K011" and caught.value.do


def test_declaring_and_checking_opens_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writers = [
        write.sqlite("a.db", "t", keys="zone"),
        write.duckdb("b.db", "t", keys=["zone", "ts"]),
        write.parquet("out"),
        write.callback(print),
        write.console(),
    ]
    for writer in writers:
        assert isinstance(writer, Writer)
        assert writer.describe()
        # A function may be handed a frame again, and that is said; a table may not.
        functions = isinstance(writer, CallbackWriter | ForeachBatchWriter)
        assert [finding.code for finding in writer.check(SCHEMA, sink="average")] == ["HF-K015"] * functions
    [finding] = write.sqlite("a.db", "t", keys="zoen").check(SCHEMA, sink="average")
    assert finding.code == "HF-K002" and "'zone'" in finding.do and "'average'" in finding.where
    assert list(tmp_path.iterdir()) == []
