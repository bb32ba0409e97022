"""Checkpoints in containers: what is put back from them is what was pinned, and they stay small."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from holdfast.frames.sums import write_arrow
from holdfast.hosts.containers import Packer, unpack
from holdfast.hosts.local_checkpoint import clear_unit, link_frames, pin_runs, put_back
from holdfast.journals.journal import Journal
from holdfast.operators.runs import RunRef
from holdfast.operators.state import Store
from tests.operators.test_state import KEYS, SHARDS, VALUE, VALUES, a_commit, as_dict, commit, row_table

ALL = tuple(range(SHARDS))


def as_json(runs) -> dict:
    return {str(shard): [run.to_json() for run in own] for shard, own in runs.items() if own}


def from_json(shards) -> dict:
    return {int(shard): tuple(map(RunRef.from_json, own)) for shard, own in shards.items()}


def rows_of(directory: Path, shards) -> dict:
    store = Store(directory, KEYS, VALUES)
    store.load(from_json(shards))
    return as_dict(store.rows(ALL))


class Unit:
    """A unit with one keyed operator `op`, its packer and what its backup holds."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "unit"
        self.runs_dir = self.folder / "runs" / "op"
        self.runs_dir.mkdir(parents=True)
        self.frame = self.serial = 0
        self.epoch = 1
        self.runs: dict = {}
        self.model: dict = {}
        self.manifest = None
        self.backup: dict[str, bytes] = {}
        self.store = Store(self.runs_dir, KEYS, VALUES)
        self.start()

    def start(self) -> None:
        self.packer = Packer("u", self.epoch, self.folder / "containers")
        if self.manifest is not None:
            self.packer.adopt(self.manifest)

    def commit(self, change) -> None:
        self.frame += 1
        self.store.load({shard: self.runs.get(shard, ()) for shard in ALL})
        self.runs = {**self.runs, **commit(self.store, self.frame, change)[1]}
        self.model = {**self.model, **change}
        self.model = {key: value for key, value in self.model.items() if value is not None}

    def pack(self, frames=()):
        self.serial += 1
        pin = link_frames(
            pin_runs(self.folder, self.serial, {"n": self.frame, "state": {"op": as_json(self.runs)}}), frames
        )
        made = self.packer.pack(self.serial, self.frame, (), pin.files, record=pin.record)
        shutil.rmtree(pin.folder)
        return made

    def ship(self, manifest) -> int:
        """Give the backup what it lacks; returns how many bytes that were."""
        sent = {name: self.packer.content(name) for name in manifest.files if name not in self.backup}
        self.backup = {name: own for name, own in {**self.backup, **sent}.items() if name in manifest.files}
        self.manifest = manifest
        self.packer.stored(manifest)
        return sum(map(len, sent.values()))

    def put_back(self) -> None:
        """The host is lost: all there is comes from the backup."""
        clear_unit(self.folder)
        self.frame, self.runs, self.model = 0, {}, {}
        self.epoch += 1
        if self.manifest is not None:
            found = unpack(self.manifest, self.backup)
            put_back(self.folder, {"s": self.folder.parent}, found.head["record"], 1, found.files)
            (self.folder / "containers").mkdir()
            for name, content in self.backup.items():
                (self.folder / "containers" / name).write_bytes(content)
            record = Journal(self.folder, "commits").last()
            self.frame, self.runs = record["n"], from_json(record["state"]["op"])
        self.runs_dir.mkdir(parents=True, exist_ok=True)
        self.store = Store(self.runs_dir, KEYS, VALUES)
        self.start()


