"""Uncoordinated: state and queue together, acked when stored."""

import pytest

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointStored,
    CheckpointWanted,
    DrawInterval,
    EdgeResumed,
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
from tests.protocols.wirings import FEEDS_BACK, LOOP, MIDDLE, SOURCE, e, run_to


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
