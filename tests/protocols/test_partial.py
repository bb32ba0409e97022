"""none and checkpoint: little is kept, and little is promised."""

import pytest

from holdfast.protocols.checkpoint import PartialCheckpoint
from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointStored,
    CheckpointWanted,
    EdgeResumed,
    FrameProcessed,
    FramesSkipped,
    PinFrame,
    Restored,
    SendAck,
    SendRequest,
    StoreCheckpoint,
    UnpinFrame,
)
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.none import NoProtection
from holdfast.protocols.uncoordinated import Uncoordinated
from tests.protocols.wirings import FEEDS_BACK, LAST, LOOP, SPLIT, e, processed, run_to


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


@pytest.mark.parametrize("machine", [PartialCheckpoint, Uncoordinated, Ecoc])
def test_an_interval_of_less_than_a_frame_stops_the_unit(machine):
    """It would checkpoint after every frame or never; one frame is the shortest there is."""
    machine(LAST, 1, 1, Restored())
    with pytest.raises(BrokenInvariant, match="every 0 frames"):
        machine(LAST, 0, 1, Restored())


def test_frames_between_two_checkpoints_are_acked():
    """Upstream would keep an interval of frames that nobody will ask for."""
    unit = PartialCheckpoint(LAST, 4, 1, Restored())
    assert run_to(unit, 3) == [SendAck(e("join>avg"), 1, {})]


def test_a_checkpoint_is_taken_when_it_is_due_or_wanted_and_one_travels_at_a_time():
    """An interval in seconds is due between two multiples; a person asks at any moment."""
    unit = PartialCheckpoint(SPLIT, 100, 1, Restored())
    assert not [o for o in unit.handle(CheckpointWanted()) if isinstance(o, PinFrame)]
    assert unit.pending == ()
    said = unit.handle(FrameProcessed(1, (), 10, due=True))
    assert said == [PinFrame(1, 1), StoreCheckpoint(1, 1, ())]
    assert unit.pending == (1,)
    unit.handle(processed(2))
    assert not [o for o in unit.handle(CheckpointWanted()) if isinstance(o, PinFrame)]
    assert unit.handle(CheckpointStored(1, 9)) == [UnpinFrame(1)]
    assert unit.pending == ()
    said = unit.handle(CheckpointWanted())
    assert {o.edge for o in said if isinstance(o, SendRequest)} == {e("split>left"), e("split>right")}
    assert said[-2:] == [PinFrame(2, 2), StoreCheckpoint(2, 2, ())]


def test_a_stored_checkpoint_that_was_not_on_its_way_stops_the_unit():
    """Its pin would be let go while the backup still reads it."""
    unit = PartialCheckpoint(LAST, 1, 1, Restored())
    with pytest.raises(BrokenInvariant, match="while storing None"):
        unit.handle(CheckpointStored(1, 9))
    run_to(unit, 1)
    with pytest.raises(BrokenInvariant, match="stored 2"):
        unit.handle(CheckpointStored(2, 9))


def test_a_restored_unit_asks_consumers_that_are_behind_it():
    """What came with the checkpoint fills its queue; only their checkpoints empty it."""
    unit = NoProtection(SPLIT, 1, 2, Restored(6, acked=((e("split>left"), 3),)))
    assert [o.edge for o in unit.handle(CheckpointWanted())] == [e("split>left")]


def test_nothing_is_acked_below_the_first_frame():
    """A number below zero would be read as a promise about frames that do not exist."""
    unit = NoProtection(LAST, 1, 1, Restored())
    assert unit.stored == 0
    run_to(unit, 1)
    assert unit.stored == 0


def test_nobody_is_asked_again_who_was_not_asked():
    """Every reconnection would cost a checkpoint."""
    unit = NoProtection(SPLIT, 1, 1, Restored())
    run_to(unit, 3)
    assert unit.handle(EdgeResumed(e("split>left"))) == []


def test_feedback_and_sinks_are_not_asked_for_what_they_cannot_give():
    """Of feedback the last frames are never read; a sink takes no checkpoint."""
    unit = NoProtection(FEEDS_BACK, 1, 1, Restored())
    run_to(unit, 3)
    assert [o.edge for o in unit.handle(CheckpointWanted())] == [e("avg>sensor@1")]
    assert unit.handle(EdgeResumed(e("avg>sink avg"))) == []
    unit.handle(AckArrived(e("avg>sensor@1"), 2, {}))
    assert unit.asking
    unit.handle(AckArrived(e("avg>sink avg"), 3, {}))
    assert not unit.asking
    assert unit.handle(EdgeResumed(e("avg>sensor@1"))) == []


def test_only_the_consumer_that_came_back_is_asked_again_and_a_late_ack_changes_nothing():
    """The others still know; acks are cumulative."""
    unit = NoProtection(SPLIT, 1, 1, Restored())
    run_to(unit, 3)
    unit.handle(CheckpointWanted())
    assert [o.edge for o in unit.handle(EdgeResumed(e("split>left")))] == [e("split>left")]
    for edge in (e("split>left"), e("split>right")):
        unit.handle(AckArrived(edge, 3, {}))
        unit.handle(AckArrived(edge, 1, {}))
    assert not unit.asking
