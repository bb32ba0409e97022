"""What `holdfast demo telemonitoring` tells a person to do is done."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from holdfast.apps.telemonitoring import records, scoring
from holdfast.cli.main import app
from holdfast.errors import UsageError
from tests.apps.test_command import RECORD


def refused(code: str, *words) -> UsageError:
    with pytest.raises(UsageError) as caught:
        records.read(*words)
    assert caught.value.code == code
    return caught.value


def test_a_record_is_read_once_it_is_named_as_the_error_says(tmp_path):
    """HF-A001, HF-A002, HF-A003."""
    for path in Path(RECORD).parent.glob("100.*"):
        shutil.copy(path, tmp_path)
    here = tmp_path / "100"
    assert ".hea and .dat files stand beside each other" in refused("HF-A001", tmp_path / "101").do
    (tmp_path / "100.atr").rename(tmp_path / "100.qrs")
    assert "--annotator qrs" in refused("HF-A002", here).do
    assert len(records.read(here, None, "qrs").beats)
    (tmp_path / "100.qrs").rename(tmp_path / "100.atr")
    assert len(records.read(here).beats)
    meant = refused("HF-A003", here, "ML2").do.split("'")[1]
    assert records.read(here, meant).lead == meant
    assert records.read(here, refused("HF-A003", here, "99").do.split()[2].rstrip(",")).lead
    assert records.read(here, "0").lead


def test_the_command_is_given_as_its_errors_say(tmp_path, monkeypatch):
    """HF-A004, HF-A005, HF-A006. The run itself is played: five frames, killed at one of them if it has it."""

    def played(words, *, env, **more):
        [fault] = json.loads(env["HOLDFAST_FAULTS"])
        return SimpleNamespace(returncode=-9 if fault["frame"] <= 5 else 0)

    monkeypatch.setattr(scoring.subprocess, "run", played)
    monkeypatch.setattr(scoring, "resume", lambda *words, **more: 5)

    def demo(*words):
        return CliRunner().invoke(app, ["demo", "telemonitoring", "--json", *words])

    answer = demo()
    assert "HF-A005" in answer.stderr and "--score-qrs RECORD" in answer.stderr
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    answer = demo("--score-qrs", RECORD, "--work", str(tmp_path / "full"))
    assert "HF-A006" in answer.stderr and "name a new folder" in answer.stderr
    assert demo("--score-qrs", RECORD, "--work", str(tmp_path / "new")).exit_code == 0
    answer = demo("--score-qrs", RECORD, "--restart-at", "9")
    assert "HF-A004" in answer.stderr and "take a smaller --restart-at" in answer.stderr
    assert demo("--score-qrs", RECORD, "--restart-at", "5").exit_code == 0
