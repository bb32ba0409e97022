"""The keyed machine: same output and state however the work is cut or tried."""

import pickle

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import Broken, OperatorError
from holdfast.graph.schemas import Schema
from holdfast.operators.keyed import FrameContext, FrameStep, KeyedSpec, run_keyed
from holdfast.operators.spec import read_notes
from holdfast.operators.state import Store, drop_cache

SECOND = 1_000_000
SHARDS = 4


def watch(state, readings, resets, *, idle):
    """Sums readings per id; a reset forgets the id; an id silent for `idle` s is reported."""
    x = readings.groupby("id").agg(sum=("v", "sum"), last=("ts", "max"))
    known = state.set_index("id")
    after = x.join(known, how="outer")
    after["total"] = after["sum"].fillna(0).astype("int64") + after["total"].fillna(0).astype("int64")
    after["wake"] = (after["last"] + pd.Timedelta(seconds=idle)).fillna(after["wake"])
    silent = after[after["last"].isna() & ~after.index.isin(resets.id)]
    after = after[~after.index.isin(resets.id) & ~after.index.isin(silent.index)]
    report = silent.reset_index()[["id", "total"]]
    return after.reset_index()[["id", "total", "wake"]], {"sums": after.reset_index()[["id", "total"]], "idle": report}


WATCH = KeyedSpec(
    name="watch",
    keys=("id",),
    ports=(("readings", Schema.of("ts timestamp, id int, v int")), ("resets", Schema.of("id int"))),
    state=Schema.of("total bigint, wake timestamp"),
    emits=(("sums", Schema.of("id int, total bigint")), ("idle", Schema.of("id int, total bigint"))),
    function=watch,
    time="ts",
)


def rows_of(spec, n, ports):
    """Input of one frame: per port a list of tuples."""
    rows = []
    for at, ((_, schema), own) in enumerate(zip(spec.ports, ports, strict=True)):
        for values in own:
            row = {f"p{at}_{name}": value for name, value in zip(schema.names, values, strict=True)}
            key = row[f"p{at}_{spec.keys[0]}"]
            rows.append({"_n": n, "_port": at, "_shard": sum(map(ord, str(key))) % SHARDS, **row})
    return pa.Table.from_pylist(rows, schema=spec.input_schema)


class Operator:
    """The driver's side in little: keeps the runs, gathers what tasks yield and note."""

    def __init__(self, spec, directory):
        self.spec, self.directory = spec, directory
        for name in ("runs", "notes"):
            (directory / name).mkdir(parents=True)
        self.runs, self.out, self.counts = {}, {}, {}

    def context(self, numbers, shards, **params):
        return FrameContext(
            steps=tuple(FrameStep(n, n * SECOND, (n - 1) * SECOND or None, params) for n in numbers),
            shards=tuple(shards),
            runs=self.runs,
            runs_dir=str(self.directory / "runs"),
            notes_dir=str(self.directory / "notes"),
            epoch=1,
        )

    def call(self, numbers, table, tasks=((0, 1, 2, 3),), attempts=1, chunk=3, **params):
        batches = []
        for shards in tasks:
            own = table.filter(pa.array([s in shards for s in table["_shard"].to_pylist()], pa.bool_()))
            for _ in range(attempts):
                context = self.context(numbers, shards, **params)
                done = list(run_keyed(self.spec, iter(own.to_batches(max_chunksize=chunk)), context))
            batches += done
        out = pa.Table.from_batches(batches, schema=self.spec.output_schema)
        for n in numbers:
            for note in read_notes(self.directory / "notes", n, range(SHARDS)):
                self.runs = {**self.runs, **note.runs}
                for name, count in note.counts.items():
                    self.counts[name] = self.counts.get(name, 0) + count
        for row in out.to_pylist():
            n, at = row["_n"], row["_out"]
            values = tuple(row[f"o{at}_{name}"] for name in self.spec.emits[at][1].names)
            self.out.setdefault((n, at), []).append(values)
        return self

    def result(self):
        return {place: sorted(rows, key=repr) for place, rows in self.out.items()}, self.state()

    def state(self):
        store = Store(self.directory / "runs", self.spec.key_schema, self.spec.state)
        store.load(self.runs)
        return store.rows(tuple(range(SHARDS))).to_pylist()

    def shapes(self):
        """Runs without what differs between attempts: names of files."""
        return {shard: [run.rows for run in own] for shard, own in self.runs.items()}


