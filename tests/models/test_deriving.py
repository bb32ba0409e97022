"""A model from a graph and a run: what the records of a state folder give, and what is exact."""

import math
from pathlib import Path

import numpy as np
import pytest

import holdfast as hf
from holdfast.declare.loading import load
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import UsageError
from holdfast.graph.units import cut
from holdfast.journals.incidents import Incidents
from holdfast.journals.journal import Journal
from holdfast.models.files import read_model, write_model
from holdfast.models.refilling import fit_row_windows
from holdfast.records.deriving import derived, with_declared
from holdfast.records.kept import Kept
from holdfast.records.measured import MeasuredRun, MeasuredUnit, measure_run

KILN = Path(__file__).resolve().parents[2] / "examples" / "kiln.py"


def ward() -> hf.StreamProcess:
    ward = hf.StreamProcess("ward", frame="1 second", time="ts")
    ward.protect(hf.ecoc(every="5 seconds"))
    ward.source("ecg", hf.read.files("ecg.csv"), schema="ts timestamp, patient int, mv double")
    ward.filter("valid", of="ecg", where="mv > 0")
    ward.aggregate("means", of="valid", by="patient", window="10 seconds", emits={"mean": "avg(mv)"})
    ward.aggregate("ever", of="ecg", by="patient", emits={"n": "count(*)"})
    ward.filter("alarms", of="means", where="mean > 3", apart=True)
    ward.protect(hf.checkpoint(every=hf.frames(4)), "alarms")
    promised = [hf.loses(at_most=0.01, wrong_at_most=0.02), hf.within("5 seconds")]
    ward.sink("alarms", hf.write.sqlite("w.db", "alarms"), promise=promised)
    ward.sink("ever", hf.write.sqlite("w.db", "ever"))
    return ward


def unit(rows, *, host="host1", work_s=0.1, recoveries=None) -> MeasuredUnit:
    return MeasuredUnit(
        host,
        60,
        ((work_s, 1, 100),),
        rows,
        dict.fromkeys(rows, 20.0),
        {"ever": 7.0},
        {"means": 4000.0},
        recoveries or {},
    )


RUN = MeasuredRun(
    60,
    {"ecg": 200.0},
    {"ecg": 24.0},
    {
        "means": unit({"means": 2.0}, recoveries={"crash": (1.0, 2.0, 9.0)}),
        "ever": unit({"ever": 50.0}, host="host2"),
        "alarms": unit({"alarms": 0.5}, host="host2", work_s=0.02),
    },
)


@pytest.fixture
def model():
    graph = ward().graph()
    return derived(graph, cut(graph), RUN)


def test_rates_and_selectivity_are_the_runs(model):
    assert model.rates["means"] == ((200.0,), pytest.approx(2.0))
    assert model.rates["alarms"] == ((pytest.approx(2.0),), pytest.approx(0.5))
    assert model.operator("alarms").frame_cost_s == 0.02


def test_a_window_of_time_is_right_again_after_its_length(model):
    """Ten seconds of 200 rows: exact, whatever was lost."""
    (port,) = model.operator("means").ports

    assert port.state.to_refill(1) == port.state.to_refill(1e6) == pytest.approx(2000.0)
    assert model.notes["stabilises means"] == "exact"


def test_a_running_aggregate_never_is(model):
    (port,) = model.operator("ever").ports

    assert math.isinf(port.state.to_refill(1))


def test_protections_promises_and_hosts_are_the_files(model):
    assert str(model.operator("means").protect) == "ecoc every 5 s"
    assert str(model.operator("alarms").protect) == "checkpoint every 4 s"
    (alarms, ever) = model.outputs
    assert (alarms.within_s, alarms.lost_at_most, alarms.wrong_at_most, alarms.late_at_most) == (5.0, 0.01, 0.02, 0.01)
    assert (ever.within_s, ever.lost_at_most) == (math.inf, 1.0)
    assert model.hosts["host2"] == ("ever", "alarms")


def test_recovery_is_measured_where_there_was_one_and_assumed_elsewhere(model):
    repair = {(each.kind, *each.of): each.repair_s for each in model.faults}

    assert repair["crash", "means"] == 2.0
    assert repair["crash", "alarms"] == 3.0
    assert "assumed" in model.notes["crash of alarms"]
    assert "measured, 3 times" in model.notes["crash of means"]


def test_the_file_of_a_derived_model_is_read_back_equal(model):
    assert read_model(write_model(model)) == model


