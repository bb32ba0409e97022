"""Activation: one holder per epoch, the newest checkpoint, or waiting."""

from holdfast.protocols.activation import (
    Activation,
    ClaimAnswered,
    CopyFetched,
    EpochPassed,
    FetchCopy,
    GiveWay,
    NearCheckpoint,
    RetryDue,
    SendClaim,
    StartUnit,
)
from holdfast.protocols.messages import ClaimGranted, ClaimRefused, Manifest

OLD = Manifest("join", 1, 1, 4, (), ("f4",))
NEW = Manifest("join", 1, 2, 8, (), ("f8",))


def activation(near=None, stores=("a", "b", "c"), needed=2, known=1):
    machine = Activation("join", "me", stores, needed, known, near)
    machine.start()
    return machine


def granted(store, manifest=None, epoch=2, before=1):
    return ClaimAnswered(ClaimGranted(store, "join", epoch, "me", before, manifest))


def refused(store, current, epoch=2):
    return ClaimAnswered(ClaimRefused(store, "join", epoch, "me", current))


def test_no_start_without_a_quorum_of_registers():
    """A cut-off supervisor must not start a second instance."""
    machine = activation()
    assert machine.handle(granted("a")) == []
    assert machine.handle(granted("b")) == [StartUnit(2, None, None, None, 0)]


def test_the_newest_checkpoint_of_the_quorum_is_taken():
    """Upstream may have dropped the inputs of everything before it."""
    machine = activation()
    machine.handle(granted("a", OLD))
    assert machine.handle(granted("b", NEW)) == [FetchCopy("b", 2, NEW)]
    assert machine.handle(CopyFetched("b", NEW, True, NEW)) == [StartUnit(2, None, NEW, "b", 0)]


def test_only_a_checkpoint_with_enough_copies_is_acknowledged():
    """The next claim may miss a lone copy and start before it."""
    machine = activation()
    machine.handle(granted("a", NEW))
    machine.handle(granted("b", NEW))
    (start,) = machine.handle(CopyFetched("a", NEW, True, NEW))
    assert start.stored == 8


def test_a_damaged_copy_is_passed_over():
    """k copies are of no use if the first bad one ends the search."""
    machine = activation()
    machine.handle(granted("a", NEW))
    machine.handle(granted("b", NEW))
    assert machine.handle(CopyFetched("a", NEW, False, NEW)) == [FetchCopy("b", 2, NEW)]


def test_it_waits_rather_than_start_from_an_older_checkpoint():
    """An older one would meet a gap."""
    machine = activation()
    machine.handle(granted("a", OLD))
    machine.handle(granted("b", NEW))
    machine.handle(CopyFetched("b", NEW, False, NEW))
    machine.handle(CopyFetched("a", NEW, False, OLD))
    assert machine.handle(CopyFetched("c", NEW, False, None)) == []
    again = machine.handle(RetryDue())
    assert len(again) == 3
    assert all(isinstance(o, SendClaim) and o.claim.epoch == 3 for o in again)


def test_a_newer_checkpoint_met_on_the_way_is_as_good():
    """A store outside the quorum may have replaced the only whole copy."""
    machine = activation()
    machine.handle(granted("a", OLD))
    machine.handle(granted("b"))
    assert machine.handle(CopyFetched("a", OLD, False, OLD)) == [FetchCopy("b", 2, OLD)]
    machine.handle(CopyFetched("b", OLD, False, None))
    said = machine.handle(CopyFetched("c", OLD, False, NEW))
    assert said == [FetchCopy("a", 2, NEW)]


def test_the_near_checkpoint_of_the_last_instance_is_preferred():
    """It is at hand, and holds all that was processed."""
    near = NearCheckpoint(epoch=1, frame=9)
    machine = activation(near)
    machine.handle(granted("a", NEW))
    assert machine.handle(granted("b", NEW)) == [StartUnit(2, near, NEW, None, 8)]


