"""A run that goes on with other versions says so, and is refused where they may change bytes."""

from __future__ import annotations

import pytest

from holdfast.engine.run.deployment import compare
from holdfast.engine.run.versions import compare_versions, versions_here
from holdfast.errors import StateRefused
from tests.engine.test_deployment import deployment, process

HERE = {
    "machine": "x86_64",
    "python": "3.11.7",
    "pyspark": "4.3.0",
    "pyarrow": "26.0.1",
    "pandas": "2.3.3",
    "numpy": "2.4.6",
    "holdfast": "0.2.0",
}


def test_all_that_may_change_bytes_is_recorded():
    recorded = deployment(process())["runtime"]

    assert recorded.keys() == HERE.keys() and all(recorded.values()) and recorded == versions_here()


@pytest.mark.parametrize(
    "other",
    [
        {"python": "3.12.1"}, {"pyspark": "4.4.0"}, {"pyspark": "5.3.0"}, {"pyarrow": "27.0.1"}, {"pandas": "2.4.0"},
        {"numpy": "2.5.0"}, {"holdfast": "0.3.0"}, {"machine": "aarch64"}, {"pandas": "3.3.3", "python": "3.11.8"},
    ],
    ids=str,
)  # fmt: skip
def test_what_may_change_bytes_is_refused_until_it_is_accepted(other):
    """HF-R066: a sum that is carried on by another numpy rounds differently, and nothing else would notice."""
    with pytest.raises(StateRefused) as refused:
        compare_versions(HERE, HERE | other, accept=False)
    assert (refused.value.code, refused.value.exit_code) == ("HF-R066", 6)
    assert "--accept-versions" in refused.value.do and next(iter(other.values())) in refused.value.what

    said = compare_versions(HERE, HERE | other, accept=True)
    assert len(said) == len(other) and all(sentence.endswith("as you decided") for sentence in said)


@pytest.mark.parametrize(
    "other", [{"python": "3.11.9"}, {"pyspark": "4.3.1"}, {"pyarrow": "26.1.0"}, {"holdfast": "0.2.7"}]
)
def test_a_patch_is_said_and_taken(other):
    [said] = compare_versions(HERE, HERE | other, accept=False)
    assert said.endswith("a patch")


def test_a_folder_that_recorded_less_passes_and_gets_the_rest():
    """Folders of the version before have no numpy, older ones nothing at all."""
    graph = process()
    new = deployment(graph)
    for kept in ({}, {"python": new["runtime"]["python"]}):
        old = deployment(graph) | {"runtime": kept, "start": {}}
        assert compare(old, new, fresh=(), keep=()).sentences() == []
    del old["runtime"]
    assert compare(old, new, fresh=(), keep=()).sentences() == []


def test_the_deployment_is_compared_and_the_run_says_what_was_accepted():
    """HF-R066, and with the words of the error it goes on."""
    new = deployment(process())
    old = new | {"runtime": new["runtime"] | {"pyspark": "4.2.0"}}
    with pytest.raises(StateRefused, match="HF-R066"):
        compare(old, new, fresh=(), keep=())
    changes = compare(old, new, fresh=(), keep=(), accept_versions=True)

    assert changes.sentences() == [f"pyspark 4.2.0 -> {new['runtime']['pyspark']}: accepted as you decided"]
    assert compare(None, new, fresh=(), keep=()).sentences() == []