an_id = st.one_of(st.none(), st.integers(0, 6))
frames_of_rows = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, SECOND - 1), an_id, st.integers(-5, 5)), max_size=8),
        st.lists(st.tuples(an_id), max_size=2),
    ),
    min_size=1,
    max_size=5,
)
ways_to_cut = st.sampled_from([((0, 1, 2, 3),), ((0, 2), (1, 3)), ((3,), (0,), (1, 2)), ((0,), (1,), (2,), (3,))])


def inputs(frames):
    return {
        n: rows_of(WATCH, n, ([((n - 1) * SECOND + ts, key, v) for ts, key, v in own], resets))
        for n, (own, resets) in enumerate(frames, 1)
    }


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(frames=frames_of_rows, data=st.data())
def test_nothing_but_rows_and_state_decides(tmp_path_factory, frames, data):
    """The cut into tasks, calls, workers, batches, arrival order and attempts must not show."""
    tables = inputs(frames)
    plain = Operator(WATCH, tmp_path_factory.mktemp("plain"))
    for n, table in tables.items():
        plain.call([n], table, idle=2)
    other = Operator(WATCH, tmp_path_factory.mktemp("other"))
    last = 0
    while last < len(tables):
        numbers = list(range(last + 1, last + 1 + data.draw(st.integers(1, min(3, len(tables) - last)))))
        last = numbers[-1]
        table = pa.concat_tables([tables[n] for n in numbers])
        order = data.draw(st.permutations(range(table.num_rows)))
        table = table.take(pa.array(order, pa.int64()))
        if data.draw(st.booleans()):
            drop_cache()
        other.call(
            numbers,
            table,
            tasks=data.draw(ways_to_cut),
            attempts=data.draw(st.integers(1, 2)),
            chunk=data.draw(st.integers(1, 9)),
            idle=2,
        )

    assert other.result() == plain.result()
    assert other.shapes() == plain.shapes()


@settings(max_examples=20, deadline=None)
@given(frames=frames_of_rows)
def test_the_machine_agrees_with_a_loop_over_keys(tmp_path_factory, frames):
    """The same operator written as a loop with a dict."""
    operator = Operator(WATCH, tmp_path_factory.mktemp("machine"))
    for n, table in inputs(frames).items():
        operator.call([n], table, idle=2)

    known, expected = {}, {}
    for n, (own, resets) in enumerate(frames, 1):
        reset = {key for (key,) in resets if key is not None}
        seen = {key for _, key, _ in own if key is not None}
        due = {key for key, (_, wake) in known.items() if wake <= n * SECOND}
        for key in seen:
            total, _ = known.get(key, (0, None))
            wake = max((n - 1) * SECOND + ts for ts, k, _ in own if k == key) + 2 * SECOND
            known[key] = total + sum(v for _, k, v in own if k == key), wake
        idle = {key: known.pop(key)[0] for key in due - seen - reset}
        for key in reset:
            known.pop(key, None)
        sums = {key: known[key][0] for key in seen - reset}
        for at, rows in enumerate((sums, idle)):
            if rows:
                expected[n, at] = sorted(rows.items(), key=repr)
    assert operator.result()[0] == expected
    assert {row["id"]: row["total"] for row in operator.state()} == {k: t for k, (t, _) in known.items()}