def test_a_near_checkpoint_from_before_another_instance_is_not_used():
    """That one may have gone further, and upstream dropped what this one needs."""
    machine = activation(NearCheckpoint(epoch=1, frame=9), known=2)
    machine.handle(granted("a", NEW, epoch=3, before=2))
    assert machine.handle(granted("b", NEW, epoch=3, before=2)) == [FetchCopy("a", 3, NEW)]


def test_a_refused_claim_tries_a_higher_number():
    """Somebody else holds this one."""
    machine = activation()
    assert machine.handle(refused("a", 6)) == []
    said = machine.handle(refused("b", 5))
    assert {o.claim.epoch for o in said} == {7}


def test_grants_of_an_earlier_attempt_do_not_count():
    """They are for a number that was given up."""
    machine = activation()
    machine.handle(RetryDue())
    machine.handle(granted("a", epoch=2))
    assert machine.handle(granted("b", epoch=2)) == []


def test_it_gives_way_to_a_higher_epoch():
    """Another activation won while this one fetched."""
    machine = activation()
    machine.handle(granted("a", NEW))
    machine.handle(granted("b", NEW))
    assert machine.handle(EpochPassed(3)) == [GiveWay(3)]
    assert machine.handle(CopyFetched("a", NEW, True, NEW)) == []


def test_pins_behind_the_newest_manifest_are_handed_on_and_no_others():
    """An older one, stored under the new epoch, would put the unit back behind its acks."""
    machine = activation(NearCheckpoint(1, 12, pins=((1, 6), (2, 8), (3, 11))))
    machine.handle(granted("a", OLD))
    (start,) = machine.handle(granted("b", NEW))
    assert start.near is not None
    assert start.pinned == ((3, 11),)


def won(*manifests, near=None, known=1, before=1):
    """A machine whose claim of three stores is granted by the first two or more, in this order."""
    machine = activation(near, known=known)
    said = []
    for store, manifest in zip(("a", "b", "c"), manifests, strict=False):
        said = machine.handle(granted(store, manifest, epoch=known + 1, before=before))
    return machine, said


def test_the_first_number_claimed_is_the_one_after_what_is_known():
    """A number left out is harmless; one that was used before is not, and neither may come by accident."""
    machine = Activation("join", "me", ("a",), 1, 0, None)
    assert [(o.store, o.claim.epoch) for o in machine.start()] == [("a", 1)]


def test_a_grant_of_an_earlier_number_does_not_count_for_the_next():
    """Two claimants could each hold half of two numbers and both start."""
    machine = activation()
    machine.handle(granted("a", epoch=2))
    machine.handle(RetryDue())
    assert machine.handle(granted("b", epoch=3, before=2)) == []


def test_a_refusal_of_an_earlier_number_does_not_count_for_the_next():
    """Each retry would give its number up sooner, until none is ever held."""
    machine = activation()
    machine.handle(refused("a", 1))
    machine.handle(RetryDue())
    assert machine.handle(refused("b", 3, epoch=3)) == []
    assert machine.handle(refused("a", 3, epoch=2)) == []
    assert {o.claim.epoch for o in machine.handle(refused("c", 3, epoch=3))} == {4}


def test_a_copy_that_comes_while_a_new_claim_is_under_way_starts_nothing():
    """The new number is not held yet: somebody else may have it."""
    machine, _ = won(NEW, NEW)
    for store in ("a", "b", "c"):
        machine.handle(CopyFetched(store, NEW, False, NEW))
    machine.handle(RetryDue())
    assert machine.handle(CopyFetched("a", NEW, True, NEW)) == []


def test_a_new_claim_tries_every_store_again():
    """The copy that could not be read then may be readable now."""
    machine, _ = won(NEW, NEW)
    for store in ("a", "b", "c"):
        machine.handle(CopyFetched(store, NEW, False, NEW))
    machine.handle(RetryDue())
    machine.handle(granted("a", NEW, epoch=3, before=2))
    assert machine.handle(granted("b", NEW, epoch=3, before=2)) == [FetchCopy("a", 3, NEW)]


