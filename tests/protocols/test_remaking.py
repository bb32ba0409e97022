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


def facts(queued=None, unreadable=None, written=None, **units):
    return Facts(units, queued or {}, unreadable or {}, written or {})


def made(name="a", committed=5, begun=0, reads=("source",), states=range(9), **more):
    """A unit that made each frame from the frames of the same number."""
    needs = {n: frozenset((stream, n) for stream in reads) for n in range(1, committed + 1)}
    return UnitFacts(
        (name,), committed, begun, frozenset(reads), **{"needs": needs, "states": frozenset(states), **more}
    )


def why(found):
    return (found.kind, found.why) if isinstance(found, Refusal) else found


def test_a_frame_is_sealed_if_it_is_committed_or_queued():
    """A frame that died between seal and commit is there for consumers; one that is nowhere cannot be made again."""
    assert decide(facts(a=made()), "a", 5) == Plan(5, ("a",))
    assert decide(facts(a=made(), queued={"a": frozenset({3, 6})}), "a", 6) == Plan(6, ("a",))
    refused = ("not sealed", "unit a has sealed up to frame 5")
    assert why(decide(facts(a=made()), "a", 6)) == refused
    assert why(decide(facts(a=made(), queued={"a": frozenset({3})}), "a", 6)) == refused


def test_all_that_made_something_of_the_frame_go_back_consumers_first_and_once():
    """Who has not reached it stays where it is; a producer that goes first would be read before it is ready."""
    queued = {"a": frozenset(range(1, 6)), "b": frozenset(range(1, 6)), "c": frozenset(range(1, 6))}
    world = facts(
        queued, a=made(), b=made("b", reads=("a",)), c=made("c", reads=("a", "b")), d=made("d", 4, reads=("b",))
    )
    assert decide(world, "a", 5) == Plan(5, ("c", "b", "a"))
    assert decide(world, "c", 5) == Plan(5, ("c",))


def test_a_frame_that_left_the_unit_is_seen():
    """Another host or a sink has it, and would not learn of a second one."""
    moved = decide(facts(a=made(host="edge")), "a", 5)
    assert why(moved) == ("seen", "unit a is on host edge: its frames and checkpoints were handed to other hosts")
    assert why(decide(facts(a=made(), written={"a": {"out": 5}}), "a", 5)) == (
        "seen",
        "sink out has frames of a up to 5",
    )
    assert decide(facts(a=made(), written={"a": {"out": 4}}), "a", 5) == Plan(5, ("a",))


def test_a_unit_goes_back_only_to_a_state_it_still_has():
    """From another one it would make other frames."""
    assert decide(facts(a=made(has_spark_state=True)), "a", 5).kind == "state"
    began = facts(a=made(begun=3, states=()))
    assert why(decide(began, "a", 3)) == ("state", "unit a began after frame 3: what was before it is not its own")
    assert decide(began, "a", 4) == Plan(4, ("a",))
    assert why(decide(began, "a", 5)) == ("state", "the state of unit a after frame 4 is no longer kept")


def test_a_unit_goes_back_only_if_its_journal_says_what_the_frames_were_made_of():
    """Up to the last one it committed, and no frame before the one asked for."""
    whole = made().needs
    assert decide(facts(a=made(needs={n: whole[n] for n in (4, 5)})), "a", 4) == Plan(4, ("a",))
    for gone in (4, 5):
        found = decide(facts(a=made(needs={n: whole[n] for n in whole if n != gone})), "a", 4)
        assert why(found) == ("inputs", f"the journal of unit a no longer says what frame {gone} was made of")


def test_every_input_is_queued_or_readable_or_made_again():
    """Half of the frames made again would be worse than none."""
    gone = facts(a=made(), unreadable={("source", 5): "trimmed"})
    assert why(decide(gone, "a", 4)) == ("inputs", "frame 5 of unit a needs frame 5 of source source: trimmed")
    assert decide(facts(a=made(), unreadable={("source", 3): "trimmed"}), "a", 4) == Plan(4, ("a",))

    def below(held, b=None):
        return facts({"a": frozenset(held), "b": frozenset()}, a=made(), b=b or made("b", reads=("a",)))

    assert decide(below({4, 5}), "b", 4) == Plan(4, ("b",))
    lacks = "frame 4 of unit b needs frame 4 of a, which is no longer queued"
    assert why(decide(below({5}), "b", 4)) == ("inputs", lacks)
    # Made again it is there when it is needed; what lies before the first of them is not made again.
    assert decide(below(()), "a", 4) == Plan(4, ("b", "a"))
    late = made("b", reads=("a",), needs={n: frozenset({("a", n - 1)}) for n in range(2, 6)})
    assert decide(below({3}, late), "a", 4) == Plan(4, ("b", "a"))
    lacks = "frame 4 of unit b needs frame 3 of a, which is no longer queued"
    assert why(decide(below((), late), "a", 4)) == ("inputs", lacks)
