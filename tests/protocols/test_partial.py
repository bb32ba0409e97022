"""none and checkpoint: little is kept, and little is promised."""

from holdfast.protocols.checkpoint import PartialCheckpoint
from holdfast.protocols.dialogue import (
    CheckpointStored,
    FramesSkipped,
    PinFrame,
    Restored,
    SendAck,
    StoreCheckpoint,
    UnpinFrame,
)
from holdfast.protocols.none import NoProtection
from tests.protocols.wirings import LAST, LOOP, processed, run_to


def test_acks_follow_two_frames_late():
    """The last committed frame may have to run again on the same host."""
    unit = NoProtection(LAST, 1, 1, Restored())
    assert run_to(unit, 2) == []
    assert unit.handle(processed(5)) == [SendAck("join>avg", 3, {})]


def test_feedback_is_acked_one_delay_earlier_still():
    """It has been read that much less far."""
    unit = NoProtection(LOOP, 1, 1, Restored())
    assert unit.handle(processed(9)) == [SendAck("log>sensor", 7, {}), SendAck("avg>sensor", 6, {})]


def test_skipped_frames_are_acked_too():
    """Nobody will ever need their inputs."""
    unit = NoProtection(LAST, 1, 2, Restored())
    assert unit.handle(FramesSkipped(10)) == [SendAck("join>avg", 8, {})]


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
