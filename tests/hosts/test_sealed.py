"""What lies in a store can be checked by itself: manifests, facts, names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.graph.edge_ids import Consumer, EdgeId
from holdfast.hosts.sealed import Damaged, NewerFormat, from_json, is_whole, quoted, sealed, to_json, unsealed
from holdfast.hosts.stores import file_name
from holdfast.protocols.messages import Manifest

names = st.from_regex(r"\w{1,9}", fullmatch=True)
consumers = st.builds(Consumer, st.sampled_from(["unit", "sink"]), names)
edges = st.builds(EdgeId, names, consumers, st.integers(0, 9))
manifests = st.builds(
    Manifest,
    unit=st.text(max_size=20),
    epoch=st.integers(0, 2**60),
    serial=st.integers(0, 2**60),
    frame=st.integers(-1, 2**60),
    queues=st.lists(st.tuples(edges, st.integers(0, 2**60)), max_size=3).map(tuple),
    files=st.lists(st.binary(max_size=9).map(lambda c: file_name("f", c)), max_size=3).map(tuple),
)


@given(manifests)
def test_a_manifest_comes_back_from_its_json(manifest):
    assert from_json(to_json(manifest)) == manifest


@given(manifests, st.data())
def test_a_manifest_with_any_other_bytes_is_damaged_or_the_same(manifest, data):
    content = bytearray(to_json(manifest))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert from_json(bytes(content)) == manifest
    except (Damaged, NewerFormat):
        pass


@given(st.text(max_size=20), st.text(max_size=20))
def test_different_names_have_different_paths(one, other):
    for dots in (False, True):
        assert (quoted(one, dots=dots) == quoted(other, dots=dots)) == (one == other)
    assert "/" not in quoted(one) and "." not in quoted(one)


@given(st.text(max_size=9), st.binary(max_size=50), st.binary(max_size=50))
def test_a_name_fits_its_content_alone(prefix, content, other):
    name = file_name(prefix, content)
    assert is_whole(name, content)
    assert is_whole(name, other) == (content == other)


def test_a_fact_of_no_known_shape_is_damaged():
    assert unsealed(sealed({"epoch": 3})) == {"epoch": 3}
    for content in (b"", b"[]", b"3", b'{"format": 1}', b"\xff", sealed({"epoch": 3}).replace(b"1,", b"0,", 1)):
        with pytest.raises(Damaged):
            unsealed(content)
