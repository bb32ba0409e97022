"""The two ends of an edge and the queue between: what a wire may do, and what a board without one keeps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.flow.queues import Sealed, StreamQueue
from holdfast.engine.flow.scheduler import Board
from holdfast.errors import Broken, FrameDiffers
from holdfast.frames.identity import Kind
from holdfast.protocols.edges import FrameArrival, Receiver, Sender, wanted
from holdfast.protocols.fencing import Fence
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.messages import AckSent, FrameSent, OfferSent, RefusalSent, ResumeSent, Stamp
from holdfast.protocols.queue import FrameQueue, MadeOtherwise
from holdfast.protocols.wiring import Consumer, InputEdge, OutputEdge
from tests.protocols.wirings import e, sealed

EDGE = e("a>b")
A, B = Stamp("a", 0, 1), Stamp("b", 0, 1)


def a_sender(frames=0, bytes_max=1000, size=10, **fields):
    queue = FrameQueue("a", bytes_max, acked={EDGE: 0}, **fields)
    for number in range(1, frames + 1):
        queue.seal(number, sealed(size, content=number))
    return Sender(OutputEdge(EDGE, 0), queue, A, Fence())


def a_receiver():
    return Receiver(InputEdge(EDGE, "a"), 0, B, Fence())


def resume(after, acked=0, contact=1, epoch=1, lossy=False):
    return ResumeSent(Stamp("b", 0, epoch), EDGE, contact, after, acked, lossy)


def offer(first, epoch=1):
    return OfferSent(Stamp("a", 0, epoch), EDGE, first, answer=True)


def numbers(messages):
    return [m.frame for m in messages if isinstance(m, FrameSent)]


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_every_frame_arrives_once_and_in_order_whatever_the_wire_does(data):
    """Loss, doubles and overtaking in any mixture; at the end both find each other again."""
    sender, receiver, taken = a_sender(), a_receiver(), []
    flying = [sender.offer()]
    for number in range(1, data.draw(st.integers(1, 8), "frames") + 1):
        sender.queue.seal(number, sealed(content=number))
        flying += sender.flush()
        for _ in range(data.draw(st.integers(0, 4), "moves")):
            if flying:
                _fly(data, sender, receiver, flying, taken)
    flying = [sender.offer()]
    while flying:
        _deliver(sender, receiver, flying.pop(0), flying, taken)

    assert taken == list(range(1, sender.queue.sealed + 1))


def _fly(data, sender, receiver, flying, taken):
    message = flying.pop(data.draw(st.integers(0, len(flying) - 1), "which"))
    fate = data.draw(st.sampled_from(["arrives", "is lost", "comes twice"]), "fate")
    if fate == "comes twice":
        flying.append(message)
    if fate != "is lost":
        _deliver(sender, receiver, message, flying, taken)


def _deliver(sender, receiver, message, flying, taken):
    match message:
        case OfferSent():
            receiver.contact()
            flying.append(receiver.ask(0, lossy=False, has_place=True))
        case FrameSent():
            if receiver.accept(message) is FrameArrival.GAP and receiver.should_ask():
                flying.append(receiver.ask(0, lossy=False, has_place=True))
            while receiver.received > len(taken):
                number = len(taken) + 1
                assert receiver.take(number).checksum == number
                taken.append(number)
        case ResumeSent():
            if (asking := sender.asked(message)) is not None:
                flying.extend(sender.replay(asking))


def test_nothing_is_sent_before_the_consumer_says_where_it_stands():
    sender = a_sender(3)
    assert sender.flush() == []
    assert numbers(sender.replay(resume(1))) == [2, 3]
    sender.offer()
    sender.queue.seal(4, sealed())
    assert sender.flush() == []


def test_a_frame_is_sent_once():
    sender = a_sender(2)
    sender.replay(resume(0))
    sender.queue.seal(3, sealed())
    assert numbers(sender.flush()) == [3]
    assert sender.flush() == []


def test_a_consumer_that_may_lose_is_told_what_is_left():
    """One that waits for a frame that is gone would wait for good."""
    sender = a_sender(5)
    sender.ack(3)
    answer, *frames = sender.replay(resume(1, lossy=True))
    assert (answer.first, answer.answer) == (4, True)
    assert numbers(frames) == [4, 5]
    answer, *frames = sender.replay(resume(None))
    assert (answer.first, numbers(frames)) == (4, [4, 5])


def test_a_consumer_that_may_not_lose_is_not_told_to_go_on_behind_a_gap():
    sender = a_sender(5)
    sender.ack(3)
    with pytest.raises(BrokenInvariant, match="needs frame 2 again, trimmed up to 3"):
        sender.replay(resume(1))


def test_both_ends_refuse_what_was_replaced_and_say_by_whom():
    fence = Fence()
    sender = Sender(OutputEdge(EDGE, 0), FrameQueue("a", 10, acked={EDGE: 0}), A, fence)
    receiver = Receiver(InputEdge(e("c>a"), "c"), 0, A, fence)
    assert sender.refuses(AckSent(Stamp("b", 0, 3), EDGE, 1, {})) is None
    assert sender.refuses(AckSent(Stamp("b", 0, 2), EDGE, 1, {})) == RefusalSent(A, Stamp("b", 0, 2), 3)
    stale = FrameSent(Stamp("b", 0, 2), e("c>a"), 1, Kind.STABLE, 1, 1)
    assert receiver.refuses(stale) == RefusalSent(A, Stamp("b", 0, 2), 3)


def test_who_lost_its_place_keeps_no_frame_of_an_earlier_producer():
    """The next producer may have sealed that number with other content."""
    receiver = a_receiver()
    for number in (1, 2):
        receiver.accept(FrameSent(A, EDGE, number, Kind.STABLE, number, 1))
    assert receiver.ask(0, lossy=True, has_place=False).after is None
    assert receiver.received == 0
    assert receiver.accept(FrameSent(A, EDGE, 1, Kind.STABLE, 99, 1)) is FrameArrival.NEW


@pytest.mark.parametrize(
    ("edge", "processed", "received"), [("a>b", 5, 5), ("a>b@1", 5, 4), ("a>b", 0, 0), ("a>b@1", 0, 0)]
)
def test_a_restarted_receiver_stands_where_the_state_stands(edge, processed, received):
    """One delay less far on a feedback edge, and never before the first frame."""
    assert Receiver(InputEdge(e(edge), "a"), processed, B, Fence()).received == received


def test_a_receiver_knows_what_it_has_handed_over():
    """A repeat of a processed frame is a duplicate; a number that comes again as something else is an error."""
    receiver = Receiver(InputEdge(EDGE, "a"), 3, B, Fence())
    assert receiver.accept(FrameSent(A, EDGE, 3, Kind.STABLE, 9, 1)) is FrameArrival.DUPLICATE
    receiver.accept(FrameSent(A, EDGE, 4, Kind.STABLE, 9, 1))
    with pytest.raises(BrokenInvariant, match="other content"):
        receiver.accept(FrameSent(A, EDGE, 4, Kind.LOST, 9, 1))


def test_frames_that_were_skipped_are_not_waited_for():
    receiver = a_receiver()
    receiver.accept(FrameSent(A, EDGE, 1, Kind.STABLE, 1, 1))
    assert receiver.offered(offer(4))
    assert receiver.has(3) and not receiver.has(4)
    assert (receiver.take(1).checksum, receiver.take(2)) == (1, None)
    receiver.forward(5)
    assert receiver.received == 5


@pytest.mark.parametrize(
    ("first", "missed", "taken"), [(1, False, [1, 2, 3, 4]), (2, True, [None, 2, 3, 4]), (3, True, [None, None, 3, 4])]
)
def test_frames_that_overtook_their_offer_are_kept(first, missed, taken):
    """They are not sent again, and behind the last one nothing comes that would show the gap."""
    receiver = a_receiver()
    for number in (2, 3, 4):
        assert receiver.accept(FrameSent(A, EDGE, number, Kind.STABLE, number, 1)) is FrameArrival.GAP
    assert receiver.offered(offer(first)) is missed
    if not missed:
        receiver.accept(FrameSent(A, EDGE, 1, Kind.STABLE, 1, 1))
    assert receiver.received == 4
    frames = [receiver.take(number) for number in (1, 2, 3, 4)]
    assert [frame and frame.checksum for frame in frames] == taken


def test_an_offer_of_a_new_instance_drops_what_the_former_one_sent_ahead():
    """The new one may have sealed that number with other content."""
    receiver = a_receiver()
    receiver.accept(FrameSent(A, EDGE, 4, Kind.STABLE, 4, 1))
    receiver.offered(offer(4, epoch=2))
    assert receiver.received == 3
    assert receiver.accept(FrameSent(Stamp("a", 0, 2), EDGE, 4, Kind.STABLE, 5, 1)) is FrameArrival.NEW
    assert receiver.take(4).checksum == 5


@pytest.mark.parametrize(
    ("number", "delay", "first", "answer"), [(1, 0, 1, 1), (2, 2, 1, None), (3, 2, 1, 1), (5, 1, 5, None)]
)
def test_a_feedback_edge_brings_an_earlier_frame_and_none_before_its_first(number, delay, first, answer):
    assert wanted(number, delay, first) == answer


# ---- the queue ---------------------------------------------------------------------------


def test_a_queue_that_was_lost_knows_what_its_frames_were():
    """A frame made again with other content would split the consumers that have the first one."""
    queue = a_sender(3).queue
    queue.lose()
    assert (queue.frames, queue.sealed, queue.seen) == ({}, 0, 3)
    queue.go_back(1, {}, same=True)
    queue.seal(2, sealed(content=2))
    with pytest.raises(MadeOtherwise, match="frame 3"):
        queue.seal(3, sealed(content=77))


def test_one_that_lost_its_state_may_make_other_frames():
    queue = a_sender(3).queue
    queue.lose()
    queue.go_back(1, {}, same=False)
    queue.seal(2, sealed(content=77))
    assert queue.known == {}


def test_frames_under_way_count_as_large_as_the_newest():
    """Permitted all at once, they would fill the queue far beyond its bound."""
    queue = a_sender(2, bytes_max=50).queue
    assert [queue.has_room(under_way) for under_way in (0, 2, 3)] == [True, True, False]
    assert FrameQueue("empty", 1).has_room(7)


def test_a_bound_counts_what_is_not_taken_or_what_is_not_acknowledged():
    queue = a_sender(4, bytes_max=40).queue
    queue.resume(EDGE, 3)
    assert (queue.waiting_bytes(), queue.unacked_bytes()) == (10, 40)
    queue.keeps_unacked = True
    assert queue.waiting_bytes() == 40 and not queue.has_room(0)
    assert queue.slowest() == EDGE and FrameQueue("alone", 1).slowest() is None


def test_readers_that_stand_still_hold_nothing():
    queue = a_sender(4).queue
    queue.acked["c"] = 4
    queue.left_out.add(EDGE)
    assert [frame.checksum for frame in queue.trim()] == [1, 2, 3, 4]
    assert queue.taken_floor() == 4


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("seal"), st.integers(1, 60)),
            st.tuples(st.sampled_from(["b", "c"]), st.integers(0, 12)),
        ),
        max_size=40,
    )
)
def test_the_board_and_the_wire_keep_the_same_frames(steps):
    """What the simulator plays is what a run keeps."""
    wire = FrameQueue("a", 200, keeps_unacked=True, acked={"b": 0, "c": 0})
    board, deleted, readers = Board(closing_frames=1), [], {"b": Consumer.unit("b"), "c": Consumer.sink("c")}
    board.streams["a"] = StreamQueue("a", 200, False, keeps_unacked=True, acked=dict.fromkeys(readers.values(), 0))
    board.on_forget(lambda stream, frame: deleted.append(frame.n))
    trimmed = []
    for what, value in steps:
        if what == "seal":
            number = wire.sealed + 1
            wire.seal(number, sealed(value, content=number))
            board.seal("a", Sealed(number, 0, 1, value, str(number), 1))
        else:
            wire.ack(what, min(value, wire.sealed))
            trimmed += [frame.checksum for frame in wire.trim()]
            board.acknowledge("a", readers[what], min(value, wire.sealed))
        kept = board.streams["a"]
        assert sorted(kept.frames) == sorted(wire.frames) and kept.trimmed == wire.trimmed
        assert (kept.is_half_full, kept.has_room(1)) == (wire.is_half_full, wire.has_room(1))
    assert deleted == trimmed


def test_a_frame_made_otherwise_stops_the_run():
    board = Board(closing_frames=1)
    board.streams["a"] = StreamQueue("a", 200, False, known={1: "old"})
    with pytest.raises(FrameDiffers) as caught:
        board.seal("a", Sealed(1, 0, 1, 1, "new", 1))
    assert caught.value.code == "HF-F001"


def test_a_number_cannot_be_left_out():
    board = Board(closing_frames=1)
    board.streams["a"] = StreamQueue("a", 200, False)
    with pytest.raises(Broken, match="frame 2 of 'a' sealed after 0"):
        board.seal("a", Sealed(2, 0, 1, 1, "x", 1))
    with pytest.raises(BrokenInvariant, match="frame 2 of 'a' sealed after 0"):
        FrameQueue("a", 1).seal(2, sealed())