def simple(function, *, rows="k string, v int", state="n bigint", emits="k string, n bigint", **options):
    streams = tuple(emits.items()) if isinstance(emits, dict) else (("out", emits),)
    return KeyedSpec(
        name="count",
        keys=("k",),
        ports=(("rows", Schema.of(rows)),),
        state=Schema.of(state),
        emits=tuple((name, Schema.of(ddl)) for name, ddl in streams),
        function=function,
        **options,
    )


def counted(state, rows):
    n = rows.groupby("k").size().add(state.set_index("k").n, fill_value=0).astype("int64")
    out = n.rename("n").reset_index()
    return out, out


def test_a_touched_key_left_out_is_forgotten(tmp_path):
    def forgets_b(state, rows):
        after, out = counted(state, rows)
        return after[after.k != "b"], out

    operator = Operator(simple(forgets_b), tmp_path)
    for n in (1, 2):
        operator.call([n], rows_of(operator.spec, n, ([("a", 1), ("b", 1)],)))

    assert operator.out == {(1, 0): [("a", 1), ("b", 1)], (2, 0): [("a", 2), ("b", 1)]}
    assert operator.state() == [{"k": "a", "n": 2}]


def test_an_untouched_key_is_kept_and_not_handed_in(tmp_path):
    seen = []

    def spy(state, rows):
        seen.append(sorted(state.k))
        return counted(state, rows)

    operator = Operator(simple(spy), tmp_path)
    for n, key in enumerate("abab", 1):
        operator.call([n], rows_of(operator.spec, n, ([(key, 1)],)))

    assert seen == [[], [], ["a"], ["b"]]
    assert operator.state() == [{"k": "a", "n": 2}, {"k": "b", "n": 2}]


def test_a_key_wakes_in_the_first_frame_whose_boundary_passes(tmp_path):
    handed = []

    def naps(state, rows, *, boundary, since, frame):
        handed.append((frame, sorted({*state.k, *rows.k}), len(rows), boundary.second, since and since.second))
        wake = boundary + pd.Timedelta(seconds=2)
        return rows.assign(n=0, wake=wake)[["k", "n", "wake"]], None

    operator = Operator(simple(naps, state="n bigint, wake timestamp"), tmp_path)
    for n in range(1, 6):
        drop_cache()
        operator.call([n], rows_of(operator.spec, n, ([("a", 1)] if n == 1 else [],)))

    assert handed == [(1, ["a"], 1, 1, None), (3, ["a"], 0, 3, 2)]
    assert operator.state() == []


def test_a_frame_that_touches_nothing_costs_no_call_and_no_file(tmp_path):
    def never(state, rows):
        raise AssertionError("called")

    operator = Operator(simple(never), tmp_path).call([1], rows_of(simple(never), 1, ([],)))

    assert operator.out == {} and list((tmp_path / "runs").iterdir()) == []


def test_columns_without_a_frame_number_are_one_frame(tmp_path):
    operator = Operator(simple(counted), tmp_path)
    operator.call([7], rows_of(operator.spec, 7, ([("a", 1)],)).drop_columns(["_n"]))

    assert operator.out == {(7, 0): [("a", 1)]}


def test_rows_come_by_time_then_by_all_columns(tmp_path):
    """Example (a) takes differences between one row and the next."""
    seen = []

    def spy(state, rows):
        seen.append(rows)
        return None, None

    spec = simple(spy, rows="k string, ts timestamp, v int", time="ts")
    Operator(spec, tmp_path).call([1], rows_of(spec, 1, ([("b", 2, 1), ("a", 3, 1), ("c", 1, 9), ("b", 2, 0)],)))

    assert seen[0][["k", "v"]].values.tolist() == [["c", 9], ["b", 0], ["b", 1], ["a", 1]]
    assert str(seen[0].ts.dtype) == "datetime64[us, UTC]"


