"""Windowed join: any cut into frames gives what one comparison of all rows gives."""

from __future__ import annotations

import pickle
from collections import Counter

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ProcessRefused
from holdfast.graph.schemas import Schema
from holdfast.operators.join import make_join
from tests.operators.small_machine import END, START, SmallMachine

LEFT = Schema.of("ts timestamp, zone int, bid double, tags array<string>")
RIGHT = Schema.of("ts timestamp, bid double, zone int")
left_row = st.tuples(st.none() | st.integers(0, 120), st.sampled_from([1, 2, None]), st.integers(0, 3))
right_row = st.tuples(st.none() | st.integers(0, 120), st.sampled_from([1, 2, None]), st.integers(0, 3))


def at(tenths: int | None) -> pd.Timestamp | None:
    return None if tenths is None else START + pd.Timedelta(milliseconds=100 * tenths)


def left_table(rows) -> pa.Table:
    """As `Side.prepare` hands them in: keys first."""
    return pa.table(
        {
            "zone": pa.array([zone for _, zone, _ in rows], pa.int32()),
            "ts": pa.array([at(t) for t, _, _ in rows], LEFT.arrow.field("ts").type),
            "bid": pa.array([float(bid) for _, _, bid in rows], pa.float64()),
            "tags": pa.array([[str(bid)] * bid for _, _, bid in rows], LEFT.arrow.field("tags").type),
        }
    )


def right_table(rows) -> pa.Table:
    rows = [row for row in rows if row[1] is not None]
    return left_table(rows).select(["zone", "ts", "bid"])


def join(**options):
    base = {"on": ("zone",), "within_ms": 1000, "how": "inner", "time": "ts", "emits": None}
    return make_join(base | options, LEFT, RIGHT)


def frames(lefts, rights, step: int):
    """Both inputs cut by time (tenths); a row without one comes in the first frame."""
    last = max([t or 0 for t, _, _ in (*lefts, *rights)], default=0) // step
    for n in range(last + 1):
        own = [[r for r in rows if (r[0] or 0) // step == n] for rows in (lefts, rights)]
        yield n + 1, *own, at((n + 1) * step), at(n * step)
    yield last + 2, [], [], END, at((last + 1) * step)


def run(keyed, lefts, rights, step, *, arrow=True):
    machine = SmallMachine(keyed, arrow=arrow)
    found = []
    for n, left, right, boundary, since in frames(lefts, rights, step):
        out = machine.frame(left_table(left), right_table(right), n=n, boundary=boundary, since=since)
        found += [(boundary, row) for row in out.to_pylist()]
    assert machine.state.num_rows == 0, "the end boundary must leave nothing kept"
    return machine, found


def pairs_in_batch(lefts, rights, within: int, outer: bool) -> Counter:
    found: Counter = Counter()
    for t, zone, bid in lefts:
        partners = [
            (u, other)
            for u, right_zone, other in rights
            if None not in (t, u, zone) and zone == right_zone and abs(t - u) <= within
        ]
        if outer and not partners:
            partners = [(None, None)]
        for u, other in partners:
            found[zone, at(t), float(bid), bid, at(u), None if other is None else float(other)] += 1
    return found


def as_counter(found) -> Counter:
    return Counter((r["zone"], r["ts"], r["bid"], len(r["tags"]), r["ts_right"], r["bid_right"]) for _, r in found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(left_row, max_size=15),
    st.lists(right_row, max_size=15),
    st.sampled_from([0, 5, 10, 40]),
    st.sampled_from([10, 7, 50, 200]),
    st.sampled_from(["inner", "left"]),
    st.booleans(),
)
def test_any_cut_gives_the_batch_result(lefts, rights, within, step, how, arrow):
    """A pair astride a boundary must be found, once, and a lone left row come out once."""
    keyed = join(within_ms=within * 100, how=how)
    machine, found = run(keyed, lefts, rights, step, arrow=arrow)
    assert as_counter(found) == pairs_in_batch(lefts, rights, within, how == "left")
    untimed = [r for r in lefts if r[0] is None] + [r for r in rights if r[0] is None and r[1]]
    assert machine.late_rows == len(untimed)


def test_a_pair_comes_out_with_its_later_row():
    keyed = join()
    _, found = run(keyed, [(5, 1, 1)], [(14, 1, 2)], 10)
    assert [boundary for boundary, _ in found] == [at(20)]


def test_a_lone_left_row_waits_until_no_partner_can_follow():
    """A right row at exactly the distance still fits; it may be the next frame's first."""
    keyed = join(how="left")
    _, found = run(keyed, [(10, 1, 1), (19, 2, 0)], [(20, 1, 2), (45, 2, 2)], 10)
    assert [(b, r["zone"], r["bid_right"]) for b, r in found] == [
        (at(30), 1, 2.0),
        (at(30), 2, None),
    ]


def test_rows_are_kept_longer_with_lateness_and_late_ones_are_reported():
    def late(keyed):
        machine = SmallMachine(keyed)
        machine.frame(left_table([(1, 1, 1)]), right_table([]), n=1, boundary=at(10), since=at(0))
        machine.frame(left_table([]), right_table([]), n=2, boundary=at(20), since=at(10))
        out = machine.frame(left_table([]), right_table([(2, 1, 3)]), n=3, boundary=at(30), since=at(20))
        return out.num_rows, machine.late_rows

    assert late(join()) == (0, 1)
    assert late(join(lateness_ms=2000)) == (1, 0)


def test_columns_are_keys_then_left_then_right():
    assert join().emits == Schema.of(
        "zone int, ts timestamp, bid double, tags array<string>, ts_right timestamp, bid_right double"
    )
    chosen = join(emits=("ts", "bid_right as ask"))
    assert chosen.emits == Schema.of("ts timestamp, ask double")
    _, found = run(chosen, [(5, 1, 1)], [(6, 1, 2)], 10)
    assert [row for _, row in found] == [{"ts": at(5), "ask": 2.0}]


def test_pickles_into_workers():
    assert pickle.loads(pickle.dumps(join())).emits == join().emits


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"time": None}, "HF-O024"),
        ({"within_ms": None}, "HF-O024"),
        ({"on": ("tags",)}, "HF-O025"),
        ({"emits": ("bid + 1 as more",)}, "HF-O025"),
        ({"emits": ("ts", "bid as ts")}, "HF-O026"),
    ],
)
def test_what_cannot_be_joined_is_refused(options, code):
    with pytest.raises(ProcessRefused, match=code):
        join(**options)
