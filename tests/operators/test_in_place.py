"""A keyed function may change what it is handed, in place: what it returned is what counts, in this frame and in later ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import holdfast as hf
from holdfast.testing.cuts import same_however_cut

BEGIN = datetime(2026, 1, 5, 6, tzinfo=UTC)
ROWS = [
    {"ts": BEGIN + timedelta(milliseconds=250 * at), "zone": at % 3, "v": at, "x": at / 4, "name": f"n{at % 2}"}
    for at in range(24)
]


def nothing(df):
    pass


def each_column(df):
    for name in list(df.columns):
        df[name] = df[name].iloc[0] if len(df) else df[name]


def places(df):
    if len(df):
        df.iloc[0, :] = df.iloc[-1, :]
        df.loc[df.index[0], df.columns[-1]] = df[df.columns[-1]].iloc[-1]


def arrays(df):
    for name in df.select_dtypes("number").columns:
        values = df[name].to_numpy()
        if values.flags.writeable:
            values[:] = 0


def by_numpy(df):
    for name in df.select_dtypes("number").columns:
        values = df[name].to_numpy()
        if values.flags.writeable:
            np.multiply(values, 0, out=values)


def the_frame(df):
    df.sort_values(list(df.columns), ascending=False, inplace=True)
    df.drop(df.index, inplace=True)
    df.rename(columns=str.upper, inplace=True)


def columns(df):
    df.insert(0, "extra", 1)
    del df[df.columns[-1]]
    df.columns = [f"c{at}" for at in range(len(df.columns))]
    df.index = range(100, 100 + len(df))


def counts(change):
    """Rows and sums per zone so far, and a function that changes everything it was handed before it returns."""
    process = hf.StreamProcess("p", frame="1 second", time="ts")
    process.source(
        "probes", hf.read.files("probes.parquet"), schema="ts timestamp, zone int, v bigint, x double, name string"
    )

    @process.keyed(
        "zone",
        state="n bigint, x double",
        emits="zone int, n bigint, x double, v bigint, name string",
        inputs={"again": "probes"},
    )
    def counted(state, probes, again):
        more = probes.groupby("zone", as_index=False).agg(
            more=("v", "size"), plus=("x", "sum"), v=("v", "max"), name=("name", "first")
        )
        both = more.merge(state, on="zone", how="left").fillna({"n": 0, "x": 0.0})
        both["n"], both["x"] = (both["n"] + both["more"]).astype("int64"), both["x"] + both["plus"]
        change(probes)
        both["v"] += again["v"].max()  # another port with the same rows
        new, out = both[["zone", "n", "x"]].copy(), both[["zone", "n", "x", "v", "name"]].copy()
        for df in (state, again, both):
            change(df)
        return new, out

    return same_however_cut(counted, ROWS, ROWS, process=process, cuts=["1 second"])


@pytest.mark.parametrize(
    "change", [each_column, places, arrays, by_numpy, the_frame, columns], ids=lambda each: each.__name__
)
def test_what_a_function_does_to_its_input_is_seen_nowhere(change):
    expected = counts(nothing)
    assert expected.num_rows == 3 * 6
    assert counts(change).equals(expected)