def test_parameters_reach_the_function_frame_by_frame(tmp_path):
    def limited(state, rows, *, limit):
        return None, rows[rows.v > limit].assign(n=rows.v)[["k", "n"]]

    operator = Operator(simple(limited), tmp_path)
    table = pa.concat_tables([rows_of(operator.spec, n, ([("a", 3), ("b", 5)],)) for n in (1, 2)])
    context = operator.context((1, 2), range(SHARDS))
    steps = tuple(FrameStep(n, n * SECOND, None, {"limit": limit}) for n, limit in ((1, 4), (2, 2)))
    context = FrameContext.from_json(
        {**context.to_json(), "steps": [[s.n, s.boundary_us, s.since_us, s.params] for s in steps]}
    )
    batches = list(run_keyed(operator.spec, iter(table.to_batches()), context))

    assert [(b["_n"].to_pylist(), b["o0_n"].to_pylist()) for b in batches] == [([1], [5]), ([2, 2], [3, 5])]


def test_late_rows_are_counted_in_the_note(tmp_path):
    def late(state, rows):
        out = rows.assign(n=1)[["k", "n"]]
        out.attrs["late_rows"] = 2
        return None, out

    operator = Operator(simple(late), tmp_path).call([1], rows_of(simple(late), 1, ([("a", 1)],)))

    assert operator.counts == {"late_rows": 2}


def test_spec_and_context_travel(tmp_path):
    operator = Operator(WATCH, tmp_path).call([1], rows_of(WATCH, 1, ([(1, 1, 1)], [])), idle=2)
    context = operator.context((1, 2), (0, 1, 2, 3), idle=3)

    assert FrameContext.from_json(context.to_json()) == context
    assert pickle.loads(pickle.dumps(WATCH)) == WATCH
    assert context.of_task(1, 2).shards == (1, 3)


def test_the_note_of_the_newest_epoch_counts(tmp_path):
    """An orphan worker of the run before may still be writing."""
    operator = Operator(simple(counted), tmp_path)
    table = rows_of(operator.spec, 1, ([("a", 1)],))
    files = {}
    for epoch in (3, 2):
        context = operator.context([1], range(SHARDS))
        context = FrameContext.from_json({**context.to_json(), "epoch": epoch})
        before = set((tmp_path / "runs").iterdir())
        list(run_keyed(operator.spec, iter(table.to_batches()), context))
        files[epoch] = (set((tmp_path / "runs").iterdir()) - before).pop().name
    (note,) = read_notes(tmp_path / "notes", 1, range(SHARDS))

    assert {run.file for own in note.runs.values() for run in own} == {files[3]}


def test_a_shard_without_a_note_is_not_passed_over(tmp_path):
    operator = Operator(simple(counted), tmp_path)
    list(run_keyed(operator.spec, iter([]), operator.context([1], (0, 1))))

    with pytest.raises(Broken, match=r"frame 1: no task left a note about shards \[2, 3\]"):
        read_notes(tmp_path / "notes", 1, range(SHARDS))


def test_an_attempt_that_was_cut_otherwise_is_passed_over(tmp_path):
    """A frame tried with three tasks, of which one died, then again with two."""
    operator = Operator(simple(counted), tmp_path)
    for shards in ((0, 3), (1,), (0, 2), (1, 3)):
        list(run_keyed(operator.spec, iter([]), operator.context([1], shards)))

    notes = read_notes(tmp_path / "notes", 1, range(SHARDS))
    assert sorted(note.shards for note in notes) == [(0, 2), (1, 3)]


def test_rows_of_a_foreign_shard_are_not_taken(tmp_path):
    """They would be counted twice, or their state be lost."""
    operator = Operator(simple(counted), tmp_path)
    table = rows_of(operator.spec, 1, ([("a", 1)],))

    with pytest.raises(Broken, match="shards it does not own"):
        list(run_keyed(operator.spec, iter(table.to_batches()), operator.context([1], (0,))))


