"""A frame that somebody has is made again by the code that made it, or not at all."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.flow.queues import StreamQueue
from holdfast.engine.flow.scheduler import Board, UnitState
from holdfast.engine.recover.made import Others, begun_anew, code_of, lowest, onward, others_in, stand_code
from holdfast.errors import StateRefused


class Query:
    """As far as a unit in operation is asked here."""

    def __init__(self, name, committed, folder, begun=0):
        self.unit = SimpleNamespace(name=name, outputs=(name,), operators=(name,))
        self.committed, self.begun, self.made_after, self.stream_folders = committed, begun, 0, (folder / name,)
        self.stream_folders[0].mkdir()


class Outlet:
    def __init__(self, name, stream, frame):
        self.sink, self.frame = SimpleNamespace(name=name, stream=stream), frame

    def may_have(self):
        return self.frame


def deployment(*, a="1", b="1", **more):
    return {
        "operators": {"a": a, "b": b}, "units": {"a": ["a"], "b": ["b"]}, "start": {"a": 0, "b": 0}, "sinks": {"told": 0},
        "ports": {"a": {"rows@0": 1, "b@2": 1}, "b": {"a@0": 1}},
    } | more  # fmt: skip


def board(**at):
    made = Board(closing_frames=1)
    for name, n in at.items():
        made.streams[name] = StreamQueue(name, 1000, False, sealed=n)
        made.units[name] = UnitState(name, (), (name,), permitted=n, processed=n)
    return made


@pytest.mark.parametrize(
    ("outlets", "b"), [([Outlet("told", "a", 8)], 5), ([], 8)], ids=["a sink has them", "a unit has them"]
)
def test_a_unit_that_was_put_back_makes_nothing_again_with_other_code(tmp_path, outlets, b):
    old, new = deployment(), deployment(a="2")
    crew = [Query("a", 5, tmp_path)]

    with pytest.raises(StateRefused, match="frames 6 to 8 of unit 'a' have to be made again") as refused:
        stand_code(board(a=5, b=b), crew, outlets, old, new, None)
    assert refused.value.code == "HF-R051" and "--until-frame 8" in refused.value.do

    # As the remedy says: with the code as it was, then with the change.
    code = stand_code(board(a=5, b=b), crew, outlets, old, old, 8)
    assert code["a"] == [[0, code_of(old, "a")]] and crew[0].made_after == 0
    crew[0].committed = 8
    code = stand_code(board(a=8, b=b), crew, outlets, old | {"code": code}, new, None)
    assert code["a"] == [[0, code_of(old, "a")], [8, code_of(new, "a")]] and crew[0].made_after == 8


def test_one_that_is_put_back_behind_a_change_takes_both_codes_in_turns(tmp_path):
    """Changed after frame 8, lost at frame 10, and the newest checkpoint is of frame 5."""
    first, second = deployment(), deployment(a="2")
    history = {"a": [[0, code_of(first, "a")], [8, code_of(second, "a")]]}
    crew, told = [Query("a", 5, tmp_path)], [Outlet("told", "a", 10)]

    with pytest.raises(StateRefused, match="frames 6 to 8 "):
        stand_code(board(a=5), crew, told, second | {"code": history}, second, None)
    with pytest.raises(StateRefused, match="frames 9 to 10 ") as refused:
        stand_code(board(a=5), crew, told, second | {"code": history}, first, 9)
    assert "--until-frame 8" in refused.value.do
    assert stand_code(board(a=5), crew, told, second | {"code": history}, first, 8) == history
    crew[0].committed = 8
    assert stand_code(board(a=8), crew, told, first | {"code": history}, second, None) == history
    assert crew[0].made_after == 8


def test_what_is_new_or_reads_a_stream_only_now_has_nothing_of_it(tmp_path):
    old = deployment(ports={"a": {"rows@0": 1}, "b": {"rows@0": 1, "a@3": 1}}, sinks={})
    new = deployment(a="2")
    crew = [Query("a", 5, tmp_path), Query("b", 8, tmp_path)]
    code = stand_code(board(a=5, b=8), crew, [Outlet("told", "a", 9)], old, new, None)
    assert [each[0] for each in code["a"]] == [0, 5] and len(code["b"]) == 1
    assert stand_code(board(a=5, b=8), crew, [], None, new, None)["a"] == [[0, code_of(new, "a")]]


def test_begun_anew_it_goes_on_behind_all_that_anybody_has(tmp_path):
    """Its host is lost, and with it the journal that says how far it was."""
    units = [SimpleNamespace(name=name, outputs=(name,), operators=(name,)) for name in ("a", "b")]
    begins, old = {"a": 0, "b": 3}, deployment()
    begun_anew(units, {"a"}, begins, {"a": 4, "b": 7}, [Outlet("told", "a", 6)], old)
    assert begins == {"a": 7, "b": 3}
    begun_anew(units, {"a"}, begins, {"a": 4, "b": 7}, [Outlet("told", "a", 9)], old)
    assert begins == {"a": 9, "b": 3}


@given(st.lists(st.tuples(st.integers(0, 12), st.sampled_from("xyz"), st.integers(0, 12)), max_size=8))
def test_every_frame_that_is_seen_is_always_made_by_one_code(starts):
    """Starts with any code after any frame that is not ahead: what is refused is not made."""
    history, made, seen = [[0, "x"]], {}, 0
    for back, now, more in starts:
        at = max(0, seen - back)
        others = others_in(history, now, at, seen)
        if others is not None and others.first == at + 1:
            assert made[at + 1] != now
            continue
        until = at + more if others is None else min(at + more, others.first - 1)
        history = onward(history, now, at, seen)
        least = lowest(history, now, at)
        assert all(made.get(n, now) == now for n in range(least + 1, at + 1))
        for n in range(at + 1, until + 1):
            assert made.setdefault(n, now) == now
        seen = max(seen, until)


def test_frames_that_other_code_made_are_named_from_the_first_to_the_last():
    history = [[0, "x"], [4, "y"], [9, "x"]]
    assert others_in(history, "x", 2, 12) == Others(5, 9)
    assert others_in(history, "y", 4, 12) == Others(10, 12)
    assert others_in(history, "y", 4, 9) is None


def test_a_unit_that_is_called_otherwise_makes_nothing_again_that_another_made(tmp_path):
    """An operator was added behind it, so its unit has another name, and the host of the old one is lost."""
    old = deployment()
    new = deployment() | {"operators": {"a": "1", "more": "1", "b": "1"}, "units": {"more": ["a", "more"], "b": ["b"]}}
    query = Query("more", 5, tmp_path, begun=5)
    query.unit.outputs = ("a", "more")
    with pytest.raises(StateRefused, match="frames 6 to 8 of unit 'more'"):
        stand_code(board(more=5, b=8), [query], [], old, new, None)
    query.committed = query.begun = 8
    assert stand_code(board(more=8, b=8), [query], [], old, new, None) == {"more": [[8, code_of(new, "more")]]}
