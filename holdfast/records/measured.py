"""What a run measured of itself, from the records in its state folder: rates, work a frame, state, recoveries.

How long a unit worked is not recorded, but follows: a batch cannot start before the previous batch was committed, nor
before the last of its inputs was there. Frames that were committed together are one batch. The first batch starts the
query and is left out. How long a recovery took: from the death of a unit to the next frame it committed.

Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

from holdfast.records.kept import Kept

__all__ = ["MeasuredRun", "MeasuredUnit", "measure_run", "row_window_keys"]

# Commits nearer than this are of one batch: writing a line takes less, a batch of Spark never does.
_ONE_BATCH_S = 0.05


@dataclass(frozen=True)
class MeasuredUnit:
    host: str
    frames: int
    batches: tuple[tuple[float, int, int], ...]  # seconds, frames, rows in
    rows: Mapping[str, float]  # by output stream: rows a second of stream
    bytes: Mapping[str, float]  # by output stream: bytes a row
    state_rows: Mapping[str, float]  # by operator, at the end
    state_bytes: Mapping[str, float]
    recoveries_s: Mapping[str, tuple[float, ...]]  # "crash" | "host"

    @property
    def work_s(self) -> float | None:
        """Seconds a frame, the median batch."""
        return median(seconds / frames for seconds, frames, _ in self.batches) if self.batches else None


@dataclass(frozen=True)
class MeasuredRun:
    frames: int
    rates: Mapping[str, float]  # source -> rows a second of stream
    row_bytes: Mapping[str, float]
    units: Mapping[str, MeasuredUnit]
    late_recoveries: tuple[str, ...] = field(default=())  # units that never came back in these records


def measure_run(kept: Kept) -> MeasuredRun:
    frame_s = kept.deployment["frame_ms"] / 1000
    there: dict[str, dict[int, float]] = {}  # stream -> frame -> when it was there
    rows_of: dict[str, dict[int, int]] = {}
    rates, row_bytes, most = {}, {}, 0
    for source in kept.sources:
        seals = _ordinary(kept.seals(source).values(), frame_s)
        there[source] = {each["n"]: each.get("first_at", each["at"]) for each in seals}
        rows_of[source] = {each["n"]: each["rows"] for each in seals}
        rows = sum(each["rows"] for each in seals)
        rates[source] = rows / (len(seals) * frame_s) if seals else 0.0
        row_bytes[source] = sum(each["bytes"] for each in seals) / rows if rows else 0.0
        most = max(most, len(seals))
    commits = {unit: kept.commits(unit) for unit in kept.deployment["units"]}
    for records in commits.values():
        for each in records:
            for stream, made in each["outputs"].items():
                there.setdefault(stream, {})[each["n"]] = each["at"]
                rows_of.setdefault(stream, {})[each["n"]] = made["rows"]
    units = {unit: _unit(kept, unit, records, frame_s, there, rows_of) for unit, records in commits.items()}
    return MeasuredRun(most, rates, row_bytes, units)


def _ordinary(records: Iterable[dict[str, Any]], frame_s: float) -> list[dict[str, Any]]:
    """Without the end frame, whose boundary is beyond all times."""
    found = sorted(records, key=lambda each: each["n"])
    while len(found) > 1 and found[-1]["boundary_us"] - found[-2]["boundary_us"] > 2 * frame_s * 1e6:
        found.pop()
    return found


def _unit(kept, unit: str, records: list[dict], frame_s: float, there: dict, rows_of: dict) -> MeasuredUnit:
    records = [each for each in records if each.get("inputs")]
    ordinary = _ordinary(records, frame_s)
    rows, sizes = {}, {}
    for stream, maker in kept.deployment["streams"].items():
        if maker == unit:
            made = [each["outputs"][stream] for each in ordinary if stream in each["outputs"]]
            total = sum(each["rows"] for each in made)
            rows[stream] = total / (len(made) * frame_s) if made else 0.0
            sizes[stream] = sum(each["bytes"] for each in made) / total if total else 0.0
    state_rows, state_bytes = _state(ordinary)
    home = kept.deployment.get("homes", {}).get(f"units/{unit}", "")
    host = home.split("/")[-3] if home.count("/") > 2 else ""
    return MeasuredUnit(
        host,
        len(ordinary),
        tuple(_batches(ordinary, there, rows_of)),
        rows,
        sizes,
        state_rows,
        state_bytes,
        _recoveries(unit, records, kept.incidents),
    )


def _batches(records: list[dict], there: dict, rows_of: dict) -> list[tuple[float, int, int]]:
    batches: list[list[dict]] = []
    for each in records:
        if batches and each["at"] - batches[-1][-1]["at"] < _ONE_BATCH_S:
            batches[-1].append(each)
        else:
            batches.append([each])
    found = []
    for before, batch in pairwise(batches):
        inputs = [(stream, n) for each in batch for stream, n, *_ in each["inputs"]]
        begins = max([before[-1]["at"], *(there.get(stream, {}).get(n, 0.0) for stream, n in inputs)])
        if (seconds := batch[-1]["at"] - begins) > 0:
            found.append((seconds, len(batch), sum(rows_of.get(stream, {}).get(n, 0) for stream, n in inputs)))
    return found


def _state(records: list[dict]) -> tuple[dict[str, float], dict[str, float]]:
    """The largest it was in the second half of the run: rows and bytes of its files (file, shard, start, stop, bytes)."""
    rows: dict[str, float] = {}
    sizes: dict[str, float] = {}
    for each in records[len(records) // 2 :]:
        for operator, shards in each.get("state", {}).items():
            runs = [run for shard in shards.values() for run in shard if isinstance(run, list) and len(run) >= 5]
            rows[operator] = max(rows.get(operator, 0.0), sum(run[3] - run[2] for run in runs))
            sizes[operator] = max(sizes.get(operator, 0.0), sum(run[4] for run in runs))
    return rows, sizes


def _recoveries(unit: str, records: list[dict], incidents) -> dict[str, tuple[float, ...]]:
    found: dict[str, list[float]] = {}
    own = [each for each in incidents if each.unit == unit]
    for i, each in enumerate(own):
        if each.what != "died":
            continue
        back = next((record["at"] for record in records if record["at"] > each.at), None)
        if back is None:
            continue
        # Notes between a death and the first frame after it tell how it was restored from its stores.
        between = [other for other in own[i + 1 :] if other.at < back]
        if any(other.what == "died" for other in between):
            continue  # it died again on its way back: counted from the last time
        said = [other for other in between if other.what not in ("given up", "rows left out")]
        found.setdefault("host" if said else "crash", []).append(back - each.at)
    return {kind: tuple(seconds) for kind, seconds in found.items()}


def row_window_keys(kept: Kept, graph: Any, rows_max: int = 20_000) -> list[tuple[str, list[Any], int]]:
    """(operator, keys of its recorded input in order, rows of its window), for windows of rows that read a source."""
    found = []
    for operator in graph.operators:
        window = operator.options.get("window_rows")
        if operator.kind != "aggregate" or not window or operator.inputs[0].stream not in kept.sources:
            continue
        keys: list[Any] = []
        for n in kept.frames_kept(operator.inputs[0].stream):
            table, _ = kept.rows(operator.inputs[0].stream, n)
            if table is None or len(keys) >= rows_max:
                break
            columns = [table.column(each).to_pylist() for each in operator.options["by"]]
            keys += [repr(each) for each in zip(*columns, strict=True)] if columns else [""] * table.num_rows
        found.append((operator.name, keys[:rows_max], int(window)))
    return found
