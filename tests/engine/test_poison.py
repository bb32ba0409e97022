"""The search for poison rows: which items it blames, and how many tries that takes."""

from __future__ import annotations

import contextlib
import json
import math
import traceback
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.engine.flow.parameters import Config
from holdfast.engine.flow.queues import Permit, Sealed, UnitInputState
from holdfast.engine.run.activation import add_unit
from holdfast.engine.run.parts import RunParts
from holdfast.engine.run.run import Run
from holdfast.engine.unit.poison_search import NotAgain, Ports, guilty, search, too_late
from holdfast.errors import OperatorError
from holdfast.frames.files import frame_name, seal_frame
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.graph.units import cut

SECOND = 1_000_000


class Frame:
    """Raises while an item of `bad` is there, or all of one of `pairs`."""

    def __init__(self, count, bad=(), pairs=()):
        self.count, self.bad, self.pairs, self.tries = count, set(bad), [set(pair) for pair in pairs], 0

    def raises(self, left_out):
        self.tries += 1
        there = set(range(self.count)) - left_out
        return bool(there & self.bad) or any(pair <= there for pair in self.pairs)


@settings(deadline=None)  # a busy machine is no defect
@given(st.data())
def test_exactly_the_bad_items_are_found(data):
    count = data.draw(st.integers(1, 300))
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=8))
    frame = Frame(count, bad)
    assert search(count, frame.raises) == bad
    assert frame.tries <= (len(bad) + 1) * (3 + math.ceil(math.log2(count + 1)))


@settings(deadline=None)  # a busy machine is no defect
@given(st.data())
def test_what_is_left_passes_when_items_raise_only_together(data):
    count = data.draw(st.integers(2, 80))
    pairs = data.draw(st.lists(st.sets(st.integers(0, count - 1), min_size=2, max_size=3), max_size=4))
    frame = Frame(count, pairs=pairs)
    out = search(count, frame.raises)
    assert not frame.raises(out)
    assert all(out & pair for pair in frame.pairs)  # no more than one culprit for each cause is asked for
    assert len(out) <= len(pairs)


@settings(deadline=None)
@given(st.data())
def test_each_item_is_convicted_by_a_try_in_which_it_raises(data):
    """Two operators may raise on one frame: what becomes of a row is for the one to say that raises on it."""
    count = data.draw(st.integers(1, 80))
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=6))
    frame, convicted = Frame(count, bad), []

    def blame(items, left_out):
        there = set(range(count)) - left_out
        assert items & there & bad == there & bad
        convicted.extend(items)

    assert search(count, frame.raises, blame=blame) == bad
    assert sorted(convicted) == sorted(bad)


def test_a_frame_that_raises_without_rows_blames_none():
    assert search(10, lambda left_out: True) is None


def test_a_frame_that_passes_blames_none():
    assert search(10, lambda left_out: False) == frozenset()


def test_a_key_whose_every_row_raises_goes_as_a_whole():
    frame = Frame(90, bad=range(1, 90, 3))  # the rows of key 1
    assert search(90, frame.raises, lambda item: range(item % 3, 90, 3)) == set(range(1, 90, 3))
    assert frame.tries < 20


def test_a_single_bad_row_of_a_key_goes_alone():
    frame = Frame(90, bad=[31])
    assert search(90, frame.raises, lambda item: range(item % 3, 90, 3)) == {31}


def test_more_culprits_than_a_frame_with_poison_has():
    frame = Frame(500, bad=range(500))
    assert search(500, frame.raises) is None


def test_items_become_ranges_of_their_port():
    ports = Ports((("probes", 5), ("last@1", 0), ("motion", 4)))
    assert ports.count == 9
    assert ports.ranges([0, 3, 4, 5, 8]) == {"probes": [[0, 1], [3, 5]], "motion": [[0, 1], [3, 4]]}


@settings(deadline=None)
@given(st.integers(2, 60), st.sets(st.integers(0, 40), min_size=1))
def test_an_error_that_comes_and_goes_convicts_a_row_only_if_it_comes_twice(count, when):
    """Each try raises or not by its own number, whatever rows are there; a row that is named has raised in two tries of one kind."""
    tries = []

    def raises(left_out):
        tries.append((left_out, len(tries) in when))
        return tries[-1][1]

    convicted = []
    with contextlib.suppress(NotAgain):
        search(count, raises, blame=lambda items, left_out: convicted.append(left_out))
    assert all(tries.count((left_out, True)) >= 2 for left_out in convicted)


def test_one_error_by_chance_takes_no_row():
    tries = []

    def raises(left_out):
        tries.append(left_out)
        return len(tries) in (1, 4)

    with pytest.raises(NotAgain):
        search(8, raises)


