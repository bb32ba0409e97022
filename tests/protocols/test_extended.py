"""Extended ecoc: extensions by cost at joins, whole queues on cycles, no circle of waiting."""

import pytest

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointStored,
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
from holdfast.protocols.synchronised import Synchronised
from holdfast.protocols.wiring import InputEdge, OutputEdge, Wiring
from tests.protocols.wirings import FEEDS_BACK, FEEDS_LATE, LAST, LOOP, MIDDLE, SOURCE, SPLIT, e, ids, processed, run_to


def extended(wiring, every=100, restored=Restored(), epoch=1):
    return Extended(wiring, every, epoch, restored)


def test_a_join_answers_by_extension_when_that_is_cheaper():
    """Obeying every request multiplies checkpoints here and in all that is below."""
    join = extended(MIDDLE)
    run_to(join, 4, inputs=(10, 10))
    join.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a")))
    join.handle(processed(5, (10, 10)))
    said = join.handle(RequestArrived(e("b>join"), 1, 7, 5, ids("b")))
    assert said == [SendExtension(e("b>join"), 1, 7, 4, whole=False)]


def test_a_join_checkpoints_anew_when_frames_cost_more():
    """Extension is a matter of bytes, not of habit."""
    join = extended(MIDDLE)
    run_to(join, 4, inputs=(10, 500))
    join.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a")))
    join.handle(processed(5, (10, 500)))
    said = join.handle(RequestArrived(e("b>join"), 1, 7, 5, ids("b")))
    assert PinFrame(2, 5) in said


def test_a_queue_that_fills_up_is_not_answered_by_extension():
    """Only a stored checkpoint of the consumer makes the queue shorter."""
    join = extended(MIDDLE)
    run_to(join, 4, inputs=(10, 10))
    join.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a")))
    join.handle(processed(5, (10, 10)))
    said = join.handle(RequestArrived(e("b>join"), 1, 7, 5, ids("b"), extendable=False))
    assert PinFrame(2, 5) in said
    sensor = extended(SOURCE)
    run_to(sensor, 3)
    (asked,) = [o for o in sensor.handle(CheckpointWanted()) if isinstance(o, SendRequest)]
    assert not asked.extendable


def test_an_extended_checkpoint_holds_all_that_is_not_acknowledged():
    """The consumer's pending checkpoint may die with it; its stored one is older."""
    sensor = extended(SOURCE, every=5)
    run_to(sensor, 5)
    sensor.handle(AckArrived(e("sensor>join"), 2, {}))
    assert sensor.handle(ExtensionArrived(e("sensor>join"), 1, 1, after=4, whole=False)) == []
    assert sensor.handle(AckArrived(e("sensor>join"), 3, {})) == []
    said = sensor.handle(AckArrived(e("sensor>join"), 4, {}))
    assert said == [StoreCheckpoint(1, 5, ((e("sensor>join"), 4),))]


def test_a_request_that_came_round_is_answered_with_the_whole_queue():
    """Waiting for it would be waiting for oneself."""
    sensor = extended(LOOP, every=5)
    run_to(sensor, 5)
    name = next(iter(sensor._pending[0].ids))
    said = sensor.handle(RequestArrived(e("avg>sensor@1"), 1, 3, 5, frozenset({name})))
    assert said == [SendExtension(e("avg>sensor@1"), 1, 3, 0, whole=True)]


def test_who_was_told_not_to_wait_is_told_so_again_and_its_ids_go_no_further():
    """Sent on, an id of another round would make this unit ship its whole queue too, though nobody waits in a circle."""
    sensor = extended(LOOP, every=5)
    run_to(sensor, 5)
    name = next(iter(sensor._pending[0].ids))
    sensor.handle(RequestArrived(e("avg>sensor@1"), 1, 3, 5, frozenset({name})))

    told = [SendExtension(e("avg>sensor@1"), 1, 3, 0, whole=True)]
    assert sensor.handle(RequestArrived(e("avg>sensor@1"), 1, 3, 5, ids("other"))) == told
    assert sensor.handle(RequestArrived(e("avg>sensor@1"), 1, 3, 5, frozenset({name}))) == told
    said = sensor.handle(RequestArrived(e("avg>sensor@1"), 1, 4, 5, ids("another")))
    assert said == [SendRequest(e("sensor>join"), 1, 5, ids("another"), extendable=True)]


