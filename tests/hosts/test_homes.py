"""Hosts' folders: whose they are, and what becomes of one that is lost."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest

from holdfast.engine.state_folder import StateFolder
from holdfast.errors import StateRefused
from holdfast.graph.hosting import Backup, Host
from holdfast.hosts.hosts import Homes

UNITS = [("pulse", None, ("pulse",)), ("alarms", None, ("alarms",))]


def homes(root, *, hosts=("a", "b"), backup=None, at=None) -> Homes:
    made = Homes(root, [Host(name, None if at is None else str(at / name)) for name in hosts], backup, UNITS)
    made.open()
    return made


def test_a_lost_folder_is_made_anew_and_lives_once_more(tmp_path):
    first = homes(tmp_path)
    shutil.rmtree(first.folder("a"))
    assert first.lost() == ["a"]
    assert first.reopen("a")
    assert first.lost() == []
    assert (first.life("a"), first.life("b")) == (1, 0)


def test_a_folder_that_is_being_deleted_is_made_all_the_same(tmp_path):
    """`rm -rf` and the run meet in the middle; what is new must not go with what is old."""
    made = homes(tmp_path)
    for life in range(1, 21):
        folder = made.folder("a")
        for at in range(40):
            (folder / "units" / str(at)).mkdir(parents=True)
        deleting = threading.Thread(target=shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True})
        deleting.start()
        while not made.lost():
            pass
        assert made.reopen("a")
        deleting.join()
        if made.lost():  # it came so late that it took the new one too: one more loss, seen as such
            made.reopen("a")
            continue
        assert made.life("a") >= life


@pytest.mark.parametrize("instead", ["file", "rubbish"])
def test_what_lies_in_the_place_of_a_lost_folder_is_cleared_away(tmp_path, instead):
    made = homes(tmp_path)
    shutil.rmtree(made.folder("a"))
    if instead == "file":
        made.folder("a").write_text("no folder")
    else:
        (made.folder("a") / "units" / "pulse").mkdir(parents=True)
    assert made.reopen("a")
    assert [entry.name for entry in made.folder("a").iterdir()] == ["host.json"]


def test_another_state_folder_may_not_use_a_hosts_folder(tmp_path):
    homes(tmp_path / "one", at=tmp_path / "disks")
    with pytest.raises(StateRefused) as caught:
        homes(tmp_path / "two", at=tmp_path / "disks")
    assert caught.value.code == "HF-R014"
    homes(tmp_path / "one", at=tmp_path / "disks")  # untouched


def test_exchanged_folders_are_refused(tmp_path):
    made = homes(tmp_path)
    made.folder("a").rename(tmp_path / "c")
    made.folder("b").rename(made.folder("a"))
    (tmp_path / "c").rename(made.folder("b"))
    with pytest.raises(StateRefused, match="belongs to host 'b' of this process"):
        homes(tmp_path)


def test_backups_under_one_url_are_apart(tmp_path):
    """Two processes with units of one name, or one that begins anew, must not find each other's checkpoints."""
    nas = Backup((str(tmp_path / "nas"),))
    one, two = (homes(tmp_path / name / "ward", backup=nas) for name in ("one", "two"))
    assert one.stores_of("pulse") != two.stores_of("pulse")
    assert one.stores_of("pulse") == homes(tmp_path / "one" / "ward", backup=nas).stores_of("pulse")
    shutil.rmtree(tmp_path / "two")
    assert homes(tmp_path / "two" / "ward", backup=nas).stores_of("pulse") != two.stores_of("pulse")


def test_a_copy_of_a_state_folder_does_not_work_on_the_hosts_of_the_other(tmp_path):
    """HF-R020: at once or in turns, each would miss what the other has shown to a callback."""
    hosts = [Host(name, str(tmp_path / "hosts" / name)) for name in ("a", "b")]

    def started(name: str) -> None:
        folder = StateFolder(tmp_path / name)
        folder.acquire("plant")
        try:
            Homes(folder.root, hosts, None, []).open()
        finally:
            folder.release()

    started("state")
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    started("state")
    for _ in range(2):  # however often it tries
        with pytest.raises(StateRefused) as refused:
            started("copy")
        assert refused.value.code == "HF-R020"
    started("state")
    started("state")
    for claim in refused.value.do.rpartition(" rm ")[2].split():
        Path(claim).unlink()
    started("copy")
    with pytest.raises(StateRefused, match="HF-R020"):
        started("state")


def test_a_host_that_was_lost_is_claimed_anew(tmp_path):
    folder = StateFolder(tmp_path / "state")
    folder.acquire("plant")
    homes = Homes(folder.root, [Host("a", str(tmp_path / "a"))], None, [])
    assert homes.open() == []
    shutil.rmtree(tmp_path / "a")
    assert homes.lost() == ["a"] and homes.reopen("a")
    assert homes.open() == []
    folder.release()


@pytest.mark.parametrize("dies_at", [0, 1, 2, 3])
def test_what_is_brought_to_another_disk_is_whole_whenever_the_move_dies(tmp_path, monkeypatch, dies_at):
    """The next start found a part under the new name, and took it for all of it."""
    old = tmp_path / "units" / "pulse" / "runs"
    old.mkdir(parents=True)
    for name in "abc":
        (old / name).write_text(name * 9)
    made = homes(tmp_path, at=tmp_path / "disks")
    rename, copytree, dead = os.rename, shutil.copytree, []

    def across(source, final):
        if Path(source).parent.name == "pulse" and not str(source).endswith(".moving"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, final)

    def copy(source, final, **options):
        if len(dead) == dies_at:
            raise KeyboardInterrupt
        dead.append(source)
        return shutil.copy2(source, final, **options)

    monkeypatch.setattr(os, "rename", across)
    monkeypatch.setattr(shutil, "copytree", partial(copytree, copy_function=copy))
    with contextlib.nullcontext() if dies_at == 3 else pytest.raises(KeyboardInterrupt):
        made.bring({})
    monkeypatch.setattr(shutil, "copytree", copytree)
    made.bring({})

    runs = made.unit_folder("pulse") / "runs"
    assert {path.name: path.read_text() for path in runs.iterdir()} == {name: name * 9 for name in "abc"}
    assert not old.exists()