class Tries:
    """Stands for Spark: a try of the frame raises as the first operator does on the first row it cannot bear."""

    passing = ()  # tries, by their number, that meet the network instead

    def __init__(self, values, bears):
        self.sparkContext, self.values, self.bears, self.count = self, values, bears, 0

    def setLocalProperty(self, _, text):
        [frame] = json.loads(text)["frames"]
        out = {row for first, end in frame["ports"]["probes"].get("without", []) for row in range(first, end)}
        self.there = [value for row, value in enumerate(self.values) if row not in out]

    def collect(self):
        self.count += 1
        if self.count in self.passing:
            raise RuntimeError('  File "/srv/kiln.py", line 7, in hot\nConnectionError: no answer')
        for operator, bad in self.bears.items():
            if set(self.there) & bad:
                raise OperatorError(
                    "HF-O001", "OperatorRaised", "it raised.", where=f"operator {operator!r}, frame 1", effect="none"
                )


@pytest.fixture
def poisoned(tmp_path):
    """A unit of two operators, each of which raises on a row of frame 1; what it decides about them."""

    def decided(bears=None, passing=(), **on_error):
        p = hf.StreamProcess("kiln", frame="1 second", time=hf.ARRIVAL)
        p.source("probes", hf.read.files("probes.parquet"), schema="x bigint")

        @p.operator(over="frame", on_error=on_error["first"])
        def first(probes):
            return probes

        @p.operator(over="frame", on_error=on_error["second"])
        def second(first):
            return first

        p.sink("second", hf.write.console())
        graph, schema = p.graph(), Schema.of("x bigint")
        run = Run(RunParts(graph, tmp_path))
        run.parts.config, run.parts.begin = Config(tmp_path / "config", ()), {"second": 0}
        [unit] = cut(graph)
        add_unit(run.parts, unit, [unit], {"probes": schema}, 1, {}, {})
        values = list(range(10))
        seal_frame(
            tmp_path,
            pa.table({"x": values}),
            schema,
            None,
            stream="probes",
            n=1,
            kind=Kind.STABLE,
            epoch=1,
            boundary_us=1,
        )
        query = decided.query = run.parts.units["second"]
        decided.run = run
        query._spark = tries = Tries(values, {"first": {3}, "second": {7}} if bears is None else bears)
        tries.passing = passing
        query._plans = SimpleNamespace(of=lambda *_, **__: nullcontext(tries))
        file = str(tmp_path / frame_name(1, Kind.STABLE))
        query._permits[1] = Permit(1, 1, 0, ((UnitInputState("probes"), Sealed(1, 1, 10, 80, "", 1, file=file)),))
        error = OperatorError("HF-O001", "OperatorRaised", "it raised.", effect="none")
        found = query.leave_poison_out(1, graph.operator("first"), error)
        kept = [pq.read_table(path)["x"].to_pylist() for path in sorted(tmp_path.glob("units/*/quarantine/*.parquet"))]
        return found, query.rows_left_out("drop"), query.rows_left_out("quarantine"), kept

    return decided


def test_what_becomes_of_a_row_says_the_operator_that_raises_on_it(poisoned):
    """The first says drop, the second quarantine: a row that was to be kept was dropped with the first one's."""
    assert poisoned(first="drop", second="quarantine") == (True, {"first": 1}, {"second": 1}, [[7]])


def test_an_operator_that_says_stop_loses_no_row_to_one_that_says_drop(poisoned):
    assert poisoned(first="drop", second="stop") == (False, {}, {}, [])


def test_a_frame_that_passes_when_it_is_looked_into_is_not_given_up(poisoned, tmp_path):
    """It raised twice within half a second, and what it asked for is back: the unit was given up, its frames stood still."""
    with pytest.raises(NotAgain):
        poisoned(bears={}, first="quarantine", second="quarantine")
    assert not list(tmp_path.glob("units/*/quarantine/*"))


def test_what_passed_when_it_was_looked_into_is_tried_again_and_counts(poisoned):
    with contextlib.suppress(NotAgain):
        poisoned(bears={}, first="quarantine", second="quarantine")
    crew, supervisor = poisoned.run.parts.units, poisoned.run.parts.supervisor
    crew._incidents = SimpleNamespace(note=lambda *_, **__: None)
    where = "operator 'first', frame 1"
    error = OperatorError("HF-O001", "OperatorRaised", "it raised.", where=where, effect="none")
    for attempt in (1, 2, 3):
        for _ in range(2):
            supervisor.died("second", 1, error)
        assert supervisor.to_probe() == [("second", 1)]
        crew._probe("second", 1)
        assert supervisor.care("second").condition == "RESTARTING"
        assert supervisor.care("second").attempt == 2 * attempt
    assert not error.may_pass


