"""trace, du, clean and quarantine at the shell, over a folder that a run left."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.cli.render import summary
from tests.records.conftest import Folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = Folder(tmp_path / ".holdfast" / "kiln", tmp_path)
    folder.run_unit(folder.seal_source())
    folder.write_sink(1, 2)
    return folder


@pytest.fixture
def invoke():
    runner = CliRunner()
    return lambda *words: runner.invoke(app, list(words))


@pytest.mark.parametrize("words", [["hot", "2"], ["hot", "2", "kiln"], ["hot", "2", "--state", ".holdfast/kiln"]])
def test_a_frame_is_traced_by_its_number(here, invoke, words):
    result = invoke("trace", *words)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("hot 2   sealed 2026-01-05T")
    assert "probes.parquet  rows 4-7" in result.stdout
    assert "sink      hot has it, epoch 1, 4 rows" in result.stdout


def test_json_and_rows(here, invoke):
    answer = json.loads(invoke("trace", "hot", "3", "--rows", "--json").stdout)

    assert [row["celsius"] for row in answer["rows_shown"]] == [78.0, 79.0, 80.0, 81.0]
    assert answer["inputs"][0]["references"][0]["ranges"] == [[8, 12]]


@pytest.mark.parametrize("words", [["probes", "--where", "zone = 3"], ["probes", "kiln", "--where", "zone = 3"]])
def test_rows_are_searched(here, invoke, words):
    result = invoke("trace", *words)

    assert result.stdout.startswith("probes: 3 rows in 3 of 3 frames kept")
    assert result.stdout.splitlines()[-1] == "on: holdfast trace probes 1"
    assert json.loads(invoke("trace", *words, "--json", "--limit", "1").stdout)["frames"] == {"1": 1, "2": 1, "3": 1}


@pytest.mark.parametrize("words", [["hot"], ["hot", "2", "--where", "zone = 1"], ["hot", "two", "kiln"]])
def test_a_frame_or_a_condition(here, invoke, words):
    result = invoke("trace", *words)

    assert result.exit_code == 2
    assert "HF-E017" in result.stderr


def test_du_and_clean(here, invoke):
    (here.root / "staging" / "1").mkdir(parents=True)

    assert "queue" in invoke("du").stdout
    assert json.loads(invoke("du", "kiln", "--json").stdout)["process"] == "kiln"
    assert "nothing was removed" in invoke("clean", "kiln").stdout
    assert (here.root / "staging" / "1").exists()
    assert json.loads(invoke("clean", "--yes", "--json").stdout)["removed"] is True
    assert not (here.root / "staging" / "1").exists()


def test_quarantine(here, invoke):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tests.records.conftest import ROWS, SCHEMA

    aside = here.root / "sources" / "probes" / "quarantine"
    aside.mkdir()
    (here.root / "sources" / "probes" / "log").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS[:2], SCHEMA.arrow), aside / "00000002.parquet")

    assert invoke("quarantine", "ls").stdout.splitlines()[0] == "kiln  2 rows in 1 file"
    assert "celsius" in invoke("quarantine", "show", "00000002.parquet").stdout
    assert (
        "2 rows of sources/probes/quarantine/00000002.parquet"
        in invoke("quarantine", "put-back", "00000002.parquet").stdout
    )
    again = invoke("quarantine", "put-back", "00000002.parquet")
    assert again.exit_code == 2
    assert "HF-E020" in again.stderr


def test_the_last_line_of_a_run_counts_what_is_in_the_table_and_what_is_not():
    """A sink that refused 17 of 60 rows was said to have 60, and a bad row in quarantine was not mentioned."""
    status = {
        "process": "kiln", "state": "finished", "frame": 2, "seconds": 3.0,
        "sources": [{"late": 0, "bad": 1}],
        "sinks": [{"name": "keyed", "rows": 43, "left_out": 17}, {"name": "all", "rows": 60, "left_out": 0}],
    }  # fmt: skip
    assert summary(status, "holdfast run kiln.py") == (
        "kiln  finished   2 frames, 43 rows to keyed (17 rows refused), 60 rows to all, 1 bad row in 3.0 s."
    )
