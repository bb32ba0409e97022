"""Shipping to real stores, a thread each: enough copies, nobody waits for the slow one, nothing gathers."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import Queue

import pytest

from holdfast.hosts.sealed import quoted
from holdfast.hosts.shipping import Shipper
from holdfast.hosts.store_answers import StoreLost
from holdfast.hosts.stores import OpenStore, StoreAway
from holdfast.protocols.messages import ClaimSent, Stage, Stamp, Verdict
from tests.hosts.checkpoints import UNIT, Contents, checkpoint, wiped

SOON_S = 20  # how long a test waits for what must come; only a failing one does


class Watched(OpenStore):
    """A store that can be cut off or held up, and says what it answered."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(name, url)
        self.cut = False
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.answers: Queue = Queue()
        self.asked: list[int] = []

    def ask(self, request, content=None):
        if not isinstance(request, ClaimSent):
            self.asked.append(request.manifest.serial)
            self.entered.set()
            assert self.gate.wait(SOON_S)
        answer = super().ask(request, content)
        self.answers.put(answer)
        return answer

    def _check(self) -> None:
        if self.cut:
            raise StoreAway("no route to host")
        super()._check()


class Told:
    """What a shipper called back."""

    def __init__(self) -> None:
        self.shipped: Queue = Queue()
        self.superseded: Queue = Queue()
        self.trouble: Queue = Queue()


@pytest.fixture
def plant(base):
    """Makes a shipper over three stores for epoch 1; closes it in the end."""
    made: list[Shipper] = []

    class Plant:
        contents, told = Contents(), Told()
        stores = [Watched(name, f"{base}/{name}") for name in "abc"]

        def shipper(self, stores=None, needed=2, content=None) -> Shipper:
            stores = self.stores if stores is None else stores
            told = self.told
            made.append(
                Shipper(
                    Stamp(UNIT, 0, 1),
                    stores,
                    needed,
                    content or self.contents,
                    lambda manifest, stage: told.shipped.put((manifest.serial, stage)),
                    lambda: told.superseded.put(True),
                    lambda store, error: told.trouble.put((store, error)),
                    retry_s=0.01,
                )
            )
            return made[-1]

        def claim(self) -> None:
            for store in self.stores:
                store.ask(ClaimSent(UNIT, 1, "me"))
                store.answers.get_nowait()

        def until_stored(self, store: Watched, serial: int) -> None:
            while True:
                answer = store.answers.get(timeout=SOON_S)
                if (answer.serial, answer.verdict) == (serial, Verdict.STORED):
                    return

    plant = Plant()
    plant.claim()
    yield plant
    for store in plant.stores:
        store.gate.set()
    for shipper in made:
        shipper.close()


def shipped(plant):
    return plant.told.shipped.get(timeout=SOON_S)


def test_a_checkpoint_reaches_all_stores(plant):
    shipper, item = plant.shipper(), checkpoint(plant.contents, 1)

    shipper.ship(item, Stage.FINAL)

    assert shipped(plant) == (1, Stage.FINAL)
    for store in plant.stores:
        plant.until_stored(store, 1)
        assert store.fetch(UNIT, 1, item).good
    assert plant.told.trouble.empty()


def test_only_what_is_new_is_written_and_counted(plant):
    shipper = plant.shipper()
    first, second = checkpoint(plant.contents, 1), checkpoint(plant.contents, 2)
    sizes = {name: len(content) for name, content in plant.contents.items()}
    for item in (first, second):
        shipper.ship(item, Stage.FINAL)
        for store in plant.stores:
            plant.until_stored(store, item.serial)

    assert shipper.bytes_written == dict.fromkeys("abc", sum(sizes[name] for name in {*first.files, *second.files}))


def test_two_of_three_are_enough_and_the_third_gets_the_newest_when_it_is_back(plant):
    """What it missed in between is of no use to anybody."""
    away = plant.stores[2]
    away.cut = True
    shipper = plant.shipper()
    items = [checkpoint(plant.contents, serial) for serial in range(1, 6)]
    for item in items:
        shipper.ship(item, Stage.FINAL)
    assert [shipped(plant)[0] for _ in items] == [1, 2, 3, 4, 5]
    store, error = plant.told.trouble.get(timeout=SOON_S)
    assert (store, str(error)) == ("c", "no route to host")

    away.cut = False
    plant.until_stored(away, 5)

    assert away.fetch(UNIT, 1, items[-1]).good
    assert set(away._place.listed(f"{quoted(UNIT)}/files")) == set(items[-1].files)