def test_answers_that_come_after_the_claim_is_won_change_nothing():
    """A fetch begun twice may end in two starts; a number given up while it is held ends in none."""
    machine, _ = won(NEW, NEW)
    assert machine.handle(granted("c", NEW)) == []
    assert machine.handle(refused("c", 9)) == []
    assert machine.handle(refused("a", 9)) == []
    assert machine.handle(CopyFetched("a", NEW, True, NEW)) == [StartUnit(2, None, NEW, "a", 8)]


def test_a_copy_of_another_checkpoint_than_the_chosen_one_is_not_used():
    """It is the late answer to a fetch that was given up, and may be older."""
    machine, _ = won(OLD, NEW)
    assert machine.handle(CopyFetched("a", OLD, True, OLD)) == []


def test_an_epoch_that_is_not_higher_is_no_reason_to_give_way():
    """A store that heard of our own claim says our own number."""
    machine, _ = won(NEW, NEW)
    assert machine.handle(EpochPassed(2)) == []
    assert machine.handle(EpochPassed(1)) == []
    assert not machine.over


def test_one_store_that_knows_of_a_later_instance_is_enough_to_leave_the_near_checkpoint():
    """The others missed that instance; upstream did not."""
    machine = activation(NearCheckpoint(epoch=1, frame=9), known=2)
    machine.handle(granted("a", NEW, epoch=3, before=2))
    assert machine.handle(granted("b", NEW, epoch=3, before=1)) == [FetchCopy("a", 3, NEW)]


def test_a_near_checkpoint_is_used_unless_a_newer_one_of_its_own_epoch_is_stored():
    """Older than a stored one it would stand before its acks; of a former epoch it knows more than the store."""
    _, said = won(None, None, near=NearCheckpoint(1, 9))
    assert said == [StartUnit(2, NearCheckpoint(1, 9), None, None, 0)]
    _, said = won(NEW, NEW, near=NearCheckpoint(1, 8))
    assert said[0].near == NearCheckpoint(1, 8)
    _, said = won(NEW, NEW, near=NearCheckpoint(1, 7))
    assert said == [FetchCopy("a", 2, NEW)]
    _, said = won(NEW, NEW, near=NearCheckpoint(2, 7), known=2, before=2)
    assert said[0].near == NearCheckpoint(2, 7)


def test_a_fetch_whose_answer_is_lost_is_sent_again_under_the_same_epoch():
    """A new claim would fence nobody and cost a round; waiting would never end."""
    machine, _ = won(NEW, NEW)
    assert machine.handle(RetryDue()) == [FetchCopy("a", 2, NEW)]


def test_a_unit_is_started_once():
    """Two instances with one epoch would fence nobody."""
    machine, said = won(None, None)
    assert isinstance(said[0], StartUnit)
    assert machine.over
    assert machine.handle(RetryDue()) == []


def test_without_a_stored_checkpoint_every_pin_is_behind_it():
    """The pins are all there is of the last instance's checkpoints."""
    _, said = won(None, None, near=NearCheckpoint(1, 3, pins=((1, 1), (2, 3))))
    assert said[0].pinned == ((1, 1), (2, 3))


def test_of_two_checkpoints_with_enough_copies_the_newer_is_acknowledged():
    """The older one is there only because some stores have not cleaned up yet."""
    machine = activation(stores=("a", "b", "c", "d", "e"), needed=2)
    for store, manifest in (("a", OLD), ("b", OLD), ("c", NEW), ("d", NEW)):
        said = machine.handle(granted(store, manifest))
    assert said == [FetchCopy("c", 2, NEW)]
    (start,) = machine.handle(CopyFetched("c", NEW, True, NEW))
    assert start.stored == 8


def test_what_the_host_has_is_used_though_stores_know_less_than_it_does_and_one_has_learnt_again():
    """What stores know was asked before the claim; one that was reopened in between made a good host start from nothing."""
    near = NearCheckpoint(epoch=3, frame=17)
    for before in (0, 3):  # all have lost their folders; one has learnt again by now
        machine = activation(near, known=3)
        machine.handle(granted("a", None, epoch=4, before=0))
        assert machine.handle(granted("b", None, epoch=4, before=before)) == [StartUnit(4, near, None, None, 0)]
