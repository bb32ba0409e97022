"""Extended ecoc: extensions by cost at joins, whole queues on cycles, no circle of waiting."""

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointWanted,
    ExtensionArrived,
    PinFrame,
    RequestArrived,
    Restored,
    SendExtension,
    SendRequest,
    StoreCheckpoint,
)
from holdfast.protocols.extended import Extended
from tests.protocols.wirings import (
    FEEDS_BACK,
    LOOP,
    MIDDLE,
    SOURCE,
    SPLIT,
    ids,
    processed,
    run_to,
)


def extended(wiring, every=100, restored=Restored(), epoch=1):
    return Extended(wiring, every, epoch, restored)


def test_a_join_answers_by_extension_when_that_is_cheaper():
    """Obeying every request multiplies checkpoints here and in all that is below."""
    join = extended(MIDDLE)
    run_to(join, 4, inputs=(10, 10))
    join.handle(RequestArrived("a>join", 1, 1, 4, ids("a")))
    join.handle(processed(5, (10, 10)))
    said = join.handle(RequestArrived("b>join", 1, 7, 5, ids("b")))
    assert said == [SendExtension("b>join", 1, 7, 4, whole=False)]


def test_a_join_checkpoints_anew_when_frames_cost_more():
    """Extension is a matter of bytes, not of habit."""
    join = extended(MIDDLE)
    run_to(join, 4, inputs=(10, 500))
    join.handle(RequestArrived("a>join", 1, 1, 4, ids("a")))
    join.handle(processed(5, (10, 500)))
    said = join.handle(RequestArrived("b>join", 1, 7, 5, ids("b")))
    assert PinFrame(2, 5) in said


def test_a_queue_that_fills_up_is_not_answered_by_extension():
    """Only a stored checkpoint of the consumer makes the queue shorter."""
    join = extended(MIDDLE)
    run_to(join, 4, inputs=(10, 10))
    join.handle(RequestArrived("a>join", 1, 1, 4, ids("a")))
    join.handle(processed(5, (10, 10)))
    said = join.handle(RequestArrived("b>join", 1, 7, 5, ids("b"), extendable=False))
    assert PinFrame(2, 5) in said
    asked = [o for o in extended(SOURCE).handle(CheckpointWanted()) if isinstance(o, SendRequest)]
    assert all(not request.extendable for request in asked)


def test_an_extended_checkpoint_holds_all_that_is_not_acknowledged():
    """The consumer's pending checkpoint may die with it; its stored one is older."""
    sensor = extended(SOURCE, every=5)
    run_to(sensor, 5)
    sensor.handle(AckArrived("sensor>join", 2, {}))
    assert sensor.handle(ExtensionArrived("sensor>join", 1, 1, after=4, whole=False)) == []
    assert sensor.handle(AckArrived("sensor>join", 3, {})) == []
    said = sensor.handle(AckArrived("sensor>join", 4, {}))
    assert said == [StoreCheckpoint(1, 5, (("sensor>join", 4),))]


def test_a_request_that_came_round_is_answered_with_the_whole_queue():
    """Waiting for it would be waiting for oneself."""
    sensor = extended(LOOP, every=5)
    run_to(sensor, 5)
    name = next(iter(sensor._pending[0].ids))
    said = sensor.handle(RequestArrived("avg>sensor", 1, 3, 5, frozenset({name})))
    assert said == [SendExtension("avg>sensor", 1, 3, 0, whole=True)]


def test_who_was_told_not_to_wait_is_told_so_again_and_its_ids_go_no_further():
    """Sent on, an id of another round would make this unit ship its whole queue too, though nobody waits in a circle."""
    sensor = extended(LOOP, every=5)
    run_to(sensor, 5)
    name = next(iter(sensor._pending[0].ids))
    sensor.handle(RequestArrived("avg>sensor", 1, 3, 5, frozenset({name})))

    told = [SendExtension("avg>sensor", 1, 3, 0, whole=True)]
    assert sensor.handle(RequestArrived("avg>sensor", 1, 3, 5, ids("other"))) == told
    assert sensor.handle(RequestArrived("avg>sensor", 1, 3, 5, frozenset({name}))) == told
    said = sensor.handle(RequestArrived("avg>sensor", 1, 4, 5, ids("another")))
    assert said == [SendRequest("sensor>join", 1, 5, ids("another"), extendable=True)]


