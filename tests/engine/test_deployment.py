"""Where units begin after a change, and what may not change without a decision."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.engine.run.deployment import begins, compare, describe
from holdfast.errors import StateRefused
from holdfast.graph.units import Unit, UnitInput, cut


def process(*, factor: int = 2, named: bool = False):
    p = hf.StreamProcess("plant", frame="1 second", time="ts")
    p.source("readings", hf.read.files("*.parquet"), schema="ts timestamp, zone int, celsius double")

    @p.operator(over="frame")
    def warm(readings):
        return readings.where(readings.celsius > factor)

    p.aggregate("counted", of="warm", by="zone", emits={"n": "count(*)"})
    if named:
        p.map("named", of="counted", select=["zone", "n"])
    p.sink("named" if named else "counted", hf.write.sqlite("out.db", "counted"))
    return p.graph()


def deployment(graph) -> dict:
    return describe(graph, cut(graph), 0)


def unit(name: str, *reads: str) -> Unit:
    return Unit(
        name=name,
        operators=(name,),
        stream_part=(),
        frame_part=(name,),
        inputs=tuple(UnitInput(stream, 0) for stream in reads),
        outputs=(name,),
        why="",
        protect=None,
    )


def deployed(*units: Unit, **starts: int) -> dict:
    return {
        "start": {each.name: starts.get(each.name, 0) for each in units},
        "streams": {stream: each.name for each in units for stream in each.outputs},
    }


A, B = unit("a", "readings"), unit("b", "a")


def test_a_fresh_unit_goes_on_at_its_own_next_frame():
    """Where the others stand, its consumers would miss the frames in between for ever."""
    old = deployed(A, B)

    assert begins(old, [A, B], {"a": 9, "b": 7}, {"b"}) == {"a": 0, "b": 7}
    assert begins(old, [A, B], {"a": 9, "b": 7}, {"a"}) == {"a": 9, "b": 0}


def test_a_unit_that_began_later_still_does():
    assert begins(deployed(A, B, b=5), [A, B], {"a": 9, "b": 7}, set()) == {"a": 0, "b": 5}


def test_a_new_unit_begins_where_the_others_stand():
    assert begins(deployed(A), [A, B], {"a": 9}, set()) == {"a": 0, "b": 9}


def test_units_put_between_two_others_begin_where_their_consumer_stands():
    """The consumer's next frame is 8: a unit that began after 9 would never seal it."""
    c, d, new_b = unit("c", "a"), unit("d", "c"), unit("b", "d")

    assert begins(deployed(A, B), [A, c, d, new_b], {"a": 9, "b": 7}, set()) == {"a": 0, "c": 7, "d": 7, "b": 0}


def test_a_unit_under_another_name_goes_on_with_its_stream():
    wider = Unit("named", ("a", "named"), (), ("a", "named"), (UnitInput("readings", 0),), ("a", "named"), "", None)

    assert begins(deployed(A, B), [wider, B], {"a": 9, "b": 7}, set()) == {"named": 7, "b": 0}


def test_state_that_would_lie_in_another_unit_is_not_dropped_in_silence():
    """`named` joins the unit of `counted` and gives it its name: nothing of `counted` itself has changed."""
    old, new = deployment(process()), deployment(process(named=True))
    assert old["units"] == {"counted": ["warm", "counted"]}
    assert new["units"] == {"named": ["warm", "counted", "named"]}

    with pytest.raises(StateRefused) as caught:
        compare(old, new, fresh=(), keep=())

    assert caught.value.code == "HF-R002"
    assert "--keep" not in caught.value.do
    assert compare(old, new, fresh=("counted",), keep=()).fresh == ("counted",)


def test_code_without_state_may_change():
    assert compare(deployment(process()), deployment(process(factor=3)), fresh=(), keep=()).changed == ("warm",)


def test_a_unit_that_was_here_takes_over_no_stream_that_stands_behind_it():
    """Frames in between would never be made, and whoever keeps no ledger would not notice."""
    old = deployed(A, B)
    both = Unit("b", ("a", "b"), (), ("a", "b"), (UnitInput("readings", 0),), ("a", "b"), "", None)

    with pytest.raises(StateRefused) as refused:
        begins(old, [both], {"a": 7, "b": 9}, set())
    assert refused.value.code == "HF-R019" and "--until-frame 9" in refused.value.do

    assert begins(old, [both], {"a": 9, "b": 9}, set()) == {"b": 0}
    assert begins(old, [both], {"a": 9, "b": 7}, set()) == {"b": 0}, "made again, and compared"
