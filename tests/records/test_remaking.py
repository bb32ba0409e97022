"""`holdfast remake`: what goes back, what stands against it, and what is written down."""

from __future__ import annotations

import fcntl
import json
import shutil

import pytest

from holdfast.cli.main import app
from holdfast.errors import StateRefused
from holdfast.frames.files import read_record
from holdfast.journals.incidents import incidents_of
from holdfast.journals.journal import Journal
from holdfast.records.kept import Kept
from holdfast.records.remaking import asked_remakes, remake_frame


def deployed(folder, **changed):
    path = folder.root / "deployment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def commits(folder):
    return [record["n"] for record in Kept(folder.root).commits("hot")]


def refused(folder, n, stream="hot"):
    before = sorted(path for path in folder.root.rglob("*") if path.name != "lock")
    with pytest.raises(StateRefused) as caught:
        remake_frame(folder.root, stream, n, who="ann")
    assert sorted(path for path in folder.root.rglob("*") if path.name != "lock") == before, "nothing was changed"
    return caught.value.code, caught.value.why


def test_a_frame_no_sink_has_goes_back_and_is_written_down(folder):
    old = read_record(folder.queue(3)).checksum
    found = remake_frame(folder.root, "hot", 3, who="ann")
    assert (found.units, found.frames, found.checksum) == (("hot",), 1, old)
    assert commits(folder) == [1, 2] and not folder.queue(3).exists() and folder.queue(2).exists()
    assert [(each["stream"], each["frame"], each["checksum"], each["who"]) for each in asked_remakes(folder.root)] == [
        ("hot", 3, old, "ann")
    ]
    said = incidents_of(folder.root)[-1]
    assert (said.unit, said.frame) == ("hot", 3) and "asked for by ann" in said.what and old in said.what


def test_one_that_was_killed_in_between_is_asked_again(folder, tmp_path):
    """The records are cut, the frame is still there: the next run would meet it with other content."""
    shutil.copy(folder.queue(3), tmp_path / "kept")
    remake_frame(folder.root, "hot", 3, who="ann")
    shutil.copy(tmp_path / "kept", folder.queue(3))
    found = remake_frame(folder.root, "hot", 3, who="ann")
    assert found.frames == 1 and not folder.queue(3).exists() and commits(folder) == [1, 2]


def test_what_a_sink_has_is_not_made_again(folder):
    assert refused(folder, 2) == ("HF-R071", "sink hot has frames of hot up to 2")
    folder.write_sink(3)
    assert refused(folder, 3) == ("HF-R071", "sink hot has frames of hot up to 3")


def test_what_is_not_sealed_or_not_made_here_is_not_made_again(folder):
    assert refused(folder, 4)[0] == "HF-R070"
    assert refused(folder, 3, "probes")[0] == "HF-R071"


def test_what_was_handed_to_another_host_is_not_made_again(folder):
    deployed(
        folder,
        homes={"units/hot": str(folder.root / "units" / "hot"), "streams/hot": str(folder.root / "streams" / "hot")},
    )
    assert refused(folder, 3)[0] == "HF-R071"


def test_inputs_that_cannot_be_had_stand_against_it(folder):
    (folder.base / "probes.parquet").write_bytes(b"other")
    code, why = refused(folder, 3)
    assert code == "HF-R072" and "frame 3 of source probes" in why
    folder.queue(2).unlink()
    assert refused(folder, 3) == ("HF-R072", "frame 3 of unit hot needs frame 2 of hot, which is no longer queued")


@pytest.mark.parametrize("has_runs", [True, False])
def test_state_has_to_be_at_hand(folder, has_runs):
    unit = folder.root / "units" / "hot"
    journal, records = Journal(unit, "commits"), Kept(folder.root).commits("hot")
    journal.cut_after(0)
    for record in records:
        journal.append(record | {"state": {"hot": {"0": [[f"run-{record['n']}", 1, 10]]}}})
    journal.close()
    (unit / "runs" / "hot").mkdir(parents=True)
    deployed(folder, stateful=["hot"])
    for n in (2, 3) if has_runs else (3,):
        (unit / "runs" / "hot" / f"run-{n}").write_bytes(b"x")
    if has_runs:
        assert remake_frame(folder.root, "hot", 3, who="ann").units == ("hot",)
    else:
        assert refused(folder, 3) == ("HF-R073", "the state of unit hot after frame 2 is no longer kept")


def test_sparks_own_state_stands_against_it(folder):
    deployed(folder, stateful=["hot"])
    assert refused(folder, 3)[0] == "HF-R073"


def test_it_is_refused_while_a_run_goes_on(folder):
    with open(folder.root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StateRefused) as caught:
            remake_frame(folder.root, "hot", 3, who="ann")
    assert caught.value.code == "HF-R007" and commits(folder) == [1, 2, 3]


def test_the_command(folder, capsys):
    with pytest.raises(SystemExit) as ended:
        app(["remake", "hot", "3", "--state", str(folder.root)])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("hot 3 is made again by the next run; its checksum was ")