@pytest.mark.parametrize("at", range(1, 9))
def test_the_network_that_fails_while_rows_are_sought_costs_no_good_row(poisoned, tmp_path, at):
    with pytest.raises(NotAgain):
        poisoned(bears={"first": {3}}, passing=(at,), first="quarantine", second="quarantine")
    assert not list(tmp_path.glob("units/*/quarantine/*"))


def test_rows_are_not_left_out_by_their_place_of_a_frame_that_was_made_again_otherwise(poisoned):
    """A remake of what the unit reads: row 7 of the new frame is another one, and was left out in silence."""
    poisoned(first="drop", second="quarantine")
    query = poisoned.query
    [(port, sealed)] = query._permits[1].inputs

    def without(checksum):
        permit = Permit(1, 1, 0, ((port, replace(sealed, checksum=checksum)),))
        return query._described([permit])["frames"][0]["ports"]["probes"].get("without", [])

    assert sorted(without(sealed.checksum)) == [[3, 4], [7, 8]]
    assert without("made otherwise") == []


def of_module(x):
    raise ValueError(x)


def of_both(x):
    raise ValueError(x)


def places(error):
    """A traceback as `explain` shows it."""
    return "\n".join(
        f"{each.filename}:{each.lineno} in {each.name}" for each in traceback.extract_tb(error.__traceback__)
    )


@pytest.fixture
def unit():
    p = hf.StreamProcess("kiln", frame="1 second", time=hf.ARRIVAL)
    p.source("probes", hf.read.files("probes.parquet"), schema="x bigint")
    functions = {}

    @p.operator(over="frame", on_error="drop")
    def first(probes):
        functions["first"] = lambda x: 1 // x
        functions["shared"] = of_both
        return probes

    @p.operator(over="frame")
    def second(first):
        functions["second"] = lambda x: 1 // x
        functions["named"], functions["shared"] = of_module, of_both
        return first

    p.sink("second", hf.write.console())
    graph = p.graph()
    for operator in graph.operators:
        operator.function(None)
    [unit] = cut(graph)
    return graph, unit, functions


@pytest.mark.parametrize(
    ("function", "whose"), [("first", "first"), ("second", "second"), ("named", "second"), ("shared", None)]
)
def test_a_function_inside_an_operator_tells_whose_it_is(unit, function, whose):
    graph, cut_unit, functions = unit
    with pytest.raises(Exception) as caught:
        functions[function](0)
    error = OperatorError("HF-O001", "OperatorRaised", "it raised.", why=places(caught.value), effect="none")
    assert getattr(guilty(graph, cut_unit, error), "name", None) == whose


def test_an_error_that_may_be_a_neighbours_is_nobodys(unit):
    """An SQL error of an operator that says stop cost it the row, since its neighbour says drop."""
    graph, cut_unit, _ = unit
    error = OperatorError(
        "HF-O001", "OperatorRaised", "it raised.", why="[DIVIDE_BY_ZERO] Division by zero.", effect="none"
    )
    assert guilty(graph, cut_unit, error) is None


def late_operator(**options):
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    p.source("probes", hf.read.files("*.csv"), schema="ts timestamp, zone int")
    p.aggregate("w", of="probes", by="zone", emits={"n": "count(*)"}, too_late="quarantine", **options)
    return p.graph().operator("w")


@given(
    st.lists(st.integers(0, 20_000_000), min_size=1, max_size=8), st.integers(0, 20), st.sampled_from([(4, 4), (5, 2), (3, 1), (1, 3)]),
    st.integers(0, 3),
)  # fmt: skip
def test_rows_too_late_are_guessed_as_the_windows_count_them(times, since_s, window, lateness):
    """By every window a row belongs to; a row in no window is in the way of nobody."""
    size, step = window
    operator = late_operator(window=f"{size} seconds", every=f"{step} seconds", lateness=f"{lateness} seconds")
    table = pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC"))})
    found = too_late({"probes": table}, operator, since_s * SECOND)
    for at, time in enumerate(times):
        starts = [start for start in range(-60, 60, step) if start * SECOND <= time < (start + size) * SECOND]
        missed = [start for start in starts if (start + size + lateness) * SECOND <= since_s * SECOND]
        assert (at in found) == bool(missed), (time, starts, missed)


def test_a_guess_that_explains_it_takes_two_tries_and_one_that_does_not_is_dropped():
    tries = []

    def raises(left_out):
        tries.append(left_out)
        return not {3, 5} <= left_out

    assert search(8, raises, guess=frozenset({3, 5})) == {3, 5} and len(tries) == 2
    assert search(8, raises, guess=frozenset({3})) == {3, 5}
