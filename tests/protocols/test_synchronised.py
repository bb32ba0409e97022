"""Two phases: shipped first, in force only when all consumers have theirs."""

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointPrepared,
    CheckpointStored,
    CommitCheckpoint,
    PinFrame,
    PrepareCheckpoint,
    RequestArrived,
    Restored,
    SendAck,
    SendRequest,
    UnpinFrame,
)
from holdfast.protocols.synchronised import Synchronised
from tests.protocols.wirings import MIDDLE, SOURCE, e, ids, run_to


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
