"""The store against a plain dict, whatever worker, attempt or restart it meets."""

import shutil
import tempfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.errors import StateRefused
from holdfast.graph.schemas import Schema
from holdfast.operators import state as state_module
from holdfast.operators.runs import sweep
from holdfast.operators.state import NotTouched, Store, drop_cache, open_store

KEYS = Schema.of("zone string, id int")
VALUES = Schema.of(
    "total double, note string, seen array<int>, at struct<x:int,y:string>, paid decimal(8,2), "
    "day date, ok boolean, wake timestamp"
)
SHARDS = 5
SCHEMA = pa.schema([*KEYS.arrow, *VALUES.arrow])

a_key = st.tuples(st.sampled_from(["a", "b", None, "", "ü"]), st.one_of(st.none(), st.integers(-3, 3)))
a_value = st.fixed_dictionaries(
    {
        "total": st.one_of(st.none(), st.floats(width=32)),
        "note": st.one_of(st.none(), st.text(max_size=3)),
        "seen": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(0, 9)), max_size=3)),
        "at": st.one_of(st.none(), st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.text(max_size=2)})),
        "paid": st.one_of(st.none(), st.decimals(-9, 9, places=2)),
        "day": st.one_of(st.none(), st.dates()),
        "ok": st.one_of(st.none(), st.booleans()),
        "wake": st.one_of(st.none(), st.integers(0, 10**7)),
    }
)
a_commit = st.dictionaries(a_key, st.one_of(st.none(), a_value), max_size=12)  # None: left out


def shard_of(key):
    return sum(map(ord, repr(key))) % SHARDS


def key_table(keys):
    columns = list(zip(*keys)) if keys else [(), ()]
    return pa.Table.from_arrays(
        [pa.array(column, type=field.type) for column, field in zip(columns, KEYS.arrow)],
        schema=KEYS.arrow,
    )


def row_table(rows):
    dicts = [{"zone": key[0], "id": key[1], **value} for key, value in rows.items()]
    return pa.Table.from_pylist(dicts, schema=SCHEMA)


def as_dict(table):
    """Rows by key, NaN made comparable."""
    rows = {}
    for row in table.to_pylist():
        key = row.pop("zone"), row.pop("id")
        assert key not in rows
        rows[key] = repr(row)
    return rows


def commit(store, version, change):
    keys = list(change)
    shards = np.array([shard_of(key) for key in keys], dtype=np.int32)
    touched = store.touch(key_table(keys), shards)
    kept = {key: value for key, value in change.items() if value is not None}
    return touched, store.commit(version, row_table(kept), touched)


def digests(runs):
    return {s: [(run.file.rpartition("-")[2], run.start, run.stop) for run in own] for s, own in runs.items()}


class StoreAgainstDict(RuleBasedStateMachine):
    """Two workers share a directory; the driver holds the runs that count."""

    def __init__(self):
        super().__init__()
        drop_cache()
        self.directory = tempfile.mkdtemp()
        self.workers = [self.new_worker(), self.new_worker()]
        self.version = 0
        self.runs = dict.fromkeys(range(SHARDS), ())
        self.model = {}
        self.past = []

    def new_worker(self):
        return Store(self.directory, KEYS, VALUES)

    def teardown(self):
        shutil.rmtree(self.directory)

    @rule(change=a_commit, worker=st.integers(0, 1))
    def commit_by_one_worker(self, change, worker):
        store = self.workers[worker]
        store.load(self.runs)
        self.past.append((self.version, dict(self.runs), dict(self.model)))
        self.version += 1

        touched, runs = commit(store, self.version, change)
        assert as_dict(touched.rows) == as_dict(row_table({k: v for k, v in self.model.items() if k in change}))
        self.take(runs, change)

    @rule(change=a_commit, shard=st.integers(0, SHARDS - 1))
    def commit_shards_in_two_tasks(self, change, shard):
        """A shard boundary between tasks changes nothing."""
        self.past.append((self.version, dict(self.runs), dict(self.model)))
        self.version += 1
        before = dict(self.runs)
        for store, here in ((self.workers[0], lambda s: s < shard), (self.workers[1], lambda s: s >= shard)):
            store.load({s: own for s, own in before.items() if here(s)})
            part = {key: value for key, value in change.items() if here(shard_of(key))}
            self.take(commit(store, self.version, part)[1], part)

    @rule(change=a_commit, wins=st.integers(0, 1))
    def two_attempts_at_one_version(self, change, wins):
        """The same frame by a warm worker and by one that reads everything: same bytes."""
        self.past.append((self.version, dict(self.runs), dict(self.model)))
        self.version += 1
        fresh = self.new_worker()
        attempts = []
        for store in (self.workers[0], fresh):
            store.load(self.runs)
            attempts.append(commit(store, self.version, change)[1])
        assert digests(attempts[0]) == digests(attempts[1])
        self.workers[1] = fresh
        self.take(attempts[wins], change)

    @rule(worker=st.integers(0, 1))
    def a_worker_starts_anew(self, worker):
        self.workers[worker] = self.new_worker()

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def the_run_is_set_back(self, data):
        """Workers keep memory of versions that never counted."""
        at = data.draw(st.integers(max(0, len(self.past) - 4), len(self.past) - 1))
        self.version, self.runs, self.model = self.past[at]
        self.past = self.past[:at]

    @rule()
    def what_no_version_needs_is_swept(self):
        self.past = []
        sweep(self.directory, [run for own in self.runs.values() for run in own], up_to=self.version)

    @rule(boundary=st.integers(0, 10**7))
    def keys_due(self, boundary):
        self.workers[0].load(self.runs)
        keys, shards = self.workers[0].due(boundary, tuple(range(SHARDS)))
        found = [tuple(row.values()) for row in keys.to_pylist()]
        expected = {k for k, v in self.model.items() if v["wake"] is not None and v["wake"] <= boundary}
        assert len(found) == len(set(found)) and set(found) == expected
        assert [shard_of(key) for key in found] == shards.tolist()

    @invariant()
    def every_worker_sees_the_model(self):
        for store in self.workers:
            store.load(self.runs)
            assert as_dict(store.rows(tuple(range(SHARDS)))) == as_dict(row_table(self.model))

    def take(self, runs, change):
        self.runs = {**self.runs, **runs}
        for key, value in change.items():
            self.model.pop(key, None)
            if value is not None:
                self.model[key] = value


