"""Backup stores that lost their folder, are away or damaged: noticed, taught by their peers, used again."""

from __future__ import annotations

import os
import shutil

import pytest

from holdfast.hosts.sealed import quoted
from holdfast.hosts.store_answers import StoreLost
from holdfast.hosts.stores import OpenStore, StoreAway
from holdfast.protocols.messages import ClaimGranted, ClaimRefused, ClaimSent
from tests.hosts.checkpoints import UNIT, Contents, checkpoint, request, stored, three, wiped


def test_a_lost_folder_is_noticed_and_the_store_learns_from_its_peers(base):
    """An empty register would grant an epoch again and hide the checkpoint."""
    contents, stores = Contents(), three(base)
    item = checkpoint(contents, 1, epoch=5)
    for store in stores:
        stored(store, item, contents)
    lost = stores[1]
    wiped(lost)

    for _ in range(2):  # and it stays refused, whatever is in the folder meanwhile
        with pytest.raises(StoreLost):
            lost.ask(ClaimSent(UNIT, 6, "h"))
    lost.reopen()
    with pytest.raises(StoreAway, match="has not yet learnt"):
        lost.ask(ClaimSent(UNIT, 6, "h"))
    lost.join(stores, [UNIT], peers_needed=2)

    assert lost.life == 1
    assert lost.ask(ClaimSent(UNIT, 5, "h")) == ClaimRefused("b", UNIT, 5, "h", 5)
    assert lost.trace(UNIT).manifest == item
    assert not lost.fetch(UNIT, 5, item).good  # the files come from the unit itself
    assert dict(stored(stores[0], checkpoint(contents, 2, epoch=5), contents).lives) == {"a": 0, "b": 1}
    assert dict(stored(lost, item, contents).lives) == {"b": 1}
    assert lost.fetch(UNIT, 5, item).good


def test_a_store_opened_for_a_new_life_learns_before_it_takes_part(base):
    contents, stores = Contents(), three(base)
    for store in stores:
        stored(store, checkpoint(contents, 1), contents)
    wiped(stores[2])
    again = OpenStore("c", f"{base}/c", life=1)

    with pytest.raises(StoreAway, match="has not yet learnt"):
        again.ask(ClaimSent(UNIT, 9, "h"))
    again.join(stores[:2], [UNIT], peers_needed=2)
    again = OpenStore("c", f"{base}/c")  # a new process, which does not know of the loss

    assert again.trace(UNIT) == stores[0].trace(UNIT)
    assert again.life == 1


def test_a_store_does_not_take_part_after_half_of_its_peers(base):
    """The other half may know a higher epoch."""
    stores = three(base)
    for store in stores:
        store.ask(ClaimSent(UNIT, 3, "h"))
    stores[0].ask(ClaimSent(UNIT, 7, "h"))
    wiped(stores[2])
    again = OpenStore("c", f"{base}/c", life=1)

    with pytest.raises(StoreAway, match="from 1 of the 2 peers"):
        again.join(stores[1:2], [UNIT], peers_needed=2)
    with pytest.raises(StoreAway, match="has not yet learnt"):
        OpenStore("c", f"{base}/c").ask(ClaimSent(UNIT, 7, "h"))

    again.join(stores[:2], [UNIT], peers_needed=2)
    assert isinstance(again.ask(ClaimSent(UNIT, 7, "h")), ClaimRefused)


def test_a_store_that_has_not_learnt_yet_teaches_nobody(base):
    """Two empty ones would tell each other that there is nothing to know."""
    stores = three(base)
    for store in stores:
        store.ask(ClaimSent(UNIT, 3, "h"))
    wiped(stores[1])
    wiped(stores[2])
    empty = [OpenStore(name, f"{base}/{name}", life=1) for name in "bc"]

    for one, other in (empty, empty[::-1]):
        with pytest.raises(StoreAway, match="from 1 of the 2 peers"):
            one.join([stores[0], other], [UNIT], peers_needed=2)


