"""Plain ecoc: nothing is permanent before every consumer's stored checkpoint covers it."""

import pytest

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointStored,
    CheckpointWanted,
    EdgeResumed,
    PinFrame,
    RequestArrived,
    Restored,
    SendAck,
    SendRequest,
    StoreCheckpoint,
    UnpinFrame,
)
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.invariants import BrokenInvariant, ProtocolRefused
from holdfast.protocols.messages import CheckId
from tests.protocols.wirings import (
    FEEDS_BACK,
    FEEDS_LATE,
    LAST,
    LOOP,
    MIDDLE,
    SOURCE,
    SPLIT,
    ids,
    processed,
    run_to,
)


def ecoc(wiring, every=4, restored=Restored(), epoch=1):
    return Ecoc(wiring, every, epoch, restored)


def test_a_source_asks_its_consumers_at_every_interval():
    """Requests start at the sources; nobody else would."""
    said = run_to(ecoc(SOURCE), 4)
    name = frozenset({CheckId("sensor", 1, 1)})
    assert said == [PinFrame(1, 4), SendRequest("sensor>join", 1, 4, name, extendable=False)]


def test_a_checkpoint_is_stored_only_when_every_consumer_acked():
    """A restored producer stands behind its checkpoint; a consumer before it meets a gap."""
    unit = ecoc(SPLIT)
    run_to(unit, 5)
    unit.handle(RequestArrived("a>split", 1, 1, 5, ids("a")))
    assert unit.handle(AckArrived("split>left", 5, {})) == []
    assert unit.handle(AckArrived("split>right", 4, {})) == []
    assert unit.handle(AckArrived("split>right", 5, {})) == [StoreCheckpoint(1, 5, ())]


def test_upstream_is_acked_only_after_the_checkpoint_is_stored():
    """A backup host that dies while storing must not cost upstream its copy."""
    unit = ecoc(LAST)
    run_to(unit, 3)
    unit.handle(AckArrived("avg>sink", 3, {}))
    said = unit.handle(RequestArrived("join>avg", 1, 1, 3, ids("a")))
    assert said == [PinFrame(1, 3), StoreCheckpoint(1, 3, ())]
    assert unit.stored == 0
    said = unit.handle(CheckpointStored(1, 100))
    assert said == [UnpinFrame(1), SendAck("join>avg", 3, {})]
    assert unit.stored == 3


def test_a_sink_is_a_consumer():
    """A frame still on its way out is lost if the checkpoint behind it is permanent."""
    unit = ecoc(LAST)
    run_to(unit, 3)
    assert unit.handle(RequestArrived("join>avg", 1, 1, 3, ids("a"))) == [PinFrame(1, 3)]
    assert unit.handle(AckArrived("avg>sink", 3, {})) == [StoreCheckpoint(1, 3, ())]


def test_a_request_waits_for_its_frame():
    """At a join one input runs ahead of the other."""
    unit = ecoc(MIDDLE)
    run_to(unit, 2)
    assert unit.handle(RequestArrived("a>join", 1, 1, 4, ids("a"))) == []
    assert unit.handle(processed(3)) == []
    assert PinFrame(1, 4) in unit.handle(processed(4))


def test_one_checkpoint_serves_two_requests_for_the_same_frame():
    """Sources that trigger together must not cost a join two checkpoints."""
    unit = ecoc(MIDDLE)
    run_to(unit, 4)
    assert unit.handle(RequestArrived("a>join", 1, 1, 4, ids("a"))) != []
    assert unit.handle(RequestArrived("b>join", 1, 1, 4, ids("b"))) == []
    assert unit.pending == (4,)


def test_a_request_for_a_stored_frame_is_answered_with_an_ack():
    """The asker may have lost the ack, and would wait for ever."""
    unit = ecoc(MIDDLE, restored=Restored(frame=6, stored=6))
    assert unit.handle(RequestArrived("a>join", 1, 9, 5, ids("a"))) == [SendAck("a>join", 6, {})]


