"""Two phases: shipped first, in force only when all consumers have theirs."""

import pytest

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
    CommitCheckpoint,
    EdgeResumed,
    PinFrame,
    PrepareCheckpoint,
    RequestArrived,
    Restored,
    SendAck,
    SendRequest,
    UnpinFrame,
)
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.synchronised import Synchronised
from tests.protocols.wirings import LAST, MIDDLE, SOURCE, SPLIT, e, ids, processed, run_to


def synchronised(wiring, every=4, restored=Restored()):
    return Synchronised(wiring, every, 1, restored)


def test_phase_one_ships_and_asks():
    """The former backup stays in force meanwhile."""
    said = run_to(synchronised(SOURCE), 4)
    assert said[:2] == [PinFrame(1, 4), PrepareCheckpoint(1, 4, ())]
    assert isinstance(said[2], SendRequest)


def test_phase_two_needs_both_the_copy_and_the_acks():
    """Either alone could leave a gap or an empty backup."""
    unit = synchronised(SOURCE)
    run_to(unit, 4)
    assert unit.handle(AckArrived(e("sensor>join"), 4, {})) == []
    assert unit.handle(CheckpointPrepared(1)) == [CommitCheckpoint(1)]

    unit = synchronised(SOURCE)
    run_to(unit, 4)
    assert unit.handle(CheckpointPrepared(1)) == []
    assert unit.handle(AckArrived(e("sensor>join"), 4, {})) == [CommitCheckpoint(1)]


def test_upstream_is_acked_after_the_commit():
    """A prepared backup is dropped when its unit dies."""
    unit = synchronised(SOURCE)
    run_to(unit, 4)
    unit.handle(CheckpointPrepared(1))
    unit.handle(AckArrived(e("sensor>join"), 4, {}))
    assert SendAck(e("log>sensor"), 4, {}) in unit.handle(CheckpointStored(1, 10))


def test_the_backup_is_of_the_frame_asked_for():
    """Backups of the same frame repeat the least after a recovery."""
    unit = synchronised(MIDDLE)
    run_to(unit, 6)
    assert PinFrame(1, 5) in unit.handle(RequestArrived(e("a>join"), 1, 1, 5, ids("a")))


def test_a_restored_unit_cannot_go_back_behind_its_state():
    """States before the restart died with the instance that made them."""
    unit = synchronised(MIDDLE, restored=Restored(frame=8, stored=2))
    assert PinFrame(1, 8) in unit.handle(RequestArrived(e("a>join"), 1, 1, 5, ids("a")))


def test_a_frame_too_far_back_to_be_pinned_is_answered_with_the_oldest_there_is():
    """The engine keeps the state of a few frames; a later backup is as safe."""
    unit = Synchronised(MIDDLE, 4, 1, Restored(), back=3)
    run_to(unit, 9)
    assert PinFrame(1, 6) in unit.handle(RequestArrived(e("a>join"), 1, 1, 5, ids("a")))


def test_requests_wait_while_a_backup_is_under_way():
    """The store keeps one prepared backup of a unit."""
    unit = synchronised(MIDDLE)
    run_to(unit, 6)
    unit.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a")))
    assert unit.handle(RequestArrived(e("b>join"), 1, 1, 6, ids("b"))) == []
    unit.handle(CheckpointPrepared(1))
    unit.handle(AckArrived(e("join>avg"), 4, {}))
    assert PinFrame(2, 6) in unit.handle(CheckpointStored(1, 10))


def test_a_pin_of_a_dropped_backup_is_not_taken_up_again():
    """The claim dropped what was prepared; the pin alone would wait for ever."""
    unit = synchronised(SOURCE, restored=Restored(5, pinned=((2, 4),)))
    assert unit.start() == [UnpinFrame(2)]
    assert unit.pending == ()