StoreAgainstDict.TestCase.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
test_store_against_dict = StoreAgainstDict.TestCase


VALUE = {
    "total": 1.5,
    "note": "x",
    "seen": [1],
    "at": {"x": 1, "y": ""},
    "paid": None,
    "day": None,
    "ok": True,
    "wake": None,
}


def test_a_commit_writes_what_changed_and_nothing_else(tmp_path):
    store = Store(tmp_path, KEYS, VALUES)
    runs = commit(store, 1, {("a", number): VALUE for number in range(1000)})[1]
    base = sum(run.bytes for own in runs.values() for run in own)

    more = commit(store, 2, {("a", 7): VALUE})[1]

    assert list(more) == [shard_of(("a", 7))]
    assert more[shard_of(("a", 7))][-1].rows == 1
    assert more[shard_of(("a", 7))][-1].bytes < base / 20
    assert len(list(tmp_path.iterdir())) == 2


def test_a_commit_without_touched_keys_writes_nothing(tmp_path):
    assert commit(Store(tmp_path, KEYS, VALUES), 1, {})[1] == {}
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_was_never_kept_leaves_no_trace(tmp_path):
    """A filter over ever new keys must not fill the disk with tombstones."""
    assert commit(Store(tmp_path, KEYS, VALUES), 1, {("a", 1): None})[1] == {}
    assert list(tmp_path.iterdir()) == []


def test_forgetting_all_keys_leaves_no_runs(tmp_path):
    store = Store(tmp_path, KEYS, VALUES)
    commit(store, 1, {("a", 1): VALUE})

    assert commit(store, 2, {("a", 1): None})[1] == {shard_of(("a", 1)): ()}


def test_memory_of_forgotten_keys_is_given_back(tmp_path, monkeypatch):
    """Keys that come once and go must not make a worker grow for ever."""
    monkeypatch.setattr(state_module, "DEAD_MIN", 100)
    drop_cache()
    store = open_store(tmp_path, KEYS, VALUES)
    commit(store, 1, {("a", number): VALUE for number in range(200)})
    assert open_store(tmp_path, KEYS, VALUES) is store

    commit(store, 2, {("a", number): None for number in range(150)})
    assert open_store(tmp_path, KEYS, VALUES) is not store


def test_a_worker_keeps_a_few_operators_only(tmp_path):
    drop_cache()
    first = open_store(tmp_path / "0", KEYS, VALUES)
    for number in range(1, state_module.STORES_MAX):
        open_store(tmp_path / str(number), KEYS, VALUES)
    assert open_store(tmp_path / "0", KEYS, VALUES) is first
    for number in range(1, state_module.STORES_MAX + 1):
        open_store(tmp_path / str(number), KEYS, VALUES)
    assert open_store(tmp_path / "0", KEYS, VALUES) is not first


def test_a_store_that_failed_half_way_is_not_used_again(tmp_path):
    drop_cache()
    store = open_store(tmp_path, KEYS, VALUES)
    runs = commit(store, 1, {("a", 1): VALUE})[1]
    drop_cache()
    for path in tmp_path.iterdir():
        path.unlink()
    store = open_store(tmp_path, KEYS, VALUES)
    with pytest.raises(StateRefused, match="HF-O010"):
        store.load(runs)

    assert open_store(tmp_path, KEYS, VALUES) is not store


@pytest.mark.parametrize("keys, twice", [([("a", 1), ("z", 9)], False), ([("a", 1), ("a", 1)], True)])
def test_a_strange_row_changes_nothing(tmp_path, keys, twice):
    store = Store(tmp_path, KEYS, VALUES)
    touched = store.touch(key_table([("a", 1), ("b", 2)]), np.zeros(2, np.int32))
    rows = pa.concat_tables([row_table({key: VALUE}) for key in keys])

    with pytest.raises(NotTouched) as strange:
        store.commit(1, rows, touched)

    assert strange.value.twice == twice
    assert strange.value.key == {"zone": keys[1][0], "id": keys[1][1]}
    assert list(tmp_path.iterdir()) == [] and store.rows((0,)).num_rows == 0


def test_zeros_are_one_key(tmp_path):
    keys, values = Schema.of("x double"), Schema.of("n int")
    store = Store(tmp_path, keys, values)
    for version, zero in enumerate((-0.0, 0.0), 1):
        x = pa.array([zero, float("nan")])
        touched = store.touch(pa.table({"x": x}), np.zeros(2, np.int32))
        store.commit(version, pa.table({"x": x, "n": pa.array([version, version], pa.int32())}), touched)

    assert repr(store.rows((0,)).to_pylist()) == "[{'x': 0.0, 'n': 2}, {'x': nan, 'n': 2}]"
