"""The cut into units: what may run as one query does, what may not is parted and says why."""

from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast.graph.model import STATEFUL, Edge, Graph, Operator, Sink, Source
from holdfast.graph.schemas import Schema
from holdfast.graph.units import UnitInput, cut

PROBES = "ts timestamp, zone int, celsius double"


class Outside:
    def describe(self):
        return "outside"


def process():
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    p.source("probes", Outside(), schema=PROBES)
    return p


def members(p):
    return [unit.operators for unit in cut(p.graph())]


def ward():
    p = hf.StreamProcess("ward_4", frame="1 second", time="ts")
    p.source("ecg", Outside(), schema="patient string, ts timestamp, mv double")
    p.source("acc", Outside(), schema="patient string, ts timestamp, g double")

    @p.operator(over="frame")
    def motion(acc): ...

    @p.keyed("patient", state="last_mv double", emits="patient string, bpm double", protect=hf.ecoc(every="5 seconds"))
    def pulse(state, ecg): ...

    @p.operator(over="frame")
    def alarms(pulse, motion): ...

    p.sink("alarms", Outside())
    return p


def test_the_ward_is_two_units_and_says_why():
    pulse, alarms = cut(ward().graph())
    assert (pulse.name, pulse.operators) == ("pulse", ("pulse",))
    assert (alarms.name, alarms.operators) == ("alarms", ("motion", "alarms"))
    assert pulse.why == "'pulse' has a protection of its own (ecoc every 5 s)"
    assert alarms.inputs == (UnitInput("acc"), UnitInput("pulse"))
    assert alarms.outputs == ("alarms",)


def test_a_cycle_in_one_unit_seals_what_it_reads_back():
    p = process()

    @p.operator(over="frame", inputs={"last": hf.feedback("average", schema="zone int, mean double")})
    def damped(probes, last): ...

    p.aggregate("average", of="damped", by="zone", window="10 seconds", emits={"mean": "avg(celsius)"})
    p.sink("damped", Outside())
    (unit,) = cut(p.graph())
    assert unit.operators == ("damped", "average")
    assert unit.inputs == (UnitInput("probes"), UnitInput("average", 1))
    assert unit.outputs == ("damped", "average")


def test_state_ends_a_unit_but_for_row_wise_built_ins_in_line():
    p = process()
    p.aggregate("n", of="probes", by="zone", emits={"n": "count(*)"})
    p.filter("many", of="n", where="n > 10")
    p.map("named", of="many", select=["zone", "n as seen"])

    @p.operator(over="frame")
    def ranked(named): ...

    p.sink("ranked", Outside())
    assert members(p) == [("n", "many", "named"), ("ranked",)]
    assert cut(p.graph())[1].why == "'n' keeps state and ends its unit"


def test_state_with_two_consumers_ends_its_unit_always():
    """Spark would run the state once for each branch."""
    p = process()
    p.aggregate("n", of="probes", by="zone", emits={"n": "count(*)"})
    p.filter("many", of="n", where="n > 10")
    p.sink("many", Outside())
    p.sink("n", Outside())
    assert members(p) == [("n",), ("many",)]
    assert cut(p.graph())[1].why == "'n' keeps state and has more than one consumer"


def test_a_branch_behind_state_ends_the_unit_too():
    p = process()
    p.aggregate("n", of="probes", by="zone", emits={"n": "count(*)"})
    p.filter("many", of="n", where="n > 10")
    p.map("a", of="many", select=["zone"])
    p.map("b", of="many", select=["n"])
    p.sink("a", Outside())
    p.sink("b", Outside())
    assert members(p) == [("n", "many"), ("a",), ("b",)]


def test_an_operator_over_the_stream_reads_sealed_frames():
    p = process()

    @p.operator(over="frame")
    def clean(probes): ...

    @p.operator(over="stream", mode="update")
    def per_minute(clean): ...

    p.filter("many", of="per_minute", where="n > 10")
    p.sink("many", Outside())
    first, second = cut(p.graph())
    assert (first.operators, first.stream_part, first.frame_part) == (("clean",), (), ("clean",))
    assert (second.stream_part, second.frame_part) == (("per_minute",), ("many",))