def test_requests_are_repeated_to_a_consumer_that_comes_back():
    """Its pending checkpoints died with it."""
    unit = ecoc(SOURCE)
    run_to(unit, 4)
    name = frozenset({CheckId("sensor", 1, 1)})
    assert unit.handle(EdgeResumed("sensor>join")) == [SendRequest("sensor>join", 1, 4, name, extendable=False)]


def test_only_the_newest_of_several_completed_checkpoints_travels():
    """The backup keeps one; sending two costs twice."""
    unit = ecoc(SOURCE)
    run_to(unit, 8)
    assert unit.pending == (4, 8)
    assert unit.handle(AckArrived("sensor>join", 8, {})) == [
        UnpinFrame(1),
        StoreCheckpoint(2, 8, ()),
    ]
    assert unit.pending == (8,)


def test_an_old_ack_changes_nothing():
    """Acks are cumulative and may come late."""
    unit = ecoc(SOURCE)
    run_to(unit, 4)
    unit.handle(AckArrived("sensor>join", 4, {}))
    assert unit.handle(AckArrived("sensor>join", 2, {})) == []


def test_cycles_are_refused_with_the_remedy():
    """Every unit on it would wait for the next one for ever."""
    with pytest.raises(ProtocolRefused, match="extended=True"):
        ecoc(LOOP)
    with pytest.raises(ProtocolRefused, match="extended=True"):
        ecoc(FEEDS_BACK)


def test_an_ack_from_a_stranger_stops_the_unit():
    """Going on with a wrong idea of who depends on it would lose frames."""
    with pytest.raises(BrokenInvariant, match="unknown edge"):
        ecoc(SOURCE).handle(AckArrived("x>y", 1, {}))


def test_nothing_is_checkpointed_before_the_first_frame():
    """There is no state to come back to."""
    assert ecoc(SOURCE).handle(CheckpointWanted()) == []


def test_a_consumer_that_acks_late_is_waited_for_until_it_processed_the_frame():
    """Its ack of 5 comes with frame 7, which a producer at its bound never sends."""
    unit = ecoc(FEEDS_LATE)
    run_to(unit, 5)
    unit.handle(RequestArrived("a>join", 1, 1, 5, ids("a")))
    assert unit.handle(AckArrived("join>avg", 2, {})) == []
    assert unit.handle(AckArrived("join>avg", 3, {})) == [StoreCheckpoint(1, 5, ())]


def test_a_unit_below_protections_that_ask_nobody_starts_rounds_itself():
    """Else its backup would be as old as the queue above is long."""
    silent, own = ecoc(MIDDLE), Ecoc(MIDDLE, 4, 1, Restored(), triggers=True)
    assert run_to(silent, 4) == []
    assert run_to(own, 4)[0] == PinFrame(1, 4)


def test_pins_that_outlived_a_crash_are_taken_up_again():
    """The state is still there; its consumers are asked again, and no serial is used twice."""
    acked = (("split>left", 6), ("split>right", 4))
    unit = ecoc(SPLIT, restored=Restored(9, 4, acked, pinned=((2, 6), (1, 3), (3, 8))), epoch=2)
    assert unit.start() == [UnpinFrame(1)]
    assert unit.pending == (6, 8)
    name = frozenset({CheckId("split", 2, 2)}), frozenset({CheckId("split", 2, 3)})
    assert unit.handle(EdgeResumed("split>right")) == [
        SendRequest("split>right", 2, 6, name[0], extendable=False),
        SendRequest("split>right", 3, 8, name[1], extendable=False),
    ]
    assert unit.handle(AckArrived("split>right", 6, {})) == [StoreCheckpoint(2, 6, ())]
    assert unit.handle(RequestArrived("a>split", 1, 9, 9, ids("a")))[0] == PinFrame(4, 9)
