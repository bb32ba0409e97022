"""`durability=` says what a loss of power may cost, and is refused where it would say nothing."""

from __future__ import annotations

import pytest

import holdfast as hf
from holdfast.errors import UsageError
from holdfast.graph.rules import check_structure


def _process(**more):
    p = hf.StreamProcess("p", frame="1 second", time="ts", **more)
    p.source("rows", hf.read.files("*.csv"), schema="ts timestamp, v bigint")
    p.map("kept", of="rows", select=["ts", "v"])
    p.sink("kept", hf.write.sqlite("p.db", "kept"), promise=hf.lossless)
    return p


def _codes(p):
    return {finding.code: finding for finding in check_structure(p.graph()) if finding.code.startswith("HF-R")}


def test_synced_is_the_default_and_nothing_is_said_of_it():
    assert _process().graph().durability == "synced" and _codes(_process()) == {}


def test_lossless_is_warned_of_where_power_may_cost_rows():
    found = _codes(_process(durability="fast"))

    assert list(found) == ["HF-R054"] and found["HF-R054"].warning
    assert _codes(_process()) == {}  # as its last line says


def test_fast_is_refused_where_hosts_decide():
    p = _process(durability="fast")
    p.protect(hf.ecoc(every=hf.frames(2)))

    assert list(_codes(p)) == ["HF-R050"]
    kept = _process()  # as it says: without durability='fast'
    kept.protect(hf.ecoc(every=hf.frames(2)))
    assert "HF-R050" not in _codes(kept)


def test_another_word_is_refused():
    with pytest.raises(UsageError) as refused:
        _process(durability="mostly")
    assert refused.value.code == "HF-C003"