def test_consumers_are_asked_by_name_and_may_not_extend():
    """Phase two waits for their acks; frames that were put in instead would be in no backup of theirs."""
    unit = Synchronised(MIDDLE, 4, 1, Restored())
    run_to(unit, 4)
    said = unit.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a")))
    request = SendRequest(e("join>avg"), 1, 4, ids("a"), extendable=False)
    assert said == [PinFrame(1, 4), PrepareCheckpoint(1, 4, ()), request]
    assert unit.handle(EdgeResumed(e("join>avg"))) == [request]
    last = Synchronised(LAST, 4, 1, Restored(), triggers=True)
    assert run_to(last, 4) == [PinFrame(1, 4), PrepareCheckpoint(1, 4, ())]


def test_one_backup_is_under_way_at_a_time():
    """The second would be prepared over the first, which its consumers were asked for."""
    unit = Synchronised(SOURCE, 2, 1, Restored())
    assert run_to(unit, 2)[0] == PinFrame(1, 2)
    assert [unit.handle(processed(n)) for n in (3, 4)] == [[], []]
    unit.handle(CheckpointPrepared(1))
    assert unit.handle(AckArrived(e("sensor>join"), 2, {})) == [CommitCheckpoint(1)]
    assert unit.handle(CheckpointWanted()) == []


def test_a_request_waits_for_its_frame_and_is_answered_by_a_backup_under_way():
    """A state that is not there yet cannot be pinned; one that is asked for twice is pinned once."""
    unit = Synchronised(MIDDLE, 100, 1, Restored())
    run_to(unit, 2)
    assert unit.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a"))) == []
    assert unit.handle(processed(3)) == []
    assert unit.handle(processed(4))[0] == PinFrame(1, 4)
    assert unit.handle(RequestArrived(e("b>join"), 1, 1, 4, ids("b"))) == []
    unit.handle(CheckpointPrepared(1))
    unit.handle(AckArrived(e("join>avg"), 4, {}))
    said = unit.handle(CheckpointStored(1, 9))
    assert said == [UnpinFrame(1), SendAck(e("a>join"), 4, {}), SendAck(e("b>join"), 4, {})]


def test_of_the_requests_that_waited_the_earliest_frame_comes_first():
    """A later one would answer it too, but with a backup of another frame than its neighbours have."""
    unit = Synchronised(MIDDLE, 100, 1, Restored())
    run_to(unit, 7)
    unit.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a")))
    for serial, frame in ((2, 6), (3, 5)):
        assert unit.handle(RequestArrived(e("b>join"), 1, serial, frame, ids(f"b{frame}"))) == []
    unit.handle(CheckpointPrepared(1))
    unit.handle(AckArrived(e("join>avg"), 4, {}))
    said = unit.handle(CheckpointStored(1, 9))
    assert [o.frame for o in said if isinstance(o, PinFrame)] == [5]


def test_no_state_is_pinned_that_died_with_a_former_instance():
    """However far back the driver could reach, before its start this instance has none."""
    unit = Synchronised(MIDDLE, 100, 2, Restored(6, 1), back=4)
    unit.handle(processed(7))
    assert unit.handle(RequestArrived(e("a>join"), 1, 1, 2, ids("a")))[0] == PinFrame(1, 6)


def test_a_backup_counts_only_when_every_consumer_is_there():
    """The one that is not would restart before it and meet a gap."""
    unit = Synchronised(SPLIT, 100, 1, Restored())
    run_to(unit, 4)
    unit.handle(RequestArrived(e("a>split"), 1, 1, 4, ids("a")))
    unit.handle(CheckpointPrepared(1))
    assert unit.handle(AckArrived(e("split>left"), 4, {})) == []
    assert unit.handle(AckArrived(e("split>right"), 4, {})) == [CommitCheckpoint(1)]


def test_a_prepared_backup_that_was_not_sent_stops_the_unit():
    """Committed on a stranger's word it would replace the former one by nothing."""
    unit = Synchronised(SOURCE, 2, 1, Restored())
    with pytest.raises(BrokenInvariant, match="prepared 1"):
        unit.handle(CheckpointPrepared(1))
    run_to(unit, 2)
    with pytest.raises(BrokenInvariant, match="prepared 2"):
        unit.handle(CheckpointPrepared(2))
