"""Remedies of HF-M001 to HF-M005: what the error says is done, and the command answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.advised import changed
from holdfast.cli.predicting import cost_bounds
from holdfast.errors import UsageError
from holdfast.models.files import read_model
from holdfast.models.options import Option
from tests.cli.test_predicting import MODEL, WARD


def test_a_model_is_read_once_the_key_that_is_named_is_corrected():
    with pytest.raises(UsageError, match="HF-M001"):
        read_model(MODEL.replace("frame_s", "frames_s"))

    assert read_model(MODEL).name == "ward"


def test_a_model_that_is_there_is_predicted_from(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from holdfast.cli.main import app

    monkeypatch.chdir(tmp_path)
    assert "HF-M002" in CliRunner().invoke(app, ["predict", "ward.toml"]).output
    Path("ward.toml").write_text(MODEL)

    assert "alarms" in CliRunner().invoke(app, ["predict", "ward.toml", "--for", "10m"]).output


def test_a_bound_is_understood_as_the_error_writes_it():
    with pytest.raises(UsageError, match="HF-M004"):
        cost_bounds(["cpu < 2"])

    assert cost_bounds(["cpu <= 1.5x"]).cpu == 1.5


def test_advice_is_written_once_the_operators_own_protection_is_gone():
    model = read_model(MODEL)
    with pytest.raises(UsageError, match="HF-M005"):
        changed(WARD.replace("apart=True", "apart=True, protect=hf.none"), model, {"means": Option()}, "ward.py")

    changed(WARD, model, {"means": Option()}, "ward.py")
