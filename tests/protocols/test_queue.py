"""The output queue: what may go, when to ask, when to hold."""

import pytest

from holdfast.protocols.invariants import BrokenInvariant, ProtocolRefused
from holdfast.protocols.ports import OutputPorts
from holdfast.protocols.queue import refuse_small_bound
from tests.protocols.wirings import FEEDS_BACK, SPLIT, e, sealed


def filled(outputs, frames, bytes_max=100, size=10):
    queue = OutputPorts(outputs, bytes_max)
    for number in range(1, frames + 1):
        queue.append(number, (sealed(size),))
    return queue


def ack(queue, edge, number):
    is_news = queue.of(edge).ack(edge, number)
    queue.of(edge).trim()
    return is_news


def test_a_frame_stays_until_the_last_consumer_acked():
    """The slower consumer may restart and need it."""
    queue = filled(SPLIT.outputs, 5)
    ack(queue, e("split>left"), 5)
    assert queue.of(e("split>right")).trimmed == 0
    ack(queue, e("split>right"), 3)
    assert queue.of(e("split>left")).trimmed == 3
    assert queue.of(e("split>left")).frames[4] == sealed()


def test_an_old_ack_is_no_news():
    """Acks are cumulative; a late one must not bring anything back."""
    queue = filled(SPLIT.outputs, 5)
    assert ack(queue, e("split>left"), 4)
    assert not ack(queue, e("split>left"), 3)
    assert queue.acked[e("split>left")] == 4


def test_half_full_comes_before_full():
    """The other half is for the time a checkpoint takes."""
    queue = filled(SPLIT.outputs, 5)
    assert queue.is_half_full and queue.has_room(0)
    queue = filled(SPLIT.outputs, 10)
    assert not queue.has_room(0)


def test_feedback_does_not_hold_the_producer():
    """The consumer waits for the very frame that would be held."""
    queue = filled(FEEDS_BACK.outputs, 20)
    ack(queue, e("avg>sink avg"), 20)
    assert queue.bytes_held == 0
    assert queue.of(e("avg>sensor@1")).trimmed == 0


def test_a_bound_below_two_intervals_is_refused():
    """The producer would be held before the checkpoint that frees it is taken."""
    with pytest.raises(ProtocolRefused, match="raise the bound"):
        refuse_small_bound(bytes_max=999, every=4, frame_bytes_max=100)
    refuse_small_bound(bytes_max=1000, every=4, frame_bytes_max=100)


def test_a_restored_queue_must_have_no_hole():
    """A checkpoint that promises frames it does not hold would be found out too late."""
    with pytest.raises(BrokenInvariant, match="hole"):
        OutputPorts(SPLIT.outputs, 100, 3, [(e("split>left"), 1)], [(3, sealed())])


def test_a_restored_producer_may_stand_behind_its_consumers():
    """What it makes again, nobody needs."""
    queue = OutputPorts(SPLIT.outputs, 100, 3, [(e("split>left"), 8), (e("split>right"), 5)])
    queue.append(4, (sealed(),))
    assert queue.bytes_held == 0
    assert queue.of(e("split>left")).trimmed == 4


def test_an_ack_from_a_stranger_stops_the_unit():
    """A forgotten consumer would be the other way round."""
    with pytest.raises(BrokenInvariant):
        filled(SPLIT.outputs, 1).of(e("split>left")).ack("x", 1)
