"""What a user's function returns becomes the declared columns with the values it has, or is refused."""

from __future__ import annotations

import math

import pandas as pd
import pyarrow as pa
import pytest

from holdfast.graph.schemas import Schema
from holdfast.operators.exchange import Misfit, to_table

FORMS = {
    "numpy": lambda values: pd.DataFrame({"x": values}),
    "arrow": lambda values: pd.DataFrame({"x": pd.array(values, dtype=pd.ArrowDtype(pa.float64()))}),
    "table": lambda values: pa.table({"x": pa.array(values, pa.float64())}),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_number_too_great_for_a_float_is_refused_and_does_not_become_infinite(form):
    schema = Schema.of("x float").arrow
    with pytest.raises(Misfit, match="1e\\+300 is too great for float"):
        to_table(FORMS[form]([0.5, 1e300]), schema)
    kept = to_table(FORMS[form]([math.inf, -math.inf, 3.4e38, None, 0.1]), schema).column("x").to_pylist()
    assert kept[:2] == [math.inf, -math.inf] and kept[3] is None and math.isfinite(kept[2])


@pytest.mark.parametrize("form", ["datetime64[ns, UTC]", pd.ArrowDtype(pa.timestamp("ns", "UTC"))])
def test_nanoseconds_before_1970_are_cut_off_downwards(form):
    """As those after it: one nanosecond before 1970 was the first moment of it."""
    moments = pd.Series(pd.to_datetime([-1, -1000, -1001, 999, 1001], unit="ns", utc=True)).astype(form)
    table = to_table(pd.DataFrame({"x": moments}), Schema.of("x timestamp").arrow)
    assert table.column("x").cast(pa.int64()).to_pylist() == [-1, -1, -2, 0, 1]
