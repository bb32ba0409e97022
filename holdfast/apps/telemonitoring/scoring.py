"""Runs the real pipeline over an annotated record and says how many beats it found.

Files source -> noise filter -> QRS detection -> Parquet sink, as in a ward. `restart_at`
runs it in a process of its own that is killed (SIGKILL) when that frame is committed;
a second run goes on in the same state folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from holdfast.apps.telemonitoring import records
from holdfast.apps.telemonitoring.operators import BEATS, CLEAN, beats, clean
from holdfast.declare.process import StreamProcess
from holdfast.errors import UsageError
from holdfast.graph.durations import duration_ms
from holdfast.sinks import write
from holdfast.sources import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pipeline", "resume", "score_qrs"]

SOURCE = "patient string, lead string, ts timestamp, mv double"


def pipeline(folder: Path, frame: str) -> StreamProcess:
    """ECG from `folder`/ecg.parquet to beats in `folder`/beats."""
    folder = Path(folder).absolute()
    # One lead: more than one task per frame would wait for nothing.
    process = StreamProcess("score_qrs", frame=frame, time="ts", partitions=1, chunks=1)
    process.source("ecg", read.files(folder / "ecg.parquet"), schema=SOURCE)
    process.keyed("patient", "lead", **CLEAN)(clean)
    process.keyed("patient", "lead", **BEATS)(beats)
    process.sink("beats", write.parquet(folder / "beats"))
    return process


def score_qrs(
    path: str | Path,
    folder: Path,
    *,
    lead: str | None = None,
    annotator: str = "atr",
    frame: str = "10s",
    restart_at: int | None = None,
    minutes: float | None = None,
    spark: SparkSession | None = None,
    say: Callable[[str], None] = lambda text: None,
    on_progress: Callable[[Any], None] | None = None,
) -> dict[str, Any]:
    """The score, and what was run to get it. `folder` is new and keeps input, state and beats."""
    record = records.read(path, lead, annotator)
    if minutes is not None:
        record = _first(record, minutes)
    folder.mkdir(parents=True, exist_ok=True)
    records.write_parquet(record, folder / "ecg.parquet")
    say(
        f"record {record.name}, lead {record.lead}: {len(record.mv):,} samples at {record.hz:g} Hz, {len(record.beats):,} beats"
    )
    restarts = 0
    if restart_at is not None:
        _killed(folder, frame, restart_at)
        restarts = 1
        say(f"killed when frame {restart_at} was committed; a new run goes on")
    frames = resume(folder, frame, spark=spark, on_progress=on_progress)
    us = found_us(folder)
    score = records.score(record, us)
    return {
        "record": record.name,
        "lead": record.lead,
        "hz": record.hz,
        "sensitivity": round(score.sensitivity, 5),
        "precision": round(score.precision, 5),
        "beats": len(us),
        "annotated": score.found + score.missed,
        "missed": score.missed,
        "extra": score.extra,
        "frames": frames,
        "frame_seconds": duration_ms(frame) / 1000,
        "restarts": restarts,
    }


def resume(
    folder: Path, frame: str, *, spark: SparkSession | None = None, on_progress: Callable[[Any], None] | None = None
) -> int:
    """Run to the end of the input; the number of frames the sink has."""
    run = pipeline(folder, frame).run(state=folder / "state", spark=spark, on_progress=on_progress)
    return int(run.status().frame)


def found_us(folder: Path) -> np.ndarray:
    files = sorted((folder / "beats").glob("frame-*.parquet"))
    parts = [pq.read_table(file, columns=["ts"])["ts"].cast("int64").to_numpy() for file in files]
    return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def _killed(folder: Path, frame: str, at: int) -> None:
    # A point every frame reaches, however many frames Spark takes as one batch.
    fault = {"point": "state committed", "frame": at, "unit": "beats", "victim": "driver"}
    code = f"from pathlib import Path; from {__name__} import resume; resume(Path({str(folder)!r}), {frame!r})"
    env = {**os.environ, "HOLDFAST_FAULTS": json.dumps([fault])}
    done = subprocess.run([sys.executable, "-c", code], env=env, stdout=sys.stderr)
    if done.returncode == -9:
        return
    raise UsageError(
        "HF-A004",
        "RestartNotReached",
        f"the run was not killed at frame {at}: it ended with exit code {done.returncode}.",
        why="the record has fewer frames than that" if done.returncode == 0 else "it failed before",
        effect="no score was made",
        do="take a smaller --restart-at",
    )


def _first(record: records.Record, minutes: float) -> records.Record:
    count = min(len(record.mv), round(minutes * 60 * record.hz))
    return records.Record(
        record.name, record.lead, record.hz, record.mv[:count], record.start_us,
        record.beats[record.beats < count], record.left_out,
    )  # fmt: skip
