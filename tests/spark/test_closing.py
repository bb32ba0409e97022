"""A run that ends among its closing frames, and the next one: windows that were open are answered all the same."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

import holdfast as hf
from holdfast.engine.run.run import start_graph
from holdfast.errors import HoldfastError
from holdfast.sources.files.file_source import OpenFiles

ROWS = [
    {"ts": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=350 * n), "v": n} for n in range(23)
]  # eight seconds
LAST = 8


def test_a_unit_that_was_away_while_others_closed_closes_its_windows_too(spark, tmp_path, monkeypatch):
    """The unit before had made the closing frame. Taken before the sources were read to their end again, it was a frame
    as any other: the last windows never came, and the run was fine."""
    flag, again, taken, found = tmp_path / "away", threading.Event(), threading.Event(), {}
    p = hf.StreamProcess("closing", frame="1 second", time="ts")

    (tmp_path / "rows.csv").write_text("ts,v\n" + "".join(f"{row['ts'].isoformat()},{row['v']}\n" for row in ROWS))
    p.source("rows", hf.read.files(str(tmp_path / "rows.csv")), schema="ts timestamp, v int")
    extent = OpenFiles.extent

    def slowly(self):  # as a large file that is indexed anew
        if again.is_set():
            taken.wait(30)
        return extent(self)

    monkeypatch.setattr(OpenFiles, "extent", slowly)

    @p.operator(apart=True)
    def cleaned(rows):
        return rows.where("v >= 0")

    @p.operator(apart=True)
    def checked(cleaned):
        def unless_away(batches):
            if flag.exists():
                raise ValueError("away")
            yield from batches

        return cleaned.mapInArrow(unless_away, "ts timestamp, v int")

    p.aggregate("summed", of="checked", window="5 seconds", emits={"n": "count(*)", "total": "sum(v)"})

    def keep(rows, frame):
        found[frame] = [(row["n"], row["total"]) for row in rows.to_pylist()]
        if frame > LAST:
            taken.set()

    p.sink("summed", hf.write.callback(keep))
    graph = p.graph()
    start_graph(graph, state=tmp_path / "state", spark=spark, until_frame=LAST).wait()
    flag.touch()
    with pytest.raises(HoldfastError, match="away"):
        start_graph(graph, state=tmp_path / "state", spark=spark).wait()
    flag.unlink()
    again.set()
    start_graph(graph, state=tmp_path / "state", spark=spark).wait()

    windows = [[row["v"] for row in ROWS if row["ts"].second // 5 == window] for window in range(2)]
    assert [pair for frame in sorted(found) for pair in found[frame]] == [(len(each), sum(each)) for each in windows]
