"""none and checkpoint: little is kept, and little is promised."""

from holdfast.protocols.checkpoint import PartialCheckpoint
from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointStored,
    CheckpointWanted,
    EdgeResumed,
    FramesSkipped,
    PinFrame,
    Restored,
    SendAck,
    SendRequest,
    StoreCheckpoint,
    UnpinFrame,
)
from holdfast.protocols.none import NoProtection
from tests.protocols.wirings import LAST, LOOP, SPLIT, e, processed, run_to


def test_acks_follow_two_frames_late():
    """The last committed frame may have to run again on the same host."""
    unit = NoProtection(LAST, 1, 1, Restored())
    assert run_to(unit, 2) == []
    assert unit.handle(processed(5)) == [SendAck(e("join>avg"), 3, {})]


def test_feedback_is_acked_one_delay_earlier_still():
    """It has been read that much less far."""
    unit = NoProtection(LOOP, 1, 1, Restored())
    assert unit.handle(processed(9)) == [SendAck(e("log>sensor"), 7, {}), SendAck(e("avg>sensor@1"), 6, {})]


def test_skipped_frames_are_acked_too():
    """Nobody will ever need their inputs."""
    unit = NoProtection(LAST, 1, 2, Restored())
    assert unit.handle(FramesSkipped(10)) == [SendAck(e("join>avg"), 8, {})]


def test_a_partial_checkpoint_holds_state_only():
    """A queue in it would promise more than acks at processing can keep."""
    unit = PartialCheckpoint(LAST, 4, 1, Restored())
    said = run_to(unit, 4)
    assert said[1:] == [PinFrame(1, 4), StoreCheckpoint(1, 4, ())]
    assert unit.handle(CheckpointStored(1, 9)) == [UnpinFrame(1)]


def test_one_partial_checkpoint_is_on_its_way_at_a_time():
    """A slow backup must not pile them up."""
    unit = PartialCheckpoint(LAST, 4, 1, Restored())
    run_to(unit, 4)
    assert not [o for o in unit.handle(processed(8)) if isinstance(o, StoreCheckpoint)]
    assert unit.pending == (4,)


def test_consumers_are_asked_when_the_queue_is_half_full():
    """One that acks what it stored may have nobody else who asks it to store."""
    unit = NoProtection(SPLIT, 1, 1, Restored())
    run_to(unit, 8)
    unit.handle(AckArrived(e("split>right"), 8, {}))
    asked = SendRequest(e("split>left"), 0, 8, frozenset(), extendable=False)
    assert unit.handle(CheckpointWanted()) == [asked]
    assert unit.asking
    assert unit.handle(EdgeResumed(e("split>left"))) == [asked]
    unit.handle(AckArrived(e("split>left"), 8, {}))
    assert not unit.asking
    assert unit.handle(EdgeResumed(e("split>left"))) == []


def test_a_partial_checkpoint_that_was_on_its_way_is_not_taken_up_again():
    """The next one is newer; its pin must not stay for ever, nor its serial be used twice."""
    unit = PartialCheckpoint(LAST, 4, 2, Restored(5, pinned=((1, 4),)))
    assert unit.start() == [UnpinFrame(1)]
    assert unit.handle(processed(8))[1] == PinFrame(2, 8)
