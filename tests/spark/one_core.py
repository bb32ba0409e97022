"""Runs processes on local[1]: a name a line comes in, the path of what came of it goes out."""

from __future__ import annotations

import pickle
import sys
import tempfile
from pathlib import Path

from holdfast.engine.session.session import close_session, open_session
from holdfast.testing.runs import run_frames
from tests.spark.processes import PROCESSES, changes_of, inputs_of

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(
            folder,
            master="local[1,3]",
            conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"},
        )
        for name in map(str.strip, sys.stdin):
            outcome = run_frames(PROCESSES[name](), spark=spark, params=changes_of(name), **inputs_of(name))
            whole = Path(folder, f"{name}.pickle")
            whole.write_bytes(pickle.dumps((outcome.frames, outcome.checksums, outcome.tables)))
            print(whole, flush=True)
        close_session(spark)