def test_a_unit_that_was_asked_within_its_interval_begins_no_round_of_its_own():
    """Two sensors on one cycle would send every unit of it round twice an interval."""
    sensor = Extended(LOOP, 5, 1, Restored(), phase=2)
    run_to(sensor, 5)
    sensor.handle(RequestArrived(e("avg>sensor@1"), 1, 1, 5, ids("other"), extendable=False))
    begun = {n for n in range(6, 14) if any(isinstance(each, PinFrame) for each in sensor.handle(processed(n)))}

    assert begun == {12}, "asked at 5: not at 7, but an interval later if nobody asks again"


def test_requests_that_were_waited_for_go_on_as_one():
    """One after the other, the second would find that the first has been answered, and go round the cycle alone."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 5)
    for serial, name in ((1, "a"), (2, "b")):
        assert avg.handle(RequestArrived(e("join>avg"), 1, serial, 6, ids(name))) == []

    assert avg.handle(processed(6)) == [
        PinFrame(1, 6),
        SendRequest(e("avg>sensor@1"), 1, 6, ids("a") | ids("b"), extendable=True),
    ]


def test_a_broken_cycle_stores_everything_unacknowledged_at_once():
    """With less, a consumer that dies too restarts before the first frame in it."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(AckArrived(e("avg>sensor@1"), 2, {}))
    avg.handle(AckArrived(e("avg>sink avg"), 6, {}))
    avg.handle(RequestArrived(e("join>avg"), 1, 1, 6, ids("sensor")))
    said = avg.handle(ExtensionArrived(e("avg>sensor@1"), 1, 1, after=0, whole=True))
    assert said == [StoreCheckpoint(1, 6, ((e("avg>sensor@1"), 2),))]


def test_feedback_waits_for_what_a_perfect_cut_can_give():
    """At frame m the consumer has read m - 1 of it; the last frame is put in."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(AckArrived(e("avg>sink avg"), 6, {}))
    avg.handle(RequestArrived(e("join>avg"), 1, 1, 6, ids("sensor")))
    assert avg.handle(AckArrived(e("avg>sensor@1"), 4, {})) == []
    said = avg.handle(AckArrived(e("avg>sensor@1"), 5, {}))
    assert said == [StoreCheckpoint(1, 6, ((e("avg>sensor@1"), 5),))]


def test_ids_merged_into_a_pending_checkpoint_travel_on():
    """Else two merged rounds on one cycle wait for each other for ever."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(RequestArrived(e("join>avg"), 1, 1, 6, ids("a")))
    said = avg.handle(RequestArrived(e("join>avg"), 1, 2, 6, ids("b")))
    assert said == [SendRequest(e("avg>sensor@1"), 1, 6, ids("b"), extendable=True)]


def test_a_repeated_request_of_the_same_asker_is_no_cycle():
    """Reconnects repeat requests; extending each time would ship whole queues."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(RequestArrived(e("join>avg"), 1, 1, 6, ids("a")))
    assert avg.handle(RequestArrived(e("join>avg"), 1, 1, 6, ids("a"))) == []


def test_the_same_id_through_a_restarted_asker_counts_as_a_cycle():
    """Its old self may be what the circle went through."""
    avg = extended(FEEDS_BACK)
    run_to(avg, 6)
    avg.handle(RequestArrived(e("join>avg"), 1, 1, 6, ids("a")))
    said = avg.handle(RequestArrived(e("join>avg"), 2, 1, 6, ids("a")))
    assert said == [SendExtension(e("join>avg"), 2, 1, 0, whole=True)]


def test_an_extension_for_another_epoch_is_ignored():
    """It speaks of a pending checkpoint of the instance before."""
    sensor = extended(SOURCE, every=5, epoch=3)
    run_to(sensor, 5)
    assert sensor.handle(ExtensionArrived(e("sensor>join"), 2, 1, after=0, whole=True)) == []
    assert sensor.pending == (5,)


def test_loads_are_united_so_that_a_diamond_counts_once():
    """Adding up along both branches would make extension look cheap."""
    split = extended(SPLIT)
    split.handle(AckArrived(e("split>left"), 0, {"left": 5, "join": 70}))
    split.handle(AckArrived(e("split>right"), 0, {"right": 6, "join": 70}))
    split.handle(processed(1, state=9))
    assert split.loads == {"split": 9, "left": 5, "right": 6, "join": 70}


def test_a_cycle_does_not_feed_its_own_load():
    """What comes back round is this unit's own figure."""
    sensor = extended(LOOP)
    sensor.handle(processed(1, (1, 1), state=9))
    sensor.handle(AckArrived(e("sensor>join"), 0, {"join": 4, "sensor": 1000}))
    assert sensor.loads == {"join": 4, "sensor": 9}


