"""Levels of reliability: what is measured, how it is judged, and which levels include which."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.graph.promises import in_order, in_order_across, loses, lossless, within
from holdfast.levels.arrivals import Arrival, Output
from holdfast.levels.judging import is_broken, judge, show_frames
from holdfast.levels.measuring import measure, out_of_order

SECOND = 1_000_000


def arrival(n: int, rows: str, at_s: float | None = None) -> Arrival:
    """Payloads are letters; a frame is due at the second of its number."""
    return Arrival(n, len(rows), rows, lambda: rows, None if at_s is None else round(at_s * SECOND), n * SECOND)


def output(name: str, *arrivals: Arrival, again: tuple[int, ...] = ()) -> Output:
    return Output(name, arrivals, again)


IDEAL = output("alarms", arrival(1, "ab", 1), arrival(2, "", 2), arrival(3, "ccd", 3))


def states(promises: list, ideal: Output, *real: Output) -> dict[str, str]:
    return {verdict.what: verdict.state for verdict in judge(promises, measure([ideal], real)[0])}


def test_the_ideal_run_keeps_every_promise():
    """Lemma 5.10: the levels have a common intersection."""
    promises = [lossless, within("0 ms"), in_order, in_order_across("pulse")]
    pulse = output("pulse", arrival(1, "x", 1), arrival(2, "y", 2), arrival(3, "z", 3))

    assert set(states(promises, IDEAL, IDEAL, pulse).values()) == {"kept"}


def test_elements_are_lost_wrong_or_twice_by_payload_and_frame():
    real = output("alarms", arrival(1, "ax"), arrival(2, "d"), arrival(3, "cccd"))
    found = measure([IDEAL], [real])[0]

    assert (found.lost, found.wrong, found.duplicates) == ({1: 1}, {1: 1, 2: 1}, {3: 1})
    assert found.lost_share == pytest.approx(1 / 5)
    assert found.wrong_share == pytest.approx(3 / 5)


def test_a_frame_that_is_in_the_sink_twice_is_all_duplicates():
    real = output("alarms", *IDEAL.arrivals, arrival(3, "ccd"))

    assert measure([IDEAL], [real])[0].duplicates == {3: 3}
    assert states([lossless], IDEAL, real)["duplicates"] == "BROKEN"


def test_a_frame_that_came_again_and_was_left_out_breaks_nothing():
    real = output("alarms", *IDEAL.arrivals, again=(3,))
    verdict = judge([lossless], measure([IDEAL], [real])[0])[2]

    assert (verdict.state, verdict.measured) == ("kept", "0 (frame 3 came again, written once)")


def test_an_empty_frame_that_never_came_is_not_lossless():
    """No element is missing, but the consumer never learns that nothing happened."""
    real = output("alarms", IDEAL.arrivals[0], IDEAL.arrivals[2])

    assert states([lossless], IDEAL, real)["lost"] == "BROKEN"
    assert states([loses(at_most=0.1)], IDEAL, real)["lost"] == "kept"


def test_an_output_that_gave_nothing_has_lost_everything():
    assert sum(measure([IDEAL], [])[0].lost.values()) == 5
    assert states([lossless], IDEAL)["lost"] == "BROKEN"


def test_delay_is_judged_by_the_latest_frame_and_names_those_that_were_late():
    real = output("alarms", arrival(1, "ab", 1.5), arrival(2, "", 9), arrival(3, "ccd", 9.5))
    found = measure([IDEAL], [real])[0]
    verdict = judge([within("5 seconds")], found)[3]

    assert (found.delay_ms_max, found.delay_ms_p99) == (7000, 7000)
    assert (verdict.words, verdict.measured) == ("BROKEN, frames 2-3", "max 7.0 s, p99 7.0 s")


def test_the_99th_percentile_leaves_one_in_a_hundred_out():
    ideal = output("o", *(arrival(n, "a", n) for n in range(1, 201)))
    real = output("o", *(arrival(n, "a", n + (60 if n in (7, 8) else 0.1)) for n in range(1, 201)))
    found = measure([ideal], [real])[0]

    assert (found.delay_ms_max, found.delay_ms_p99) == (60_000, pytest.approx(100))


def test_without_times_a_delay_is_not_measured_and_not_kept():
    assert states([within("5 seconds")], IDEAL, output("alarms", arrival(1, "ab")))["delay"] == "not measured"


def test_out_of_order_is_the_frame_that_came_too_late():
    assert out_of_order([output("o", arrival(1, "a", 3), arrival(2, "b", 2), arrival(3, "c", 3))]) == (1,)


def test_order_across_outputs_compares_numbers_of_both():
    pulse = output("pulse", arrival(1, "x", 4), arrival(2, "y", 5), arrival(3, "z", 6))

    found = states([in_order, in_order_across("pulse")], IDEAL, IDEAL, pulse)
    assert (found["order"], found["order across"]) == ("kept", "BROKEN")


def test_frames_are_named_briefly():
    assert show_frames([41, 40, 43]) == "frames 40-41, 43"
    assert show_frames([7]) == "frame 7"
    assert show_frames(range(1, 100, 2)).endswith("9 and 45 more")


# ---- inclusions and independences (lemmas 5.11 to 5.13) ----

LETTERS = st.text("abc", max_size=4).map(lambda text: "".join(sorted(text)))
FRAMES = st.integers(1, 6)
TIMES = st.integers(0, 12)


@st.composite
def runs(draw) -> tuple[list[Output], list[Output]]:
    """Two outputs, ideal and real: frames missing, changed, twice, late, early; often as they should be."""
    ideal, real = [], []
    for name in ("a", "b"):
        frames = {n: draw(LETTERS) for n in range(1, 1 + draw(FRAMES))}
        ideal.append(output(name, *(arrival(n, rows, n) for n, rows in frames.items())))
        come = []
        for n, rows in frames.items():
            for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2]))):
                rows = draw(st.sampled_from([rows, rows, None])) or draw(LETTERS)
                come.append(arrival(n, rows, draw(st.one_of(st.just(n), TIMES))))
        real.append(output(name, *come))
    return ideal, real


def keeps(promise, runs, of: int = 0) -> bool:
    ideal, real = runs
    return not is_broken(judge([promise], measure(ideal, real)[of]))


SHARES = st.floats(0, 0.99)


@given(runs(), SHARES, st.floats(0, 5))
def test_lossless_is_in_every_limited_loss(found, lost, wrong):
    assert not keeps(lossless, found) or keeps(loses(at_most=lost, wrong_at_most=wrong), found)


@given(runs(), SHARES, SHARES, st.floats(0, 5))
def test_who_may_lose_more_keeps_what_a_stricter_one_keeps(found, one, other, wrong):
    strict, loose = sorted((one, other))
    stricter = loses(at_most=strict, wrong_at_most=wrong)
    assert not keeps(stricter, found) or keeps(loses(at_most=loose, wrong_at_most=wrong), found)


@given(runs(), st.integers(0, 12_000))
def test_delay_free_is_in_every_limited_delay(found, ms):
    assert not keeps(within("0 ms"), found) or keeps(within(f"{ms} ms"), found)


@given(runs())
def test_order_across_outputs_is_in_order_within_each(found):
    if keeps(in_order_across("b"), found):
        assert keeps(in_order, found, of=0)
        assert keeps(in_order, found, of=1)


@given(runs())
def test_delay_free_outputs_are_in_order_within_and_across(found):
    """Order can only be disturbed by extra delay. Frames that come early are outside the definition."""
    ideal, real = found
    exact = all(each.at_us == each.due_us for one in real for each in one.arrivals)
    if exact:
        assert keeps(within("0 ms"), found) and keeps(in_order_across("b"), found)


@given(runs())
def test_elements_are_counted_once_each(found):
    """ideal - lost + wrong + duplicates is what the sink holds, whatever happened."""
    ideal, real = found
    for measured, one in zip(measure(ideal, real), real, strict=True):
        count = measured.elements - sum(measured.lost.values())
        count += sum(measured.wrong.values()) + sum(measured.duplicates.values())
        assert count == sum(each.rows for each in one.arrivals)


LOSS, DELAY, ORDER = lossless, within("1 second"), in_order
WHOLE = (arrival(1, "ab", 1), arrival(2, "", 2), arrival(3, "ccd", 3))
LOSSY = (arrival(1, "a", 1), arrival(2, "", 2), arrival(3, "ccd", 3))
LATE = (arrival(1, "ab", 8), arrival(2, "", 8), arrival(3, "ccd", 9))
MIXED = (arrival(1, "ab", 1.9), arrival(2, "", 2.5), arrival(3, "ccd", 2.4))
MIXED_LATE = (arrival(1, "ab", 9), arrival(2, "", 8), arrival(3, "ccd", 7))


@pytest.mark.parametrize(
    ("holds", "fails", "frames"),
    [
        (LOSS, DELAY, LATE),
        (LOSS, ORDER, MIXED),
        (DELAY, LOSS, LOSSY),
        (DELAY, ORDER, MIXED),
        (ORDER, LOSS, LOSSY),
        (ORDER, DELAY, LATE),
        (LOSS, ORDER, MIXED_LATE),
    ],
)
def test_loss_delay_and_order_are_independent(holds, fails, frames):
    """Lemma 5.12: none of the three is in another; every one of the six is shown by a run."""
    found = ([IDEAL], [output("alarms", *frames)])

    assert keeps(holds, found)
    assert not keeps(fails, found)


@pytest.mark.parametrize(("kept", "frames"), [(True, WHOLE), (False, LOSSY)])
def test_delay_free_says_nothing_about_loss(kept, frames):
    found = ([IDEAL], [output("alarms", *frames)])

    assert keeps(within("0 ms"), found)
    assert keeps(lossless, found) is kept


def test_what_the_run_marked_counts_as_wrong_and_what_it_did_not_is_named():
    marked = Arrival(3, 3, "ccd", lambda: "ccd", mark="tainted")
    gone = Arrival(2, 0, "", lambda: "", is_lost=True)
    real = output("alarms", arrival(1, "ax"), gone, marked)
    found = measure([IDEAL], [real])[0]

    assert (found.tainted, found.tainted_share, found.unmarked) == ({3: 3}, pytest.approx(3 / 5), (1,))
    assert states([loses(at_most=0.5, wrong_at_most=0.7)], IDEAL, real)["tainted"] == "kept"
    assert states([loses(at_most=0.5, wrong_at_most=0.5)], IDEAL, real)["tainted"] == "BROKEN"
    right = output("alarms", *IDEAL.arrivals[:2], marked)
    assert states([lossless], IDEAL, right)["tainted"] == "BROKEN", "nobody may say that it is right"
    assert "tainted" not in states([lossless], IDEAL, IDEAL)
