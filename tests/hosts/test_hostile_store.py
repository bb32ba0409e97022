"""A store that somebody else can write to: what it plants, replays, swaps or flips is refused, and nothing leaves the unit's folder."""

from __future__ import annotations

import json
import os
import random
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import EnvironmentRefused, StateRefused
from holdfast.graph.secrets import Secret
from holdfast.hosts.activating import activate
from holdfast.hosts.containers import _packed, vetted
from holdfast.hosts.keys import NOTE, backup_seal
from holdfast.hosts.local_checkpoint import clear_unit, put_back
from holdfast.hosts.names import Unfit, is_part, path_parts
from holdfast.hosts.remembered import Remembered
from holdfast.hosts.sealed import PLAIN, Damaged, NewerFormat, Seal, quoted
from holdfast.hosts.store_answers import StoreLost
from holdfast.hosts.stores import OpenStore, StoreAway
from holdfast.protocols.messages import ClaimSent, Manifest, Verdict
from tests.hosts.checkpoints import request

UNIT, STREAMS = "u", ("s",)
RUN = "runs/op/00000001-abc-0123.arrow"
KEYED = Seal.keyed("a key that nobody can guess", "home")
EVIL = [
    "../../.bashrc", "runs/op/../../../.bashrc", "streams/s/../../../sitecustomize.py", "/etc/cron.d/x", "runs//x", "runs/op/",
    "runs/op/.hidden", "runs/op/a/b", "runs/op", "commits.jsonl", "instance", "units/x/y", "streams/other/00000001.stable.arrow",
    "streams/s/evil.py", "streams/s/00000001.stable.arrow/x", "spark/metadata", "spark/../x/y", "spark/state/./x", "runs/op/a\0b",
    "runs/op/a\nb", "runs/op/a\\b", "runs/op/\u202egpj.exe", "runs/op/" + "x" * 256, "", ".", "..",
]  # fmt: skip


def container(
    files, *, seal=PLAIN, unit=UNIT, epoch=1, serial=1, frame=4, record=None
) -> tuple[Manifest, dict[str, bytes]]:
    head = {"unit": unit, "epoch": epoch, "serial": serial, "frame": frame, "base": True, "gone": []}
    head["runs"] = record["state"] if isinstance(record, dict) and isinstance(record.get("state"), dict) else {}
    record = {"n": frame, "state": {}} if record is None else record
    content, _ = _packed(head | {"record": record}, files)
    name = seal.file_name(f"{epoch:06d}-{serial:06d}", content)
    return Manifest(unit, epoch, serial, frame, (), (name,)), {name: content}


def store_in(folder, name="a", **given) -> OpenStore:
    return OpenStore(name, str(folder / name), **given)


def keep(store, manifest, contents) -> None:
    assert store.ask(request(manifest), contents.__getitem__).verdict is Verdict.STORED


def started(stores, **given):
    options = {"needed": 1, "known_epoch": 0, "near": None, "claimant": "me", "patience_s": 0}
    return activate(UNIT, stores, vet=lambda m, c: vetted(m, c, STREAMS), **options | given)


@pytest.mark.parametrize("name", EVIL)
def test_a_planted_name_writes_nothing_anywhere(tmp_path, name):
    """Names of a container were joined to the unit's folder: a bucket's writer had the user's account at the next restore."""
    unit, streams = tmp_path / "host" / "units" / "u", {"s": tmp_path / "host" / "streams" / "s"}
    unit.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(Unfit):
        put_back(unit, streams, {"n": 4, "state": {}}, 1, {RUN: b"fine", name: b"evil"})
    assert sorted(tmp_path.rglob("*")) == before

    store = store_in(tmp_path)
    keep(store, *container({RUN: b"fine", name: b"evil"}))
    with pytest.raises(StateRefused, match="a: .*HF-R060 CheckpointRefused: it names a file") as refused:
        started([store])
    assert refused.value.code == "HF-R012"


def test_names_that_are_ours_are_taken():
    for name in (RUN, "spark/offsets/12", "spark/state/0/0/_metadata/schema", "spark/state/0/1/left-keyToNumValues/3_a-b.changelog",
                 "streams/s/00000012.lost.arrow", "runs/zähler 2/00000001-a-b.arrow"):  # fmt: skip
        assert "/".join(path_parts(name, STREAMS)) == name


