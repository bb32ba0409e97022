"""The description of a stream graph: what it refuses, and that model.toml keeps it whole."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.models.files import read_model, write_model
from holdfast.models.stream import Copies, Fault, Operator, Output, Port, Protect, State, StreamModel

SMALL = StreamModel(
    "small",
    (
        Operator("feed", rate=100.0),
        Operator("half", (Port(("feed",), 0.5),), unit="work", host="a"),
        Operator("sums", (Port(("half",), state=State(200.0, 0.1, 2.0)),), unit="work", host="a"),
        Operator("out", (Port(("sums", "half")),), host="a"),
    ),
)

# Any text but lone halves of a surrogate pair, which no file can hold.
words = st.text(st.characters(exclude_categories=("Cs",)))
numbers = st.floats(0.001, 1e6)


@st.composite
def models(draw) -> StreamModel:
    operators = [Operator("s", rate=draw(numbers), cost_s=draw(numbers))]
    for i in range(draw(st.integers(1, 5))):
        ports = []
        for _ in range(draw(st.integers(1, 2))):
            reads = tuple(
                draw(st.lists(st.sampled_from([each.name for each in operators]), min_size=1, max_size=2, unique=True))
            )
            taint = draw(st.none() | st.just(0.25))
            state = State(
                draw(numbers),
                draw(st.just(math.inf) | numbers),
                gamma=draw(st.just(math.inf) | numbers),
                alpha_taint=taint,
            )
            ports.append(Port(reads, draw(numbers), taint, draw(numbers), draw(st.none() | st.just(state))))
        protect = Protect(
            draw(st.sampled_from(["none", "checkpoint", "ecoc"])), draw(numbers), draw(st.just(math.inf) | numbers)
        )
        operators.append(Operator(f"o{i}", tuple(ports), unit=draw(st.sampled_from(["", "u"])), protect=protect))
    copies = draw(st.sampled_from([(), (Copies(("o0",), "replicate", 3, 2.0),)]))
    faults = (Fault("crash", draw(numbers), draw(numbers), ("s",)), Fault("host", 10.0, exponential_repair=True))
    notes = draw(st.dictionaries(words, words, max_size=2))
    output = Output("o0", draw(numbers), 0.1, 0.2, draw(st.floats(0, 1)))
    return StreamModel("m", tuple(operators), (output,), faults, copies, "waits", draw(numbers), notes)


@given(models())
def test_what_is_written_to_a_file_is_read_back_equal(model):
    assert read_model(write_model(model)) == model


def test_rates_follow_from_sources_and_selectivity():
    assert SMALL.rates["sums"] == ((50.0,), 50.0)
    assert SMALL.rates["out"] == ((100.0,), 100.0)


def test_units_and_hosts_say_what_fails_together():
    crash, host = Fault("crash", 100.0), Fault("host", 100.0, of=("a",))

    assert dict(SMALL.targets(crash)) == {"feed": ("feed",), "work": ("half", "sums"), "out": ("out",)}
    assert dict(SMALL.targets(host)) == {"a": ("half", "sums", "out")}


def test_above_a_port_is_its_way_only():
    join = Operator("join", (Port(("sums",)), Port(("feed",))))
    model = StreamModel("j", (*SMALL.operators[:3], join))

    assert model.above("join", 1) == {"feed"}
    assert model.above("join") == {"feed", "half", "sums"}


def test_stabilisation_is_capped():
    state = State(200.0, 0.1, 2.0, alpha_taint=0.05)

    assert state.to_refill(10) == 40
    assert state.to_refill(1e6) == 200
    assert state.to_refill_tainted == 10
    assert math.isinf(State(5.0, math.inf, gamma=math.inf).to_refill(0))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('name = "a"\nflow = "leaks"\noperator = [{name = "s", rate = 1}]', "leaks"),
        ('name = "a"\nflow = "waits"\noperator = [{name = "s", rate = 1}]', "frame_s"),
        ('name = "a"\noperator = [{name = "s", rate = 1}, {name = "b", port = [{reads = ["c"]}]}]', "'c'"),
        ('name = "a"\noperator = [{name = "s", rats = 1}]', "did you mean 'rate'"),
        ('name = "a"\noperator = [{name = "s"}]', "has a rate"),
        ('name = "a"\noperator = [{name = "s", rate = "fast"}]', "not a number"),
        ('name = "a"\noperator = [{name = "s", rate = nan}]', "not a number"),
        ('name = "a"\noperator = [{name = "s", rate = 1}, {name = "s", rate = 1}]', "twice"),
        ('name = "a"\noperator = [{name = "s", rate = 1}]\nfault = [{kind = "crash", mttf_s = 1, of = ["x"]}]', "'x'"),
        ('name = "a"\noperator = [{name = "s", rate = 1}]\nfault = [{kind = "crash", mttf_s = 0}]', "positive"),
        ('name = "a"\noperator = [{name = "s", rate = 1}]\ncopies = [{members = ["s"], n = 1}]', "1 copies"),
        (
            'name = "a"\noperator = [{name = "s", rate = 1}, {name = "b", port = [{reads = ["s"], state = {size = 0}}]}]',
            "not a state",
        ),
        ('name = "a"\noperator = [{name = "s", rate = inf}]', "infinite"),
        ('name = "a"\noperator = [{name = "s", rate = 1, protect = {every_s = 0}}]', "every_s"),
        (
            'name = "a"\noperator = [{name = "s", rate = 1}, {name = "b", port = [{reads = ["s"], selectivity = -1}]}]',
            "negative",
        ),
        (
            'name = "a"\noperator = [{name = "s", rate = 1}]\nfault = [{kind = "crash", mttf_s = 1, repair_s = inf}]',
            "repair_s",
        ),
        (
            'name = "a"\noperator = [{name = "s", rate = 1}]\ncopies = [{members = ["s"], failover_s = -1}]',
            "failover_s",
        ),
        ("name = ", "TOML"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused_with_its_place(text, named):
    with pytest.raises(UsageError) as caught:
        read_model(text)

    assert caught.value.code == "HF-M001"
    assert named in str(caught.value)
