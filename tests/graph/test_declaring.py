"""Declaring: what was said is what the graph holds, with the line it was said on."""

import subprocess
import sys

import pytest

import holdfast as hf
from holdfast.errors import ProcessRefused, UsageError
from holdfast.graph.model import Edge

PROBES = "ts timestamp, zone int, celsius double"


class Reader:
    """Declared and never opened."""

    reliable = True

    def describe(self):
        return "nothing"

    def open(self, context):
        raise AssertionError("a declaration opened a source")


def kiln():
    p = hf.StreamProcess("kiln", frame="1 second", time="ts")
    p.param("limit", 80.0, between=(20, 120))
    p.source("probes", Reader(), schema=PROBES)
    return p


def test_ports_are_positional_and_parameters_keyword_only():
    p = kiln()

    @p.operator(over="frame", inputs={"last": hf.feedback("average", schema="zone int, mean double", frames=2)})
    def damped(probes, last, *, limit, own=3): ...

    operator = p.graph().operator("damped")
    assert [(e.port, e.stream, e.feedback_frames) for e in operator.inputs] == [
        ("probes", "probes", 0),
        ("last", "average", 2),
    ]
    assert operator.params == ("limit",)  # `own` has a default and is nobody's parameter
    assert operator.outputs == ("damped",)


def test_decorators_return_the_function_untouched():
    p = kiln()

    def hot(probes):
        return probes

    def per_zone(state, probes): ...

    assert p.operator(over="frame")(hot) is hot
    assert p.operator(hot) is hot
    assert p.keyed("zone", state="n int", emits="zone int, n int")(per_zone) is per_zone


def test_every_declaration_remembers_its_line():
    p = kiln()
    here = sys._getframe().f_lineno
    p.filter("hot", of="probes", where="celsius > 80")

    @p.operator(over="frame")
    def cold(probes): ...

    graph = p.graph()
    assert graph.operator("hot").line.endswith(f"test_declaring.py:{here + 1}")
    assert graph.operator("cold").line.endswith(f"test_declaring.py:{here + 3}")
    assert graph.base.endswith("graph")


def test_several_outputs_are_streams_of_their_own():
    p = kiln()

    @p.keyed("zone", state="n int", emits={"up": "zone int", "down": "zone int, by double"})
    def trend(state, probes, *, boundary): ...

    p.split("parts", of="probes", emits={"hot": "celsius > 80", "cold": "celsius <= 80"})
    graph = p.graph()
    assert graph.operator("trend").outputs == ("trend.up", "trend.down")
    assert graph.operator("trend").params == ()  # `boundary` is given by the frame
    assert graph.operator("trend").options["emits"]["trend.down"].ddl == "zone int, by double"
    assert graph.operator("parts").outputs == ("parts.hot", "parts.cold")
    assert graph.producer_of("parts.hot").name == "parts"


def test_parallel_edges_are_two_ports_on_one_stream():
    p = kiln()
    p.union("twice", of=["probes", "probes"])
    edges = p.graph().consumers_of("probes")
    assert [edge.port for edge in edges] == ["of1", "of2"]


def test_aggregates_are_read_once():
    p = kiln()
    p.aggregate(
        "stats",
        of="probes",
        by="zone",
        window="10 seconds",
        every="1 second",
        emits={
            "mean": "avg(celsius)",
            "n": "count(*)",
            "kinds": "count(distinct zone)",
            "s": "stddev(celsius)",
            "ts": "window_end",
        },
    )
    options = p.graph().operator("stats").options
    assert options["emits"] == {
        "mean": ("avg", "celsius"),
        "n": ("count", "*"),
        "kinds": ("count_distinct", "zone"),
        "s": ("stddev_samp", "celsius"),
        "ts": ("window_end", ""),
    }
    assert (options["window_ms"], options["every_ms"], options["time"]) == (10_000, 1000, "ts")
    p.aggregate("last_100", of="probes", by=["zone"], window=hf.rows(100), emits={"m": "max(celsius)"})
    options = p.graph().operator("last_100").options
    assert (options["window_rows"], options["every_rows"], options["window_ms"]) == (100, 100, None)


def test_order_is_upstream_first_whatever_the_declarations():
    p = kiln()
    p.filter("c", of="b", where="true")
    p.filter("b", of="a", where="true")
    p.filter("a", of="probes", where="true")
    assert [operator.name for operator in p.graph().order] == ["a", "b", "c"]