def test_new_stores_that_learn_from_each_other_at_once_do_not_block_each_other(base):
    """Each asks to be on the safe side; none of them is known to have lost anything."""
    stores = three(base)
    for store in stores:  # all have begun and none has ended
        with store._at(UNIT) as folder:
            store._write_fact(f"{folder}/joined.json", {"life": 0, "joined": False})

    for store in stores:
        store.join(stores, [UNIT], peers_needed=2)

    assert all(isinstance(store.ask(ClaimSent(UNIT, 1, "h")), ClaimGranted) for store in stores)


def test_a_store_with_no_peers_to_ask_goes_on_if_told_so(base):
    contents, store = Contents(), OpenStore("a", base)
    stored(store, checkpoint(contents, 1), contents)
    wiped(store)
    with pytest.raises(StoreLost):
        store.usage()
    store.reopen()
    store.join([], [UNIT], peers_needed=0)

    stored(store, checkpoint(contents, 2), contents)


def test_a_folder_that_vanishes_while_a_file_is_written_is_a_lost_one(tmp_path):
    contents, store = Contents(), OpenStore("a", str(tmp_path / "s"))
    item = checkpoint(contents, 1)

    def content(name: str) -> bytes:
        shutil.rmtree(tmp_path / "s", ignore_errors=True)
        return contents[name]

    with pytest.raises(StoreLost):
        store.ask(request(item), content)
    assert not (tmp_path / "s").exists(), "a lost folder must not come back as an empty one"


@pytest.mark.parametrize("name", ["epoch", "manifest.json"])
def test_a_damaged_register_or_manifest_counts_as_a_lost_folder(tmp_path, name):
    """One flipped digit would promise another epoch."""
    contents, stores = Contents(), three(str(tmp_path))
    item = checkpoint(contents, 1, epoch=11)
    for store in stores:
        store.ask(ClaimSent(UNIT, 11, "h"))
        stored(store, item, contents)
    path = tmp_path / "b" / quoted(UNIT) / name
    written = path.read_bytes()
    path.write_bytes(written.replace(b'"epoch":11', b'"epoch":10').replace(b'",11,', b'",10,'))
    assert path.read_bytes() != written

    with pytest.raises(StoreLost, match="does not fit its digest"):
        stores[1].ask(ClaimSent(UNIT, 11, "h"))
    stores[1].reopen()
    stores[1].join(stores, [UNIT], peers_needed=2)

    assert stores[1].trace(UNIT) == stores[0].trace(UNIT)


def test_a_store_of_a_later_version_is_left_alone(tmp_path):
    contents, store = Contents(), OpenStore("a", str(tmp_path))
    stored(store, checkpoint(contents, 1), contents)
    path = tmp_path / quoted(UNIT) / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))

    with pytest.raises(StoreAway, match="later version") as told:
        store.ask(ClaimSent(UNIT, 2, "h"))
    assert not isinstance(told.value, StoreLost)


def test_two_stores_do_not_share_a_place(base):
    """Two copies in one folder are one copy."""
    OpenStore("a", base).trace(UNIT)

    with pytest.raises(StoreAway, match="belongs to store 'a'"):
        OpenStore("b", base).trace(UNIT)


def test_what_the_operating_system_says_is_told(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreAway, match="Not a directory|File exists"):
        OpenStore("a", str(tmp_path / "file" / "store")).trace(UNIT)
    with pytest.raises(StoreAway, match="Protocol not known"):
        OpenStore("a", "nowhere://x").trace(UNIT)


def test_a_store_that_was_away_is_used_as_soon_as_it_is_back(tmp_path):
    contents, store = Contents(), OpenStore("a", str(tmp_path / "s"))
    item = checkpoint(contents, 1)
    stored(store, item, contents)
    files = tmp_path / "s" / quoted(UNIT) / "files"
    os.rename(files, files.with_name("moved"))
    files.write_text("in the way")

    with pytest.raises(StoreAway) as told:
        store.ask(request(checkpoint(contents, 2)), contents)
    assert not isinstance(told.value, StoreLost)
    files.unlink()
    os.rename(files.with_name("moved"), files)

    stored(store, checkpoint(contents, 2), contents)