def test_a_unit_that_was_asked_within_its_interval_begins_no_round_of_its_own():
    """Two sensors on one cycle would send every unit of it round twice an interval."""
    sensor = Extended(LOOP, 5, 1, Restored(), phase=2)
    run_to(sensor, 5)
    sensor.handle(RequestArrived("avg>sensor", 1, 1, 5, ids("other"), extendable=False))
    begun = {n for n in range(6, 14) if any(isinstance(each, PinFrame) for each in sensor.handle(processed(n)))}

    assert begun == {12}, "asked at 5: not at 7, but an interval later if nobody asks again"


def test_requests_that_were_waited_for_go_on_as_one():
    """One after the other, the second would find that the first has been answered, and go round the cycle alone."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 5)
    for serial, name in ((1, "a"), (2, "b")):
        assert avg.handle(RequestArrived("join>avg", 1, serial, 6, ids(name))) == []

    assert avg.handle(processed(6)) == [
        PinFrame(1, 6),
        SendRequest("avg>sensor", 1, 6, ids("a") | ids("b"), extendable=True),
    ]


def test_a_broken_cycle_stores_everything_unacknowledged_at_once():
    """With less, a consumer that dies too restarts before the first frame in it."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(AckArrived("avg>sensor", 2, {}))
    avg.handle(AckArrived("avg>sink", 6, {}))
    avg.handle(RequestArrived("join>avg", 1, 1, 6, ids("sensor")))
    said = avg.handle(ExtensionArrived("avg>sensor", 1, 1, after=0, whole=True))
    assert said == [StoreCheckpoint(1, 6, (("avg>sensor", 2),))]


def test_feedback_waits_for_what_a_perfect_cut_can_give():
    """At frame m the consumer has read m - 1 of it; the last frame is put in."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(AckArrived("avg>sink", 6, {}))
    avg.handle(RequestArrived("join>avg", 1, 1, 6, ids("sensor")))
    assert avg.handle(AckArrived("avg>sensor", 4, {})) == []
    said = avg.handle(AckArrived("avg>sensor", 5, {}))
    assert said == [StoreCheckpoint(1, 6, (("avg>sensor", 5),))]


def test_ids_merged_into_a_pending_checkpoint_travel_on():
    """Else two merged rounds on one cycle wait for each other for ever."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(RequestArrived("join>avg", 1, 1, 6, ids("a")))
    said = avg.handle(RequestArrived("join>avg", 1, 2, 6, ids("b")))
    assert said == [SendRequest("avg>sensor", 1, 6, ids("b"), extendable=True)]


def test_a_repeated_request_of_the_same_asker_is_no_cycle():
    """Reconnects repeat requests; extending each time would ship whole queues."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(RequestArrived("join>avg", 1, 1, 6, ids("a")))
    assert avg.handle(RequestArrived("join>avg", 1, 1, 6, ids("a"))) == []


def test_the_same_id_through_a_restarted_asker_counts_as_a_cycle():
    """Its old self may be what the circle went through."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(RequestArrived("join>avg", 1, 1, 6, ids("a")))
    said = avg.handle(RequestArrived("join>avg", 2, 1, 6, ids("a")))
    assert said == [SendExtension("join>avg", 2, 1, 0, whole=True)]


def test_an_extension_for_another_epoch_is_ignored():
    """It speaks of a pending checkpoint of the instance before."""
    sensor = extended(SOURCE, every=5, epoch=3)
    run_to(sensor, 5)
    assert sensor.handle(ExtensionArrived("sensor>join", 2, 1, after=0, whole=True)) == []
    assert sensor.pending == (5,)


def test_loads_are_united_so_that_a_diamond_counts_once():
    """Adding up along both branches would make extension look cheap."""
    split = extended(SPLIT)
    split.handle(AckArrived("split>left", 0, {"left": 5, "join": 70}))
    split.handle(AckArrived("split>right", 0, {"right": 6, "join": 70}))
    split.handle(processed(1, state=9))
    assert split.loads == {"split": 9, "left": 5, "right": 6, "join": 70}


def test_a_cycle_does_not_feed_its_own_load():
    """What comes back round is this unit's own figure."""
    sensor = extended(LOOP)
    sensor.handle(processed(1, (1, 1), state=9))
    sensor.handle(AckArrived("sensor>join", 0, {"join": 4, "sensor": 1000}))
    assert sensor.loads == {"join": 4, "sensor": 9}
