"""What is kept, what may go, and that nothing a run needs goes with it."""

from __future__ import annotations

import os

import pytest

from holdfast.engine.state_folder import StateFolder
from holdfast.errors import StateRefused, UsageError
from holdfast.journals.journal import Journal
from holdfast.records.cleaning import clean_folder, clean_lines
from holdfast.records.usage import usage, usage_lines


def test_usage_names_every_byte_once(folder):
    (folder.root / "logs").mkdir()
    (folder.root / "logs" / "spark.log").write_bytes(b"x" * 5000)
    old = folder.root / "units" / "hot" / "spark" / "1"
    old.mkdir(parents=True)
    (old / "state").write_bytes(b"y" * 3000)
    os.link(old / "state", old.parent / "linked")

    found = usage(folder.root)
    sizes = {(part.part, part.of): part.bytes for part in found.parts}

    assert sizes["logs", ""] == 5000
    assert sizes["Spark checkpoint", "hot"] == 3000
    assert sizes["queue", "hot"] == sum(folder.queue(n).stat().st_size for n in (2, 3))
    assert not found.running
    assert (
        len({path.stat().st_ino for path in folder.root.rglob("*") if path.is_file()}) + 1 == found.to_json()["files"]
    )
    assert "kiln" in usage_lines(found)[0]


@pytest.fixture
def littered(folder):
    unit = folder.root / "units" / "hot"
    for number in (1, 2, 3):
        (unit / "spark" / str(number)).mkdir(parents=True)
        (unit / "spark" / str(number) / "offsets").write_text("v1")
    (unit / "spark" / "1.ready").touch()
    (unit / "spark" / "2.ready").touch()
    (unit / "runs" / "hot").mkdir(parents=True)
    for name in ("named.arrow", "stray.arrow"):
        (unit / "runs" / "hot" / name).write_text(name)
    journal = Journal(unit, "commits")
    journal.append({"n": 4, "outputs": {}, "state": {"hot": {"0": [["named.arrow", 4]]}}})
    journal.close()
    (folder.root / "staging" / "2").mkdir(parents=True)
    (folder.root / "staging" / "2" / "half.tmp").write_text("half")
    (folder.root / "units" / "gone").mkdir()
    (folder.root / "streams" / "gone").mkdir()
    (folder.root / "logs").mkdir()
    for name in ("spark.log", "spark.1.log", "holdfast.log", "holdfast.log.1"):
        (folder.root / "logs" / name).write_text(name)
    (folder.root / "sources" / "probes" / "quarantine").mkdir()
    (folder.root / "sources" / "probes" / "quarantine" / "00000002.parquet").write_text("rows")
    (unit / "quarantine").mkdir()
    for name in ("00000003.json", "00000003-probes.parquet"):
        (unit / "quarantine" / name).write_text("{}")
    (folder.root / "reports").mkdir()
    (folder.root / "reports" / "r.html").write_text("report")
    return folder


SPARE = {
    "staging/2", "logs/spark.1.log", "logs/holdfast.log.1", "units/gone", "streams/gone",
    "units/hot/spark/1", "units/hot/spark/1.ready", "units/hot/spark/3", "units/hot/runs/hot/stray.arrow",
}  # fmt: skip


def test_cleaning_says_first_and_removes_with_yes_only(littered):
    before = sorted(littered.root.rglob("*"))

    looked = clean_folder(littered.root)
    assert {each.path for each in looked.spare} == SPARE
    assert sorted(littered.root.rglob("*")) == [*before] or (littered.root / "lock").exists()
    assert "--yes" in clean_lines(looked)[-1]

    clean_folder(littered.root, remove=True)
    assert not any((littered.root / path).exists() for path in SPARE)
    assert (littered.root / "units/hot/spark/2/offsets").exists()
    assert (littered.root / "units/hot/runs/hot/named.arrow").exists()
    assert littered.queue(2).exists()
    assert clean_folder(littered.root).spare == ()


def test_state_of_every_commit_stays(littered):
    """A frame that no sink has written is made again from the state before it, many frames back."""
    runs = littered.root / "units" / "hot" / "runs" / "hot"
    journal = Journal(littered.root / "units" / "hot", "commits")
    for n in range(5, 15):
        (runs / f"{n}.arrow").write_text("state")
        journal.append({"n": n, "outputs": {}, "state": {"hot": {"0": [[f"{n}.arrow", 4]]}}})
    journal.close()
    clean_folder(littered.root, remove=True)
    assert len(list(runs.iterdir())) == 11 and not (runs / "stray.arrow").exists()


def test_rows_set_aside_and_reports_go_only_when_asked(littered):
    clean_folder(littered.root, remove=True)
    assert (littered.root / "sources/probes/quarantine/00000002.parquet").exists()

    clean_folder(littered.root, remove=True, quarantine=True, reports=True)

    assert not (littered.root / "sources/probes/quarantine/00000002.parquet").exists()
    assert not (littered.root / "units/hot/quarantine/00000003-probes.parquet").exists()
    assert not (littered.root / "reports/r.html").exists()
    # Which rows a frame is taken without is part of its input: a replay would differ.
    assert (littered.root / "units/hot/quarantine/00000003.json").exists()


def test_rows_that_a_unit_set_aside_which_is_gone_go_only_when_asked(littered):
    """An operator that is added renames a unit: its rows are as much somebody's as before."""
    aside = littered.root / "units" / "gone" / "quarantine"
    aside.mkdir()
    for name in ("00000003.json", "00000003-probes.parquet"):
        (aside / name).write_text("{}")
    (aside.parent / "commits").mkdir()

    clean_folder(littered.root, remove=True)
    assert sorted(path.name for path in aside.iterdir()) == ["00000003-probes.parquet", "00000003.json"]
    assert not (aside.parent / "commits").exists()

    clean_folder(littered.root, remove=True, quarantine=True)
    assert [path.name for path in aside.iterdir()] == ["00000003.json"]


def test_a_running_process_is_not_cleaned(littered):
    run = StateFolder(littered.root)
    run.acquire("kiln")
    try:
        with pytest.raises(StateRefused, match="HF-R007"):
            clean_folder(littered.root, remove=True)
        assert (littered.root / "units/gone").exists()
    finally:
        run.release()


def test_a_folder_that_is_none_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("mine")

    with pytest.raises(UsageError, match="HF-E014"):
        clean_folder(tmp_path, remove=True)
    assert (tmp_path / "precious").read_text() == "mine"