def test_edges_protections_and_delays_reach_the_graph():
    p = kiln()
    p.filter("hot", of="probes", where="celsius > 80")
    p.edge("probes", "hot", delay_max="200 ms")
    p.protect(hf.snapshot(every="5 seconds"), "hot")
    p.protect(hf.ecoc(every=hf.frames(10)))
    graph = p.graph()
    assert graph.operator("hot").inputs == (
        Edge("probes", "hot", "of", delay_ms_max=200, line=graph.operator("hot").line),
    )
    assert str(graph.protection_of(graph.operator("hot"))) == "snapshot every 5 s"
    assert str(graph.protect) == "ecoc every 10 frames"


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("HF-C003", lambda p: p.source("x", Reader(), schema=PROBES, late="admitt")),
        ("HF-C003", lambda p: p.operator(over="frames")),
        ("HF-C003", lambda p: p.operator(over="frame", mode="update")),
        ("HF-C003", lambda p: p.sink("x", Reader(), promise="lossless")),
        ("HF-C003", lambda p: p.filter("x", of="probes", where="true", aprt=True)),
        ("HF-C004", lambda p: p.operator(over="frame")(lambda *streams: None)),
        ("HF-C004", lambda p: p.keyed("zone", state="n int", emits="n int")(lambda rows: None)),
        ("HF-C005", lambda p: p.source("my probes", Reader(), schema=PROBES)),
        ("HF-C006", lambda p: hf.loses(at_most=12)),
        ("HF-C007", lambda p: hf.ecoc(every=10)),
        ("HF-C007", lambda p: hf.ecoc(every="0 seconds")),
        ("HF-C003", lambda p: hf.none(5)),
        ("HF-C003", lambda p: p.protect(hf.ecoc)),
        ("HF-C003", lambda p: hf.backup("s4://bucket/copies")),
        ("HF-C003", lambda p: hf.StreamProcess("x", frame="1 second", hosts={})),
        ("HF-C003", lambda p: hf.StreamProcess("x", frame="1 second", hosts={"a": None})),
        ("HF-C003", lambda p: p.place("host1")),
        ("HF-C044", lambda p: hf.ecoc(every="1 second", extended=True, two_phase=True)),
        ("HF-C008", lambda p: hf.StreamProcess("x", frame="1 second", queue="much")),
        ("HF-C020", lambda p: hf.feedback("average", frames=0)),
        ("HF-C011", lambda p: p.aggregate("x", of="probes", emits={"m": "median(celsius)"})),
        (
            "HF-C012",
            lambda p: p.aggregate("x", of="probes", emits={"n": "count(*)"}, window="1 second", session="1 second"),
        ),
        ("HF-C013", lambda p: p.split("x", of="probes", emits={})),
        ("HF-C015", lambda p: p.keyed("zone", state="zone int, n int", emits="n int")),
        ("HF-C002", lambda p: p.source("x", Reader())),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_where_it_stands(code, wrong):
    with pytest.raises(UsageError) as caught:
        wrong(kiln())
    assert caught.value.code == code
    assert caught.value.effect == "nothing was declared"
    assert caught.value.do


def test_a_wrong_word_is_answered_with_the_right_one():
    with pytest.raises(UsageError, match="did you mean 'quarantine'"):
        kiln().source("x", Reader(), schema=PROBES, late="quarantined")


def test_a_secret_never_shows_its_value(monkeypatch):
    monkeypatch.setenv("PG_URL", "postgres://user:hunter2@db")
    secret = hf.secret("PG_URL")
    assert "hunter2" not in f"{secret!r} {secret} {vars(type(secret))}"
    assert secret.open().endswith("@db")
    with pytest.raises(UsageError, match="HF-C009"):
        hf.secret("NOT_SET_ANYWHERE").open()


def test_check_refuses_errors_and_returns_warnings():
    p = kiln()

    @p.operator(over="frame")
    def hot(probes, *, limit): ...

    p.sink("hot", Reader(), promise=hf.lossless)
    assert [finding.code for finding in p.check()] == ["HF-L001"]
    p.sink("hott", Reader())
    with pytest.raises(ProcessRefused) as caught:
        p.check()
    assert caught.value.exit_code == 3
    assert [finding.code for finding in caught.value.findings] == ["HF-G014", "HF-L001"]


def test_import_brings_neither_spark_nor_pandas_nor_duckdb():
    """`check` must answer in under a second, so declaring may not pay for running."""
    code = (
        "import sys, holdfast as hf\n"
        "hf.StreamProcess('p', frame='1 second', time='ts').graph(), hf.read, hf.write\n"
        "print([m for m in ('pyspark', 'pandas', 'duckdb') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_frames_and_the_word_frames_do_not_hide_each_other():
    """Python binds a subpackage to its parent on import: `import holdfast.frames.clock` and hf.frames(10) must both work."""
    code = (
        "import holdfast.frames.clock, holdfast.frames.clock as clock; from holdfast.frames import identity\n"
        "import holdfast as hf, inspect\n"
        "print(hf.frames(10), holdfast.frames.clock is clock, inspect.signature(hf.frames).parameters['n'].name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "10 frames True n"
