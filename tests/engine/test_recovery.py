"""Where a unit goes on: a near checkpoint or a store that others have overtaken is known as an old one. No Spark."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from holdfast.engine.recover.restore import Recovery
from holdfast.engine.state_folder import StateFolder
from holdfast.errors import StateRefused
from holdfast.graph.hosting import Backup, Host
from holdfast.graph.secrets import Secret
from holdfast.hosts.hosts import Homes
from holdfast.hosts.local_checkpoint import write_instance
from holdfast.journals.journal import Journal
from holdfast.protocols.messages import Verdict
from tests.hosts.checkpoints import request
from tests.hosts.test_hostile_store import RUN, container


class Settled:
    """Guards, as far as recovery speaks with them."""

    seal = memory = None
    wirings: dict = {}

    def keeps_nothing(self, unit: str) -> bool:
        return False

    def settle(self, *said) -> None:
        self.said = said


class Machine:
    """A machine with three hosts and a backup folder, and the runs of one unit on it."""

    def __init__(self, root, key: Secret | None = None) -> None:
        self.root, self.key = root, key
        self.begun = 0

    def start(self, host: str):
        folder = StateFolder(self.root / "state")
        epoch = folder.acquire("p")
        hosts = [Host(name, str(self.root / name)) for name in "ab"]
        homes = Homes(folder.root, hosts, Backup((str(self.root / "store"),), 1, 1, self.key), [("u", host, ("s",))])
        homes.open()
        unit = SimpleNamespace(name="u", outputs=("s",), host=host)
        recovery = Recovery(folder, homes, [unit], Settled(), lambda _: self.begun)
        try:
            begun = recovery.begin("u", epoch)
        finally:
            folder.release()
        return recovery, begun, homes

    def worked(self, started, frame: int, serial: int = 1) -> None:
        """Frames were made, and a checkpoint of the last one was stored."""
        recovery, begun, homes = started
        write_instance(homes.unit("u"), begun.epoch)
        journal = Journal(homes.unit("u"), "commits")
        journal.append({"n": frame, "epoch": begun.epoch, "state": {}})
        journal.close()
        manifest, contents = container({RUN: b"x"}, seal=recovery._seal, epoch=begun.epoch, serial=serial, frame=frame)
        store = recovery.stores("u").opened[0]
        assert store.ask(request(manifest), contents.__getitem__).verdict is Verdict.STORED
        recovery._memory.note_stored(manifest)

    def frame_at(self, started) -> int:
        last = Journal(started[2].unit("u"), "commits").last()
        return 0 if last is None else last["n"]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_what_a_host_kept_from_before_the_unit_moved_away_is_not_taken_for_the_newest(machine):
    """A -> B -> A with the only store lost: stores that know nothing made the old state on A the newest there is."""
    machine.worked(machine.start("a"), 4)
    on_b = machine.start("b")
    assert machine.frame_at(on_b) == 4  # put back there from the store
    machine.worked(on_b, 8, serial=2)
    shutil.rmtree(machine.root / "store")

    back = machine.start("a")

    assert machine.frame_at(back) == 0
    assert any("is of epoch 1, and epoch 2 has run since: it is not used" in said for said in back[1].sentences)


def test_a_host_that_kept_its_unit_goes_on_though_the_stores_forgot(machine):
    machine.worked(machine.start("a"), 4)
    shutil.rmtree(machine.root / "store")

    again = machine.start("a")

    assert (machine.frame_at(again), again[1].is_restored, again[1].sentences) == (4, False, ())


def set_back(machine, lose_host: bool) -> None:
    machine.worked(machine.start("a"), 4)
    shutil.copytree(machine.root / "store", machine.root / "image")
    machine.worked(machine.start("a"), 8, serial=2)
    shutil.rmtree(machine.root / "store")
    shutil.copytree(machine.root / "image", machine.root / "store")
    if lose_host:
        shutil.rmtree(machine.root / "a")


def test_a_store_set_back_does_not_set_back_a_unit_whose_host_is_there(machine):
    set_back(machine, lose_host=False)

    assert machine.frame_at(machine.start("a")) == 8


def test_an_older_checkpoint_is_told_when_it_is_all_there_is(machine):
    """Without a key it is an accident: the run goes on from it if all inputs are still there (else HF-R016)."""
    set_back(machine, lose_host=True)

    again = machine.start("a")

    assert machine.frame_at(again) == 4
    assert any("were known to hold 2 of epoch 2, frame 8" in said for said in again[1].sentences)


def test_with_a_key_a_replayed_checkpoint_is_refused_and_both_remedies_work(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_TEST_KEY", "a key that nobody can guess")
    machine = Machine(tmp_path, Secret("HOLDFAST_TEST_KEY"))
    machine.worked(machine.start("a"), 4)
    shutil.copytree(tmp_path / "store", tmp_path / "image")
    machine.worked(machine.start("a"), 8, serial=2)
    shutil.move(tmp_path / "store", tmp_path / "newest")
    shutil.copytree(tmp_path / "image", tmp_path / "store")
    shutil.rmtree(tmp_path / "a")

    for _ in range(2):
        with pytest.raises(StateRefused, match="HF-R062 BackupOlder") as refused:
            machine.start("a")
        assert "frame 4; checkpoint 2 of epoch 2, frame 8, was stored" in refused.value.why
    assert "bring back the folder of a store as it was last" in refused.value.do

    shutil.copytree(tmp_path, tmp_path.with_name("twin"))
    shutil.rmtree(tmp_path / "store")
    shutil.move(tmp_path / "newest", tmp_path / "store")
    assert machine.frame_at(machine.start("a")) == 8

    twin = Machine(tmp_path.with_name("twin"), Secret("HOLDFAST_TEST_KEY"))
    twin.begun = 8  # --fresh: its state begins anew after frame 8
    assert twin.frame_at(twin.start("a")) == 0