LATE_LOOP = Wiring(
    "sensor",
    (InputEdge(e("log>sensor"), "log", outside=True), InputEdge(e("avg>sensor@2"), "avg", on_cycle=True)),
    (OutputEdge(e("sensor>join"), 0, on_cycle=True),),
)
ENTRY = Wiring(
    "entry",
    (InputEdge(e("a>entry"), "a"), InputEdge(e("back>entry@1"), "back", on_cycle=True)),
    (OutputEdge(e("entry>x"), 0, on_cycle=True), OutputEdge(e("entry>y"), 0, on_cycle=True)),
)


def test_one_name_by_two_ways_is_no_cycle():
    """In a diamond the first asker would be told to ship its whole queue, at every round."""
    join = extended(MIDDLE)
    run_to(join, 4, inputs=(10, 10))
    join.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("source")))
    assert join.handle(RequestArrived(e("b>join"), 1, 1, 4, ids("source"))) == []


def test_a_load_is_the_mean_of_what_was_stored_and_the_state_before_that():
    """Extension or checkpoint is decided by it, here and above."""
    last = extended(LAST)
    assert last.loads == {"avg": 0}
    run_to(last, 2)
    assert last.loads == {"avg": 100}
    for serial, size in ((1, 100), (2, 201)):
        last.handle(AckArrived(e("avg>sink avg"), serial + 1, {}))
        last.handle(processed(serial + 2))
        last.handle(AckArrived(e("avg>sink avg"), serial + 2, {}))
        last.handle(RequestArrived(e("join>avg"), 1, serial, serial + 2, ids(f"r{serial}")))
        said = last.handle(CheckpointStored(serial, size))
        assert serial > 1 or last.loads == {"avg": 100}
    assert said[1].loads == {"avg": 150}


def test_an_ack_that_says_nothing_of_sizes_does_not_make_them_forgotten():
    """A resumed edge acks without them; the next request would be answered as if all below were free."""
    join = extended(MIDDLE)
    join.handle(AckArrived(e("join>avg"), 1, {"avg": 70}))
    join.handle(AckArrived(e("join>avg"), 2, {}))
    assert join.loads == {"join": 0, "avg": 70}


def test_sizes_of_frames_are_kept_until_a_stored_checkpoint_covers_them():
    """Kept for ever they grow; dropped early an extension looks cheaper than it is."""
    sensor = extended(LOOP, every=3)
    for number in range(1, 6):
        sensor.handle(processed(number, (number, 10 * number)))
    sensor.handle(AckArrived(e("sensor>join"), 3, {}))
    sensor.handle(CheckpointStored(1, 9))
    assert sensor._sizes == {e("log>sensor"): {4: 4, 5: 5}, e("avg>sensor@1"): {3: 40, 4: 50}}


def cost(sizes, request=5, processed_upto=5):
    """A join with a pending checkpoint at 4 and a state of 100 bytes is asked through b; its frames there had these sizes."""
    join = extended(MIDDLE)
    for number in range(1, 5):
        join.handle(processed(number, (10, sizes[number - 1])))
    join.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a")))
    for number in range(5, processed_upto + 1):
        join.handle(processed(number, (10, sizes[number - 1])))
    return join.handle(RequestArrived(e("b>join"), 1, 7, request, ids("b")))


