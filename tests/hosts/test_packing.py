"""Containers as bytes: small and large ones come out as they went in, and so do those of the format before."""

from __future__ import annotations

import json
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Broken
from holdfast.hosts.packing import pack, unpack
from holdfast.hosts.sealed import from_json, sealed, to_json
from holdfast.protocols.messages import Manifest

# As `pack` wrote it when the format was made: with other words these bytes cannot be read.
WRITTEN = bytes.fromhex("686663337383278ad4e474ace9c21c9e2e8c4db1a685da5a00")
RAW = b'{"unit":"ecg","epoch":1,"serial":7,"frame":35,"base":true,"runs":{}}'


@given(st.binary(max_size=300), st.sampled_from([1, 30, 400]))
def test_what_is_packed_comes_out_as_it_went_in(content, times):
    assert unpack(pack(content * times)) == content * times


def test_backups_written_earlier_are_read():
    """Words that change with a version would make every backup of the version before unreadable."""
    assert unpack(WRITTEN) == RAW
    before = b"holdfast checkpoint 2\n" + struct.pack("<Q", len(RAW)) + pa.compress(RAW, codec="zstd", asbytes=True)
    assert unpack(before) == RAW


def test_manifests_written_earlier_are_read():
    manifest = Manifest("ecg", 1, 7, 35, (("ecg>filter", 30),), ("000001-000007-ab",))
    before = {
        "unit": "ecg",
        "epoch": 1,
        "serial": 7,
        "frame": 35,
        "queues": [["ecg>filter", 30]],
        "files": ["000001-000007-ab"],
    }

    assert from_json(sealed(before)) == from_json(to_json(manifest)) == manifest
    assert json.loads(to_json(manifest))["body"][0] == "ecg"


@pytest.mark.parametrize("content", [b"", b"hfc", b"something else", pack(RAW)[:-3]])
def test_what_is_no_container_is_not_taken_for_one(content):
    with pytest.raises(Broken):
        unpack(content)