def test_branches_that_meet_again_share_a_unit():
    p = process()
    p.filter("a", of="probes", where="true")
    p.filter("b", of="probes", where="true")
    p.union("both", of=["a", "b"])
    p.sink("both", Outside())
    assert members(p) == [("a", "b", "both")]


def test_no_unit_waits_for_itself():
    """before -> n -> after and before -> after: the first and the last must not share a unit."""
    p = process()
    p.filter("before", of="probes", where="true", apart=False)
    p.aggregate("n", of="before", by="zone", emits={"n": "count(*)"}, apart=True)

    @p.operator(over="frame")
    def after(before, n): ...

    p.sink("after", Outside())
    assert members(p) == [("before",), ("n",), ("after",)]


def test_an_operator_over_the_stream_never_reads_its_own_unit():
    """`both` follows `total` and reads what `total` reads: joining the two would put `warm` below the state."""
    p = process()

    @p.operator(over="frame")
    def warm(probes): ...

    @p.operator(over="stream")
    def total(warm): ...

    p.union("both", of=["total", "warm"])
    p.sink("both", Outside())
    assert members(p) == [("warm",), ("total", "both")]


def test_a_split_does_not_follow_state():
    """Spark would run the state once per branch."""
    p = process()
    p.aggregate("n", of="probes", by="zone", emits={"n": "count(*)"})
    p.split("parts", of="n", emits={"many": "n > 10", "few": "n <= 10"})
    p.sink("parts.many", Outside())
    p.sink("parts.few", Outside())
    assert members(p) == [("n",), ("parts",)]


def test_declared_parting_is_granted():
    p = process()
    p.filter("a", of="probes", where="true")
    p.filter("b", of="a", where="true", apart=True)
    p.filter("c", of="b", where="true")
    p.filter("d", of="c", where="true", unit="tail")
    p.filter("e", of="d", where="true", unit="tail")
    p.sink("e", Outside())
    assert members(p) == [("a",), ("b",), ("c",), ("d", "e")]


@st.composite
def graphs(draw):
    """Random well-ordered graphs of up to nine operators, some on feedback."""
    count = draw(st.integers(1, 9))
    streams = ["s"]
    operators = []
    for i in range(count):
        kind = draw(st.sampled_from(["frame", "stream", "keyed", "aggregate", "filter", "map", "union"]))
        reads = draw(st.lists(st.sampled_from(streams), min_size=1, max_size=3))
        edges = [Edge(stream, f"o{i}", f"p{j}") for j, stream in enumerate(reads)]
        if draw(st.booleans()):
            edges.append(Edge(f"o{draw(st.integers(0, count - 1))}", f"o{i}", "back", 1, Schema.of("x int")))
        protect = draw(st.sampled_from([None, None, None, hf.snapshot(every="5 seconds")]))
        operators.append(
            Operator(f"o{i}", kind, tuple(edges), (f"o{i}",), protect=protect, apart=draw(st.integers(0, 9)) == 0)
        )
        streams.append(f"o{i}")
    sinks = tuple(Sink(name, None, name) for name in draw(st.sets(st.sampled_from(streams[1:]), min_size=1)))
    source = Source("s", None, Schema.of("x int"), "x")
    return Graph("g", 1000, "x", 0, (source,), tuple(operators), sinks)


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_any_graph_is_cut_into_units_that_can_run(graph):
    units = cut(graph)
    names = [name for unit in units for name in unit.operators]
    assert sorted(names) == sorted(operator.name for operator in graph.operators)
    there = {source.name for source in graph.sources}
    for unit in units:
        kinds = [graph.operator(name).kind for name in unit.operators]
        assert sum(kind in STATEFUL for kind in kinds) <= 1
        assert unit.why
        assert len({graph.protection_of(graph.operator(name)) for name in unit.operators}) == 1
        # Upstream first: every ordinary input was sealed by an earlier unit, so no circle is left.
        assert {each.stream for each in unit.inputs if not each.feedback_frames} <= there
        for name in unit.stream_part:
            inner = {stream for other in unit.operators for stream in graph.operator(other).outputs}
            assert not {e.stream for e in graph.operator(name).inputs if not e.is_feedback} & inner
        there |= set(unit.outputs)
    for edge in graph.edges():
        if edge.is_feedback:
            assert any(edge.stream in unit.outputs for unit in units)
    assert cut(graph) == units
