"""Uncoordinated: state and queue together, acked when stored."""

import pytest

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
    DrawInterval,
    EdgeResumed,
    FrameProcessed,
    FramesSkipped,
    IntervalDrawn,
    PinFrame,
    RequestArrived,
    Restored,
    SendAck,
    SendRequest,
    StoreCheckpoint,
    UnpinFrame,
)
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.uncoordinated import Uncoordinated
from holdfast.protocols.wiring import InputEdge, Wiring
from tests.protocols.wirings import FEEDS_BACK, LOOP, MIDDLE, SOURCE, SPLIT, e, processed, run_to


def uncoordinated(wiring, every=4, restored=Restored()):
    return Uncoordinated(wiring, every, 1, restored)


def test_the_interval_lies_between_half_and_one_and_a_half():
    """Units that fall into step by accident would all ship at once."""
    assert uncoordinated(MIDDLE, every=4).start() == [DrawInterval(2, 6)]
    assert uncoordinated(MIDDLE, every=1).start() == [DrawInterval(1, 1)]


def test_the_checkpoint_holds_the_unacknowledged_queue():
    """The consumer's stored checkpoint may be older than this one."""
    unit = uncoordinated(MIDDLE)
    unit.handle(IntervalDrawn(5))
    unit.handle(AckArrived(e("join>avg"), 3, {}))
    said = run_to(unit, 5)
    assert said == [
        PinFrame(1, 5),
        StoreCheckpoint(1, 5, ((e("join>avg"), 3),)),
        DrawInterval(2, 6),
    ]


def test_upstream_is_acked_only_after_the_checkpoint_is_stored():
    """A backup host that dies while storing must not cost upstream its copy."""
    unit = uncoordinated(MIDDLE)
    run_to(unit, 5)
    assert not [o for o in unit.handle(CheckpointWanted()) if isinstance(o, SendAck)]
    said = unit.handle(CheckpointStored(1, 50))
    assert said[0] == UnpinFrame(1)
    assert {(o.edge, o.frame) for o in said[1:]} == {(e("a>join"), 5), (e("b>join"), 5)}


def test_feedback_is_acked_one_delay_earlier():
    """Having processed m, the unit has read m - 1 of it; m it will read again."""
    unit = uncoordinated(LOOP)
    run_to(unit, 5)
    unit.handle(CheckpointWanted())
    acks = {o.edge: o.frame for o in unit.handle(CheckpointStored(1, 9)) if isinstance(o, SendAck)}
    assert acks == {e("log>sensor"): 5, e("avg>sensor@1"): 4}


def test_a_full_queue_asks_the_consumers():
    """The producer's own checkpoint does not make its queue shorter."""
    unit = uncoordinated(SOURCE)
    run_to(unit, 3)
    request = SendRequest(e("sensor>join"), 0, 3, frozenset(), extendable=False)
    assert request in unit.handle(CheckpointWanted())
    assert unit.asking
    assert unit.handle(EdgeResumed(e("sensor>join"))) == [request]
    unit.handle(AckArrived(e("sensor>join"), 3, {}))
    assert not unit.asking
    assert unit.handle(EdgeResumed(e("sensor>join"))) == []


def test_feedback_can_be_satisfied_at_the_end_of_a_stream():
    """No consumer ever reads the last frames of a feedback edge."""
    unit = uncoordinated(FEEDS_BACK)
    run_to(unit, 3)
    unit.handle(CheckpointWanted())
    unit.handle(AckArrived(e("avg>sink avg"), 3, {}))
    unit.handle(AckArrived(e("avg>sensor@1"), 2, {}))
    assert not unit.asking


def test_a_request_is_served_at_once_or_when_its_frame_is_here():
    """A coordinated neighbour waits for the ack."""
    unit = uncoordinated(MIDDLE)
    run_to(unit, 2)
    assert unit.handle(RequestArrived(e("a>join"), 1, 1, 3, frozenset())) == []
    said = run_to(uncoordinated(MIDDLE), 3)
    assert said == []
    assert PinFrame(1, 2) in unit.handle(RequestArrived(e("a>join"), 1, 1, 2, frozenset()))


