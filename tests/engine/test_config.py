"""Parameters: checked, logged, in force from a frame on, the same after a restart."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.engine.flow.parameters import Config
from holdfast.engine.flow.queues import Sealed, StreamQueue
from holdfast.engine.flow.scheduler import Board
from holdfast.engine.run.activation import add_unit
from holdfast.engine.run.parts import RunParts
from holdfast.engine.run.queues_on_disk import restore_queues, stand_sinks
from holdfast.engine.run.run import Run
from holdfast.errors import UsageError
from holdfast.frames.files import frame_name
from holdfast.frames.identity import Kind
from holdfast.graph.model import Param
from holdfast.graph.units import cut
from holdfast.journals.journal import Journal

PARAMS = (Param("limit", 80.0, between=(20, 120)), Param("pulse_max", 120.0, per="patient"), Param("on", True))


def change(config: Config, name: str, value, frame: int, key: str | None = None):
    return config.set(name, value, frame=frame, key=key, note="", who="me", at="now")


def test_a_change_holds_from_its_frame_on_and_is_replayed(tmp_path):
    config = Config(tmp_path, PARAMS)
    change(config, "limit", 75, 10)

    again = Config(tmp_path, PARAMS)
    for each in (config, again):
        assert each.at(9)["limit"]["value"] == 80.0
        assert each.at(10)["limit"]["value"] == 75.0


def test_a_value_per_key_leaves_the_others_alone(tmp_path):
    config = Config(tmp_path, PARAMS)
    change(config, "pulse_max", 100, 3, key="p7")

    assert config.at(3)["pulse_max"] == {"value": 120.0, "per": {"p7": 100.0}}


@pytest.mark.parametrize(
    ("name", "value", "key", "says"),
    [
        ("limt", 75, None, "did you mean 'limit'"),
        ("limit", 500, None, "between 20 and 120"),
        ("limit", "warm", None, "give a float"),
        ("limit", 75, "zone1", "leave out the key"),
        ("on", "perhaps", None, "give a bool"),
        ("pulse_max", "nan", None, "give a number"),
    ],
)
def test_what_cannot_be_is_refused_and_says_what_would_do(tmp_path, name, value, key, says):
    with pytest.raises(UsageError) as refused:
        Config(tmp_path, PARAMS).checked(name, value, key)

    assert refused.value.code == "HF-C010"
    assert says in str(refused.value)


def test_planned_changes_are_written_once(tmp_path):
    for _ in range(2):
        Config(tmp_path, PARAMS).plan({5: {"limit": 70.0}}, who="me", at="now")

    assert len(Config(tmp_path, PARAMS).changes()) == 1


def test_what_is_set_meanwhile_does_not_undo_what_was_planned_for_later(tmp_path):
    config = Config(tmp_path, PARAMS)
    config.plan({100: {"limit": 70.0}}, who="me", at="now")
    change(config, "limit", 90, 50)
    for each in (config, Config(tmp_path, PARAMS)):
        assert [each.at(n)["limit"]["value"] for n in (49, 50, 99, 100)] == [80.0, 90.0, 90.0, 70.0]


def test_of_two_changes_for_one_frame_the_later_holds(tmp_path):
    config = Config(tmp_path, PARAMS)
    change(config, "limit", 90, 50)
    change(config, "limit", 60, 50)
    assert config.at(50)["limit"]["value"] == 60.0


class Outlet:
    """Stands for a sink that has frames up to a number."""

    def __init__(self, sink, last):
        self.sink, self._last = sink, last

    def last(self):
        return self._last


@pytest.mark.parametrize("target", ["table", "callback"])
def test_a_change_holds_from_no_frame_that_a_sink_has(tmp_path, target):
    """A unit that goes back makes frames again that a sink has; with another value they would differ from those."""
    p = hf.StreamProcess("kiln", frame="1 second", time="ts", state=str(tmp_path))
    p.param("limit", 80.0)
    p.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, celsius double")

    @p.operator(over="frame")
    def hot(probes, *, limit):
        return probes.where(probes.celsius > limit)

    p.sink("hot", hf.write.sqlite("kiln.db", "hot") if target == "table" else hf.write.console())
    graph = p.graph()
    run = Run(RunParts(graph, tmp_path))
    run.folder.acquire("kiln")
    for n in (1, 2):  # what a loss of power left of nine
        Journal(run.folder.unit("hot"), "commits").append({"n": n, "state": {}})
    (run.folder.unit("hot") / "shown").write_text("9")
    run.parts.config, run.parts.begin = Config(run.folder.config, graph.params), {"hot": 0}
    [unit] = cut(graph)
    add_unit(run.parts, unit, [unit], {}, 2, {}, {})
    restore_queues(run.parts.board, graph, run.folder, [unit], run.parts.units, None)
    stand_sinks(
        run.parts.board, [Outlet(graph.sinks[0], 9 if target == "table" else 0)], {"hot": 0}, run.folder, lambda _: None
    )

    assert run.set(limit=70.0).frame == 10
    run.folder.release()


def test_a_change_holds_from_no_frame_that_a_lost_host_took_along():
    board = Board(closing_frames=1)
    board.streams["hot"] = StreamQueue("hot", 1 << 20, False)
    for n in (1, 2, 3):
        board.seal("hot", Sealed(n, n, 1, 1, "a", 1))
    board.lose(["hot"])
    assert (board.streams["hot"].sealed, board.streams["hot"].seen) == (0, 3)


def test_a_change_holds_from_no_frame_that__was_made_before_a_crash(tmp_path):
    """Taken again with another value it would differ from what was sealed, in every run from then on."""
    p = hf.StreamProcess("kiln", frame="1 second", time="ts", state=str(tmp_path))
    p.param("limit", 80.0)
    p.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, celsius double")

    @p.operator(over="frame")
    def hot(probes, *, limit):
        return probes.where(probes.celsius > limit)

    p.sink("hot", hf.write.console())
    graph = p.graph()
    run = Run(RunParts(graph, tmp_path))
    run.folder.acquire("kiln")
    for n in (1, 2):
        Journal(run.folder.unit("hot"), "commits").append({"n": n, "state": {}})
    (run.folder.stream("hot") / frame_name(3, Kind.STABLE)).touch()  # renamed, then killed before the commit record
    run.parts.config, run.parts.begin = Config(run.folder.config, graph.params), {"hot": 0}
    units = cut(graph)
    add_unit(run.parts, units[0], units, {}, 2, {}, {})

    assert run.set(limit=70.0).frame == 4
    run.folder.release()