@given(
    name=st.text(max_size=40)
    | st.lists(st.sampled_from(["..", ".", "", "runs", "spark", "state", "streams", "s", "x"])).map("/".join)
)
@settings(max_examples=200, deadline=None)
def test_whatever_the_name_it_stays_below_the_folder(name):
    try:
        parts = path_parts(name, STREAMS)
    except Unfit:
        return
    assert all(is_part(part) for part in parts)
    assert os.path.normpath(os.path.join("/unit", *parts)).startswith("/unit/" + parts[0] + "/")


def test_a_link_in_the_way_is_not_followed(tmp_path):
    unit, elsewhere = tmp_path / "unit", tmp_path / "elsewhere"
    (unit / "runs").mkdir(parents=True)
    elsewhere.mkdir()
    (unit / "runs" / "op").symlink_to(elsewhere)

    with pytest.raises(Unfit, match="symbolic link"):
        put_back(unit, {}, {"n": 4, "state": {}}, 1, {RUN: b"x"})
    (unit / "spark").symlink_to(elsewhere)
    clear_unit(unit)
    put_back(unit, {}, {"n": 4, "state": {}}, 1, {RUN: b"x", "spark/offsets/1": b"y"})

    assert list(elsewhere.iterdir()) == []
    assert (unit / RUN).read_bytes() == b"x"


def test_a_store_whose_folder_became_a_link_deletes_nothing_behind_it(tmp_path):
    """Files that no manifest names are deleted: behind a link, those were the user's."""
    store, home = store_in(tmp_path), tmp_path / "home"
    keep(store, *container({RUN: b"1"}))
    home.mkdir()
    (home / "thesis.tex").write_text("x")
    files = tmp_path / "a" / UNIT / "files"
    shutil.copytree(files, home, dirs_exist_ok=True)
    shutil.rmtree(files)
    files.symlink_to(home)

    with pytest.raises(StoreAway, match="symbolic link"):
        store.ask(request(container({RUN: b"2"}, serial=2)[0]), container({RUN: b"2"}, serial=2)[1].__getitem__)
    assert (home / "thesis.tex").exists()


@pytest.mark.parametrize("record", [None, [], {}, {"n": 5}, {"n": 4, "state": 7}, {"n": 4, "state": {"op": {"0": [["../../x", 1]]}}},
                                    {"n": 4, "state": {"../x": {"0": [["a.arrow", 1]]}}}])  # fmt: skip
def test_a_record_that_leads_elsewhere_is_refused(record):
    manifest, contents = container({RUN: b"x"}, record=record if record is not None else [])
    with pytest.raises(Unfit):
        vetted(manifest, contents, STREAMS)


def test_another_units_checkpoint_is_refused(tmp_path):
    store = store_in(tmp_path)
    manifest, contents = container({RUN: b"x"}, unit="other")
    keep(
        store,
        Manifest(UNIT, *(getattr(manifest, each) for each in ("epoch", "serial", "frame", "queues", "files"))),
        contents,
    )
    with pytest.raises(StateRefused, match="HF-R060 CheckpointRefused: container .* is of unit 'other'"):
        started([store])

    keep(store_in(tmp_path, "b"), *container({RUN: b"x"}))
    keep(store_in(tmp_path, "b"), manifest, contents)
    shutil.copy(tmp_path / "b" / "other" / "manifest.json", tmp_path / "b" / UNIT / "manifest.json")
    with pytest.raises(StoreLost, match="HF-R060 CheckpointRefused: it holds a checkpoint of unit 'other'"):
        store_in(tmp_path, "b").trace(UNIT)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 40, b"hfc3l" + b"\xff" * 8, b"hfc3s", b"hfc3l" + (10**15).to_bytes(8, "little")]
)
def test_a_container_that_is_none_is_refused(content):
    name = PLAIN.file_name("x", content)
    with pytest.raises(Unfit):
        vetted(Manifest(UNIT, 1, 1, 4, (), (name,)), {name: content}, STREAMS)


# ---- with a key ------------------------------------------------------------------------


