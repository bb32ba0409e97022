"""Epochs: each number granted once, lower ones refused for good."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.protocols.fencing import EpochRegister, Fence, claim_quorum
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