class PackedAgainstModel(RuleBasedStateMachine):
    """Whatever happened between two checkpoints, the backup holds the state of the one that was shipped last."""

    @initialize()
    def begin(self):
        self.root = Path(tempfile.mkdtemp())
        self.unit = Unit(self.root)
        self.shipped: dict = {}
        self.past: list = []

    def teardown(self):
        shutil.rmtree(self.root)

    @rule(change=a_commit)
    def a_frame(self, change):
        self.past.append((self.unit.frame, self.unit.runs, self.unit.model))
        self.unit.commit(change)

    @rule(change=a_commit, count=st.integers(5, 12))
    def frames_that_fold(self, change, count):
        for at in range(count):
            self.unit.commit(
                {key: None if value is None else {**value, "total": float(at)} for key, value in change.items()}
            )

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def the_unit_is_set_back(self, data):
        at = data.draw(st.integers(max(0, len(self.past) - 4), len(self.past) - 1))
        self.unit.frame, self.unit.runs, self.unit.model = self.past[at]
        self.past = self.past[:at]

    @rule(ships=st.booleans())
    def a_checkpoint(self, ships):
        manifest = self.unit.pack()
        if ships:
            self.unit.ship(manifest)
            self.shipped = dict(self.unit.model)
            found = unpack(manifest, self.unit.backup)
            again = self.root / "again"
            for name, content in found.files.items():
                (again / name).parent.mkdir(parents=True, exist_ok=True)
                (again / name).write_bytes(content)
            (again / "runs" / "op").mkdir(parents=True, exist_ok=True)
            assert rows_of(again / "runs" / "op", found.head["record"]["state"]["op"]) == as_dict(
                row_table(self.shipped)
            )
            shutil.rmtree(again)

    @rule()
    def the_instance_starts_anew(self):
        """It goes on from what its host has; what it packed and did not ship is forgotten."""
        self.unit.epoch += 1
        self.unit.start()

    @rule()
    def the_host_is_lost(self):
        self.unit.put_back()
        self.unit.model, self.past = dict(self.shipped), []
        assert rows_of(self.unit.runs_dir, as_json(self.unit.runs)) == as_dict(row_table(self.shipped))


PackedAgainstModel.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
test_packed_against_model = PackedAgainstModel.TestCase


def many(numbers, total: float) -> dict:
    return {("a", number): {**VALUE, "total": total} for number in numbers}


@pytest.fixture
def unit(tmp_path):
    return Unit(tmp_path)


def test_a_checkpoint_ships_what_changed_however_runs_were_folded(unit):
    """Merging and folding write rows anew; shipping them too would send everything many times over."""
    unit.commit(many(range(20_000), 0.0))
    full = unit.ship(unit.pack())
    sent = []
    bases = set()
    for at in range(1, 31):
        unit.commit(many(range(at * 500, at * 500 + 300), float(at)))
        sent.append(unit.ship(unit.pack()))
        bases |= {own[0].file for own in unit.runs.values()}
    assert len(bases) > 1, "no shard was folded"
    assert max(sent) < full / 20
    assert len(unit.backup) == 31
    expected = as_dict(row_table(unit.model))
    unit.put_back()
    assert rows_of(unit.runs_dir, as_json(unit.runs)) == expected


def test_when_changes_have_cost_as_much_as_the_base_there_is_a_new_one(unit):
    """The list of containers must not grow for ever, nor the time a restore takes."""
    unit.commit(many(range(2_000), 0.0))
    unit.ship(unit.pack())
    held = []
    for at in range(1, 60):
        unit.commit(many(range(at * 10, at * 10 + 200), float(at)))
        unit.ship(unit.pack())
        held.append(len(unit.backup))
    assert max(held) < 20 and held.count(1) >= 2
    near = {path.name for path in (unit.folder / "containers").glob("[!.]*-*")}
    assert near == {*unit.manifest.files}
    links = {path.name for path in (unit.folder / "containers" / "near" / "op").iterdir()}
    assert links == {run.file for own in unit.runs.values() for run in own}


def test_a_new_instance_goes_on_with_deltas(unit):
    """Every restart of a query would else ship the whole state."""
    unit.commit(many(range(20_000), 0.0))
    full = unit.ship(unit.pack())
    unit.commit(many(range(100), 1.0))
    unit.epoch += 1
    unit.start()
    assert unit.ship(unit.pack()) < full / 20
    unit.put_back()
    for at in range(5):  # the runs that came from the backup are folded away, and nothing was packed yet
        unit.commit(many(range(100), 2.0 + at))
    named = {run.file for own in unit.runs.values() for run in own}
    for path in unit.runs_dir.iterdir():
        if path.name not in named:
            path.unlink()
    unit.epoch += 1
    unit.start()
    assert unit.ship(unit.pack()) < full / 20