def test_a_run_with_a_key_comes_back_from_its_stores(tmp_path):
    stores = [store_in(tmp_path, each, seal=KEYED) for each in "ab"]
    manifest, contents = container({RUN: b"x"}, seal=KEYED)
    for store in stores:
        keep(store, manifest, contents)

    got = started([store_in(tmp_path, each, seal=KEYED) for each in "ab"], needed=2)

    assert (got.manifest, got.contents, got.bad) == (manifest, contents, ())


@pytest.mark.parametrize("forged", ["no key", "another key", "another process", "another store", "another unit"])
def test_what_was_not_made_here_with_the_key_is_not_authentic(tmp_path, forged):
    seal = {"no key": PLAIN, "another key": Seal.keyed("another key, as long as ours", "home"),
            "another process": Seal.keyed("a key that nobody can guess", "elsewhere")}.get(forged, KEYED)  # fmt: skip
    by, unit = ("b" if forged == "another store" else "a"), ("other" if forged == "another unit" else UNIT)
    manifest, contents = container({RUN: b"x"}, seal=seal, unit=unit)
    keep(store_in(tmp_path / "forged", by, seal=seal), manifest, contents)
    keep(store_in(tmp_path, seal=KEYED), *container({RUN: b"x"}, seal=KEYED))
    shutil.copy(tmp_path / "forged" / by / unit / "manifest.json", tmp_path / "a" / UNIT / "manifest.json")

    with pytest.raises(StoreLost, match="HF-R061 NotAuthentic") as lost:
        store_in(tmp_path, seal=KEYED).trace(UNIT)
    assert len(str(lost.value).splitlines()) == 1


def test_a_forged_store_learns_from_its_peers_what_it_should_hold(tmp_path):
    """It is as good as lost: told, opened anew, and the true checkpoint is used."""
    manifest, contents = container({RUN: b"true"}, seal=KEYED)
    for each in "abc":
        keep(store_in(tmp_path, each, seal=KEYED), manifest, contents)
    evil, evil_contents = container({RUN: b"evil"}, serial=9)
    keep(store_in(tmp_path / "evil"), evil, evil_contents)
    shutil.rmtree(tmp_path / "a" / UNIT)
    shutil.copytree(tmp_path / "evil" / "a" / UNIT, tmp_path / "a" / UNIT)

    got = started([store_in(tmp_path, each, seal=KEYED) for each in "abc"], needed=2)

    assert (got.manifest, got.contents) == (manifest, contents)
    assert "HF-R061 NotAuthentic" in got.bad[0]


def test_a_swapped_container_is_no_copy_though_its_digest_fits(tmp_path):
    """XXH3 is no seal: whoever may choose the bytes can choose ones with the digest of the name."""
    store = store_in(tmp_path, seal=KEYED)
    manifest, contents = container({RUN: b"true"}, seal=KEYED)
    keep(store, manifest, contents)
    path = tmp_path / "a" / UNIT / "files" / manifest.files[0]
    path.write_bytes(container({RUN: b"evil"})[1].popitem()[1])

    with pytest.raises(StateRefused, match="is damaged"):
        started([store_in(tmp_path, seal=KEYED)])


def test_flipped_bits_are_never_accepted(tmp_path):
    chance = random.Random(8)
    manifest, contents = container({RUN: b"x" * 200}, seal=KEYED)
    keep(store_in(tmp_path, seal=KEYED), manifest, contents)
    files = [path for path in (tmp_path / "a").rglob("*") if path.is_file() and path.stat().st_size]
    for _ in range(300):
        path = chance.choice(files)
        whole = path.read_bytes()
        bit = chance.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        store = store_in(tmp_path, seal=KEYED)
        try:
            got = store.fetch(UNIT, 1, manifest)
            assert not got.good or got.contents == contents
        except StoreAway as error:
            assert len(str(error).splitlines()) == 1
        path.write_bytes(whole)
    assert store_in(tmp_path, seal=KEYED).fetch(UNIT, 1, manifest).good


