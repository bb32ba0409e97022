"""Whatever is synced lies in folders whose own names are synced: one that is lost takes all that is in it along."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from holdfast import atomic
from holdfast.engine.protect.durable import Durable
from holdfast.engine.state_folder import StateFolder
from holdfast.hosts.places import Folder
from holdfast.sources.parse.bad import quarantine_ahead
from tests.hosts.test_homes import homes


class Names:
    """Which names of folders a loss of power would take: made since their parent was last synced."""

    def __init__(self, monkeypatch) -> None:
        self.loose: set[Path] = set()
        fsync, mkdir = os.fsync, os.mkdir

        def synced(handle):
            fsync(handle)
            here = Path(os.readlink(f"/proc/self/fd/{handle}"))
            self.loose = {folder for folder in self.loose if folder.parent != here}

        def made(path, *args, **kwargs):
            mkdir(path, *args, **kwargs)
            self.loose.add(Path(path).absolute())

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "mkdir", made)

    def above(self, path: Path) -> set[Path]:
        return self.loose & {path, *path.parents}


@pytest.fixture
def names(monkeypatch, tmp_path):
    return Names(monkeypatch)


def durable(root: Path) -> Durable:
    made = Durable(
        SimpleNamespace(), {"u": SimpleNamespace(folder=root / "units" / "u")}, pytest.fail, SimpleNamespace(sinks=())
    )
    made._named.add(root)
    return made


def test_state_is_synced_with_the_way_to_it(names, tmp_path):
    runs = tmp_path / "units" / "u" / "runs" / "summed"
    runs.mkdir(parents=True)
    assert len(names.loose) == 4
    syncing = durable(tmp_path)

    syncing._sync_folders({runs})
    assert names.above(runs) == set()
    before = syncing.syncs
    syncing._sync_folders({runs})
    assert syncing.syncs == before + 1  # the way is synced once


def test_folders_that_another_attempt_makes_again_are_synced_again(names, tmp_path):
    runs = tmp_path / "units" / "u" / "runs" / "summed"
    runs.mkdir(parents=True)
    syncing = durable(tmp_path)
    syncing._sync_folders({runs})
    syncing._stands["u"] = SimpleNamespace(settled=0)
    syncing._crew["u"].committed = 0
    runs.rmdir()
    runs.parent.rmdir()
    runs.mkdir(parents=True)

    syncing.taken_over("u", SimpleNamespace(hold_from=lambda n: None))
    syncing._sync_folders({runs})
    assert names.above(runs) == set()


def test_folders_of_a_run_that_was_killed_are_named_by_the_next(names, tmp_path):
    """It died between making them and syncing their names; the next one finds them and relies on them."""
    root = tmp_path / "deep" / "state"
    left = [root / "units" / "u" / "runs" / "summed", root / "streams" / "logs", root / "sources" / "rows" / "log"]
    for folder in left:
        folder.mkdir(parents=True)
    (root / "deployment.json").touch()
    draft = left[0] / "a.arrow.4711-0.draft"
    draft.touch()

    state = StateFolder(root)
    state.acquire("p")
    try:
        assert not draft.exists()
        assert [names.above(folder) for folder in left] == [set()] * len(left)
    finally:
        state.release()


def test_rows_that_are_set_aside_lie_in_a_folder_with_a_name(names, tmp_path):
    """They are acknowledged: what a loss of power took with their folder nobody would send again."""
    quarantine_ahead(tmp_path / "state" / "sources" / "rows" / "quarantine", 1, pa.table({"x": [1]}))
    assert names.loose == set()


def test_the_folders_of_hosts_and_stores_are_named(names, tmp_path):
    made = homes(tmp_path / "state", at=tmp_path / "disks" / "hosts")
    assert names.above(made.folder("a")) == names.above(made.folder("b")) == set()

    store = tmp_path / "nas" / "of" / "many" / "backups"
    for place in Folder(store), Folder(store):
        place.begin()
        os.makedirs(store / "pulse", exist_ok=True)  # by one that died before it synced
        place.make("pulse")
        place.make("pulse/files")
        assert names.above(store / "pulse" / "files") == set()


def test_a_folder_above_that_may_not_be_opened_ends_the_way(monkeypatch, tmp_path):
    def denied(path):
        if path == tmp_path:
            raise PermissionError(13, "Permission denied", str(path))
        synced.append(path)

    synced: list[Path] = []
    monkeypatch.setattr(atomic, "sync_folder", denied)
    atomic.sync_way(tmp_path / "a" / "b")
    assert synced == [tmp_path / "a"]
