"""The whole unit: fence, edges, queue and protection at work together."""

import pytest

from holdfast.frames.identity import Kind
from holdfast.protocols.dialogue import (
    FrameProcessed,
    InputFrame,
    MessageArrived,
    PeerFound,
    ProcessFrame,
    Restored,
    Send,
    SkipFrames,
    StepDown,
)
from holdfast.protocols.ecoc import Ecoc
from holdfast.protocols.edges import FrameArrival, Receiver
from holdfast.protocols.extended import Extended
from holdfast.protocols.fencing import Fence
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.messages import (
    AckSent,
    FrameSent,
    OfferSent,
    RefusalSent,
    ResumeSent,
    Stamp,
)
from holdfast.protocols.none import NoProtection
from holdfast.protocols.placing import Placing
from holdfast.protocols.ports import InputPorts
from holdfast.protocols.unit import LOST_CHECKSUM, Unit
from tests.protocols.wirings import LOOP, MIDDLE, SOURCE, SPLIT, e, sealed

ME = Stamp("join", 0, 1)


def unit(wiring=MIDDLE, bytes_max=10_000, restored=Restored()):
    machine = Unit(wiring, Ecoc(wiring, 100, 1, restored), Stamp(wiring.unit, 0, 1), restored, bytes_max)
    machine.start()
    return machine


def frame(edge, number, epoch=1, content=7):
    stamp = Stamp(edge.stream, 0, epoch)
    return MessageArrived(FrameSent(stamp, edge, number, Kind.STABLE, content, 10))


def sent(said, kind):
    return [o.message for o in said if isinstance(o, Send) and isinstance(o.message, kind)]


def test_a_frame_is_processed_when_every_input_is_here():
    """Order between edges must not matter, or replays would differ."""
    join = unit()
    assert join.handle(frame(e("b>join"), 1)) == []
    expected = InputFrame(Kind.STABLE, 7, 10)
    assert join.handle(frame(e("a>join"), 1)) == [ProcessFrame(1, (expected, expected))]


def test_a_duplicate_is_dropped():
    """Reconnects repeat frames."""
    join = unit()
    join.handle(frame(e("a>join"), 1))
    assert join.handle(frame(e("a>join"), 1)) == []


def test_a_frame_that_comes_again_with_other_content_stops_the_unit():
    """Accepted in silence it would split the results for good."""
    join = unit()
    join.handle(frame(e("a>join"), 1))
    with pytest.raises(BrokenInvariant, match="other content"):
        join.handle(frame(e("a>join"), 1, content=8))


def test_a_gap_is_asked_for_once():
    """Every frame behind it would repeat the whole stream."""
    join = unit()
    (resume,) = sent(join.handle(frame(e("a>join"), 3)), ResumeSent)
    assert resume.after == 0
    assert join.handle(frame(e("a>join"), 4)) == []


def test_a_frame_that_overtook_others_waits_for_them():
    """Behind the last one of a stream no next one comes that would show the gap again."""
    join = unit()
    join.handle(frame(e("a>join"), 2))
    join.handle(frame(e("a>join"), 1))
    assert join.receivers[e("a>join")].received == 2


def test_a_frame_that_overtook_others_does_not_outlive_its_sender():
    """The next instance may have sealed that number anew."""
    join = unit()
    join.handle(frame(e("a>join"), 2, content=8))
    join.handle(frame(e("a>join"), 1, epoch=2))
    assert join.receivers[e("a>join")].received == 1


def test_a_lower_epoch_has_no_effect_and_is_told():
    """The old instance woke after its successor was started."""
    join = unit()
    join.handle(frame(e("a>join"), 1, epoch=2))
    said = join.handle(frame(e("a>join"), 2, epoch=1))
    assert sent(said, RefusalSent) == [RefusalSent(ME, Stamp("a", 0, 1), 2)]
    assert join.receivers[e("a>join")].received == 1


def test_a_refused_unit_steps_down_and_stays_silent():
    """Whatever it does next could only confuse."""
    join = unit()
    refusal = MessageArrived(RefusalSent(Stamp("avg", 0, 1), ME, 2))
    assert join.handle(refusal) == [StepDown(2)]
    assert join.handle(frame(e("a>join"), 1)) == []


def test_a_consumer_gets_everything_behind_the_point_it_names():
    """It restarted from its checkpoint."""
    split = unit(SPLIT)
    for number in (1, 2, 3):
        split.handle(frame(e("a>split"), number))
        split.handle(FrameProcessed(number, (sealed(),), 10))
    resume = ResumeSent(Stamp("left", 0, 2), e("split>left"), 1, 1, 0)
    numbers = [m.frame for m in sent(split.handle(MessageArrived(resume)), FrameSent)]
    assert numbers == [2, 3]