def test_without_the_key_keyed_copies_are_not_touched(tmp_path):
    keep(store_in(tmp_path, seal=KEYED), *container({RUN: b"x"}, seal=KEYED))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    with pytest.raises(StoreAway, match="written with a key"):
        store_in(tmp_path).ask(ClaimSent(UNIT, 9, "me"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_facts_say_by_whom_they_were_sealed():
    assert KEYED.unsealed(KEYED.sealed({"a": 1}, "a/x"), "a/x") == {"a": 1}
    for other in (KEYED.sealed({"a": 1}, "a/y"), PLAIN.sealed({"a": 1}, "a/x"), b"[" * 100_000):
        with pytest.raises(Damaged):
            KEYED.unsealed(other, "a/x")
    with pytest.raises(NewerFormat):
        PLAIN.unsealed(KEYED.sealed({"a": 1}))
    assert "guess" not in repr(KEYED) and KEYED.key.hex() not in repr(KEYED)


def test_a_mistyped_key_costs_nothing(tmp_path, monkeypatch):
    """With another key every copy looks forged, and a store of forged copies begins anew."""
    key = Secret("HOLDFAST_TEST_KEY")
    monkeypatch.setenv("HOLDFAST_TEST_KEY", "short")
    with pytest.raises(EnvironmentRefused, match="HF-E060"):
        backup_seal(tmp_path, key, "home")
    monkeypatch.setenv("HOLDFAST_TEST_KEY", "a key that nobody can guess")
    assert backup_seal(tmp_path, key, "home") == KEYED
    monkeypatch.setenv("HOLDFAST_TEST_KEY", "a key that nobody can guesS")
    for given in (key, None):
        with pytest.raises(EnvironmentRefused, match="HF-E061"):
            backup_seal(tmp_path, given, "home")
    assert "guess" not in (tmp_path / NOTE).read_text()

    (tmp_path / NOTE).unlink()  # as the error says
    assert backup_seal(tmp_path, key, "home") != KEYED


# ---- older copies ------------------------------------------------------------------------


@pytest.mark.parametrize("seal", [PLAIN, KEYED])
def test_a_store_set_back_to_an_older_image_is_known_as_one(tmp_path, seal):
    """Only its id was compared: it has forgotten an epoch and a checkpoint it promised, and would be believed."""
    memory = Remembered(tmp_path / "notes")
    stores = [store_in(tmp_path, each, seal=seal, memory=memory) for each in "abc"]
    for store in stores:
        keep(store, *container({RUN: b"1"}, seal=seal))
    shutil.copytree(tmp_path / "a", tmp_path / "image")
    newest, contents = container({RUN: b"2"}, seal=seal, serial=2, frame=8)
    for store in stores:
        keep(store, newest, contents)
    shutil.rmtree(tmp_path / "a")
    shutil.copytree(tmp_path / "image", tmp_path / "a")
    memory = Remembered(tmp_path / "notes")  # of the next run
    stores = [store_in(tmp_path, each, seal=seal, memory=memory) for each in "abc"]

    with pytest.raises(
        StoreLost, match="HF-R062 BackupOlder.*checkpoint 2 of epoch 1.*holds epoch 1 and checkpoint 1 of epoch 1"
    ):
        stores[0].trace(UNIT)

    got = started([store_in(tmp_path, each, seal=seal, memory=memory) for each in "abc"], needed=2)
    assert (got.manifest, got.contents) == (newest, contents)
    assert "HF-R062 BackupOlder" in got.bad[0]
    again = store_in(tmp_path, seal=seal, memory=memory)
    assert (again.trace(UNIT).manifest, again.life) == (newest, 1)


def test_notes_that_cannot_be_read_prove_nothing(tmp_path):
    for text in ("", "[]", '{"u": 7}', '{"u": [1]}', '{"u": {"stored": "x", "claimed": "y"}}'):
        for name in ("units", "store a x"):
            path = tmp_path / f"{quoted(name)}.json"
            path.write_text(text)
        memory = Remembered(tmp_path)
        assert (memory.promised("a x", "u"), memory.claimed("u"), memory.stored("u")) == (None, 0, ((0, 0), 0))
        memory.note_claim("u", 3)
        memory.note_stored(Manifest("u", 3, 2, 9, (), ()))
        assert (Remembered(tmp_path).claimed("u"), Remembered(tmp_path).stored("u")) == (3, ((3, 2), 9))
        assert json.loads((tmp_path / "units.json").read_text())
