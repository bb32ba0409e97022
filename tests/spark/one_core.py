"""Runs processes on local[1] and prints the checksum of every frame as JSON."""

from __future__ import annotations

import json
import sys
import tempfile

from holdfast.engine.session import close_session, open_session
from holdfast.testing.runs import run_frames
from tests.spark.processes import PROCESSES, changes_of, inputs_of

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(folder, master="local[1,3]", conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
        found = {}
        for name in sys.argv[1:]:
            outcome = run_frames(PROCESSES[name](), spark=spark, params=changes_of(name), **inputs_of(name))
            found[name] = outcome.checksums
        close_session(spark)
    print(json.dumps(found))
