"""A frame is made again only if nobody has seen it, and everybody who made something of it goes back too."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.protocols.remaking import Facts, Plan, Refusal, UnitFacts, decide

LAST = 8


@st.composite
def worlds(draw):
    """Units a, b, c, d; each reads the source or earlier ones, perhaps itself a frame late."""
    units, queued, written = {}, {}, {}
    for at, name in enumerate("abcd"[: draw(st.integers(1, 4))]):
        reads = draw(st.sets(st.sampled_from(["source", *"abcd"[:at]]), min_size=1, max_size=2))
        committed = min([draw(st.integers(3, LAST)), *(units[each].committed for each in reads - {"source"})])
        feedback = draw(st.booleans())
        needs = {
            n: frozenset({(stream, n) for stream in reads} | ({(name, n - 1)} if feedback and n > 1 else set()))
            for n in range(1, committed + 1)
        }
        units[name] = UnitFacts((name,), committed, 0, frozenset(reads | ({name} if feedback else set())), needs,
                                frozenset(range(draw(st.integers(0, 4)), LAST)))  # fmt: skip
        queued[name] = frozenset(range(draw(st.integers(1, 4)), committed + 1))
        if draw(st.booleans()):
            written[name] = {f"sink {name}": draw(st.integers(0, committed))}
    unreadable = {("source", n): "gone" for n in range(1, draw(st.integers(1, 3)))}
    return Facts(units, queued, unreadable, written)


@settings(max_examples=400, deadline=None)
@given(worlds(), st.integers(1, LAST + 1), st.data())
def test_a_plan_changes_nothing_that_was_seen_and_finds_all_it_needs(facts, frame, data):
    unit = data.draw(st.sampled_from(sorted(facts.units)))
    decided = decide(facts, unit, frame)
    if isinstance(decided, Refusal):
        assert decided.why
        return
    going = {*decided.units}
    assert unit in going
    # Consumers first: one that was killed in between leaves nobody with an input that is older than what he made of it.
    for at, name in enumerate(decided.units):
        others = {*decided.units[at + 1 :]} - {name}
        assert (
            not any(facts.units[other].reads & {*facts.units[name].outputs} for other in others)
            or name in facts.units[name].reads
        )
    for name, each in facts.units.items():
        makes_of_it = any(each.reads & {*facts.units[other].outputs} for other in going)
        assert name in going or not makes_of_it or each.committed < frame
    for name in going:
        each = facts.units[name]
        assert all(last < frame for last in facts.written.get(name, {}).values())
        assert frame - 1 in each.states or frame - 1 == each.begun
        for n in range(frame, each.committed + 1):
            for stream, m in each.needs[n]:
                assert (stream, m) not in facts.unreadable
                assert stream == "source" or m in facts.queued[stream] or (stream in going and m >= frame)


def unit(name, reads, committed=5, **more):
    needs = {n: frozenset((stream, n) for stream in reads) for n in range(1, committed + 1)}
    return UnitFacts((name,), committed, 0, frozenset(reads), needs, frozenset(range(10)), **more)


def test_a_reader_that_can_go_back_goes_back():
    facts = Facts(
        {"a": unit("a", {"s"}), "b": unit("b", {"a"})},
        {"a": frozenset({4, 5}), "b": frozenset({5})},
        {},
        {"b": {"t": 4}},
    )
    assert decide(facts, "a", 5) == Plan(5, ("b", "a"))
    assert decide(facts, "a", 4) == Refusal("seen", "sink t has frames of b up to 4")


def test_a_reader_on_another_host_stands_against_it():
    facts = Facts(
        {"a": unit("a", {"s"}), "b": unit("b", {"a"}, host="h2")}, {"a": frozenset({5}), "b": frozenset()}, {}, {}
    )
    assert decide(facts, "a", 5).kind == "seen"