def test_an_extension_costs_the_frames_behind_the_older_checkpoint_up_to_the_one_asked_for():
    """One frame too many or too few, and the dearer way is taken."""
    by_extension = [SendExtension(e("b>join"), 1, 7, 4, whole=False)]
    assert cost((500, 500, 500, 500, 99)) == by_extension
    assert PinFrame(2, 5) in cost((0, 0, 0, 0, 100))
    assert cost((0, 0, 0, 0, 99, 500), request=5, processed_upto=6) == by_extension
    assert PinFrame(2, 6) in cost((0, 0, 0, 0, 50, 50), request=6, processed_upto=6)


def test_frames_of_unknown_size_cost_nothing():
    """After a restart sizes are not known; a made-up one would decide."""

    def restarted():
        return extended(MIDDLE, restored=Restored(6, 2, ((e("join>avg"), 2),), pinned=((1, 4),)), epoch=2)

    request = RequestArrived(e("b>join"), 1, 7, 6, ids("b"))
    assert PinFrame(2, 6) in restarted().handle(request)
    known = restarted()
    known.handle(AckArrived(e("join>avg"), 3, {"avg": 1}))
    assert known.handle(request) == [SendExtension(e("b>join"), 1, 7, 4, whole=False)]


def test_a_request_for_a_stored_frame_is_answered_with_an_ack_by_extended_and_two_phase_units_too():
    """The asker may have lost the ack, and would wait for ever."""
    for machine in (Extended, Synchronised):
        join = machine(MIDDLE, 100, 1, Restored(6, 6))
        for frame in (5, 6):
            (ack,) = join.handle(RequestArrived(e("a>join"), 1, 9, frame, ids("a")))
            assert (ack.edge, ack.frame) == (e("a>join"), 6)


def test_a_checkpoint_on_its_way_answers_requests_up_to_its_frame():
    """A second one at the same frame would be stored for nothing; for a later frame it is needed."""
    last = extended(LAST)
    run_to(last, 3)
    last.handle(AckArrived(e("avg>sink avg"), 3, {}))
    last.handle(RequestArrived(e("join>avg"), 1, 1, 3, ids("a")))
    assert last.handle(RequestArrived(e("join>avg"), 1, 2, 3, ids("b"))) == []
    assert last.handle(RequestArrived(e("join>avg"), 1, 2, 2, ids("b"))) == []
    last.handle(processed(4))
    assert last.handle(RequestArrived(e("join>avg"), 1, 3, 4, ids("c")))[0] == PinFrame(2, 4)


def test_an_extension_reaches_back_to_the_newest_pending_checkpoint():
    """To the oldest it would carry frames that the newer one covers."""
    join = extended(MIDDLE)
    for number in (3, 4):
        join.handle(processed(number, (10, 200)))
        join.handle(RequestArrived(e("a>join"), 1, number, number, ids(f"a{number}"), extendable=False))
    join.handle(processed(5, (10, 10)))
    said = join.handle(RequestArrived(e("b>join"), 1, 7, 5, ids("b")))
    assert said == [SendExtension(e("b>join"), 1, 7, 4, whole=False)]


def test_over_feedback_an_extension_counts_its_frames_one_delay_earlier():
    """At frame m the unit has read m - delay of that edge."""
    sensor = extended(LOOP, every=4)
    for number in range(1, 7):
        sensor.handle(processed(number, (10, 500 if number == 6 else 10)))
    request = RequestArrived(e("avg>sensor@1"), 1, 9, 5, ids("x"))
    assert sensor.handle(request) == [
        SendExtension(e("avg>sensor@1"), 1, 9, 3, whole=False),
        SendRequest(e("sensor>join"), 1, 4, ids("x"), True),
    ]
    # Asked again it answers again; the name has travelled on and does so once.
    assert sensor.handle(request) == [SendExtension(e("avg>sensor@1"), 1, 9, 3, whole=False)]