def test_fewer_than_needed_are_not_enough(plant):
    plant.stores[1].cut = plant.stores[2].cut = True
    shipper = plant.shipper()
    shipper.ship(checkpoint(plant.contents, 1), Stage.FINAL)
    plant.until_stored(plant.stores[0], 1)
    for _ in range(4):  # both have failed, and again
        plant.told.trouble.get(timeout=SOON_S)
    assert plant.told.shipped.empty()

    plant.stores[1].cut = False
    assert shipped(plant) == (1, Stage.FINAL)


def test_a_slow_store_delays_nobody_and_gathers_no_queue(plant):
    slow = plant.stores[1]
    slow.gate.clear()
    shipper = plant.shipper()
    for serial in range(1, 8):
        shipper.ship(checkpoint(plant.contents, serial), Stage.FINAL)
    assert [shipped(plant)[0] for _ in range(7)] == list(range(1, 8))
    assert slow.entered.wait(SOON_S)
    first = list(slow.asked)
    assert len(first) == 1

    slow.gate.set()
    plant.until_stored(slow, 7)

    assert slow.asked == [*first, 7] or slow.asked == [7]


def test_a_replaced_instance_is_told_once_and_sends_no_more(plant):
    shipper = plant.shipper()
    for store in plant.stores:
        OpenStore(store.name, store.url).ask(ClaimSent(UNIT, 2, "other"))

    shipper.ship(checkpoint(plant.contents, 1), Stage.FINAL)
    assert plant.told.superseded.get(timeout=SOON_S)
    shipper.ship(checkpoint(plant.contents, 2), Stage.FINAL)
    shipper.close()

    assert plant.told.superseded.empty() and plant.told.shipped.empty()
    assert all(2 not in store.asked for store in plant.stores)
    assert all(store.trace(UNIT).manifest is None for store in plant.stores)


def test_a_lost_folder_is_opened_anew_learns_and_gets_the_checkpoint(plant):
    shipper, lost = plant.shipper(), plant.stores[2]
    shipper.ship(checkpoint(plant.contents, 1), Stage.FINAL)
    for store in plant.stores:
        plant.until_stored(store, 1)
    wiped(lost)

    second = checkpoint(plant.contents, 2)
    shipper.ship(second, Stage.FINAL)
    plant.until_stored(lost, 2)

    assert lost.life == 1
    assert lost.fetch(UNIT, 1, second).good
    store, error = plant.told.trouble.get(timeout=SOON_S)
    assert store == "c" and isinstance(error, StoreLost)
    assert plant.stores[0]._lives() == {"a": 0, "c": 1}


def test_a_lost_folder_waits_for_enough_peers(plant):
    """With one of two it might not hear of the newest epoch."""
    wiped(plant.stores[2])
    plant.stores[1].cut = True
    shipper = plant.shipper()
    shipper.ship(checkpoint(plant.contents, 1), Stage.FINAL)
    while "from 1 of the 2 peers" not in str(plant.told.trouble.get(timeout=SOON_S)[1]):
        pass
    assert plant.told.shipped.empty()

    plant.stores[1].cut = False
    plant.until_stored(plant.stores[2], 1)


def test_stores_that_all_lost_their_folders_are_begun_anew(plant):
    """None can teach the others: they would wait for each other for ever, and the unit for them."""
    shipper = plant.shipper(needed=2)
    shipper.ship(checkpoint(plant.contents, 1), Stage.FINAL)
    for store in plant.stores:
        plant.until_stored(store, 1)
    for store in plant.stores:
        wiped(store)
    shipper.ship(checkpoint(plant.contents, 2), Stage.FINAL)
    for store in plant.stores:
        plant.until_stored(store, 2)
        assert store.fetch(UNIT, 1, store.trace(UNIT).manifest).good


def test_the_only_store_is_begun_anew_when_its_folder_is_lost(plant):
    only = plant.stores[0]
    shipper = plant.shipper([only], needed=1)
    item = checkpoint(plant.contents, 1)
    shipper.ship(item, Stage.FINAL)
    assert shipped(plant) == (1, Stage.FINAL)
    wiped(only)

    second = checkpoint(plant.contents, 2)
    shipper.ship(second, Stage.FINAL)

    assert shipped(plant) == (2, Stage.FINAL)
    assert only.fetch(UNIT, 1, second).good
    assert only.trace(UNIT).epoch == 1


