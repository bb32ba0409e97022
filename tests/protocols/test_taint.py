"""Marks against a run whose contents are known: what differs from the ideal run is marked, and nothing stays marked
for longer than its state needs.

The world here is small and exact: a row is the moment at which a source gave it, a frame is the set of rows it depends
on, and every operator does with them what its kind does. A run loses frames and state; the ideal one does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.frames.identity import FrameRecord, Kind
from holdfast.graph.refilling import refills_us
from holdfast.graph.units import cut
from holdfast.protocols.taint import TAINTED, Gap, Input, Mark, Taint, mark_of

FRAME_US = 1_000_000


class Outside:
    reliable, bounded = True, True

    def describe(self):
        return "outside"


def process():
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    p.source("rows", Outside(), schema="ts timestamp, zone int, v double")
    return p


def only(p, name):
    return p.graph().operator(name)


@pytest.mark.parametrize(
    ("declared", "seconds"),
    [
        ({"window": "10 seconds"}, 10),
        ({"window": "10 seconds", "every": "2 seconds", "lateness": "3 seconds"}, 13),
        ({}, None),
        ({"stabilises": "1 minute"}, 60),
        ({"session": "5 seconds"}, None),
        ({"session": "5 seconds", "stabilises": "1 minute"}, 60),
        ({"window": hf.rows(5)}, None),
    ],
)
def test_how_long_a_gap_taints_an_aggregate(declared, seconds):
    p = process()
    p.aggregate("a", of="rows", by="zone", emits={"n": "count(*)"}, **declared)
    assert refills_us(only(p, "a"), 1000) == (None if seconds is None else seconds * 1_000_000)


def test_how_long_a_gap_taints_the_others():
    p = process()
    p.filter("f", of="rows", where="true")
    p.join("j", left="rows", right="f", on="zone", within="4 seconds")

    @p.operator(over="stream")
    def never(rows): ...

    @p.operator(over="stream", stabilises="1 minute", lateness="2 seconds")
    def later(rows): ...

    @p.keyed("zone", state="n bigint", emits="zone int", stabilises="7 seconds")
    def seven(state, rows): ...

    found = {name: refills_us(only(p, name), 1000) for name in ("f", "j", "never", "later", "seven")}
    assert found == {"f": 0, "j": 4_000_001, "never": None, "later": 63_000_000, "seven": 7_000_000}


def unit_of(p, name):
    graph = p.graph()
    unit = next(unit for unit in cut(graph) if name in unit.operators)
    return Taint(graph, unit.operators, unit.outputs)


def at(n):
    return n * FRAME_US, (n - 1) * FRAME_US


def test_the_window_that_lost_seventeen_frames_is_marked_and_the_next_whole_one_is_not():
    """Four rows before a gap of 17 frames were emitted at frame 26 as a right answer."""
    p = process()
    p.aggregate("per_window", of="rows", by="zone", window="10 seconds", emits={"n": "count(*)"})
    p.sink("per_window", Outside())
    taint = unit_of(p, "per_window")
    taint.skipped(25 * FRAME_US, "frames 9 to 25 of per_window are LOST")
    marks = {n: taint.frame(*at(n), [Input("rows", 0, n)]) for n in range(26, 40)}
    assert marks[26]["per_window"] == Mark(25 * FRAME_US, "frames 9 to 25 of per_window are LOST")
    # Rows of the gap end at 25 s: the last window that could hold one ends before 35 s, and comes out with frame 35.
    assert [n for n in marks if marks[n]] == [*range(26, 36)]
    assert taint.gaps == {}


def test_a_stateless_neighbour_in_the_same_unit_is_not_marked_by_the_state():
    p = process()
    p.filter("hot", of="rows", where="v > 1")
    p.aggregate("sums", of="hot", by="zone", emits={"n": "sum(v)"})
    p.sink("hot", Outside())
    p.sink("sums", Outside())
    taint = unit_of(p, "hot")
    taint.skipped(5 * FRAME_US, "gone")
    if "sums" in [each.name for each in taint._operators]:
        assert {*taint.frame(*at(6), [Input("rows", 0, 6)])} == {"sums"}
    else:
        assert taint.frame(*at(6), [Input("rows", 0, 6)]) == {}


def test_gaps_are_the_same_after_they_were_written_down():
    p = process()
    p.aggregate("sums", of="rows", by="zone", emits={"n": "sum(v)"})
    p.sink("sums", Outside())
    one, other = unit_of(p, "sums"), unit_of(p, "sums")
    one.frame(*at(3), [Input("rows", 0, 3, is_lost=True)])
    other.load(one.to_json() | {"somebody else": [1, 2, "x"]})
    assert other.gaps == one.gaps == {"sums": Gap(3 * FRAME_US, 2**63 - 1, "frame 3 of rows is LOST")}


# ---- against a world in which everything is known ----


@dataclass
class World:
    """One run. `lost`: source frames that are LOST; `gaps`: unit -> (first, last) frames it never saw, whose outputs are LOST."""

    graph: object
    lost: frozenset
    gaps: dict

    def run(self, frames):
        """stream -> frame -> (content, None | Mark, is_lost)"""
        units = [(unit, Taint(self.graph, unit.operators, unit.outputs)) for unit in cut(self.graph)]
        seen = {stream: {} for stream in self.graph.streams}
        states = {operator.name: [] for operator in self.graph.operators}
        for n in range(1, frames + 1):
            end, since = at(n)
            for source in self.graph.sources:
                gone = (source.name, n) in self.lost
                seen[source.name][n] = (frozenset() if gone else frozenset({(source.name, end - 1)}), None, gone)
            for unit, taint in units:
                first, last = self.gaps.get(unit.name, (0, -1))
                if first <= n <= last:
                    for stream in unit.outputs:
                        seen[stream][n] = (frozenset(), None, True)
                    if n == last:
                        taint.skipped(end, f"frames {first} to {last} of {unit.name} are LOST")
                    continue
                inputs = []
                for port in unit.inputs:
                    if (m := n - port.feedback_frames) >= 1:
                        _, mark, gone = seen[port.stream][m]
                        inputs.append(Input(port.stream, port.feedback_frames, m, gone, mark))
                marks = taint.frame(end, since, inputs)
                for name in unit.operators:
                    operator = self.graph.operator(name)
                    rows = self._work(operator, n, seen, states[name])
                    for stream in operator.outputs:
                        seen[stream][n] = (rows, marks.get(stream), False)
        return seen

    def _work(self, operator, n, seen, state):
        end, since = at(n)
        taken = [seen[e.stream].get(n - e.feedback_frames, (frozenset(), None, False))[0] for e in operator.inputs]
        rows = frozenset().union(*taken)
        if not operator.is_stateful:
            return rows
        # A row is in state under the moment it came in: the last one of its frame.
        state.append((end - 1, rows))
        options = operator.options
        if operator.kind == "aggregate" and options.get("window_ms"):
            size, step, late = (options[key] * 1000 for key in ("window_ms", "every_ms", "lateness_ms"))
            out = set()
            for moment, own in state:
                newest = moment - moment % step
                starts = range(newest, moment - size, -step)
                if any(since < start + size + late <= end for start in starts):
                    out |= own
            return frozenset(out)
        everything = frozenset().union(*(own for _, own in state))
        if operator.stabilises_ms is not None:  # forgets what is older, whatever way it came
            return frozenset(row for row in everything if row[1] > since - operator.stabilises_ms * 1000)
        return everything


@st.composite
def graphs(draw):
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    schema = "ts timestamp, zone int, v double"
    streams = ["one", "two"]
    for name in streams:
        p.source(name, Outside(), schema=schema)
    count = draw(st.integers(1, 5))
    heals, feeds_back = True, draw(st.booleans())
    for at_ in range(count):
        name, of = f"o{at_}", draw(st.sampled_from(streams))
        kind = draw(st.sampled_from(["filter", "union", "window", "running", "keyed", "declared"]))
        apart = {"apart": draw(st.booleans())}
        last = at_ == count - 1
        if last and feeds_back:
            # The cycle: what the last operator gives comes back to it, and it forgets.
            def looped(state, of, back): ...

            looped.__name__ = name
            again = hf.feedback(name, schema=schema, frames=draw(st.integers(1, 3)))
            p.keyed("zone", state="n bigint", emits=schema, inputs={"of": of, "back": again}, stabilises="4 seconds")(
                looped
            )
        elif kind == "filter":
            p.filter(name, of=of, where="true", **apart)
        elif kind == "union":
            p.union(name, of=[of, draw(st.sampled_from(streams))], **apart)
        elif kind == "window":
            size, step = draw(st.sampled_from([(1, 1), (4, 4), (5, 2), (3, 1)]))
            late = draw(st.integers(0, 2))
            p.aggregate(name, of=of, by="zone", window=f"{size} seconds", every=f"{step} seconds",
                        lateness=f"{late} seconds", emits={"ts": "max(ts)", "v": "sum(v)"}, **apart)  # fmt: skip
        elif kind == "running":
            heals = False
            p.aggregate(name, of=of, by="zone", emits={"ts": "max(ts)", "v": "sum(v)"}, **apart)
        else:

            def keyed(state, of): ...

            keyed.__name__ = name
            declared = {} if kind == "keyed" else {"stabilises": "3 seconds"}
            heals &= kind != "keyed"
            p.keyed("zone", state="n bigint", emits=schema, inputs={"of": of}, **declared)(keyed)
        streams.append(name)
    p.sink(streams[-1], Outside())
    return p.graph(), heals


@st.composite
def losses(draw, graph):
    lost = draw(st.sets(st.tuples(st.sampled_from(["one", "two"]), st.integers(1, 12)), max_size=4))
    gaps = {}
    for unit in cut(graph):
        if draw(st.booleans()):
            first = draw(st.integers(2, 10))
            gaps[unit.name] = (first, first + draw(st.integers(0, 6)))
    return frozenset(lost), gaps


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_no_frame_that_differs_from_the_ideal_run_is_unmarked_and_marks_end(data):
    graph, heals = data.draw(graphs())
    lost, gaps = data.draw(losses(graph))
    frames = 60
    ideal = World(graph, frozenset(), {}).run(frames)
    real = World(graph, lost, gaps).run(frames)
    for stream in {stream for unit in cut(graph) for stream in unit.outputs}:
        for n in range(1, frames + 1):
            rows, mark, gone = real[stream][n]
            assert ideal[stream][n][1] is None, "nothing was lost there"
            if rows != ideal[stream][n][0]:
                assert gone or mark is not None, f"frame {n} of {stream} is wrong and not marked"
        if heals:
            # Windows of up to 7 s, and 4 s for what goes round, one behind the other.
            assert real[stream][frames][1] is None, f"{stream} is still marked: {real[stream][frames][1]}"
            assert real[stream][frames][0] == ideal[stream][frames][0]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_marks_depend_on_what_was_written_down_alone(data):
    """A unit that is made again from its record at any frame gives the marks it gave."""
    graph, _ = data.draw(graphs())
    lost, _ = data.draw(losses(graph))
    seen = World(graph, lost, {}).run(20)
    unit = data.draw(st.sampled_from(cut(graph)))

    def inputs(n):
        read = ((port, n - port.feedback_frames) for port in unit.inputs)
        return [Input(port.stream, port.feedback_frames, m, seen[port.stream][m][2], seen[port.stream][m][1])
                for port, m in read if m >= 1]  # fmt: skip

    stop = data.draw(st.integers(1, 19))
    first = Taint(graph, unit.operators, unit.outputs)
    for n in range(1, stop + 1):
        first.frame(*at(n), inputs(n))
    again = Taint(graph, unit.operators, unit.outputs)
    again.load(first.to_json())
    for n in range(stop + 1, 21):
        marks = again.frame(*at(n), inputs(n))
        assert {stream: marks.get(stream) for stream in unit.outputs} == {
            stream: seen[stream][n][1] for stream in unit.outputs
        }


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(1, 1), (4, 4), (5, 2), (3, 1), (6, 3)]), st.integers(0, 4), st.integers(2, 9), st.integers(0, 5)
)
def test_a_window_is_marked_exactly_as_long_as_a_window_of_the_gap_may_come_out(window, late, first, more):
    """One operator: the last frame that is marked is the last that could hold a row of the gap, to the frame."""
    size, step = window
    p = process()
    p.aggregate("w", of="rows", by="zone", window=f"{size} seconds", every=f"{step} seconds", lateness=f"{late} seconds",
                emits={"n": "count(*)"})  # fmt: skip
    p.sink("w", Outside())
    real, ideal = (
        World(p.graph(), frozenset(), {"w": (first, first + more)}).run(40),
        World(p.graph(), frozenset(), {}).run(40),
    )
    differs = {n for n in range(1, 41) if real["w"][n][0] != ideal["w"][n][0] and not real["w"][n][2]}
    marked = {n for n in range(1, 41) if real["w"][n][1] is not None}
    last = first + more + size + late
    assert differs <= marked == {*range(first + more + 1, last + 1)}
    if step == 1:
        assert max(differs, default=first + more) == last - 1, (
            "the mark is no longer than it must be, but for the last frame"
        )


def test_a_cycle_heals_when_its_operator_says_so_and_not_before():
    """What comes back over feedback is as old as the gap it comes from, however often it has gone round."""
    schema = "ts timestamp, zone int, v double"
    for stabilises, last in (({"stabilises": "4 seconds"}, 9), ({}, 40)):
        p = process()

        def looped(state, rows, back): ...

        again = hf.feedback("looped", schema=schema, frames=2)
        p.keyed("zone", state="n bigint", emits=schema, inputs={"rows": "rows", "back": again}, **stabilises)(looped)
        p.sink("looped", Outside())
        seen = World(p.graph(), frozenset({("rows", 5)}), {}).run(40)["looped"]
        assert [n for n in seen if seen[n][1] is not None] == [*range(5, last + 1)]


def test_a_mark_goes_into_a_side_record_and_comes_back_as_it_was():
    """Consumers on other hosts know of it by the record alone; an unmarked frame must not become marked."""
    assert Mark.fields(None) == {}
    fields = Mark.fields(Mark(7, "gone").to_json())
    assert fields == {"mark": TAINTED, "mark_us": 7, "reason": "gone"}
    record = FrameRecord("rows", 3, Kind.STABLE, 1, 3 * FRAME_US, 1, 10, "ff", **fields)
    assert mark_of(record) == Mark(7, "gone")
    assert mark_of(replace(record, mark="", mark_us=0)) is None


def running(**declared):
    p = process()
    p.aggregate("sums", of="rows", by="zone", emits={"n": "sum(v)"}, **declared)
    p.sink("sums", Outside())
    return unit_of(p, "sums")


def rows(n, **what):
    return [Input("rows", 0, n, **what)]


def test_a_gap_is_as_long_as_the_longest_and_as_young_as_the_youngest_that_made_it():
    """The shorter one must not end the mark of the longer, nor an older one hide that rows went missing again."""
    taint = running()
    taint.gaps["sums"] = Gap(5, 50, "first")
    taint._refills["sums"] = 10
    taint.skipped(20, "shorter and younger")
    assert taint.gaps["sums"] == Gap(20, 50, "shorter and younger")
    taint.skipped(45, "longer")
    assert taint.gaps["sums"] == Gap(45, 55, "longer")
    taint._widen(taint._operators[0], Mark(3, "older and longer"), 60)
    assert taint.gaps["sums"] == Gap(45, 70, "older and longer")
    taint._widen(taint._operators[0], Mark(45, "the same again"), 60)
    assert taint.gaps["sums"] == Gap(45, 70, "older and longer")


def test_of_two_marks_the_younger_is_told_and_of_equal_ones_the_first():
    """What heals is judged by the youngest gap; a frame made again must carry the same words."""
    taint = running()
    taint.gaps["sums"] = Gap(5, 2 * FRAME_US, "of the state")
    assert taint.frame(*at(2), rows(2, mark=Mark(9, "of the input")))["sums"] == Mark(9, "of the input")
    again = running()
    again._refills["sums"] = 0
    again.gaps["sums"] = Gap(9, 9 * FRAME_US, "of the state")
    assert again.frame(*at(2), rows(2, mark=Mark(9, "of the input")))["sums"] == Mark(9, "of the input")


def test_a_gap_ends_with_the_first_frame_that_begins_after_it():
    """One frame more would mark a right answer, one less would not mark a wrong one."""
    for until, marked in ((2 * FRAME_US, False), (2 * FRAME_US + 1, True)):
        taint = running()
        taint.gaps["sums"] = Gap(5, until, "gone")
        assert ("sums" in taint.frame(*at(3), rows(3))) is marked
        assert ("sums" in taint.gaps) is marked


def test_only_state_has_gaps():
    """A filter forgets each frame with the next."""
    p = process()
    p.filter("hot", of="rows", where="v > 1")
    p.sink("hot", Outside())
    taint = unit_of(p, "hot")
    taint.skipped(FRAME_US, "gone")
    assert {*taint.frame(*at(2), rows(2, is_lost=True))} == {"hot"}
    assert (taint.gaps, taint.frame(*at(3), rows(3))) == ({}, {})


def test_a_lost_input_is_the_origin_and_a_marked_one_keeps_its_own():
    """A mark that is renewed on its way would never heal a cycle."""
    assert running().frame(*at(4), rows(4, is_lost=True))["sums"] == Mark(4 * FRAME_US, "frame 4 of rows is LOST")
    assert running().frame(*at(4), rows(4, mark=Mark(9, "older")))["sums"] == Mark(9, "older")


def looped(**stabilises):
    p = process()
    schema = "ts timestamp, zone int, v double"

    def looped(state, rows, back): ...

    again = hf.feedback("looped", schema=schema, frames=2)
    p.keyed("zone", state="n bigint", emits=schema, inputs={"rows": "rows", "back": again}, **stabilises)(looped)
    p.sink("looped", Outside())
    return unit_of(p, "looped")


def round_again(taint, n, origin=5 * FRAME_US):
    """Frame n, whose rows are whole and whose feedback carries a mark of this origin."""
    back = Input("looped", 2, n - 2, mark=Mark(origin, "gone"))
    return taint.frame(*at(n), [Input("rows", 0, n), back])


@pytest.mark.parametrize(("n", "marked"), [(6, True), (9, True), (10, False)])
def test_a_mark_that_comes_over_feedback_counts_until_the_operator_has_outlived_its_origin(n, marked):
    """The gap may lie in another unit of the cycle: its mark is all that is known of it here."""
    taint = looped(stabilises="4 seconds")
    assert ("looped" in round_again(taint, n)) is marked
    # As old as its origin, however late it comes.
    assert taint.gaps.get("looped") == (Gap(5 * FRAME_US, 9 * FRAME_US, "gone") if marked else None)


def test_a_mark_over_feedback_is_never_outlived_by_who_does_not_say_when():
    """Its state may depend on the gap for ever."""
    taint = looped()
    assert round_again(taint, 40)["looped"] == Mark(5 * FRAME_US, "gone")
    assert "looped" in taint.frame(*at(41), [Input("rows", 0, 41), Input("looped", 2, 39)])


def test_a_mark_that_comes_over_no_feedback_is_never_outlived():
    """It says that this very input lacks something, however old the gap it comes from."""
    taint = looped(stabilises="4 seconds")
    found = taint.frame(*at(40), [Input("rows", 0, 40, mark=Mark(FRAME_US, "old")), Input("looped", 2, 38)])
    assert found["looped"] == Mark(FRAME_US, "old")
    assert taint.gaps["looped"] == Gap(FRAME_US, 44 * FRAME_US, "old")


def test_an_older_mark_of_an_input_does_not_hide_a_younger_gap_of_the_state():
    """Units that outlive a gap reckon from the youngest."""
    taint = running()
    taint.gaps["sums"] = Gap(9, 2 * FRAME_US, "of the state")
    assert taint.frame(*at(2), rows(2, mark=Mark(5, "of the input")))["sums"].origin_us == 9