def test_a_repeated_resume_does_not_move_the_producer_back():
    """It may name a point that has been trimmed since."""
    split = unit(SPLIT)
    split.handle(frame(e("a>split"), 1))
    split.handle(FrameProcessed(1, (sealed(),), 10))
    resume = MessageArrived(ResumeSent(Stamp("left", 0, 1), e("split>left"), 1, 0, 0))
    split.handle(resume)
    for consumer in ("left", "right"):
        split.handle(MessageArrived(AckSent(Stamp(consumer, 0, 1), e(f"split>{consumer}"), 1, {})))
    assert split.handle(resume) == []


def test_a_resume_that_an_ack_of_the_same_instance_overtook_is_answered_from_the_ack():
    """What it asks for it has got meanwhile; stopping the unit would be an error of its own."""
    split = unit(SPLIT)
    for number in (1, 2):
        split.handle(frame(e("a>split"), number))
        split.handle(FrameProcessed(number, (sealed(),), 10))
    for consumer in ("left", "right"):
        split.handle(MessageArrived(AckSent(Stamp(consumer, 0, 1), e(f"split>{consumer}"), 1, {})))
    resume = MessageArrived(ResumeSent(Stamp("left", 0, 1), e("split>left"), 2, 0, 0))
    assert [m.frame for m in sent(split.handle(resume), FrameSent)] == [2]


def test_asking_for_a_trimmed_frame_stops_the_unit():
    """An ack was not true: somebody lost data."""
    split = unit(SPLIT)
    split.handle(frame(e("a>split"), 1))
    split.handle(FrameProcessed(1, (sealed(),), 10))
    for consumer in ("left", "right"):
        split.handle(MessageArrived(AckSent(Stamp(consumer, 0, 1), e(f"split>{consumer}"), 1, {})))
    with pytest.raises(BrokenInvariant, match="needs frame 1 again"):
        split.handle(MessageArrived(ResumeSent(Stamp("left", 0, 2), e("split>left"), 1, 0, 0)))


def test_a_full_queue_holds_the_unit_and_an_ack_frees_it():
    """No frame waits for a backup until a queue is at its bound."""
    sensor = unit(SOURCE, bytes_max=10)
    sensor.handle(frame(e("log>sensor"), 1))
    sensor.handle(frame(e("log>sensor"), 2))
    said = sensor.handle(FrameProcessed(1, (sealed(10),), 10))
    assert not [o for o in said if isinstance(o, ProcessFrame)]
    ack = MessageArrived(AckSent(Stamp("join", 0, 1), e("sensor>join"), 1, {}))
    assert [o.frame for o in sensor.handle(ack) if isinstance(o, ProcessFrame)] == [2]


def test_a_unit_restarted_with_a_half_full_queue_asks_at_once():
    """The asking died with the instance before, and no new frame would come to repeat it."""
    restored = Restored(2, 0, ((e("sensor>join"), 0),), ((1, sealed(10)), (2, sealed(10))))
    machine = Unit(SOURCE, Ecoc(SOURCE, 100, 2, restored), Stamp("sensor", 0, 2), restored, 20)
    assert [o for o in machine.start() if type(o).__name__ == "PinFrame"]


def test_a_healed_edge_sends_nothing_until_the_consumer_says_where_it_stands():
    """What was in flight is lost; going on would only make gaps."""
    split = unit(SPLIT)
    split.handle(MessageArrived(ResumeSent(Stamp("left", 0, 1), e("split>left"), 1, 0, 0)))
    assert sent(split.handle(PeerFound(e("split>left"))), OfferSent)
    split.handle(frame(e("a>split"), 1))
    assert not sent(split.handle(FrameProcessed(1, (sealed(),), 10)), FrameSent)


def test_feedback_delivers_an_earlier_frame_and_nothing_before_its_first():
    """Frame n of a loop needs n - 1 of itself; n would be a deadlock."""
    receivers = {e.edge: Receiver(e, 0, ME, Fence()) for e in LOOP.inputs}
    ports = InputPorts(receivers)
    assert receivers[e("log>sensor")].accept(frame(e("log>sensor"), 1).message) is FrameArrival.NEW
    assert ports.ready(1)
    assert ports.take(1)[1] is None
    receivers[e("log>sensor")].accept(frame(e("log>sensor"), 2).message)
    assert not ports.ready(2)


def test_a_place_lies_behind_all_that_anybody_has_seen():
    """A number sealed twice with two contents would split the consumers."""
    placing = Placing(SPLIT, restored=3)
    placing.offered(e("a>split"), 5)
    placing.resumed(e("split>left"), 9, 7)
    assert placing.decide() is None
    placing.resumed(e("split>right"), None, 0)
    place = placing.decide()
    assert (place.frame, place.received[e("split>left")], place.acked[e("split>left")]) == (9, 9, 7)
    assert place.received[e("split>right")] == 9


