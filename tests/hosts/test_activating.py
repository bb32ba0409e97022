"""Starting a unit from real stores: the newest whole copy, one holder per epoch, or a refusal that says why."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.errors import StateRefused
from holdfast.hosts.activating import activate
from holdfast.hosts.sealed import quoted
from holdfast.hosts.stores import OpenStore, StoreAway
from holdfast.protocols.activation import NearCheckpoint
from holdfast.protocols.messages import ClaimSent, Verdict
from tests.hosts.checkpoints import UNIT, Contents, checkpoint, request, three, wiped


class Clock:
    """Time that passes when somebody waits, and what happens meanwhile."""

    def __init__(self, *happens) -> None:
        self.time, self.happens, self.waits = 0.0, list(happens), 0

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.waits += 1
        if self.happens:
            self.happens.pop(0)()


class Unsteady(OpenStore):
    """A store that can be cut off."""

    cut = False

    def _check(self) -> None:
        if self.cut:
            raise StoreAway("no route to host")
        super()._check()


def start(stores, *, clock=None, **given):
    clock = clock or Clock()
    options = {"needed": 2, "known_epoch": 0, "near": None, "claimant": "me", "patience_s": 3.0, **given}
    return activate(UNIT, stores, now=clock.now, wait=clock.wait, **options)


def stored(stores, item, contents):
    for store in stores:
        assert store.ask(request(item), contents).verdict is Verdict.STORED


def harm(store, name):
    store._place.write(store._file(quoted(UNIT), name), b"rotten")


@pytest.fixture
def stores(base):
    return [Unsteady(name, f"{base}/{name}") for name in "abc"]


def test_a_new_unit_starts_from_nothing(stores):
    got = start(stores)

    assert (got.epoch, got.near, got.manifest, got.contents, got.stored, got.bad) == (1, None, None, {}, 0, ())


def test_a_unit_starts_from_the_newest_checkpoint_with_a_higher_epoch(stores, base):
    contents = Contents()
    first = start(stores)
    stored(stores, checkpoint(contents, 1, epoch=first.epoch), contents)
    newest = checkpoint(contents, 2, epoch=first.epoch)
    stored(stores[:2], newest, contents)

    got = start(three(base), patience_s=0)

    assert (got.epoch, got.manifest, got.stored, got.bad) == (2, newest, 8, ())
    assert got.contents == {name: contents[name] for name in newest.files}


def test_what_a_lone_store_holds_is_started_from_and_not_acknowledged(stores):
    """The next claim may miss it."""
    contents = Contents()
    start(stores)
    stored(stores, checkpoint(contents, 1), contents)
    lone = checkpoint(contents, 2)
    stored(stores[:1], lone, contents)
    stores[2].cut = True

    got = start(stores)

    assert (got.manifest, got.stored) == (lone, 0)


def test_a_damaged_copy_is_passed_over_and_named(stores):
    contents = Contents()
    start(stores)
    item = checkpoint(contents, 1)
    stored(stores, item, contents)
    harm(stores[0], item.files[1])
    stores[1]._place.delete(stores[1]._file(quoted(UNIT), item.files[0]))

    got = start(stores)

    assert got.manifest == item
    assert got.contents == {name: contents[name] for name in item.files}
    assert got.bad == (f"a: file {item.files[1]} is damaged (6 bytes)", f"b: file {item.files[0]} is missing")


def test_it_waits_rather_than_start_from_an_older_checkpoint(stores):
    """All copies of the newest are bad: upstream may have dropped what an older one needs."""
    contents, clock = Contents(), Clock()
    start(stores)
    item = checkpoint(contents, 1)
    stored(stores, item, contents)
    for store in stores:
        harm(store, item.files[0])

    with pytest.raises(StateRefused) as told:
        start(stores, clock=clock)

    error = told.value
    assert (error.code, error.name, error.exit_code) == ("HF-R012", "BackupOutOfReach", 6)
    for name in "abc":
        assert f"{name}: checkpoint 1 of epoch 1, frame 4: file {item.files[0]} is damaged (6 bytes)" in error.why
    assert "not started" in error.effect
    assert clock.time == 3.0
    stores[1]._place.write(stores[1]._file(quoted(UNIT), item.files[0]), contents[item.files[0]])
    assert start(stores).manifest == item


def test_one_store_may_be_away_and_two_may_not(stores):
    contents = Contents()
    start(stores)
    item = checkpoint(contents, 1)
    stored(stores, item, contents)
    stores[0].cut = True
    assert start(stores).manifest == item

    stores[1].cut = True
    with pytest.raises(StateRefused, match="HF-R012") as told:
        start(stores)
    assert "a: away: no route to host\nb: away: no route to host\nc: granted epoch" in told.value.why


def test_a_store_that_comes_back_while_it_waits_is_used(stores):
    contents = Contents()
    start(stores)
    item = checkpoint(contents, 1)
    stored(stores, item, contents)
    stores[0].cut = stores[1].cut = True
    clock = Clock(lambda: None, lambda: setattr(stores[1], "cut", False))

    got = start(stores, clock=clock)

    assert got.manifest == item
    assert clock.waits == 2


def test_a_store_that_goes_away_before_the_fetch_is_passed_over(base):
    contents = Contents()
    stores = [Leaving("a", f"{base}/a"), *three(base)[1:]]
    start(stores)
    item = checkpoint(contents, 1)
    stored(stores, item, contents)

    got = start(stores, patience_s=0)

    assert got.manifest == item
    assert got.bad == ("a: away: gone since the claim",)


class Leaving(OpenStore):
    def fetch(self, unit, epoch, manifest):
        raise StoreAway("gone since the claim")


def test_it_gives_way_to_a_higher_epoch(base):
    """Somebody else claimed while this one was about to read."""

    class Overtaken(OpenStore):
        def fetch(self, unit, epoch, manifest):
            OpenStore(self.name, self.url).ask(ClaimSent(unit, epoch + 3, "other"))
            return super().fetch(unit, epoch, manifest)

    contents, stores = Contents(), [Overtaken(name, f"{base}/{name}") for name in "abc"]
    start(stores)
    stored(stores, checkpoint(contents, 1), contents)

    with pytest.raises(StateRefused, match="HF-R013 UnitTakenOver") as told:
        start(stores)
    assert "epoch 5" in told.value.why
    # As it says: again, if nobody holds it any more.
    assert start([OpenStore(name, f"{base}/{name}") for name in "abc"]).epoch == 6


def test_the_near_checkpoint_of_the_last_instance_is_used(stores):
    contents = Contents()
    first = start(stores)
    item = checkpoint(contents, 1, epoch=first.epoch)
    stored(stores, item, contents)
    near = NearCheckpoint(first.epoch, item.frame + 5)

    got = start(stores, near=near)

    assert (got.near, got.manifest, got.contents, got.stored) == (near, item, {}, item.frame)


def test_a_near_checkpoint_from_before_another_instance_is_not_used(stores):
    contents = Contents()
    near = NearCheckpoint(start(stores).epoch, 99)
    other = start(stores)
    item = checkpoint(contents, 1, epoch=other.epoch)
    stored(stores, item, contents)

    got = start(stores, near=near)

    assert (got.near, got.manifest) == (None, item)


def test_a_unit_that_ran_before_it_had_stores_goes_on_from_where_it_is(stores):
    """New registers say 'nobody ran before you'; taken at their word, its state would be dropped."""
    near = NearCheckpoint(epoch=7, frame=40)

    got = start(stores, near=near)

    assert (got.epoch, got.near) == (8, near)


def test_stores_that_know_nothing_of_a_unit_that_ran_must_all_say_so(stores):
    """The one that is away may know an instance that ran elsewhere since."""
    stores[1].cut = True

    with pytest.raises(StateRefused, match="HF-R012") as told:
        start(stores, near=NearCheckpoint(epoch=7, frame=40))

    assert "b: away: no route to host" in told.value.why
    assert "a: knows nothing of the unit" in told.value.why
    assert stores[0].trace(UNIT).epoch == 0
    stores[1].cut = False
    assert start(stores, near=NearCheckpoint(epoch=7, frame=40)).near is not None


@pytest.mark.parametrize("noticed", [True, False], ids=["while it is open", "while nothing runs"])
def test_a_store_that_lost_its_folder_learns_before_it_is_claimed_from(stores, base, noticed):
    """Stores a and b were the quorum, c was away: b, empty, and c would find nothing to start from."""
    contents = Contents()
    stores[2].cut = True
    for _ in range(3):
        start(stores)
    item = checkpoint(contents, 1, epoch=3)
    stored(stores[:2], item, contents)
    wiped(stores[1])
    again = stores if noticed else [Unsteady(name, f"{base}/{name}") for name in "abc"]
    again[2].cut = False
    again[0].cut = False

    got = start(again)

    assert (got.epoch, got.manifest) == (4, item)
    assert again[1].trace(UNIT).epoch == 4
    assert again[1].life == (1 if noticed else 0)
    assert [line.partition(":")[0] for line in got.bad] == (["b"] if noticed else [])


def test_a_store_that_cannot_learn_is_not_claimed_from(stores, base):
    """Its empty register would grant what has been granted, and the claim would meet no checkpoint."""
    contents = Contents()
    start(stores)
    item = checkpoint(contents, 1)
    stored(stores, item, contents)
    wiped(stores[1])
    again = [Unsteady(name, f"{base}/{name}") for name in "abc"]
    again[0].cut = True

    with pytest.raises(StateRefused, match="HF-R012") as told:
        start(again)

    assert "b: may have lost its folder" in told.value.why
    assert again[1].trace(UNIT).joined is False
    again[0].cut = False
    assert start(again).manifest == item


@pytest.mark.parametrize("lost", ["all", "those that granted the last epoch"])
@pytest.mark.parametrize("epoch_known", [True, False])
def test_stores_lost_while_a_unit_is_being_started_do_not_wait_for_each_other(stores, lost, epoch_known):
    """The unit's own host has everything. Its stores lost their folders after the near checkpoint was looked at."""
    contents = Contents()
    for _ in range(3):
        start(stores)
    stored(stores, checkpoint(contents, 1, epoch=3), contents)
    stores[2].cut = True
    got = start(stores)
    stores[2].cut = False
    item = checkpoint(contents, 2, epoch=got.epoch)
    stored(stores[:2], item, contents)
    for store in stores if lost == "all" else stores[:2]:
        wiped(store)
    near = NearCheckpoint(got.epoch if epoch_known else 3 if lost != "all" else 0, item.frame + 3)

    again = start(stores, near=near, known_epoch=got.epoch)

    assert (again.near, again.manifest if lost == "all" else None) == (near, None)
    assert again.epoch > got.epoch
    assert all(store.trace(UNIT).epoch == again.epoch for store in stores)


def test_a_lost_store_waits_for_one_that_is_away_although_the_unit_is_here(stores):
    """The one that is away may have granted a later epoch to somebody else."""
    start(stores)
    wiped(stores[0])
    wiped(stores[1])
    stores[2].cut = True

    with pytest.raises(StateRefused, match="HF-R012"):
        start(stores, near=NearCheckpoint(1, 5), known_epoch=1)


def test_activations_at_once_never_share_an_epoch(base):
    """They may outbid each other or give way; two that start have different epochs."""

    def attempt(claimant: str) -> int | None:
        try:
            return start(three(base), claimant=claimant, patience_s=2.0).epoch
        except StateRefused as error:
            assert error.code in ("HF-R012", "HF-R013")
            return None

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            epochs = [epoch for epoch in pool.map(attempt, "wxyz") if epoch is not None]
            assert epochs and len(epochs) == len(set(epochs))


def test_stores_with_one_name_are_refused(base):
    with pytest.raises(ValueError, match="same name"):
        start([OpenStore("a", f"{base}/1"), OpenStore("a", f"{base}/2")])
