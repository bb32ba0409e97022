"""`model`, `predict` and `advise` as the shell gives them: answers, exit codes, and what is written into a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.advised import changed
from holdfast.cli.main import app
from holdfast.cli.predicting import cost_bounds
from holdfast.errors import UsageError
from holdfast.models.files import read_model
from holdfast.models.options import Option
from holdfast.models.stream import Protect

MODEL = """
name = "ward"
flow = "waits"
frame_s = 1.0

[[operator]]
name = "ecg"
rate = 200.0

[[operator]]
name = "means"
frame_cost_s = 0.2
host = "host1"
state_bytes = 4000.0

[[operator.port]]
reads = ["ecg"]
selectivity = 0.01
state = { size = 12000.0 }

[[operator]]
name = "alarms"
frame_cost_s = 0.05
host = "host2"

[[operator.port]]
reads = ["means"]

[[output]]
operator = "alarms"
within_s = 5.0
late_at_most = 0.01
lost_at_most = 0.01
wrong_at_most = 0.001

[[fault]]
kind = "crash"
mttf_s = 1800.0
repair_s = 3.0
of = ["means", "alarms"]

[[fault]]
kind = "host"
mttf_s = 21600.0
repair_s = 6.0
of = ["host1", "host2"]
"""
WARD = '''"""ward.py: means and alarms."""
import holdfast as hf

ward = hf.StreamProcess("ward", frame="1 second", time="ts")
ward.source("ecg", hf.read.files("ecg.csv"), schema="ts timestamp, patient int, mv double")
ward.aggregate("means", of="ecg", by="patient", window="60 seconds", emits={"mean": "avg(mv)"})
ward.protect(hf.checkpoint(every="1 second"),
             "means")
ward.filter("alarms", of="means", where="mean > 3", apart=True)
ward.sink("alarms", hf.write.sqlite("w.db", "alarms"), promise=[hf.loses(at_most=0.01, wrong_at_most=0.001)])
'''


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ward.toml").write_text(MODEL)
    runner = CliRunner()
    return lambda *words: runner.invoke(app, [*words, "--replications", "200"])


def test_predict_says_each_share_beside_its_promise_and_exits_with_4_where_one_is_broken(invoke):
    """Once in six hours a minute of answers is tainted by a lost host: more than one in a thousand."""
    answer = invoke("predict", "ward.toml")

    assert answer.exit_code == 4
    assert "promised" in answer.stdout
    assert "tainted" in answer.stdout
    assert "one fault costs most: host of host1" in answer.stdout
    assert "(!) alarms: tainted" in answer.stdout


def test_predict_exits_with_0_where_all_are_kept_and_takes_other_times(invoke):
    answer = invoke("predict", "ward.toml", "--host-mttf", "365d", "--json")

    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert [plan["plan"] for plan in found["plans"]] == ["as declared", "checkpoint 5 s", "ecoc 5 s"]
    assert found["plans"][0]["broken"] == []
    available = found["plans"][0]["outputs"][0]["available"]
    assert 0.99 < available["mean"] <= 1
    assert available["half_width"] < 0.01


def test_predict_writes_plots(invoke):
    invoke("predict", "ward.toml", "--plot", "plots/p.png")

    assert Path("plots/p.png").read_bytes().startswith(b"\x89PNG")


def test_advise_names_what_to_declare_what_it_costs_and_what_would_not_be_enough(invoke):
    answer = invoke("advise", "ward.toml")

    assert answer.exit_code == 0
    assert "cheapest that keeps all promises" in answer.stdout
    assert "means   ecoc every" in answer.stdout
    assert "alarms: none" in answer.stdout
    assert "cheaper and not enough: means" in answer.stdout
    assert "tainted of alarms" in answer.stdout


def test_advise_says_by_how_much_a_bound_cannot_be_kept(invoke):
    Path("ward.toml").write_text(MODEL.replace("late_at_most = 0.01", "late_at_most = 0.0"))
    answer = invoke("advise", "ward.toml")

    assert answer.exit_code == 4
    assert "no plan keeps all promises" in answer.stdout
    assert "late of alarms: promised 0, at best" in answer.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("predict", "nothing.toml"), "HF-M002"),
        (("predict", "ward.toml", "--mttf", "often"), "HF-M004"),
        (("advise", "ward.toml", "--cost", "cpu < 2"), "HF-M004"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(invoke, words, code):
    answer = invoke(*words)

    assert answer.exit_code == 2
    assert code in answer.output


def test_a_process_that_never_ran_has_no_model(invoke):
    Path("ward.py").write_text(WARD)
    answer = invoke("predict", "ward.py")

    assert answer.exit_code == 2
    assert "HF-M002" in answer.output


def test_write_changes_the_protections_and_nothing_else(invoke):
    Path("ward.py").write_text(WARD)
    state = Path(".holdfast/ward")
    state.mkdir(parents=True)
    (state / "model.toml").write_text(MODEL)
    answer = invoke("advise", "ward.py", "--write")
    after = Path("ward.py").read_text()

    assert answer.exit_code == 0
    assert '-ward.protect(hf.checkpoint(every="1 second"),' in answer.stdout
    removed = [line for line in WARD.splitlines() if line not in after.splitlines()]
    assert removed == ['ward.protect(hf.checkpoint(every="1 second"),', '             "means")']
    assert 'ward.protect(hf.ecoc(every="' in after
    # It is what the file declares now: the same question has no more to change.
    again = invoke("predict", "ward.py")
    assert again.exit_code == 0
    invoke("advise", "ward.py", "--write")
    assert Path("ward.py").read_text() == after


def test_protections_go_after_the_operators_they_name():
    text = WARD.replace('ward.protect(hf.checkpoint(every="1 second"),\n             "means")\n', "")
    plan = {"means": Option(Protect("ecoc", 5.0)), "alarms": Option()}
    after = changed(text, read_model(MODEL), plan, "ward.py").splitlines()

    assert after[7:9] == ['ward.protect(hf.ecoc(every="5 seconds"), "means")', 'ward.protect(hf.none, "alarms")']
    assert after[6].startswith("ward.filter")


def test_on_a_cycle_ecoc_is_written_as_extended():
    model = replace(read_model(MODEL), notes={"feedback of means": "left out"})
    after = changed(WARD, model, {"means": Option(Protect("ecoc", 5.0)), "alarms": Option()}, "ward.py")

    assert 'ward.protect(hf.ecoc(every="5 seconds", extended=True), "means")' in after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (WARD.replace("ward = hf", "wards = hf").replace('"ward", frame', '"other", frame'), "StreamProcess('ward'"),
        (WARD.replace("apart=True", "apart=True, protect=hf.none"), "declares protect= at an operator"),
    ],
)
def test_a_file_that_is_not_understood_is_left_alone(text, why):
    with pytest.raises(UsageError) as caught:
        changed(text, read_model(MODEL), {"means": Option()}, "ward.py")

    assert caught.value.code == "HF-M005"
    assert why in str(caught.value)


def test_bounds_of_the_cost():
    bounds = cost_bounds(["cpu <= 1.5x", "bytes <= 100kB"])

    assert (bounds.cpu, bounds.bytes) == (1.5, 100_000.0)
