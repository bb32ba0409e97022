"""Placing: behind all that anybody has seen, and no further."""

from holdfast.protocols.placing import Placing
from tests.protocols.wirings import LOOP, SPLIT, e


def answered(restored=0, offered=1, left=(0, 0), right=(0, 0)):
    placing = Placing(SPLIT, restored)
    placing.offered(e("a>split"), offered)
    for edge, answer in ((e("split>left"), left), (e("split>right"), right)):
        placing.resumed(edge, *answer)
    return placing


def test_a_consumer_that_goes_on_storing_moves_its_answer_and_no_other():
    """Frames it has acknowledged need not be sealed as LOST, and those it holds must not be sealed again."""
    placing = answered(left=(9, 7), right=(None, 0))
    placing.acked(e("split>left"), 8)
    placing.acked(e("split>right"), 20)
    place = placing.decide()
    assert (place.frame, place.received[e("split>left")], place.acked[e("split>left")]) == (9, 9, 8)
    placing.acked(e("split>left"), 7)
    assert placing.decide() == place
    placing.acked(e("split>left"), 11)
    place = placing.decide()
    assert (place.frame, place.received[e("split>left")], place.acked[e("split>left")]) == (11, 11, 11)


def test_an_ack_before_the_answer_sets_no_condition():
    """It may be one of a former connection."""
    placing = Placing(SPLIT, 0)
    placing.acked(e("split>left"), 5)
    placing.offered(e("a>split"), 1)
    placing.resumed(e("split>right"), 0, 0)
    assert placing.decide() is None


def test_nobody_has_acknowledged_more_than_it_holds():
    """A consumer that forgot its inputs names a lower place than its backup's."""
    assert answered(left=(5, 7)).decide().acked[e("split>left")] == 5


def test_a_place_waits_for_every_producer_but_those_of_feedback():
    """Inputs that are gone would be waited for; over feedback the producer may wait for this unit."""
    placing = Placing(SPLIT, 0)
    placing.resumed(e("split>left"), 0, 0)
    placing.resumed(e("split>right"), 0, 0)
    assert placing.decide() is None
    loop = Placing(LOOP, 0)
    loop.offered(e("log>sensor"), 4)
    loop.resumed(e("sensor>join"), 0, 0)
    assert loop.decide().frame == 3


def test_a_place_is_not_before_the_state():
    """The state has seen those frames and would see them twice."""
    assert answered(restored=12, left=(3, 3), right=(4, 4)).decide().frame == 12
