"""Epochs: each number granted once, lower ones refused for good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocols.fencing import EpochRegister, Fence, claim_quorum
from holdfast.protocols.invariants import BrokenInvariant
from holdfast.protocols.messages import Stamp


def test_a_lower_epoch_is_refused_after_a_higher_one_was_heard():
    """The old instance may wake at any time."""
    fence = Fence()
    assert fence.admit(Stamp("join", 0, 2))
    assert not fence.admit(Stamp("join", 0, 1))
    assert fence.admit(Stamp("join", 0, 2))


def test_slots_are_fenced_apart():
    """Replicas run side by side; one must not silence the other."""
    fence = Fence()
    fence.admit(Stamp("join", 0, 5))
    assert fence.admit(Stamp("join", 1, 1))


def test_a_register_grants_each_number_once():
    """Two issuers of one epoch cannot fence each other."""
    register = EpochRegister(3)
    assert not register.grants(3)
    assert register.grants(4)
    assert not register.grants(4)


@given(st.integers(1, 9).flatmap(lambda k: st.tuples(st.just(k), st.integers(1, k))))
def test_every_claim_meets_every_other_and_every_stored_checkpoint(copies_needed):
    """Who misses a stored checkpoint starts from an older one and meets a gap."""
    copies, needed = copies_needed
    quorum = claim_quorum(copies, needed)
    assert quorum <= copies
    assert 2 * quorum > copies
    assert quorum + needed > copies


def test_the_first_epoch_is_remembered_and_strangers_have_none():
    """A directory is asked where nothing was heard; a peer that was heard is spoken to by its number."""
    fence = Fence()
    assert fence.highest("join") == 0
    fence.admit(Stamp("join", 0, 1))
    assert fence.highest("join") == fence.highest("join", 0) == 1
    assert fence.highest("join", 1) == 0


def test_a_new_register_grants_the_first_epoch():
    """Refused, no unit would ever start."""
    assert EpochRegister().current == 0
    assert EpochRegister().grants(1)


@pytest.mark.parametrize(("copies", "needed"), [(3, 0), (3, 4), (0, 0)])
def test_a_backup_of_no_copies_or_of_more_than_there_are_is_no_backup(copies, needed):
    """Its quorum would meet no checkpoint, or never be reached."""
    with pytest.raises(BrokenInvariant):
        claim_quorum(copies, needed)
