"""What an error or a warning about a sink tells a person to do; more of them in tests/sinks/test_remedies.py."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli.main import app
from holdfast.engine.flow.exclusions import Exclusions
from holdfast.engine.flow.queues import StreamQueue
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.run.queues_on_disk import stand_sinks
from holdfast.errors import HoldfastError
from holdfast.graph.model import Sink
from holdfast.graph.rules import check_structure
from holdfast.sinks import refusing, write
from holdfast.sinks.ledger import KEPT_FRAMES
from holdfast.sinks.owners import Taking
from holdfast.sinks.writer import SinkContext
from tests.engine.test_outlet import Plant
from tests.sinks.conftest import SCHEMA, make_frame
from tests.sinks.test_owners import frame, started

FRAME = make_frame(1, [(1, 1, 1.0)])


@pytest.fixture
def context(tmp_path):
    return SinkContext("kiln", "average", SCHEMA, "ts", tmp_path, 1)


def refused(code: str, asking) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        asking()
    assert caught.value.code == code, caught.value
    return caught.value


@pytest.mark.parametrize("kind", ["sqlite", "duckdb", "parquet"])
def test_a_target_that_cannot_be_opened_is_made_one(kind, context, tmp_path):
    """HF-K004; a package that is missing is installed with pip, which no test does."""
    place = tmp_path / ("out" if kind == "parquet" else "out.db")
    place.write_bytes(b"neither a folder nor a database\n" * 1000)
    writer = write.parquet("out") if kind == "parquet" else getattr(write, kind)("out.db", "average")
    error = refused("HF-K004", lambda: writer.open(context))
    assert f"see that {place} is a" in error.do
    place.rename(tmp_path / "elsewhere")
    with closing(writer.open(context)) as sink:
        assert sink.write([FRAME]) == [True]


def test_once_is_called_as_its_error_says(tmp_path, monkeypatch):
    """HF-K012."""
    monkeypatch.chdir(tmp_path)
    error = refused("HF-K012", lambda: hf.once("out.db", 12))
    names: dict[str, object] = {"hf": hf, "sqlite3": sqlite3}
    exec(error.do.replace("...", "seen = fresh"), names)
    assert names["seen"] is True


def test_a_function_that_only_adds_is_wrapped_or_replaced_by_a_table(context, tmp_path):
    """HF-K015."""

    def store(table, n):
        with closing(sqlite3.connect(tmp_path / "own.db")) as rows:
            rows.execute("create table if not exists t (n)")
            with hf.once(rows, n) as fresh:
                if fresh:
                    rows.execute("insert into t values (?)", [n])

    [finding] = write.callback(store).check(SCHEMA, sink="average")
    assert finding.code == "HF-K015" and "with hf.once(connection, frame) as fresh:" in finding.do
    for _ in range(2):  # handed over anew, as after a death
        write.callback(store).open(context).write([FRAME])
    with closing(sqlite3.connect(tmp_path / "own.db")) as rows:
        assert rows.execute("select n from t").fetchall() == [(1,)]
    assert write.sqlite("own.db", "t").check(SCHEMA, sink="average") == []


def test_an_address_with_a_password_is_taken_from_the_environment():
    """HF-K014."""
    [finding] = write.postgres("postgresql://me:geheim@db.example/clinic", "alarms").check(SCHEMA, sink="alarms")
    assert finding.code == "HF-K014" and "hf.secret('PG_URL')" in finding.do
    assert write.postgres(hf.secret("PG_URL"), "alarms").check(SCHEMA, sink="alarms") == []


def test_a_sink_that_raised_goes_on_with_the_frame_once_it_is_mended(tmp_path):
    """HF-K020: the next run opens the mended sink, and finds the frame sealed."""
    plant = Plant(tmp_path, write.sqlite(str(tmp_path / "out.db"), "average"))
    plant.seal(1)

    class Failing:
        def __init__(self, real):
            self.close = real.close

        def write(self, batch):
            raise RuntimeError("a defect")

    plant.outlet._open = Failing(plant.outlet._open)
    plant.outlet.start()
    plant.outlet.join(60)
    assert plant.board.error.code == "HF-K020" and "mend the sink and run again" in plant.board.error.do
    again = Plant(tmp_path, write.sqlite(str(tmp_path / "out.db"), "average"))
    again.board.streams["average"].frames.update(plant.board.streams["average"].frames)
    again.board.streams["average"].sealed = 1
    again.outlet.start()
    again.written(1)
    again.end()


def test_a_table_that_is_ahead_or_differs_is_written_above_what_is_there(context, tmp_path):
    """HF-K032, HF-F001: `holdfast adopt-table FILE SINK --renumber`."""
    writer = write.sqlite("o.db", "average")
    owner, epoch = started(tmp_path / "state")
    with closing(writer.open(replace(context, owner=owner, epoch=epoch))) as sink:
        sink.write([frame(1), frame(2)])
        differs = refused("HF-F001", lambda: sink.write([frame(2, 22)]))
        sink.write([frame(KEPT_FRAMES + 9)])

    def stand(last: int) -> None:
        """A start of a folder that was put back: it has made one frame, which the sink has."""
        board = Board(closing_frames=0)
        board.streams["average"] = StreamQueue("average", 1 << 30, False, sealed=1)
        outlet = SimpleNamespace(sink=Sink("average", writer, "average"), last=lambda: last)
        (tmp_path / "average").mkdir(exist_ok=True)
        stand_sinks(board, [outlet], {"average": 0}, SimpleNamespace(stream=lambda name: tmp_path / name), print)

    ahead = refused("HF-K032", lambda: stand(KEPT_FRAMES + 9))
    assert all("holdfast adopt-table FILE SINK --renumber" in error.do for error in (differs, ahead))
    owner, epoch = started(tmp_path / "state", ran=["average"])
    taking = Taking(lambda checksum: 1, renumber=True)  # the folder knows frame 1 as written: it is queued no longer
    with closing(writer.open(replace(context, owner=owner, epoch=epoch, taking=taking))) as sink:
        assert sink.taken.written == 1
    owner, epoch = started(tmp_path / "state", ran=["average"])
    with closing(writer.open(replace(context, owner=owner, epoch=epoch))) as sink:
        stand(sink.last())
        assert sink.write([frame(2, 22)]) == [True]


@pytest.mark.parametrize(
    ("code", "bad", "said", "mended"),
    [
        ("HF-K035", 'TABLE, on_error="drop", promise=hf.lossless', "on_error='quarantine'", 'TABLE, on_error="quarantine", promise=hf.lossless'),
        ("HF-K035", 'TABLE, on_error="drop", promise=hf.lossless', "hf.loses(at_most=...)", 'TABLE, on_error="drop", promise=hf.loses(at_most=0.01)'),
        ("HF-K037", 'hf.write.parquet("out"), on_error="quarantine"', "drop on_error=", 'hf.write.parquet("out")'),
    ],
)  # fmt: skip
def test_a_sink_that_leaves_rows_out_is_declared_as_its_error_says(code, bad, said, mended):
    def found(words: str) -> list:
        kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")
        kiln.source("probes", hf.read.files("probes.csv"), schema="ts timestamp, zone int")
        kiln.filter("hot", of="probes", where="zone > 1")
        eval(f'kiln.sink("hot", {words})', {"hf": hf, "kiln": kiln, "TABLE": hf.write.sqlite("o.db", "hot")})
        return [finding for finding in check_structure(kiln.graph()) if not finding.warning]

    [finding] = found(bad)
    assert finding.code == code and said in finding.do
    assert found(mended) == []


def test_a_table_is_adopted_once_it_is_there_and_named(tmp_path, monkeypatch):
    """HF-K038, HF-K039."""
    monkeypatch.chdir(tmp_path)
    Path("kiln.py").write_text(
        "import holdfast as hf\n"
        'kiln = hf.StreamProcess("kiln", frame="1 second", time="ts")\n'
        'kiln.source("probes", hf.read.files("probes.csv"), schema="ts timestamp, zone int, mean double")\n'
        'kiln.filter("average", of="probes", where="zone > 0")\n'
        'kiln.sink("average", hf.write.sqlite("o.db", "average"))\n'
        'kiln.sink("average", hf.write.console(), name="shown")\n'
    )

    def adopt(sink: str):
        return CliRunner().invoke(app, ["adopt-table", "kiln.py", sink])

    def said(answer, code: str) -> str:
        assert answer.exit_code != 0 and code in answer.stderr, answer.output
        return answer.stderr.partition("\n  do")[2]

    assert "holdfast show FILE lists them" in said(adopt("shown"), "HF-K039")
    shown = CliRunner().invoke(app, ["show", "kiln.py"])
    assert shown.exit_code == 0 and "average" in shown.output
    assert "holdfast run FILE" in said(adopt("average"), "HF-K038")
    owner, epoch = started(tmp_path / ".holdfast" / "other")
    context = SinkContext("kiln", "average", SCHEMA, "ts", tmp_path, epoch, owner=owner)
    with closing(write.sqlite("o.db", "average").open(context)) as sink:
        sink.write([FRAME])
    with closing(sqlite3.connect("o.db", isolation_level=None)) as person:
        person.execute("alter table average rename to elsewhere")
        assert "bring the table back" in said(adopt("average"), "HF-K038")
        person.execute("alter table elsewhere rename to average")
    answer = adopt("average")
    assert answer.exit_code == 0, answer.output


def test_a_target_that_refuses_everything_takes_the_frame_once_it_is_mended(context, tmp_path, monkeypatch):
    """HF-K036."""
    monkeypatch.setattr(refusing, "TRIED_MAX", 3)
    careful = replace(
        context, on_error="quarantine", aside=Exclusions(tmp_path / "sinks" / "average"), stream="average"
    )
    many = make_frame(1, [(n, n, 1.0) for n in range(9)])
    with closing(write.sqlite("o.db", "average").open(careful)) as sink:
        with closing(sqlite3.connect(tmp_path / "o.db", isolation_level=None)) as person:
            person.execute("create trigger t before insert on average begin select raise(abort, 'no'); end")
            error = refused("HF-K036", lambda: sink.write([many]))
            assert "mend the target (a constraint, a trigger" in error.do
            person.execute("drop trigger t")
        assert sink.write([many]) == [True]
