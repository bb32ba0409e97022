"""What a unit tells its workers: nothing of it is lost or changed on the way."""

import json

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.unit.frame_job import FrameJob, FrameTask, PortInput
from holdfast.protocols.taint import Mark
from holdfast.sources.reference import Reference

RANGES = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=3).map(tuple)
REFERENCE = Reference("a.csv", "csv", ((0, 7),), 120, 5, "ab12")
PORTS = st.one_of(
    st.builds(PortInput, st.text(max_size=8), st.just(()), RANGES),
    st.builds(lambda ranges: PortInput.of((REFERENCE,), list(ranges)), RANGES),
)
MARKS = st.dictionaries(st.sampled_from(["hot", "seen"]), st.builds(Mark, st.integers(), st.text(max_size=9)))
FRAMES = st.builds(
    FrameTask,
    st.integers(1, 1 << 40),
    st.integers(),
    st.integers(),
    st.dictionaries(
        st.text(max_size=4), st.fixed_dictionaries({"value": st.floats(allow_nan=False), "per": st.none()})
    ),
    st.dictionaries(st.text(max_size=9), PORTS, max_size=3),
    st.lists(st.text(max_size=9), max_size=2).map(tuple),
    MARKS,
)
JOBS = st.builds(
    FrameJob, st.integers(1), st.text(), st.dictionaries(st.text(), st.dictionaries(st.text(), st.lists(st.integers()))),
    st.lists(FRAMES, min_size=1, max_size=3).map(tuple), st.booleans(),
)  # fmt: skip


@given(JOBS)
def test_a_worker_is_told_what_the_unit_says(job):
    assert FrameJob.from_json(job.to_json()) == job


def test_a_port_is_a_file_or_references_and_never_both():
    """An empty name is a port without rows, not one whose rows are elsewhere."""
    job = FrameJob(
        3, "staging", {}, (FrameTask(1, 2, 0, {}, {"a": PortInput(""), "b": PortInput.of((REFERENCE,), [])}),)
    )
    [frame] = json.loads(job.to_json())["frames"]
    assert frame["ports"]["a"] == {"file": ""}
    assert set(frame["ports"]["b"]) == {"references"}
    assert list(FrameJob.from_json(job.to_json()).frames[0].ports["b"].opened()) == [REFERENCE]


def test_what_is_not_asked_for_is_not_said():
    """The property travels with every task of every frame."""
    job = FrameJob(3, "staging", {}, (FrameTask(1, 2, 0, {}, {}),))
    assert set(json.loads(job.to_json())) == {"epoch", "staging", "state", "frames"}
    assert set(json.loads(job.to_json())["frames"][0]) == {"n", "boundary_us", "since_us", "params", "ports"}