def test_a_file_that_rotted_travels_again(plant):
    shipper = plant.shipper()
    first, second = checkpoint(plant.contents, 1), checkpoint(plant.contents, 2)
    shipper.ship(first, Stage.FINAL)
    for store in plant.stores:
        plant.until_stored(store, 1)
        store._place.write(store._file(quoted(UNIT), first.files[0]), b"rotten")

    shipper.ship(second, Stage.FINAL)

    for store in plant.stores:
        plant.until_stored(store, 2)
        assert store.fetch(UNIT, 1, second).good


def test_two_phases_end_in_a_checkpoint_in_force(plant):
    shipper = plant.shipper()
    first, second = checkpoint(plant.contents, 1), checkpoint(plant.contents, 2)
    shipper.ship(first, Stage.FINAL)
    for store in plant.stores:
        plant.until_stored(store, 1)
    shipper.ship(second, Stage.PREPARE)
    assert [shipped(plant), shipped(plant)] == [(1, Stage.FINAL), (2, Stage.PREPARE)]
    for store in plant.stores:
        plant.until_stored(store, 2)
        assert store.trace(UNIT).manifest == first

    shipper.ship(second, Stage.COMMIT)

    assert shipped(plant) == (2, Stage.COMMIT)
    for store in plant.stores:
        plant.until_stored(store, 2)
        assert store.trace(UNIT).manifest == second


def test_trouble_with_the_content_is_told_and_tried_again(plant):
    failing = threading.Event()
    failing.set()

    def content(name: str) -> bytes:
        if failing.is_set():
            raise OSError("the near disk cannot be read")
        return plant.contents[name]

    shipper, item = plant.shipper(content=content), checkpoint(plant.contents, 1)
    shipper.ship(item, Stage.FINAL)
    _, error = plant.told.trouble.get(timeout=SOON_S)
    assert str(error) == "the near disk cannot be read"
    assert not isinstance(error, StoreAway)

    failing.clear()

    assert shipped(plant) == (1, Stage.FINAL)


def test_a_store_that_does_not_keep_what_it_is_given_is_trouble_and_no_endless_loop(plant):
    bad = plant.stores[0]
    write = bad._place.write
    bad._place.write = lambda path, content: write(path, content) if "/files/" not in path else None
    shipper, item = plant.shipper(), checkpoint(plant.contents, 1)
    shipper.ship(item, Stage.FINAL)

    store, error = plant.told.trouble.get(timeout=SOON_S)
    assert store == "a" and "does not keep what it is given" in str(error)

    bad._place.write = write
    plant.until_stored(bad, 1)


def test_a_callback_that_raises_does_not_stop_the_stores(plant, monkeypatch):
    shown: Queue = Queue()
    monkeypatch.setattr(threading, "excepthook", lambda args: shown.put(args.exc_value))
    plant.told.shipped.put = lambda item: 1 / 0
    shipper = plant.shipper()
    for serial in (1, 2):
        shipper.ship(checkpoint(plant.contents, serial), Stage.FINAL)

    for store in plant.stores:
        plant.until_stored(store, 2)
    assert isinstance(shown.get(timeout=SOON_S), ZeroDivisionError)


def test_closing_waits_for_the_write_under_way_and_sends_nothing_more(plant):
    only = plant.stores[0]
    only.gate.clear()
    shipper = plant.shipper([only], needed=1)
    for serial in (1, 2):
        shipper.ship(checkpoint(plant.contents, serial), Stage.FINAL)
    assert only.entered.wait(SOON_S)
    closing = threading.Thread(target=shipper.close)
    closing.start()
    assert shipper_is_over(shipper)
    assert closing.is_alive()

    only.gate.set()
    closing.join(SOON_S)

    assert not closing.is_alive()
    assert only.asked == [1]
    assert only.trace(UNIT).manifest.serial == 1


def shipper_is_over(shipper: Shipper) -> bool:
    with shipper._changed:
        return shipper._changed.wait_for(lambda: shipper._over, SOON_S)


def test_a_new_process_finds_what_was_shipped(tmp_path):
    """Files on a real disk, read by store objects that were not there when they were written."""
    contents, done = Contents(), Queue()
    stores = [OpenStore(name, str(tmp_path / name)) for name in "abc"]
    shipper = Shipper(
        Stamp(UNIT, 0, 1), stores, 3, contents, lambda *args: done.put(args), lambda: None, lambda *args: done.put(args)
    )
    item = checkpoint(contents, 1)
    shipper.ship(item, Stage.FINAL)
    assert done.get(timeout=SOON_S) == (item, Stage.FINAL)
    shipper.close()

    for name in "abc":
        copy = OpenStore(name, str(Path(tmp_path) / name)).fetch(UNIT, 1, item)
        assert copy.good and copy.contents == {file: contents[file] for file in item.files}