def test_one_checkpoint_is_on_its_way_at_a_time():
    """A newer one is taken when the older is stored."""
    unit = uncoordinated(MIDDLE)
    run_to(unit, 2)
    unit.handle(CheckpointWanted())
    run_to(unit, 4)
    assert not [o for o in unit.handle(CheckpointWanted()) if isinstance(o, StoreCheckpoint)]
    said = unit.handle(CheckpointStored(1, 9))
    assert [o.frame for o in said if isinstance(o, StoreCheckpoint)] == [4]


def test_a_stored_checkpoint_that_was_not_sent_stops_the_unit():
    """Acking on a stranger's word would let upstream drop what nobody holds."""
    with pytest.raises(BrokenInvariant):
        uncoordinated(MIDDLE).handle(CheckpointStored(3, 9))


def test_a_checkpoint_that_was_on_its_way_is_not_taken_up_again():
    """The next one is newer; its pin must not stay for ever, nor its serial be used twice."""
    unit = uncoordinated(MIDDLE, restored=Restored(5, pinned=((3, 4),)))
    assert unit.start() == [UnpinFrame(3), DrawInterval(2, 6)]
    assert unit.handle(CheckpointWanted())[1] == PinFrame(4, 5)


def stores(said):
    return [(o.frame, dict(o.queues)) for o in said if isinstance(o, StoreCheckpoint)]


def test_a_restored_unit_stores_again_what_its_consumers_have_not_acknowledged():
    """Its first checkpoint replaces the one that held those frames."""
    unit = uncoordinated(SPLIT, restored=Restored(5, 5, acked=((e("split>left"), 2), (e("split>right"), 8))))
    assert stores(unit.handle(CheckpointWanted())) == [(5, {e("split>left"): 2, e("split>right"): 5})]


def test_what_is_pending_and_what_a_checkpoint_weighs_is_known():
    """Neighbours decide by its size, and a person sees what is on its way."""
    unit = uncoordinated(MIDDLE)
    assert (unit.pending, unit.loads, unit.asking) == ((), {"join": 0}, False)
    run_to(unit, 7)
    unit.handle(CheckpointWanted())
    assert unit.pending == (7,)
    acks = [o for o in unit.handle(CheckpointStored(1, 50)) if isinstance(o, SendAck)]
    assert [ack.loads for ack in acks] == [{"join": 50}, {"join": 50}]
    assert unit.pending == ()


def test_the_asking_lasts_until_the_last_consumer_stored_and_no_late_ack_renews_it():
    """The queue is as long as the slowest of them makes it."""
    unit = uncoordinated(SPLIT)
    run_to(unit, 3)
    unit.handle(CheckpointWanted())
    unit.handle(AckArrived(e("split>left"), 3, {}))
    assert unit.asking
    unit.handle(AckArrived(e("split>right"), 3, {}))
    unit.handle(AckArrived(e("split>right"), 1, {}))
    assert not unit.asking


@pytest.mark.parametrize("event", [IntervalDrawn(0), CheckpointPrepared(1), FramesSkipped(3)])
def test_what_no_uncoordinated_unit_can_be_told_stops_it(event):
    """It has one phase, loses nothing, and an interval is at least a frame."""
    with pytest.raises(BrokenInvariant):
        uncoordinated(MIDDLE).handle(event)


def test_a_drawn_interval_ends_once_and_a_due_checkpoint_does_not_wait_for_it():
    """Two by one draw would halve the interval; one in seconds is not counted in frames."""
    unit = uncoordinated(MIDDLE, every=5)
    unit.handle(IntervalDrawn(1))
    assert unit.handle(processed(1))[-1] == DrawInterval(3, 7)
    unit.handle(CheckpointStored(1, 9))
    assert unit.handle(processed(2)) == []
    unit.handle(IntervalDrawn(9))
    assert stores(unit.handle(FrameProcessed(3, (), 10, due=True))) == [(3, {e("join>avg"): 0})]


