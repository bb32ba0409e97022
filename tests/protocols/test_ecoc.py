"""Plain ecoc: nothing is permanent before every consumer's stored checkpoint covers it."""

import pytest

from holdfast.protocols.dialogue import (
    AckArrived,
    CheckpointPrepared,
    CheckpointStored,
    CheckpointWanted,
    EdgeResumed,
    ExtensionArrived,
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
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.extended import Extended
from holdfast.protocols.invariants import BrokenInvariant, ProtocolRefused
from holdfast.protocols.messages import CheckId
from holdfast.protocols.synchronised import Synchronised
from holdfast.protocols.uncoordinated import Uncoordinated
from holdfast.protocols.wiring import InputEdge, OutputEdge, Wiring
from tests.protocols.wirings import FEEDS_BACK, FEEDS_LATE, LAST, LOOP, MIDDLE, SOURCE, SPLIT, e, ids, processed, run_to


def ecoc(wiring, every=4, restored=Restored(), epoch=1):
    return Ecoc(wiring, every, epoch, restored)


def test_a_source_asks_its_consumers_at_every_interval():
    """Requests start at the sources; nobody else would."""
    said = run_to(ecoc(SOURCE), 4)
    name = frozenset({CheckId("sensor", 1, 1)})
    assert said == [PinFrame(1, 4), SendRequest(e("sensor>join"), 1, 4, name, extendable=False)]


def test_a_checkpoint_is_stored_only_when_every_consumer_acked():
    """A restored producer stands behind its checkpoint; a consumer before it meets a gap."""
    unit = ecoc(SPLIT)
    run_to(unit, 5)
    unit.handle(RequestArrived(e("a>split"), 1, 1, 5, ids("a")))
    assert unit.handle(AckArrived(e("split>left"), 5, {})) == []
    assert unit.handle(AckArrived(e("split>right"), 4, {})) == []
    assert unit.handle(AckArrived(e("split>right"), 5, {})) == [StoreCheckpoint(1, 5, ())]


def test_upstream_is_acked_only_after_the_checkpoint_is_stored():
    """A backup host that dies while storing must not cost upstream its copy."""
    unit = ecoc(LAST)
    run_to(unit, 3)
    unit.handle(AckArrived(e("avg>sink avg"), 3, {}))
    said = unit.handle(RequestArrived(e("join>avg"), 1, 1, 3, ids("a")))
    assert said == [PinFrame(1, 3), StoreCheckpoint(1, 3, ())]
    assert unit.stored == 0
    said = unit.handle(CheckpointStored(1, 100))
    assert said == [UnpinFrame(1), SendAck(e("join>avg"), 3, {})]
    assert unit.stored == 3


def test_a_sink_is_a_consumer():
    """A frame still on its way out is lost if the checkpoint behind it is permanent."""
    unit = ecoc(LAST)
    run_to(unit, 3)
    assert unit.handle(RequestArrived(e("join>avg"), 1, 1, 3, ids("a"))) == [PinFrame(1, 3)]
    assert unit.handle(AckArrived(e("avg>sink avg"), 3, {})) == [StoreCheckpoint(1, 3, ())]


def test_a_request_waits_for_its_frame():
    """At a join one input runs ahead of the other."""
    unit = ecoc(MIDDLE)
    run_to(unit, 2)
    assert unit.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a"))) == []
    assert unit.handle(processed(3)) == []
    assert PinFrame(1, 4) in unit.handle(processed(4))


def test_one_checkpoint_serves_two_requests_for_the_same_frame():
    """Sources that trigger together must not cost a join two checkpoints."""
    unit = ecoc(MIDDLE)
    run_to(unit, 4)
    assert unit.handle(RequestArrived(e("a>join"), 1, 1, 4, ids("a"))) != []
    assert unit.handle(RequestArrived(e("b>join"), 1, 1, 4, ids("b"))) == []
    assert unit.pending == (4,)


def test_a_request_for_a_stored_frame_is_answered_with_an_ack():
    """The asker may have lost the ack, and would wait for ever."""
    unit = ecoc(MIDDLE, restored=Restored(frame=6, stored=6))
    assert unit.handle(RequestArrived(e("a>join"), 1, 9, 5, ids("a"))) == [SendAck(e("a>join"), 6, {})]


def test_requests_are_repeated_to_a_consumer_that_comes_back():
    """Its pending checkpoints died with it."""
    unit = ecoc(SOURCE)
    run_to(unit, 4)
    name = frozenset({CheckId("sensor", 1, 1)})
    assert unit.handle(EdgeResumed(e("sensor>join"))) == [SendRequest(e("sensor>join"), 1, 4, name, extendable=False)]


def test_only_the_newest_of_several_completed_checkpoints_travels():
    """The backup keeps one; sending two costs twice."""
    unit = ecoc(SOURCE)
    run_to(unit, 8)
    assert unit.pending == (4, 8)
    assert unit.handle(AckArrived(e("sensor>join"), 8, {})) == [
        UnpinFrame(1),
        StoreCheckpoint(2, 8, ()),
    ]
    assert unit.pending == (8,)


def test_an_old_ack_changes_nothing():
    """Acks are cumulative and may come late."""
    unit = ecoc(SOURCE)
    run_to(unit, 4)
    unit.handle(AckArrived(e("sensor>join"), 4, {}))
    assert unit.handle(AckArrived(e("sensor>join"), 2, {})) == []


def test_cycles_are_refused_with_the_remedy():
    """Every unit on it would wait for the next one for ever."""
    with pytest.raises(ProtocolRefused, match="extended=True"):
        ecoc(LOOP)
    with pytest.raises(ProtocolRefused, match="extended=True"):
        ecoc(FEEDS_BACK)


def test_an_ack_from_a_stranger_stops_the_unit():
    """Going on with a wrong idea of who depends on it would lose frames."""
    with pytest.raises(BrokenInvariant, match="unknown edge"):
        ecoc(SOURCE).handle(AckArrived(e("x>y"), 1, {}))


def test_nothing_is_checkpointed_before_the_first_frame():
    """There is no state to come back to."""
    assert ecoc(SOURCE).handle(CheckpointWanted()) == []


def test_a_consumer_that_acks_late_is_waited_for_until_it_processed_the_frame():
    """Its ack of 5 comes with frame 7, which a producer at its bound never sends."""
    unit = ecoc(FEEDS_LATE)
    run_to(unit, 5)
    unit.handle(RequestArrived(e("a>join"), 1, 1, 5, ids("a")))
    assert unit.handle(AckArrived(e("join>avg"), 2, {})) == []
    assert unit.handle(AckArrived(e("join>avg"), 3, {})) == [StoreCheckpoint(1, 5, ())]


def test_a_unit_below_protections_that_ask_nobody_starts_rounds_itself():
    """Else its backup would be as old as the queue above is long."""
    silent, own = ecoc(MIDDLE), Ecoc(MIDDLE, 4, 1, Restored(), triggers=True)
    assert run_to(silent, 4) == []
    assert run_to(own, 4)[0] == PinFrame(1, 4)


def test_pins_that_outlived_a_crash_are_taken_up_again():
    """The state is still there; its consumers are asked again, and no serial is used twice."""
    acked = ((e("split>left"), 6), (e("split>right"), 4))
    unit = ecoc(SPLIT, restored=Restored(9, 4, acked, pinned=((2, 6), (1, 3), (3, 8))), epoch=2)
    assert unit.start() == [UnpinFrame(1)]
    assert unit.pending == (6, 8)
    name = frozenset({CheckId("split", 2, 2)}), frozenset({CheckId("split", 2, 3)})
    assert unit.handle(EdgeResumed(e("split>right"))) == [
        SendRequest(e("split>right"), 2, 6, name[0], extendable=False),
        SendRequest(e("split>right"), 3, 8, name[1], extendable=False),
    ]
    assert unit.handle(AckArrived(e("split>right"), 6, {})) == [StoreCheckpoint(2, 6, ())]
    assert unit.handle(RequestArrived(e("a>split"), 1, 9, 9, ids("a")))[0] == PinFrame(4, 9)


def test_no_lossless_protection_may_take_missing_inputs_as_lost():
    """The unit would skip frames that its producer still has."""
    restored = Restored()
    machines = [Ecoc(LAST, 4, 1, restored), Extended(LAST, 4, 1, restored)]
    machines += [Synchronised(LAST, 4, 1, restored), Uncoordinated(LAST, 4, 1, restored)]
    assert not any(machine.lossy for machine in machines)


def test_an_edge_with_a_delay_is_refused_also_off_a_cycle():
    """Even a perfect cut leaves a frame on it, and plain ecoc stores none."""
    late = Wiring("a", (InputEdge(e("log>a"), "log", outside=True),), (OutputEdge(e("a>b@1"), 0),))
    with pytest.raises(ProtocolRefused, match="feeds 'a>b@1' with a delay"):
        ecoc(late)


def test_pins_are_taken_up_in_the_order_of_their_frames_and_only_behind_what_is_stored():
    """The newest one that is covered travels and the older ones are let go; which those are is a matter of order."""
    unit = ecoc(SPLIT, restored=Restored(9, 4, pinned=((3, 8), (1, 4), (2, 6))), epoch=2)
    assert unit.pending == (6, 8)
    assert UnpinFrame(1) in unit.start()


def test_a_pin_that_all_consumers_cover_already_is_stored_at_the_start():
    """No ack of theirs will come again."""
    acked = ((e("split>left"), 8), (e("split>right"), 7))
    unit = ecoc(SPLIT, restored=Restored(9, 4, acked, pinned=((2, 6), (3, 8))))
    assert unit.start() == [StoreCheckpoint(2, 6, ())]


def test_a_restarted_source_keeps_to_its_interval():
    """After each restart its backup would be up to an interval older than declared."""
    unit = ecoc(SOURCE, restored=Restored(6, 4))
    unit.handle(processed(7))
    assert unit.handle(processed(8))[0] == PinFrame(1, 8)


def test_a_checkpoint_that_is_due_is_taken_between_two_multiples():
    """An interval in seconds is not counted in frames."""
    assert ecoc(SOURCE).handle(FrameProcessed(1, (), 10, due=True))[0] == PinFrame(1, 1)
    assert Synchronised(SOURCE, 4, 1, Restored()).handle(FrameProcessed(1, (), 10, due=True))[0] == PinFrame(1, 1)


def test_a_late_ack_does_not_take_back_an_earlier_one():
    """The checkpoint would wait for an ack that has come and does not come again."""
    unit = ecoc(LAST)
    run_to(unit, 3)
    unit.handle(AckArrived(e("avg>sink avg"), 3, {}))
    unit.handle(AckArrived(e("avg>sink avg"), 1, {}))
    assert unit.handle(RequestArrived(e("join>avg"), 1, 1, 3, ids("a")))[-1] == StoreCheckpoint(1, 3, ())


@pytest.mark.parametrize(
    "event", [IntervalDrawn(3), FramesSkipped(3), CheckpointPrepared(1), ExtensionArrived(e("a>b"), 1, 1, 0, True)]
)
def test_what_no_plain_coordinated_unit_can_be_told_stops_it(event):
    """Somebody wired it to another protocol's partner; an answer of its own would be a guess."""
    with pytest.raises(BrokenInvariant):
        ecoc(MIDDLE).handle(event)


def test_a_served_request_is_forgotten_and_a_waiting_one_is_kept_once():
    """Kept, each would be answered again with every frame, and their number would grow for ever."""
    unit = ecoc(LAST)
    unit.handle(RequestArrived(e("join>avg"), 1, 1, 3, ids("a")))
    run_to(unit, 2)
    assert len(unit._wanted) == 1
    unit.handle(processed(3))
    unit.handle(AckArrived(e("avg>sink avg"), 3, {}))
    unit.handle(CheckpointStored(1, 9))
    assert unit.handle(processed(4)) == []
    assert unit._wanted == []


def test_a_round_of_its_own_starts_one_interval_after_somebody_elses_and_not_before():
    """Units on one cycle would each send a round through all the others; but none may fall silent."""
    unit = Ecoc(MIDDLE, 4, 1, Restored(), triggers=True)
    run_to(unit, 5)
    assert unit.handle(RequestArrived(e("a>join"), 1, 1, 5, ids("a")))[0] == PinFrame(2, 5)
    assert [unit.handle(processed(n)) for n in (6, 7, 8)] == [[], [], []]
    assert unit.handle(RequestArrived(e("a>join"), 1, 2, 8, ids("b")))[0] == PinFrame(3, 8)
    assert [unit.handle(processed(n)) for n in (9, 10, 11)] == [[], [], []]
    assert unit.handle(processed(12))[0] == PinFrame(4, 12)


def test_a_checkpoint_that_somebody_wanted_here_does_not_delay_the_next_interval():
    """Only another's round went through the neighbours as well."""
    unit = ecoc(SOURCE)
    run_to(unit, 6)
    unit.handle(CheckpointWanted())
    unit.handle(processed(7))
    assert PinFrame(3, 8) in unit.handle(processed(8))


def test_every_round_has_a_name_of_its_own():
    """Two rounds with one name would be taken for one that came round a cycle."""
    unit = ecoc(SOURCE)
    names = [o.ids for n in range(1, 9) for o in unit.handle(processed(n)) if isinstance(o, SendRequest)]
    assert names == [frozenset({CheckId("sensor", 1, 1)}), frozenset({CheckId("sensor", 1, 2)})]


def test_a_request_without_a_name_gets_one_here():
    """Uncoordinated producers have none; units below know their rounds by names."""
    unit = ecoc(MIDDLE)
    run_to(unit, 4)
    first = unit.handle(RequestArrived(e("a>join"), 1, 0, 4, frozenset()))
    unit.handle(processed(5))
    second = unit.handle(RequestArrived(e("a>join"), 1, 0, 5, frozenset()))
    assert first[1].ids == frozenset({CheckId("join", 1, 1)})
    assert second[1].ids == frozenset({CheckId("join", 1, 2)})


def test_a_request_for_exactly_the_stored_frame_is_answered_with_an_ack():
    """A checkpoint more would be stored and nothing else would change."""
    unit = ecoc(MIDDLE, restored=Restored(frame=6, stored=6))
    assert unit.handle(RequestArrived(e("a>join"), 1, 9, 6, ids("a"))) == [SendAck(e("a>join"), 6, {})]


def test_only_a_consumer_that_still_owes_an_ack_is_asked_again():
    """Each asking may cost it a checkpoint; a sink cannot take one."""
    unit = ecoc(SPLIT)
    run_to(unit, 5)
    unit.handle(RequestArrived(e("a>split"), 1, 1, 5, ids("a")))
    unit.handle(AckArrived(e("split>left"), 5, {}))
    assert unit.handle(EdgeResumed(e("split>left"))) == []
    last = ecoc(LAST)
    run_to(last, 3)
    last.handle(RequestArrived(e("join>avg"), 1, 1, 3, ids("a")))
    assert last.handle(EdgeResumed(e("avg>sink avg"))) == []


def test_one_checkpoint_travels_at_a_time_and_the_next_follows_when_it_is_stored():
    """The second would overtake the first, or be forgotten behind it."""
    unit = ecoc(SOURCE)
    run_to(unit, 8)
    assert unit.handle(AckArrived(e("sensor>join"), 4, {})) == [StoreCheckpoint(1, 4, ())]
    assert unit.pending == (4, 8)
    assert unit.handle(AckArrived(e("sensor>join"), 8, {})) == []
    said = unit.handle(CheckpointStored(1, 9))
    assert said == [UnpinFrame(1), SendAck(e("log>sensor"), 4, {}), StoreCheckpoint(2, 8, ())]
    assert unit.asking
    unit.handle(CheckpointStored(2, 9))
    assert not unit.asking


def test_a_stored_checkpoint_that_was_not_sent_stops_the_unit():
    """Acking on a stranger's word would let upstream drop what nobody holds."""
    unit = ecoc(LAST)
    with pytest.raises(BrokenInvariant, match="not on its way"):
        unit.handle(CheckpointStored(1, 9))
    run_to(unit, 3)
    unit.handle(AckArrived(e("avg>sink avg"), 3, {}))
    unit.handle(RequestArrived(e("join>avg"), 1, 1, 3, ids("a")))
    with pytest.raises(BrokenInvariant, match="not on its way"):
        unit.handle(CheckpointStored(2, 9))
