"""The state folder: one run at a time, epochs that only rise, nothing left of a dead one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.engine.state_folder import StateFolder
from holdfast.errors import StateRefused
from holdfast.hosts.spark_checkpoint import fork_checkpoint
from holdfast.journals.journal import Journal

HOLDER = """
import sys
from pathlib import Path
from holdfast.engine.state_folder import StateFolder
folder = StateFolder(Path(sys.argv[1]))
print(folder.acquire("p"), flush=True)
sys.stdin.read()
"""


def test_a_second_run_is_refused_and_a_dead_one_is_not_waited_for(tmp_path):
    """A lock that outlives its holder would keep a patient's monitor down until somebody looks."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline().strip() == "1"

    with pytest.raises(StateRefused) as refused:
        StateFolder(tmp_path).acquire("p")
    assert refused.value.code == "HF-R001"
    assert str(holder.pid) in str(refused.value)

    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert StateFolder(tmp_path).acquire("p") == 2


def test_the_lock_names_a_process_only_while_it_may_be_meant(tmp_path):
    """`kill -9 $(cat lock)`, as the README has it, must never name a process that came later."""
    folder = StateFolder(tmp_path)
    folder.acquire("p")
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    folder.release()
    assert (tmp_path / "lock").read_text() == ""

    (tmp_path / "lock").write_text("4711\n")  # what a killed run leaves
    assert not StateFolder(tmp_path).in_use
    assert (tmp_path / "lock").read_text() == ""


def test_what_a_dead_run_was_sealing_is_gone(tmp_path):
    folder = StateFolder(tmp_path)
    folder.acquire("p")
    (folder.staging / "half").write_text("x")
    folder.release()

    again = StateFolder(tmp_path)
    again.acquire("p")

    assert not list((tmp_path / "staging").rglob("half"))


def checkpoint(root, epoch: int, frames: list[int], committed: int) -> None:
    folder = root / str(epoch)
    for name in ("offsets", "commits", "state/0/0"):
        (folder / name).mkdir(parents=True)
    for batch, frame in enumerate(frames):
        (folder / "offsets" / str(batch)).write_text("v1\n{}\n" + json.dumps({"n": frame, "inputs": []}))
        if batch < committed:
            (folder / "commits" / str(batch)).write_text("v2\n{}")
        (folder / "state/0/0" / f"{batch + 1}_id.changelog").write_text(str(frame))
    (folder / "metadata").write_text(json.dumps({"id": "old"}))
    (root / f"{epoch}.ready").touch()


def test_a_fork_has_a_new_query_id_and_no_entry_the_journal_does_not_know(tmp_path):
    """The same id would stop the original without a word; a later entry would skip a frame."""
    checkpoint(tmp_path, 1, [1, 2, 3], committed=3)

    assert fork_checkpoint(tmp_path, 2, committed=2) == 2

    assert json.loads((tmp_path / "2" / "metadata").read_text())["id"] != "old"
    assert sorted(entry.name for entry in (tmp_path / "2" / "commits").iterdir()) == ["0", "1"]
    assert not (tmp_path / "1").exists()


def test_spark_may_stand_two_frames_behind_the_journal(tmp_path):
    """Killed before commits/3 was written, and then commits/2 was lost: both frames are redone."""
    checkpoint(tmp_path, 1, [1, 2, 3], committed=1)

    assert fork_checkpoint(tmp_path, 2, committed=3) == 1


def test_a_fork_that_was_broken_off_is_not_used(tmp_path):
    checkpoint(tmp_path, 1, [1, 2], committed=2)
    (tmp_path / "2" / "offsets").mkdir(parents=True)  # epoch 2 died while it linked

    assert fork_checkpoint(tmp_path, 3, committed=2) == 2


def test_a_unit_begun_anew_takes_no_state_from_before(tmp_path):
    """--fresh was decided after frame 3; a run that was killed right then left the old checkpoint in place."""
    checkpoint(tmp_path, 1, [1, 2, 3], committed=3)

    assert fork_checkpoint(tmp_path, 2, committed=3, begun=3) == 3

    assert not (tmp_path / "2").exists()
    assert not (tmp_path / "1").exists()


