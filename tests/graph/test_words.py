"""One thing has one word; an old word is refused and names the new one, and what was kept under it is still read."""

from __future__ import annotations

import inspect

import pytest

import holdfast as hf
from holdfast.engine.run.deployment import describe
from holdfast.errors import UsageError
from holdfast.graph.fingerprint import fingerprint
from holdfast.graph.units import cut

# What a version that said `per=`, `outputs=`, `into=` and `on_error="stop"` wrote into deployment.json.
OF_BEFORE = {
    "alarms": "ea6d6e244a8c7366f8b48cbdf983c058",
    "counted": "6ea435d8394d0ed30842252749c007d8",
    "mean": "1646ead6a57dd4860d0182b7895d1cf3",
    "both": "8f229e3a503842e1563ab8f37dc1df5f",
    "parts": "33fa01edf773f1c54f88f38edb786d58",
}


def alarms(readings, *, limit=80.0):
    return {"hot": readings, "cold": readings}


def counted(state, readings):
    state["n"] = state.n + 1
    return state, readings


def words() -> hf.StreamProcess:
    p = hf.StreamProcess("words", frame="1 second", time="ts")
    p.param("limit", 80.0, by="zone")
    p.source("readings", hf.read.files("readings.csv"), schema="ts timestamp, zone int, celsius double")
    p.operator(emits=["hot", "cold"])(alarms)
    p.keyed(by="zone", state="n int", emits="zone int, n int", on_error="quarantine")(counted)
    p.aggregate("mean", of="readings", by="zone", window="10 seconds", emits={"mean": "avg(celsius)"}, on_error="fail")
    p.join("both", left="readings", right="counted", on="zone", within="5 seconds")
    p.split("parts", of="readings", emits={"warm": "celsius > 20", "rest": "celsius <= 20"})
    return p


def test_a_renamed_word_is_no_change_of_an_operator():
    """A state folder of the version before would be refused, or begin with empty state, for the sake of a word."""
    assert {each.name: fingerprint(each) for each in words().graph().operators} == OF_BEFORE


def test_a_deployment_says_nothing_that_a_renamed_word_changes():
    """Clock, cut and fingerprints decide whether a folder fits; none of them knows how a policy is called."""
    graph = words().graph()
    described = str(describe(graph, cut(graph), None))

    assert [word for word in ("on_error", "fail", "stop", "quarantine", "emits") if word in described] == []


def old(process: hf.StreamProcess):
    yield "by='zone'", lambda: process.param("limit", 80.0, per="zone")
    yield "emits=['hot', 'cold']", lambda: process.operator(outputs=["hot", "cold"])
    yield "on_error='fail'", lambda: process.operator(on_error="stop")
    yield "on_error='fail'", lambda: process.keyed("zone", state="n int", emits="n int", on_error="stop")
    yield "on_error='fail'", lambda: process.filter("f", of="readings", where="true", on_error="stop")
    yield "on_error='fail'", lambda: process.sink("readings", hf.write.console(), on_error="stop")
    yield "by=['zone', 'site']", lambda: process.keyed("zone", "site", state="n int", emits="n int")
    yield "by='zone'", lambda: process.keyed(keys="zone", state="n int", emits="n int")
    yield "by='zone'", lambda: process.aggregate("a", of="readings", keys="zone", emits={"n": "count(*)"})
    yield "on='zone'", lambda: process.join("j", left="a", right="b", by="zone", within="1 second")
    yield "emits={'hot': 'celsius > 80'}", lambda: process.split("s", of="readings", into={"hot": "celsius > 80"})
    yield "missing='fail'", lambda: hf.read.files("a.jsonl", missing="error")
    yield "missing='fail'", lambda: hf.read.lines("tcp://127.0.0.1:9000", missing="error")
    yield "missing='fail'", lambda: hf.read.mqtt("mqtt://broker/a", missing="error")
    yield "hf.snapshot(every)", lambda: hf.checkpoint("5 seconds")


def test_an_old_word_is_refused_with_its_new_name():
    """HF-C060: who moves to this version is told on the line, not by a missing argument."""
    for new, said in old(hf.StreamProcess("old", frame="1 second", time="ts")):
        with pytest.raises(UsageError) as refused:
            said()
        assert (refused.value.code, new in refused.value.do) == ("HF-C060", True), refused.value
        assert refused.value.where.startswith("tests/graph/test_words.py:"), refused.value


def test_a_misspelt_word_names_the_nearest_one():
    """A word that is silently not known would be a setting that does not hold."""
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    for meant, said in (
        ("delay_max", lambda: p.filter("f", of="a", where="true", delay_maks="1 second")),
        ("emits", lambda: p.operator(emit=["a"])),
        ("late", lambda: p.source("s", object(), lat="drop")),
        ("grace", lambda: hf.StreamProcess("q", frame="1 second", grac="1 second")),
        ("promise", lambda: p.sink("s", object(), promises=hf.lossless)),
    ):
        with pytest.raises(UsageError) as refused:
            said()
        assert (refused.value.code, refused.value.do) == ("HF-C003", f"did you mean '{meant}'?")


def test_none_may_be_called_or_not():
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    p.protect(hf.none())

    assert hf.none() is hf.none and p.graph().protect is hf.none
    with pytest.raises(UsageError, match="HF-C003"):
        hf.none("5 seconds")
    with pytest.raises(UsageError, match="HF-C003"):
        hf.snapshot("5 seconds")()


def test_the_settings_of_built_in_operators_are_part_of_their_signature():
    """`**settings` says nothing to an editor or to the reference."""
    for method in (hf.StreamProcess.aggregate, hf.StreamProcess.union, hf.StreamProcess.map):
        parameters = inspect.signature(method).parameters
        assert parameters["on_error"].default == "fail"
        assert not any(each.kind is each.VAR_KEYWORD for each in parameters.values())
