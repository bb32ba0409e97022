"""`holdfast demo telemonitoring` says what it cannot do, before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app

RECORD = str(Path(__file__).resolve().parents[2] / "examples" / "records" / "100")


@pytest.mark.parametrize(
    "words, code",
    [
        ([], "HF-A005 NothingToScore"),
        (["--score-qrs", RECORD, "--work", "{full}"], "HF-A006 WorkFolderNotEmpty"),
        (["--score-qrs", RECORD, "--lead", "ML2"], "did you mean 'MLII'?"),
        (["--score-qrs", RECORD, "--frame", "soon"], "HF-C001 NotADuration"),
    ],
)
def test_refused(tmp_path, words, code):
    (tmp_path / "something").write_text("")

    answer = CliRunner().invoke(app, ["demo", "telemonitoring", *(word.format(full=tmp_path) for word in words)])

    assert answer.exit_code == 2
    assert code in answer.stderr