def test_lost_spark_state_is_refused_not_begun_anew(tmp_path):
    checkpoint(tmp_path, 1, [1, 2, 3, 4], committed=1)

    with pytest.raises(StateRefused) as refused:
        fork_checkpoint(tmp_path, 2, committed=4)

    assert refused.value.code == "HF-R004"


def test_only_the_owner_may_look_inside(tmp_path):
    """Queues and state hold the data itself; a folder made by hand is as open as the umask left it."""
    by_hand = tmp_path / "by_hand"
    by_hand.mkdir(mode=0o755)
    for root in (by_hand, tmp_path / "new"):
        folder = StateFolder(root)
        folder.acquire("p")
        folder.release()
        assert root.stat().st_mode & 0o777 == 0o700


def test_units_that_are_started_anew_together_get_an_epoch_each(tmp_path):
    """Two threads in one register left it empty, and no later run could read it."""
    folder = StateFolder(tmp_path)
    folder.acquire("p")

    with ThreadPoolExecutor(4) as threads:
        epochs = list(threads.map(lambda _: folder.raise_epoch(), range(80)))

    assert sorted(epochs) == list(range(2, 82))


def test_a_state_folder_has_its_identity_from_its_first_start(tmp_path):
    """A ledger and a host's folder belong to it by this name: a folder made anew is another one."""
    folder = StateFolder(tmp_path / "state")
    folder.acquire("kiln")
    first = folder.identity
    folder.release()
    (tmp_path / "state").rename(tmp_path / "moved")
    moved = StateFolder(tmp_path / "moved")
    moved.acquire("kiln")
    moved.release()
    anew = StateFolder(tmp_path / "state")
    anew.acquire("kiln")
    anew.release()
    assert first and moved.identity == first != anew.identity


def test_a_state_folder_of_somebody_else_is_refused(tmp_path):
    """In a folder that everybody may write to, it was made by whoever came first, and names other folders."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    os.chown(theirs, 65534, -1)

    with pytest.raises(StateRefused, match="HF-R063") as refused:
        StateFolder(theirs).acquire("p")
    assert list(theirs.iterdir()) == []
    assert "chmod o-w" in refused.value.do

    theirs.chmod(0o755)  # as it says; root may use anybody's folder
    assert StateFolder(theirs).acquire("p") == 1


def test_a_folder_that_lost_its_deployment_is_not_taken_for_a_new_one(tmp_path):
    """Put back without it from a copy: all state was deleted as nobody's, and frames began at 1 again."""
    folder = StateFolder(tmp_path / "kiln")
    assert folder.deployment() is None
    Journal(folder.unit("hot"), "commits").append({"n": 1, "state": {}})
    with pytest.raises(StateRefused, match=r"HF-R042(.|\n)*deployment.json(.|\n)*it is gone"):
        folder.deployment()


def test_a_folder_with_other_things_is_not_taken_for_state(tmp_path):
    """HF-R064: a run deletes `staging` and drafts in its folder, whoever made them."""
    strange = tmp_path / "project"
    (strange / "staging").mkdir(parents=True)
    (strange / "staging" / "thesis").write_text("mine")
    with pytest.raises(StateRefused) as refused:
        StateFolder(strange).acquire("kiln")
    assert refused.value.code == "HF-R064" and "--state DIR" in refused.value.do
    assert [path.name for path in strange.rglob("*")] == ["staging", "thesis"]

    own = StateFolder(tmp_path / "state")
    own.acquire("kiln")
    own.release()
    (tmp_path / "state" / "notes.txt").write_text("of a person, in a folder of ours")
    StateFolder(tmp_path / "state").acquire("kiln")
    (tmp_path / "killed").mkdir()
    for name in ("lock", ".identity.17.tmp", "starts"):  # a first start that was killed at once, or lost its power
        (tmp_path / "killed" / name).write_text("")
    StateFolder(tmp_path / "killed").acquire("kiln")
