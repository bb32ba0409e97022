"""Merging slots of a group, and turning slots into results, on Arrow columns.

One pass over all groups at once: Arrow's grouped kernels, single-threaded, so
that floating sums follow the order of rows.

Pure: no Spark, session, clock or file.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import OperatorError
from holdfast.graph.schemas import Schema
from holdfast.operators.columns import Groups, in_order, list_offsets
from holdfast.operators.measures import Measure, Measures, Slot

__all__ = ["merge", "partials_of", "results"]

_BIGINT_MAX = 2**63 - 1


def merge(measures: Measures, table: pa.Table, groups: Groups) -> pa.Table:
    """The slots of each group, from rows that hold slots (state first, then new rows)."""
    schema = Schema(measures.slot_columns).arrow
    if groups.count == table.num_rows:  # nothing shares a group: the slots stand as they are
        return table.select(schema.names)
    inputs: dict[str, pa.Array | pa.ChunkedArray] = {"_g": pa.array(groups.ids)}
    wanted: list[tuple] = []
    merged: dict[str, pa.Array] = {}
    for slot in measures.slots:
        column = table.column(slot.name)
        match slot.op:
            case "count":
                inputs[slot.name] = column
                wanted.append((slot.name, "sum"))
            case "sum":
                inputs[slot.name] = _with_nan(column, table, slot)
                wanted.append((slot.name, "sum", pc.ScalarAggregateOptions(min_count=1)))
                if slot.type == "bigint":
                    inputs[f"{slot.name}?"] = column.cast(pa.float64(), safe=False)
                    wanted.append((f"{slot.name}?", "sum"))
            case "min" | "max":
                values = _with_nan(column, table, slot)
                if pa.types.is_floating(values.type):
                    nan = pc.fill_null(pc.is_nan(values), False)
                    inputs[f"{slot.name}?"] = nan
                    wanted.append((f"{slot.name}?", "any"))
                    values = pc.if_else(nan, pa.scalar(None, values.type), values)
                inputs[slot.name] = values
                wanted.append((slot.name, slot.op))
            case "distinct":
                merged[slot.name] = _distinct(column, groups)
    found = pa.table(inputs).group_by("_g", use_threads=False).aggregate(wanted)
    for slot in measures.slots:
        if slot.op in ("count", "sum"):
            merged[slot.name] = _sum(found, slot, schema.field(slot.name).type)
        elif slot.op in ("min", "max"):
            merged[slot.name] = _extreme(found, slot)
        elif slot.op == "mean":
            merged.update(_moments(measures, table, slot, groups))
    for op in ("first", "last"):
        merged.update(_row(table, measures.ordered(op), groups))
    return pa.table([merged[name] for name in schema.names], schema=schema)


def _with_nan(column: pa.ChunkedArray, table: pa.Table, slot: Slot) -> pa.ChunkedArray:
    """pandas has one sign for null and NaN; the count of values tells which it was."""
    if not pa.types.is_floating(column.type) or not column.null_count:
        return column
    some = pc.greater(table.column(slot.counted), 0)
    return pc.if_else(some, pc.fill_null(column, pa.scalar(np.nan, column.type)), pa.scalar(None, column.type))


def _sum(found: pa.Table, slot: Slot, kind: pa.DataType) -> pa.ChunkedArray:
    total = found.column(f"{slot.name}_sum")
    if slot.op == "sum" and slot.type == "bigint" and found.num_rows:
        rough = pc.max(pc.abs(found.column(f"{slot.name}?_sum"))).as_py() or 0.0
        # The rough sum is off by far less than 2**60 wherever the true one fits.
        wrapped = pc.greater(
            pc.abs(pc.subtract(found.column(f"{slot.name}?_sum"), total.cast(pa.float64(), safe=False))),
            2.0**60,
        )
        if rough > 2.0**62 and pc.any(wrapped).as_py():
            raise _overflow(slot, _BIGINT_MAX)
    try:
        return total.cast(kind)
    except pa.ArrowInvalid as error:
        raise _overflow(slot, slot.type) from error


def _overflow(slot: Slot, bound: object) -> OperatorError:
    return OperatorError(
        "HF-O023",
        "SumOverflow",
        "a sum does not fit its type any more.",
        why=f"it passed {bound} ({slot.type})",
        effect="the frame was not sealed; state and outputs are those of the frame before",
        do="sum a decimal: cast the column to decimal(38,0) with map() before the aggregate",
    )


def _extreme(found: pa.Table, slot: Slot) -> pa.ChunkedArray:
    value = found.column(f"{slot.name}_{slot.op}")
    if not pa.types.is_floating(value.type):
        return value
    nan = found.column(f"{slot.name}?_any")
    if slot.op == "min":  # NaN is the largest number, so the smallest only when alone
        nan = pc.and_(nan, pc.is_null(value))
    return pc.if_else(nan, pa.scalar(np.nan, value.type), value)


def _moments(measures: Measures, table: pa.Table, mean_slot: Slot, groups: Groups) -> dict[str, pa.Array]:
    """Chan's rule for any number of parts: their own spread and that of their means."""
    m2_slot = next(s for s in measures.slots if s.op == "m2" and s.source == mean_slot.source)
    n = table.column(mean_slot.counted).to_numpy().astype(np.float64)
    mean = np.where(n > 0, _doubles(table, mean_slot.name), 0.0)
    m2 = np.where(n > 0, _doubles(table, m2_slot.name), 0.0)
    ids, count = groups.ids, groups.count
    total = np.bincount(ids, n, count)
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = np.bincount(ids, n * mean, count) / total
        # One part alone keeps its mean to the last bit.
        alone = np.bincount(ids, n > 0, count) == 1
        centre = np.where(alone, np.bincount(ids, mean, count), centre)
        spread = np.where(n > 0, n * (mean - centre[ids]) ** 2, 0.0)
        m2_total = np.bincount(ids, m2, count) + np.bincount(ids, spread, count)
    null = total == 0
    return {
        mean_slot.name: pa.array(centre, mask=null),
        m2_slot.name: pa.array(m2_total, mask=null),
    }