def test_a_request_for_a_frame_to_come_is_served_with_that_frame_and_once():
    """The asker waits for it; an earlier checkpoint does not help it, a second one costs."""
    unit = uncoordinated(MIDDLE)
    run_to(unit, 2)
    unit.handle(RequestArrived(e("a>join"), 1, 1, 4, frozenset()))
    assert unit.handle(processed(3)) == []
    assert stores(unit.handle(processed(4))) == [(4, {e("join>avg"): 0})]
    assert stores(unit.handle(CheckpointStored(1, 9))) == []
    assert unit.handle(processed(5)) == []


def test_a_request_is_answered_by_what_is_stored_or_on_its_way():
    """The ack may have been lost; a second checkpoint of the same frame changes nothing."""
    unit = uncoordinated(MIDDLE)
    run_to(unit, 6)
    unit.handle(CheckpointWanted())
    assert unit.handle(RequestArrived(e("a>join"), 1, 1, 6, frozenset())) == []
    assert stores(unit.handle(CheckpointStored(1, 9))) == []
    unit.handle(processed(7))
    unit.handle(CheckpointWanted())
    unit.handle(processed(8))
    unit.handle(RequestArrived(e("a>join"), 1, 2, 8, frozenset()))
    assert stores(unit.handle(CheckpointStored(2, 9))) == [(8, {e("join>avg"): 0})]
    unit.handle(CheckpointStored(3, 9))
    (ack,) = unit.handle(RequestArrived(e("b>join"), 1, 2, 8, frozenset()))
    assert (ack.edge, ack.frame) == (e("b>join"), 8)


def test_the_furthest_request_is_not_forgotten_for_a_nearer_one():
    """Its asker would wait until the next interval, or for ever at the end of the stream."""
    unit = uncoordinated(MIDDLE)
    run_to(unit, 5)
    unit.handle(CheckpointWanted())
    for frame in (9, 7):
        assert unit.handle(RequestArrived(e("a>join"), 1, 1, frame, frozenset())) == []
    unit.handle(CheckpointWanted())
    assert stores(unit.handle(CheckpointStored(1, 9))) == []
    assert [stores(unit.handle(processed(n))) for n in (6, 7, 8)] == [[], [], []]
    assert stores(unit.handle(processed(9))) == [(9, {e("join>avg"): 0})]


@pytest.mark.parametrize(("stored", "acked"), [(1, 0), (2, 0), (5, 3)])
def test_feedback_is_acked_by_its_delay_and_never_below_zero(stored, acked):
    """What lies between was sealed and not yet read."""
    wiring = Wiring("u", (InputEdge(e("back>u@2"), "back"),), ())
    unit = uncoordinated(wiring, restored=Restored(stored, stored))
    (ack,) = unit.handle(RequestArrived(e("back>u@2"), 1, 1, stored, frozenset()))
    assert ack.frame == acked


def test_sinks_are_never_asked_and_feedback_only_for_what_it_can_read():
    """A sink takes no checkpoint; no consumer ever reads the last frames of a feedback edge."""
    unit = uncoordinated(FEEDS_BACK)
    run_to(unit, 3)
    assert unit.handle(EdgeResumed(e("avg>sensor@1"))) == []
    asked = [o.edge for o in unit.handle(CheckpointWanted()) if isinstance(o, SendRequest)]
    assert asked == [e("avg>sensor@1")]
    assert unit.handle(EdgeResumed(e("avg>sink avg"))) == []
    unit.handle(AckArrived(e("avg>sensor@1"), 2, {}))
    assert unit.handle(EdgeResumed(e("avg>sensor@1"))) == []
