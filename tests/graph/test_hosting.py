"""Hosts and who lives on them, as declared."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.errors import HoldfastError


def test_operators_may_be_placed_on_the_hosts_there_are_without_a_declaration():
    p = hf.StreamProcess("ward", frame="1 second", time="ts")
    p.place("host2", "pulse")
    with pytest.raises(HoldfastError, match="host3"):
        p.place("host3", "pulse")