@pytest.mark.parametrize(("first", "place"), [(1, 0), (2, 2), (5, 5)])
def test_a_feedback_edge_that_is_empty_yet_has_lost_nothing(first, place):
    """The first frame of every new process on a cycle would be LOST."""
    placing = Placing(LOOP, restored=0)
    placing.offered(e("log>sensor"), 1)
    placing.offered(e("avg>sensor@1"), first)
    placing.resumed(e("sensor>join"), 0, 0)

    assert placing.decide().frame == place


def test_numbers_that_were_missed_are_sealed_as_lost():
    """A missing number would stop every consumer for ever."""
    restored = Restored(placed=False)
    machine = Unit(SPLIT, NoProtection(SPLIT, 1, 2, restored), Stamp("split", 0, 2), restored, 1000)
    machine.start()
    machine.handle(MessageArrived(OfferSent(Stamp("a", 0, 1), e("a>split"), 5, answer=True)))
    machine.handle(MessageArrived(ResumeSent(Stamp("left", 0, 1), e("split>left"), 1, 4, 2)))
    said = machine.handle(MessageArrived(ResumeSent(Stamp("right", 0, 1), e("split>right"), 1, 2, 2)))
    assert SkipFrames(0, 4) in said
    lost = sent(said, FrameSent)
    assert [(m.edge, m.frame, m.kind, m.checksum) for m in lost] == [
        (e("split>right"), 3, Kind.LOST, LOST_CHECKSUM),
        (e("split>right"), 4, Kind.LOST, LOST_CHECKSUM),
    ]
    # The next number is not lost: the unit will make it.
    assert [number for number, _ in machine.queue.contents()] == [3, 4]


def test_several_frames_are_begun_and_end_in_order():
    """The board permits more than one; a frame that ends before the one before it would be sealed under its number."""
    machine = Unit(MIDDLE, Ecoc(MIDDLE, 100, 1, Restored()), ME, Restored(), 10_000, ahead=2)
    machine.start()
    for number in (1, 2, 3):
        machine.handle(frame(e("a>join"), number))
    begun = [o.frame for number in (1, 2, 3) for o in machine.handle(frame(e("b>join"), number))]
    assert begun == [1, 2]
    assert [o.frame for o in machine.handle(FrameProcessed(1, (sealed(),), 10)) if isinstance(o, ProcessFrame)] == [3]
    with pytest.raises(BrokenInvariant, match="frame 3 after 1, begun up to 3"):
        machine.handle(FrameProcessed(3, (sealed(),), 10))


def test_no_frame_is_begun_for_which_the_queue_has_no_room():
    """Those under way will be about as large as the newest one."""
    machine = Unit(SOURCE, Ecoc(SOURCE, 100, 1, Restored()), Stamp("sensor", 0, 1), Restored(), 25, ahead=4)
    machine.start()
    for number in range(1, 5):
        machine.handle(frame(e("log>sensor"), number))
    said = machine.handle(FrameProcessed(1, (sealed(10),), 10))
    assert [o.frame for o in said if isinstance(o, ProcessFrame)] == []  # 2, 3 and 4 were begun before a size was known


def test_a_message_on_an_unknown_edge_stops_the_unit():
    with pytest.raises(BrokenInvariant, match="unknown edge"):
        unit().handle(frame(e("x>join"), 1))


def test_a_refusal_that_names_no_higher_epoch_is_not_obeyed():
    """It is about a former instance of this unit and came late; nobody would run it any more."""
    join = unit()
    assert join.handle(MessageArrived(RefusalSent(Stamp("avg", 0, 1), ME, 1))) == []
    join.handle(frame(e("a>join"), 1))
    assert [o.frame for o in join.handle(frame(e("b>join"), 1)) if isinstance(o, ProcessFrame)] == [1]


def test_a_consumer_that_may_lose_is_sent_only_what_it_does_not_hold():
    """All that is queued would travel again at each contact."""
    split = unit(SPLIT)
    for number in (1, 2, 3):
        split.handle(frame(e("a>split"), number))
        split.handle(FrameProcessed(number, (sealed(),), 10))
    said = split.handle(MessageArrived(ResumeSent(Stamp("left", 0, 1), e("split>left"), 1, 2, 0, lossy=True)))
    assert [(m.first, m.answer) for m in sent(said, OfferSent)] == [(3, True)]
    assert [m.frame for m in sent(said, FrameSent)] == [3]


def test_what_a_feedback_edge_has_not_delivered_weighs_nothing():
    """Extension or checkpoint is decided by the sizes of inputs."""
    protection = Extended(LOOP, 100, 1, Restored())
    sensor = Unit(LOOP, protection, Stamp("sensor", 0, 1), Restored(), 10_000)
    sensor.start()
    sensor.handle(frame(e("log>sensor"), 1))
    sensor.handle(FrameProcessed(1, (sealed(),), 10))
    assert protection._sizes == {e("log>sensor"): {1: 10}, e("avg>sensor@1"): {0: 0}}
