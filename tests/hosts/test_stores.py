"""Backup stores on real folders and on memory://: whole or not at all, one epoch once, nothing forgotten."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.hosts import places
from holdfast.hosts.places import Folder, UrlPlace
from holdfast.hosts.sealed import quoted
from holdfast.hosts.stores import OpenStore, StoreAway
from holdfast.protocols.messages import ClaimGranted, ClaimRefused, ClaimSent, Stage, Verdict
from tests.hosts.checkpoints import UNIT, Contents, checkpoint, memory_url, request, stored, three


def names(store):
    return set(store._place.listed(f"{quoted(UNIT)}/files"))


# ---- storing --------------------------------------------------------------------------


def test_a_stored_checkpoint_is_there_for_whoever_opens_the_store_next(base):
    contents = Contents()
    item = checkpoint(contents, 1)
    stored(OpenStore("a", base), item, contents)

    copy = OpenStore("a", base).fetch(UNIT, 1, item)

    assert copy.good and copy.held == item
    assert copy.contents == {name: contents[name] for name in item.files}


def test_files_that_no_manifest_names_go_when_the_new_one_is_in_force(base):
    contents, store = Contents(), OpenStore("a", base)
    first, second = checkpoint(contents, 1), checkpoint(contents, 2)
    stored(store, first, contents)
    assert names(store) == set(first.files)

    stored(store, second, contents)

    assert names(store) == set(second.files)
    assert not store.fetch(UNIT, 1, first).good
    assert store.fetch(UNIT, 1, first).held == second


def test_a_file_that_is_there_does_not_travel_again(base):
    contents, store = Contents(), OpenStore("a", base)
    stored(store, checkpoint(contents, 1), contents)
    second, asked = checkpoint(contents, 2), []

    store.ask(request(second), lambda name: asked.append(name) or contents[name])

    assert asked == [second.files[1]]


def test_content_that_does_not_fit_its_name_is_not_stored(base):
    """It would be found damaged at the moment when it is needed."""
    contents, store = Contents(), OpenStore("a", base)
    item = checkpoint(contents, 1)

    with pytest.raises(ValueError, match="does not fit the digest"):
        store.ask(request(item), lambda name: b"something else")

    stored(store, item, contents)  # and the unit is not stuck in the request that failed


@pytest.mark.parametrize("harm", ["damaged", "truncated", "missing"])
def test_harm_to_a_file_is_found_when_it_is_fetched_and_when_it_is_named_again(base, harm):
    contents, store = Contents(), OpenStore("a", base)
    first = checkpoint(contents, 1)
    stored(store, first, contents)
    path = store._file(quoted(UNIT), first.files[0])
    content = contents[first.files[0]]
    if harm == "missing":
        store._place.delete(path)
    else:
        store._place.write(path, content[:-1] if harm == "truncated" else b"B" + content[1:])

    copy = store.fetch(UNIT, 1, first)
    assert not copy.good and copy.held == first
    assert copy.why == f"file {first.files[0]} is " + (
        "missing" if harm == "missing" else f"damaged ({len(content) - (harm == 'truncated')} bytes)"
    )

    second = checkpoint(contents, 2)
    answer = store.ask(request(second, files=second.files[1:]), contents)
    assert (answer.verdict, answer.missing) == (Verdict.MISSING, (first.files[0],))
    assert store.fetch(UNIT, 1, first).held == first  # the one in force is not replaced by one with a hole
    stored(store, second, contents)
    assert store.fetch(UNIT, 1, second).good


def test_a_file_that_was_whole_is_read_again_only_if_it_looks_different(tmp_path, monkeypatch):
    """A base of a hundred megabytes would else be hashed at every checkpoint of a few kilobytes."""
    contents, store = Contents(), OpenStore("a", str(tmp_path))
    read, plain = [], store._place.read
    monkeypatch.setattr(store._place, "read", lambda path: read.append(path.rpartition("/")[2]) or plain(path))
    base = checkpoint(contents, 1).files[0]

    def reads(serial: int) -> int:
        read.clear()
        stored(store, checkpoint(contents, serial), contents)
        return read.count(base)

    assert [reads(1), reads(2)] == [1, 2]  # what changed a moment ago may change again unseen
    monkeypatch.setattr(places, "SETTLED_NS", -1_000_000_000)
    assert [reads(3), reads(4), reads(5)] == [1, 0, 0]

    store._place.write(store._file(quoted(UNIT), base), b"B" + contents[base][1:])
    answer = store.ask(request(checkpoint(contents, 6), files=()), contents)
    assert answer.verdict is Verdict.MISSING and base in answer.missing
    fetched = store.fetch(UNIT, 1, checkpoint(contents, 5))
    assert not fetched.good


def test_a_prepared_checkpoint_is_committed_also_after_a_restart(base):
    contents = Contents()
    first, second = checkpoint(contents, 1), checkpoint(contents, 2)
    store = OpenStore("a", base)
    stored(store, first, contents)
    stored(store, second, contents, Stage.PREPARE)
    assert store.fetch(UNIT, 1, first).good

    again = OpenStore("a", base)
    assert again.fetch(UNIT, 1, first).good
    stored(again, second, contents, Stage.COMMIT)

    assert again.fetch(UNIT, 1, second).good
    assert names(again) == set(second.files)


def test_a_prepared_checkpoint_with_a_hole_is_not_committed_after_a_restart(base):
    """COMMIT does not look at files; whoever opens the store must."""
    contents, store = Contents(), OpenStore("a", base)
    item = checkpoint(contents, 1)
    stored(store, item, contents, Stage.PREPARE)
    store._place.delete(store._file(quoted(UNIT), item.files[1]))

    answer = OpenStore("a", base).ask(request(item, Stage.COMMIT), contents)

    assert answer.verdict is Verdict.MISSING
    assert OpenStore("a", base).trace(UNIT).manifest is None


def test_a_claim_drops_what_was_prepared_also_after_a_restart(base):
    contents, store = Contents(), OpenStore("a", base)
    item = checkpoint(contents, 1)
    stored(store, item, contents, Stage.PREPARE)
    store.ask(ClaimSent(UNIT, 2, "h"))

    again = OpenStore("a", base)
    assert again._machine(UNIT, quoted(UNIT)).prepared == {}
    assert again.ask(request(item, Stage.COMMIT)).verdict is Verdict.REFUSED


def test_two_units_with_odd_names_do_not_meet(base):
    contents, store = Contents(), OpenStore("a", base)
    odd = ["store.json", "store.lives", "..", ".", "", "a/b", "a%2Fb", "ü" * 200, "ü" * 199, "lock", "+", " "]
    for at, unit in enumerate(odd):
        stored(store, checkpoint(contents, at + 1, unit=unit), contents)

    assert {unit: OpenStore("a", base).trace(unit).manifest.serial for unit in odd} == {
        u: i + 1 for i, u in enumerate(odd)
    }
    assert store.usage().keys() == set(odd)


def test_usage_counts_the_bytes_of_each_unit(base):
    contents, store = Contents(), OpenStore("a", base)
    item = checkpoint(contents, 1)
    stored(store, item, contents)
    before = store.usage()[UNIT]
    large = replace(item, serial=2, files=(*item.files, contents.made("large", b"x" * 5000)))

    stored(store, large, contents)

    assert before >= sum(len(contents[name]) for name in item.files)
    assert 5000 <= store.usage()[UNIT] - before < 5200


def test_folders_and_files_are_for_their_owner_alone(tmp_path):
    contents, root = Contents(), tmp_path / "store"
    stored(OpenStore("a", str(root)), checkpoint(contents, 1), contents)

    modes = {stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")] if path.is_dir()}
    assert modes == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()} == {0o600}


def test_a_file_url_is_the_folder(tmp_path):
    contents = Contents()
    item = checkpoint(contents, 1)
    stored(OpenStore("a", f"file://{tmp_path}/with%20space"), item, contents)

    assert OpenStore("a", str(tmp_path / "with space")).fetch(UNIT, 1, item).good


# ---- crashes --------------------------------------------------------------------------


class PowerCut(BaseException):
    """Not an error that anything may handle."""


class Steps:
    """Ends the process, so to speak, at its k-th step; k = 0: never."""

    def __init__(self, at: int) -> None:
        self.at, self.done = at, 0

    def step(self) -> None:
        self.done += 1
        if self.done == self.at:
            raise PowerCut


class CutFolder(Folder):
    def __init__(self, root: Path, steps: Steps) -> None:
        super().__init__(root)
        self.steps = steps

    def _put(self, path, content):
        self.steps.step()
        cut_before = self.steps.done
        if self.steps.at == cut_before + 1:  # the next one: half of the file is on the disk
            super()._put(path, content[: len(content) // 2])
        else:
            super()._put(path, content)
        self.steps.step()

    def _rename(self, tmp, final):
        self.steps.step()
        super()._rename(tmp, final)
        self.steps.step()

    def delete(self, path):
        self.steps.step()
        super().delete(path)


class CutUrl(UrlPlace):
    def __init__(self, url: str, steps: Steps) -> None:
        super().__init__(url)
        self.steps = steps

    def write(self, path, content):
        self.steps.step()
        super().write(path, content)
        self.steps.step()

    def create(self, path, content):
        self.steps.step()
        made = super().create(path, content)
        self.steps.step()
        return made

    def delete(self, path):
        self.steps.step()
        super().delete(path)


def cut_store(base: str, steps: Steps) -> OpenStore:
    store = OpenStore("a", base)
    store._place = CutUrl(base, steps) if "://" in base else CutFolder(Path(base), steps)
    return store


def fresh(base: str, k: int) -> str:
    return f"{base}-{k}"


@pytest.mark.parametrize("stages", [(Stage.FINAL,), (Stage.PREPARE, Stage.COMMIT)], ids=["final", "two phases"])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_checkpoint_whole(base, stages):
    """For every write, rename and deletion of replacing a checkpoint by the next."""
    seen, k, ended = set(), 0, False
    while not ended:
        k += 1
        contents, place = Contents(), fresh(base, k)
        old, new = checkpoint(contents, 1), checkpoint(contents, 2)
        stored(OpenStore("a", place), old, contents)
        said = []
        try:
            store = cut_store(place, Steps(k))
            for stage in stages:
                said.append(stored(store, new, contents, stage))
            ended = True
        except PowerCut:
            pass

        after = OpenStore("a", place)
        held = after.trace(UNIT).manifest
        assert held in (old, new)
        assert after.fetch(UNIT, 1, held).good
        if len(said) == len(stages):
            assert held == new
        seen.add((len(said), held.serial))
        # And whatever was left lying about, the same request ends as if nothing had been.
        stored(after, new, contents)
        assert after.fetch(UNIT, 1, new).good
        newest = checkpoint(contents, 3)
        stored(after, newest, contents)
        assert names(after) == set(newest.files)
    assert k > 5
    assert {(0, 1), (len(stages) - 1, 2), (len(stages), 2)} <= seen  # cut before and after the manifest, and not at all


def test_a_crash_at_any_step_of_a_claim_grants_an_epoch_at_most_once(base):
    granted_before, k, ended = set(), 0, False
    while not ended:
        k += 1
        place = fresh(base, k)
        OpenStore("a", place).ask(ClaimSent(UNIT, 1, "first"))
        try:
            cut_store(place, Steps(k)).ask(ClaimSent(UNIT, 2, "me"))
            ended = True
        except PowerCut:
            pass
        answer = OpenStore("a", place).ask(ClaimSent(UNIT, 2, "other"))
        granted_before.add((ended, type(answer)))
        assert not (ended and isinstance(answer, ClaimGranted))
    assert {(False, ClaimGranted), (False, ClaimRefused), (True, ClaimRefused)} == granted_before


def test_a_writer_that_is_killed_leaves_its_lock_to_the_next(tmp_path):
    """A lock file that needs cleaning up would keep the unit down."""
    code = (
        "import os, sys\n"
        "from holdfast.hosts.stores import OpenStore\n"
        "store = OpenStore('a', sys.argv[1])\n"
        "with store._at('join'):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s")], cwd=Path(__file__).parents[2])
    assert killed.returncode == -9

    assert isinstance(OpenStore("a", str(tmp_path / "s")).ask(ClaimSent("join", 1, "h")), ClaimGranted)


def test_a_store_whose_unit_a_frozen_process_holds_is_away_and_says_who(tmp_path, monkeypatch):
    monkeypatch.setattr(places, "LOCK_S_MAX", 0.05)
    code = (
        "import sys\n"
        "from holdfast.hosts.stores import OpenStore\n"
        "with OpenStore('a', sys.argv[1])._at('join'):\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "s")],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreAway, match=f"process {holder.pid} has held it"):
            OpenStore("a", str(tmp_path / "s")).ask(ClaimSent("join", 1, "h"))
    finally:
        holder.communicate()
    assert isinstance(OpenStore("a", str(tmp_path / "s")).ask(ClaimSent("join", 1, "h")), ClaimGranted)


# ---- epochs ---------------------------------------------------------------------------


def test_two_claimants_never_hold_one_epoch(base):
    """Each with a store object of its own, as two hosts have; three stores, two make a quorum."""
    held: list[tuple[int, str]] = []
    start = threading.Barrier(2)

    def claim(claimant: str) -> None:
        stores = three(base)
        start.wait()
        for epoch in range(1, 31):
            grants = [store.ask(ClaimSent(UNIT, epoch, claimant)) for store in stores]
            if sum(isinstance(answer, ClaimGranted) for answer in grants) >= 2:
                held.append((epoch, claimant))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(claim, ["x", "y"]))

    epochs = [epoch for epoch, _ in held]
    assert len(epochs) == len(set(epochs))
    assert epochs, "nobody ever got a quorum"


def test_two_processes_never_hold_one_epoch(tmp_path):
    code = (
        "import sys\n"
        "from holdfast.hosts.stores import OpenStore\n"
        "from holdfast.protocols.messages import ClaimGranted, ClaimSent\n"
        "store = OpenStore('a', sys.argv[1])\n"
        "store.trace('join')\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "print(*[n for n in range(1, 101) if isinstance(store.ask(ClaimSent('join', n, 'h')), ClaimGranted)])\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s")]
    both = [
        subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for each in both:
        assert each.stdout.readline() == "ready\n"
    granted = [each.communicate("go\n")[0].split() for each in both]

    assert not set(granted[0]) & set(granted[1])
    assert sum(map(len, granted)) > 50
    assert OpenStore("a", str(tmp_path / "s")).trace("join").epoch == 100


def test_a_replaced_instance_stores_nothing_and_fetches_nothing(base):
    contents, store = Contents(), OpenStore("a", base)
    item = checkpoint(contents, 1, epoch=1)
    stored(store, item, contents)
    grant = OpenStore("a", base).ask(ClaimSent(UNIT, 2, "other"))
    assert (grant.before, grant.manifest) == (1, item)

    late = store.ask(request(checkpoint(contents, 2, epoch=1)), contents)

    assert late.verdict is Verdict.REFUSED
    assert store.trace(UNIT).manifest == item
    assert store.fetch(UNIT, 1, item).passed == 2
    assert store.fetch(UNIT, 2, item).good


class Interrupted(UrlPlace):
    """Something else happens at this URL just before a path is written."""

    def __init__(self, url: str, where: str, happens) -> None:
        super().__init__(url)
        self.where, self.happens = where, happens

    def _before(self, path: str) -> None:
        if self.where in path and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()

    def write(self, path, content):
        self._before(path)
        super().write(path, content)

    def create(self, path, content):
        self._before(path)
        return super().create(path, content)


@pytest.fixture
def no_lock(monkeypatch):
    """As between two hosts: at a URL nothing keeps one from working while the other does."""
    import contextlib

    monkeypatch.setattr(UrlPlace, "locked", lambda self, path: contextlib.nullcontext())


def interrupted(base: str, where: str, happens) -> OpenStore:
    store = OpenStore("a", base)
    store._place = Interrupted(base, where, happens)
    return store


def test_at_a_url_a_claim_that_comes_while_a_manifest_is_written_wins(no_lock):
    """The claimant has read the former manifest; this one must not be called stored."""
    base, contents = memory_url(), Contents()
    old, new = checkpoint(contents, 1), checkpoint(contents, 2)
    stored(OpenStore("a", base), old, contents)
    seen = []
    store = interrupted(base, "manifests/", lambda: seen.append(OpenStore("a", base).ask(ClaimSent(UNIT, 2, "other"))))

    answer = store.ask(request(new), contents)

    assert seen[0].manifest == old
    assert answer.verdict is Verdict.REFUSED
    assert set(old.files) <= names(store), "the claimant is about to fetch these"


def test_at_a_url_a_late_writer_does_not_replace_its_successors_manifest(no_lock):
    base, contents = memory_url(), Contents()
    stored(OpenStore("a", base), checkpoint(contents, 1), contents)
    newer = checkpoint(contents, 1, epoch=2)

    def successor() -> None:
        other = OpenStore("a", base)
        other.ask(ClaimSent(UNIT, 2, "other"))
        stored(other, newer, contents)

    answer = interrupted(base, "manifests/", successor).ask(request(checkpoint(contents, 2)), contents)

    assert answer.verdict is Verdict.REFUSED
    after = OpenStore("a", base)
    assert after.trace(UNIT).manifest == newer
    assert after.fetch(UNIT, 2, newer).good


@pytest.mark.parametrize("between", [2, 3, 4])
def test_at_a_url_an_epoch_taken_in_between_makes_the_claim_fail(no_lock, between):
    """Granted, its `before` would hide an instance that may have run."""
    base = memory_url()
    OpenStore("a", base).ask(ClaimSent(UNIT, 1, "first"))
    store = interrupted(base, "epochs/", lambda: OpenStore("a", base).ask(ClaimSent(UNIT, between, "other")))

    answer = store.ask(ClaimSent(UNIT, 3, "me"))

    assert isinstance(answer, ClaimRefused)
    assert answer.current == max(3, between)


# ---- any order ------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["store", "prepare", "commit", "claim", "reopen"]), st.integers(1, 4), st.integers(1, 4)
        ),
        max_size=14,
    )
)
def test_the_epoch_and_the_checkpoint_in_force_never_go_back(steps):
    """Whatever is asked in whatever order by whatever instance, and however often the store is opened."""
    base, contents = memory_url(), Contents()
    store = OpenStore("a", base)
    epoch, key = 0, (0, 0)
    for step, asked, serial in steps:
        item = checkpoint(contents, serial, epoch=asked)
        if step == "reopen":
            store = OpenStore("a", base)
        elif step == "claim":
            answer = store.ask(ClaimSent(UNIT, asked, "h"))
            assert isinstance(answer, ClaimGranted) <= (asked > epoch)
        else:
            stage = {"store": Stage.FINAL, "prepare": Stage.PREPARE, "commit": Stage.COMMIT}[step]
            answer = store.ask(request(item, stage), contents)
            assert (answer.verdict is Verdict.REFUSED) >= (asked < epoch)
        trace = OpenStore("a", base).trace(UNIT)
        assert trace.epoch >= epoch
        assert (trace.manifest.key if trace.manifest else (0, 0)) >= key
        if trace.manifest:
            assert store.fetch(UNIT, trace.epoch, trace.manifest).good
        epoch, key = trace.epoch, trace.manifest.key if trace.manifest else (0, 0)