def _doubles(table: pa.Table, name: str) -> np.ndarray:
    return pc.fill_null(table.column(name), np.nan).to_numpy()


def _distinct(column: pa.ChunkedArray, groups: Groups) -> pa.Array:
    flat = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    lengths = pc.fill_null(pc.list_value_length(flat), 0).to_numpy(zero_copy_only=False)
    owners = np.repeat(groups.ids, lengths)
    encoded = flat.flatten().dictionary_encode()
    rank = np.empty(len(encoded.dictionary), dtype=np.int64)
    by_value = in_order([encoded.dictionary])
    rank[by_value] = np.arange(len(by_value))
    size = max(len(rank), 1)
    kept = np.unique(owners * size + rank[encoded.indices.to_numpy(zero_copy_only=False)])
    values = encoded.dictionary.take(pa.array(by_value[kept % size]))
    offsets = pa.array(list_offsets(kept // size, groups.count), type=pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=flat.type)


def _row(table: pa.Table, slots: tuple[Slot, ...], groups: Groups) -> dict[str, pa.Array]:
    """The first or last row of each group by (time, all columns)."""
    if not slots:
        return {}
    ordered = [table.column(slot.name) for slot in slots if slot.source.startswith("_o")]
    order = in_order([pa.array(groups.ids), *ordered])
    ids = groups.ids[order]
    edge = np.flatnonzero(np.diff(ids, prepend=-1) if slots[0].op == "first" else np.diff(ids, append=-1))
    chosen = pa.array(order[edge])
    return {slot.name: table.column(slot.name).take(chosen) for slot in slots}


def partials_of(measures: Measures, rows: pa.Table) -> pa.Table:
    """Each raw row (prepared columns `_o*`, `_x*`) as the slots of a group of one."""
    schema = Schema(measures.slot_columns).arrow
    ones = pa.array(np.ones(rows.num_rows, dtype=np.int64))
    columns = []
    for slot in measures.slots:
        kind = schema.field(slot.name).type
        if not slot.source:
            columns.append(ones)
            continue
        value = rows.column(slot.source)
        match slot.op:
            case "count":
                columns.append(pc.is_valid(value).cast(kind))
            case "m2":
                square = pc.subtract(value, value)  # NaN and infinity spread, as in Spark
                columns.append(square.cast(kind))
            case "distinct":
                kept = pc.is_valid(value).combine_chunks().to_numpy(zero_copy_only=False)
                offsets = pa.array(np.concatenate([[0], np.cumsum(kept)]), type=pa.int32())
                values = value.combine_chunks().drop_null()
                columns.append(pa.ListArray.from_arrays(offsets, values, type=kind))
            case _:
                columns.append(value.cast(kind))
    return pa.table(columns, schema=schema)


def results(
    measures: Measures, slots: pa.Table, bounds: dict[str, pa.Array] | None = None
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """The emitted columns of each group."""
    return {one.name: _result(one, slots, bounds or {}) for one in measures.measures}


def _result(measure: Measure, slots: pa.Table, bounds: dict[str, pa.Array]) -> pa.Array | pa.ChunkedArray:
    columns = [slots.column(name) for name in measure.slots]
    match measure.function:
        case "window_start" | "window_end":
            return bounds[measure.function]
        case "count_distinct":
            return pc.list_value_length(columns[0]).cast(pa.int64())
        case "avg":
            return _mean(measure, *columns)
        case "var_pop" | "var_samp" | "stddev_pop" | "stddev_samp":
            n = columns[0].to_numpy().astype(np.float64)
            freedom = n - 1.0 if measure.function.endswith("samp") else n
            null = freedom <= 0
            m2 = pc.fill_null(columns[2], np.nan).to_numpy()
            variance = np.divide(m2, freedom, where=~null, out=np.zeros(len(n)))
            deviation = measure.function.startswith("stddev")
            return pa.array(np.sqrt(variance) if deviation else variance, mask=null)
        case "sum" | "min" | "max" if pa.types.is_floating(columns[0].type):
            value = pc.fill_null(columns[0], pa.scalar(np.nan, columns[0].type))
            return pc.if_else(pc.greater(columns[1], 0), value, pa.scalar(None, value.type))
        case _:
            return columns[0]


def _mean(measure: Measure, total: pa.ChunkedArray, counted: pa.ChunkedArray) -> pa.Array:
    n = counted.to_numpy()
    null = n == 0
    if measure.type == "double":
        sums = pc.fill_null(total.cast(pa.float64()), np.nan).to_numpy()
        return pa.array(np.divide(sums, n, where=~null, out=np.zeros(len(n))), mask=null)
    scale = int(measure.type[:-1].split(",")[1])
    with localcontext() as context:
        context.prec = 76
        step = Decimal(1).scaleb(-scale)
        means = [
            None if not of else (value / int(of)).quantize(step, ROUND_HALF_UP)
            for value, of in zip(total.to_pylist(), n, strict=True)
        ]
    return pa.array(means, type=Schema.of(f"x {measure.type}").arrow.field("x").type)