def test_an_extension_never_reaches_below_the_first_frame():
    """Before its first frame a feedback edge has delivered nothing."""
    sensor = extended(LATE_LOOP, every=1)
    sensor.handle(processed(1, (10, 0)))
    sensor._every = 100
    sensor.handle(processed(2, (10, 0)))
    said = sensor.handle(RequestArrived(e("avg>sensor@2"), 1, 9, 2, ids("x")))
    assert said[0] == SendExtension(e("avg>sensor@2"), 1, 9, 0, whole=False)


@pytest.mark.parametrize(("stored", "acked"), [(1, 0), (2, 0), (5, 3)])
def test_feedback_is_acked_one_delay_earlier_and_never_below_zero(stored, acked):
    """What lies between was sealed and not yet read."""
    sensor = extended(LATE_LOOP, restored=Restored(stored, stored))
    (ack,) = sensor.handle(RequestArrived(e("avg>sensor@2"), 1, 9, stored, ids("x")))
    assert (ack.edge, ack.frame) == (e("avg>sensor@2"), acked)


def test_names_from_outside_a_cycle_go_no_further_than_the_checkpoint_that_answers_them():
    """They cannot come round; sent on they would be merged and sent on by every unit of the cycle."""
    entry = extended(ENTRY)
    run_to(entry, 4, inputs=(10, 10))
    entry.handle(RequestArrived(e("a>entry"), 1, 1, 4, ids("one")))
    assert entry.handle(RequestArrived(e("a>entry"), 1, 2, 4, ids("two"))) == []


def test_a_name_goes_on_only_over_edges_that_are_waited_for():
    """Over the others nobody waits, so nobody can wait in a circle."""
    entry = extended(ENTRY)
    run_to(entry, 4, inputs=(10, 10))
    entry.handle(RequestArrived(e("a>entry"), 1, 1, 4, ids("one")))
    entry.handle(AckArrived(e("entry>x"), 4, {}))
    said = entry.handle(RequestArrived(e("back>entry@1"), 1, 5, 4, ids("two")))
    assert [o.edge for o in said] == [e("entry>y")]


def test_an_extension_is_for_the_checkpoint_it_names():
    """Another one would become permanent without the acks it needs."""
    sensor = extended(SOURCE, every=4)
    run_to(sensor, 8)
    said = sensor.handle(ExtensionArrived(e("sensor>join"), 1, 2, 0, whole=True))
    assert [o for o in said if isinstance(o, StoreCheckpoint)] == [StoreCheckpoint(2, 8, ((e("sensor>join"), 0),))]


def test_who_need_not_wait_is_not_made_to_wait_by_a_later_answer():
    """The consumer that said so waits itself, in a circle."""
    split = extended(SPLIT)
    run_to(split, 5)
    split.handle(RequestArrived(e("a>split"), 1, 1, 5, ids("a")))
    split.handle(ExtensionArrived(e("split>left"), 1, 1, 4, whole=True))
    split.handle(ExtensionArrived(e("split>left"), 1, 1, 4, whole=False))
    said = split.handle(AckArrived(e("split>right"), 5, {}))
    assert said == [StoreCheckpoint(1, 5, ((e("split>left"), 0),))]


def test_of_two_extensions_the_lower_ack_is_enough():
    """The frames behind it go in anyway; the first consumer's checkpoint is the older."""
    sensor = extended(SOURCE, every=5)
    run_to(sensor, 5)
    sensor.handle(ExtensionArrived(e("sensor>join"), 1, 1, 2, whole=False))
    sensor.handle(ExtensionArrived(e("sensor>join"), 1, 1, 4, whole=False))
    said = sensor.handle(AckArrived(e("sensor>join"), 2, {}))
    assert said == [StoreCheckpoint(1, 5, ((e("sensor>join"), 2),))]


def test_an_extended_unit_waits_for_a_late_consumer_until_it_processed_the_frame():
    """Its ack of 5 comes with frame 7, which a producer at its bound never sends."""
    join = extended(FEEDS_LATE)
    run_to(join, 5)
    join.handle(RequestArrived(e("a>join"), 1, 1, 5, ids("a")))
    assert join.handle(AckArrived(e("join>avg"), 2, {})) == []
    assert join.handle(AckArrived(e("join>avg"), 3, {}))[-1] == StoreCheckpoint(1, 5, ((e("join>avg"), 3),))