def test_many_rows_come_out_in_batches_that_add_up(tmp_path):
    def many(state, rows):
        return None, pd.DataFrame({"k": "a", "n": range(150_000)})

    spec = simple(many)
    operator = Operator(spec, tmp_path)
    batches = list(
        run_keyed(spec, iter(rows_of(spec, 1, ([("a", 1)],)).to_batches()), operator.context([1], range(SHARDS)))
    )

    numbers = pa.Table.from_batches(batches)["o0_n"].to_pylist()
    assert numbers == list(range(150_000)) and len(batches) > 1


# -- what a user's function may get wrong ------------------------------------------


def raises(state, rows):
    return state, rows["vv"]


def returns(state, out):
    return lambda *_: (state, out)


GOOD = pd.DataFrame({"k": ["a"], "n": [1]})
WRONG = {
    "raises": (raises, "HF-O001", "KeyError: 'vv'"),
    "one frame": (lambda state, rows: state, "HF-O002", "returned DataFrame, not a pair"),
    "a list": (returns([1], None), "HF-O003", "it is a list, not a pandas DataFrame"),
    "column missing": (returns(GOOD, GOOD.rename(columns={"n": "nn"})), "HF-O003", "is 'nn' meant to be 'n'?"),
    "column too many": (returns(GOOD.assign(extra=1), None), "HF-O003", "column 'extra' is not declared"),
    "column twice": (returns(GOOD[["k", "n", "n"]], None), "HF-O003", "column 'n' stands there twice"),
    "text for number": (returns(GOOD.assign(n="x"), None), "HF-O003", "column 'n' is declared int64"),
    "fraction": (returns(GOOD.assign(n=0.5), None), "HF-O003", "column 'n' is declared int64 and came back as float64"),
    "inexact": (returns(GOOD.assign(n=2.0**60), None), "HF-O003", "which a float does not hold exactly"),
    "strange stream": (returns(GOOD, {"other": GOOD}), "HF-O003", "it emits no stream 'other'"),
    "strange key": (returns(GOOD.assign(k="z"), None), "HF-O004", "key k='z' has neither rows nor state"),
    "key twice": (returns(pd.concat([GOOD, GOOD]), None), "HF-O005", "key k='a' came twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_function_is_told_what_is_wrong_and_harms_nothing(tmp_path, case):
    """State stays as it was, so that the corrected function goes on from there."""
    function, code, text = WRONG[case]
    operator = Operator(simple(counted), tmp_path)
    operator.call([1], rows_of(operator.spec, 1, ([("a", 1), ("b", 1)],)))
    before = operator.state()
    files = sorted((tmp_path / "runs").iterdir())
    wrong = simple(function, where="ward.py:17")
    table = rows_of(wrong, 2, ([("a", 1)],))

    with pytest.raises(OperatorError) as error:
        list(run_keyed(wrong, iter(table.to_batches()), operator.context([2], range(SHARDS))))

    assert error.value.code == code and text in str(error.value)
    assert "operator 'count', frame 2, ward.py:17" in error.value.where
    assert "state is as before" in error.value.effect
    assert pickle.loads(pickle.dumps(error.value)).code == code
    assert sorted((tmp_path / "runs").iterdir()) == files and operator.state() == before
    operator.call([2], table)
    assert operator.out[2, 0] == [("a", 2)]


def test_the_traceback_shows_the_users_lines_only(tmp_path):
    operator = Operator(simple(raises), tmp_path)

    with pytest.raises(OperatorError) as error:
        operator.call([1], rows_of(operator.spec, 1, ([("a", 1)],)))

    assert 'return state, rows["vv"]' in error.value.why
    assert "site-packages" not in error.value.why and 'keyed.py"' not in error.value.why.replace("test_keyed", "")


def test_several_streams_need_names(tmp_path):
    spec = simple(returns(GOOD, GOOD), emits={"one": "k string", "two": "k string"})

    with pytest.raises(OperatorError, match="return a dict: stream name -> DataFrame"):
        Operator(spec, tmp_path).call([1], rows_of(spec, 1, ([("a", 1)],)))
