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
    assert all(isinstance(o, SendClaim) and o.claim.epoch == 3 for o in machine.handle(RetryDue()))


def test_a_newer_checkpoint_met_on_the_way_is_as_good():
    """A store outside the quorum may have replaced the only whole copy."""
    machine = activation()
    machine.handle(granted("a", OLD))
    machine.handle(granted("b"))
    assert machine.handle(CopyFetched("a", OLD, False, OLD)) == [FetchCopy("b", 2, OLD)]
    machine.handle(CopyFetched("b", OLD, False, None))
    said = machine.handle(CopyFetched("c", OLD, False, NEW))
    assert isinstance(said[0], FetchCopy)
    assert said[0].manifest == NEW


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