def test_what_the_file_declares_now_wins_over_the_model(model):
    process = ward()
    process.protect(hf.none, "alarms")
    now = with_declared(model, process.graph())

    assert now.operator("alarms").protect.kind == "none"
    assert now.rates == model.rates


def test_a_source_without_rows_is_refused():
    graph = ward().graph()
    with pytest.raises(UsageError, match="has no rows"):
        derived(graph, cut(graph), MeasuredRun(60, {"ecg": 0.0}, {}, RUN.units))


def test_feedback_is_left_out_and_said():
    graph = load(str(KILN)).graph()
    units = cut(graph)
    run = MeasuredRun(
        60,
        {source.name: 10.0 for source in graph.sources},
        {},
        {each.name: unit(dict.fromkeys(each.outputs, 5.0)) for each in units},
    )
    model = derived(graph, units, run)

    assert any(edge.is_feedback for edge in graph.edges())
    assert [note for note in model.notes if note.startswith("feedback of")]
    assert read_model(write_model(model)) == model


def test_row_windows_are_fitted_from_the_order_of_keys():
    """Four keys in turn, windows of five rows: a burst touches all of them (or as many as it has rows), and all are new
    after twenty rows."""
    keys = np.tile(np.arange(4), 1000)
    fit = fit_row_windows(keys, 5, np.random.default_rng(1))

    assert fit.state.size == 20
    assert fit.state.to_refill(100) == pytest.approx(20, abs=1.0)
    assert fit_row_windows(keys[:100], 5, np.random.default_rng(1)) is None


def test_a_longer_burst_touches_more_keys_where_keys_are_many():
    rng = np.random.default_rng(2)
    keys = rng.integers(0, 3000, 20_000)
    fit = fit_row_windows(keys, 2, rng)

    assert 0 < fit.state.to_refill(10) <= fit.state.size
    assert fit.samples > 50


# -- records -----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Two units in a row; the second dies at frame 7 and is back 2.5 s later."""
    note = {
        "process": "p", "frame_ms": 1000, "sources": ["ecg"], "schemas": {"ecg": "x int"},
        "units": {"first": ["first"], "second": ["second"]}, "streams": {"first": "first", "second": "second"},
        "homes": {"units/second": str(tmp_path / "hosts" / "b" / "units" / "second")},
    }  # fmt: skip
    StateFolder(tmp_path).deploy(note)
    seals = Journal(tmp_path / "sources" / "ecg", "sealed", gapless=False)
    first = Journal(tmp_path / "units" / "first", "commits")
    second = Journal(tmp_path / "hosts" / "b" / "units" / "second", "commits")
    for n in range(1, 11):
        at, boundary = 1000.0 + n, n * 1_000_000
        seals.append({"n": n, "epoch": 1, "boundary_us": boundary, "rows": 100, "bytes": 2400, "at": at})
        first.append(
            _commit(n, "ecg", "first", 50, at + 0.2, {"first": {"0": [["f", 0, 0, 8, 640], ["g", 0, 8, 10, 160]]}})
        )
        second.append(_commit(n, "first", "second", 5, at + 0.3 + (2.5 if n == 7 else 0.4 if n == 8 else 0), {}))
    # The end frame, beyond all times.
    seals.append({"n": 11, "epoch": 1, "boundary_us": 10**15, "rows": 0, "bytes": 0, "at": 1011.0})
    incidents = Incidents(tmp_path)
    incidents.note("died", unit="second", frame=7, at=1007.3)
    incidents.close()
    return tmp_path


def _commit(n, stream, made, rows, at, state) -> dict:
    outputs = {made: {"rows": rows, "bytes": rows * 20, "checksum": ""}}
    return {
        "n": n,
        "boundary_us": n * 1_000_000,
        "inputs": [[stream, n, "stable", 1, ""]],
        "outputs": outputs,
        "state": state,
        "at": at,
    }


def test_records_give_rates_work_state_and_recoveries(folder):
    run = measure_run(Kept(folder))

    assert run.frames == 10
    assert run.rates == {"ecg": 100.0}
    first, second = run.units["first"], run.units["second"]
    assert (first.rows["first"], second.rows["second"]) == (50.0, 5.0)
    # From the moment its input was sealed: 0.2 s; of the second from the commit of the first: 0.1 s.
    assert first.work_s == pytest.approx(0.2)
    assert second.work_s == pytest.approx(0.1)
    assert (first.state_rows, first.state_bytes) == ({"first": 10}, {"first": 800})
    assert (first.host, second.host) == ("", "b")
    assert second.recoveries_s == {"crash": (pytest.approx(2.5),)}
