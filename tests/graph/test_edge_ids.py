"""Names of consumers and edges: one text form each, as on disk."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.graph.edge_ids import Consumer, EdgeId
from holdfast.hosts.sealed import from_json, to_json
from holdfast.protocols.messages import Manifest

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
CONSUMERS = st.builds(Consumer, st.sampled_from(["unit", "sink"]), NAMES)
STREAMS = st.one_of(NAMES, st.builds(lambda a, b: f"{a}.{b}", NAMES, NAMES))
EDGES = st.builds(EdgeId, STREAMS, CONSUMERS, st.integers(0, 30))


@given(EDGES, EDGES)
def test_a_text_names_one_edge(edge, other):
    assert EdgeId.parse(str(edge)) == edge
    assert (str(edge) == str(other)) == (edge == other)
    assert hash(edge) == hash(EdgeId.parse(str(edge))) and pickle.loads(pickle.dumps(edge)) == edge


@pytest.mark.parametrize(
    ("edge", "text"),
    [
        (EdgeId("pulse", Consumer.unit("alarms")), "pulse>alarms"),
        (EdgeId("pulse", Consumer.unit("alarms"), 2), "pulse>alarms@2"),
        (EdgeId("split.hot", Consumer.sink("hot")), "split.hot>sink hot"),
    ],
)
def test_texts_are_those_that_manifests_have_held_so_far(edge, text):
    """A store written before must be read, and one written now by an older program."""
    manifest = Manifest("u", 2, 7, 40, ((edge, 35),), ("a", "b"))
    assert str(edge) == text
    assert f'[["{text}",35]]' in to_json(manifest).decode().replace(", ", ",")
    assert from_json(to_json(manifest)) == manifest


@pytest.mark.parametrize("text", ["", "pulse", ">alarms", "pulse>", "pulse>alarms@", "pulse>@2", "pulse>a@x"])
def test_what_names_no_edge_is_refused(text):
    with pytest.raises(ValueError, match="names no edge"):
        EdgeId.parse(text)


def test_a_unit_and_a_sink_of_one_name_are_two():
    assert Consumer.unit("hot") != Consumer.sink("hot")
    assert Consumer.parse("sink hot") == Consumer.sink("hot") and Consumer.parse("sinkhole") == Consumer.unit(
        "sinkhole"
    )
