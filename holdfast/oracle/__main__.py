"""A recomputation as an os process of its own: python -m holdfast.oracle FOLDER

FOLDER/oracle.json says which run, FOLDER/answer.json is the answer. The session is fresh, each Python
worker serves one task, and files for a while are made in a folder of its own, so that what the run's
functions left in workers, in modules or in the usual place for such files is not there. It ends
when its standard input does: whoever started it is gone.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

from holdfast.declare.loading import load
from holdfast.engine.profile import load_profile
from holdfast.engine.session.session import close_session, open_session
from holdfast.errors import HoldfastError
from holdfast.faults.inputs import from_log
from holdfast.faults.trial import end_with_who_asked
from holdfast.oracle.recomputing import recompute

__all__ = ["main"]


def main(folder: Path) -> int:
    threading.Thread(target=end_with_who_asked, daemon=True).start()
    said = json.loads((folder / "oracle.json").read_text())
    graph = load(said["file"]).graph()
    chosen = replace(load_profile(None, beside=graph.base), metrics=None, metrics_open=None, state=None)
    graph, first, ran = chosen.applied_to(graph), 1, Path(said["ran"])
    if said["input"] is not None:
        graph, first = from_log(graph, Path(said["input"]), ran / "state")
    conf = {**(chosen.spark_conf() or {}), "spark.python.worker.reuse": "false"}
    try:
        spark = open_session(folder, conf=conf, quiet=graph.values == "hide")
        try:
            found = recompute(
                graph, ran, spark, count=said["count"], seed=said["seed"], first=first, until=said["until"]
            )
        finally:
            close_session(spark)
    except HoldfastError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    (folder / "answer.json").write_text(json.dumps([each.to_json() for each in found]))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
