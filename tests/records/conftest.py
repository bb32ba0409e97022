"""A state folder as a run leaves it, made by the project's own writers and no Spark.

Process `kiln`: source `probes` (a Parquet file, three frames of four rows), unit `hot`
that sealed frames 1 to 3 and has forgotten the first, a SQLite sink that has two.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.errors import OperatorError
from holdfast.frames.clock import FrameClock
from holdfast.frames.files import frame_name, read_frame, seal_frame
from holdfast.frames.identity import Kind
from holdfast.graph.schemas import Schema
from holdfast.journals.incidents import Incidents
from holdfast.journals.journal import Journal
from holdfast.journals.seals import SealJournal
from holdfast.sinks import write
from holdfast.sinks.ledger_reader import target_of
from holdfast.sinks.writer import SinkContext
from holdfast.sources import read
from holdfast.sources.reader import SourceContext
from holdfast.sources.reference import load

SCHEMA = Schema.of("ts timestamp, zone int, celsius double")
SECOND = 1_000_000
SIX = datetime(2026, 1, 5, 6, tzinfo=UTC)
ROWS = [{"ts": SIX + timedelta(milliseconds=250 * i), "zone": i % 4, "celsius": 70.0 + i} for i in range(12)]


class Folder:
    """Writes what the engine writes, in the engine's order."""

    def __init__(self, root: Path, base: Path, *, values: str = "show") -> None:
        self.root, self.base = root, base
        self.clock = FrameClock.starting(int(SIX.timestamp() * 1e6), SECOND)
        pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA.arrow), base / "probes.parquet")
        self.writer = write.sqlite("kiln.db", "hot")
        deployment = {
            "process": "kiln", "frame_ms": 1000, "grace_ms": 0, "time": "ts", "partitions": 2, "t0_us": self.clock.t0_us,
            "operators": {"hot": "f1"}, "stateful": [], "units": {"hot": ["hot"]}, "streams": {"hot": "hot"},
            "sources": ["probes"], "start": {"hot": 0}, "values": values,
            "targets": {"hot": target_of(self.writer, str(base)) | {"stream": "hot"}},
            "schemas": {"probes": SCHEMA.ddl, "hot": SCHEMA.ddl},
        }  # fmt: skip
        root.mkdir(parents=True)
        (root / "deployment.json").write_text(json.dumps(deployment))
        (root / "epoch").write_text("2")

    def seal_source(self, epoch: int = 1) -> list:
        directory = self.root / "sources" / "probes"
        source = read.files("probes.parquet").open(
            SourceContext(
                "probes", SCHEMA, "ts", 0, "admit", directory, self.base, SECOND, 1, self.clock, epoch, lambda: 0.0
            )
        )
        journal, frames = SealJournal(directory), list(source.frames(threading.Event()))
        for frame in frames:
            journal.note(
                frame.n, epoch=epoch, boundary_us=self.clock.boundary_us(frame.n), rows=frame.rows, size=frame.bytes,
                checksum=frame.checksum, late=frame.late_rows, references=frame.references, at=1_767_600_000.0 + frame.n + epoch,
            )  # fmt: skip
        journal.close()
        return frames

    def run_unit(self, frames: list, epoch: int = 1) -> None:
        unit = self.root / "units" / "hot"
        permits, commits = Journal(unit, "permits"), Journal(unit, "commits")
        stream = self.root / "streams" / "hot"
        stream.mkdir(parents=True)
        for frame in frames:
            rows = pa.Table.from_batches([b for r in frame.references for b in load(r, SCHEMA)], SCHEMA.arrow)
            inputs = [["probes", frame.n, "stable", epoch, frame.checksum]]
            if frame.n > 1:
                inputs.append(["hot", frame.n - 1, "stable", epoch, "fedback"])
            boundary_us = self.clock.boundary_us(frame.n)
            permits.append({"n": frame.n, "inputs": inputs, "boundary_us": boundary_us, "epoch": epoch})
            record = seal_frame(
                stream,
                rows,
                SCHEMA,
                "ts",
                stream="hot",
                n=frame.n,
                kind=Kind.STABLE,
                epoch=epoch,
                boundary_us=boundary_us,
            )
            output = {"rows": record.rows, "bytes": record.bytes, "checksum": record.checksum}
            commits.append(
                {"n": frame.n, "epoch": epoch, "boundary_us": boundary_us, "inputs": inputs, "outputs": {"hot": output},
                 "state": {}, "counts": {"hot.late_rows": 0}, "at": 1_767_600_100.0 + frame.n}
            )  # fmt: skip
        permits.append({"n": 3, "inputs": inputs, "boundary_us": boundary_us, "epoch": 2})
        permits.append({"n": 4, "inputs": [["probes", 4, "stable", 2, "c"]], "boundary_us": boundary_us, "epoch": 2})
        permits.close()
        commits.close()

    def write_sink(self, *numbers: int) -> None:
        sink = self.writer.open(SinkContext("kiln", "hot", SCHEMA, "ts", self.base, 1))
        sink.write([read_frame(self.queue(n)) for n in numbers])
        sink.close()

    def queue(self, n: int) -> Path:
        return self.root / "streams" / "hot" / frame_name(n, Kind.STABLE)

    def fail(self, n: int) -> None:
        error = OperatorError(
            "HF-O001", "OperatorRaised", "an operator of unit 'hot' raised: ValueError: 98.6",
            where=f"stream process 'kiln', unit 'hot', frame {n}", why="kiln.py:7 in hot", effect="nothing is lost", do="mend it",
        )  # fmt: skip
        Incidents(self.root, epoch=2).note("error", error=error, attempt=2)


@pytest.fixture
def make_folder(tmp_path):
    def make(**settings) -> Folder:
        folder = Folder(tmp_path / ".holdfast" / "kiln", tmp_path, **settings)
        folder.run_unit(folder.seal_source())
        folder.write_sink(1, 2)
        folder.queue(1).unlink()
        return folder

    return make


@pytest.fixture
def folder(make_folder):
    return make_folder()