def test_without_its_links_an_instance_ships_everything(unit):
    """What cannot be compared is not taken for the same."""
    unit.commit(many(range(5_000), 0.0))
    full = unit.ship(unit.pack())
    unit.commit(many(range(4_000), 1.0))
    for link in (unit.folder / "containers" / "near" / "op").iterdir():
        link.unlink()
    base = {run.file for own in unit.runs.values() for run in own}
    for path in unit.runs_dir.iterdir():
        if path.name not in base:
            path.unlink()
    unit.epoch += 1
    unit.start()
    assert unit.ship(unit.pack()) > full / 2
    assert len(unit.backup) == 1


def test_keys_forgotten_in_a_fold_are_forgotten_in_the_backup_too(unit):
    """A new base does not name them, and the shipped one still does."""
    unit.commit(many(range(100), 0.0))
    unit.ship(unit.pack())
    unit.commit({("a", number): None for number in range(0, 100, 2)})
    assert all(len(own) == 1 for own in unit.runs.values()), "it was not folded"
    unit.ship(unit.pack())
    expected = as_dict(row_table(unit.model))

    unit.put_back()

    assert len(unit.backup) == 2
    assert rows_of(unit.runs_dir, as_json(unit.runs)) == expected and len(expected) == 50


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_a_container_harmed_on_the_host_is_not_built_on(unit, harm):
    """The backup's copy is whole, but nobody here knows any more what is in it."""
    unit.commit(many(range(5_000), 0.0))
    full = unit.ship(unit.pack())
    path = unit.folder / "containers" / unit.manifest.files[0]
    path.unlink() if harm == "missing" else path.write_bytes(path.read_bytes()[:-1])
    unit.epoch += 1
    unit.start()
    unit.commit(many(range(10), 1.0))
    assert unit.ship(unit.pack()) > full / 2


def test_a_damaged_run_does_not_become_a_backup(unit):
    unit.commit(many(range(10), 0.0))
    for path in unit.runs_dir.iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(FileNotFoundError, match="not what was written"):
        unit.pack()


def test_sealed_frames_travel_once_and_go_when_nobody_needs_them(unit, tmp_path):
    paths = {}
    for n in range(1, 8):
        paths[n] = tmp_path / f"{n:08d}.stable.arrow"
        write_arrow(paths[n], pa.table({"x": [n] * 100}))
    for n in range(1, 6):
        unit.commit(many(range(n), float(n)))
        unit.ship(unit.pack([("s", paths[m]) for m in range(max(1, n - 1), n + 1)]))
        found = unpack(unit.manifest, unit.backup)
        frames = {name: own for name, own in found.files.items() if name.startswith("streams/")}
        assert frames == {f"streams/s/{paths[m].name}": paths[m].read_bytes() for m in range(max(1, n - 1), n + 1)}


def test_a_damaged_frame_does_not_become_a_backup(unit, tmp_path):
    """It would come back with every restore, and be damaged again for whoever reads it."""
    path = tmp_path / "00000001.stable.arrow"
    write_arrow(path, pa.table({"x": [1] * 100}))
    path.write_bytes(path.read_bytes().replace(b"\1", b"\2", 1))
    unit.commit(many(range(1), 1.0))
    with pytest.raises(FileNotFoundError, match="not what was written"):
        unit.pack([("s", path)])


def test_a_head_does_not_grow_with_the_number_of_checkpoints(unit):
    unit.commit(many(range(20_000), 0.0))
    unit.ship(unit.pack())
    sent = []
    for at in range(1, 100):
        unit.commit(many([at], float(at)))
        sent.append(unit.ship(unit.pack()))
    assert max(sent[-10:]) < 1.5 * min(sent[:10])
