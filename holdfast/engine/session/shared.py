"""`hf.session()`: one Spark session for many runs, opened as a run opens its own.

A JVM takes seconds to start, and PySpark has one per Python process; whoever runs several processes,
or one several times, opens a session once and hands it to each run. It has the settings of
`engine.session.spark_settings`, so nothing is slower or less safe than with a session of the run's own.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session"]


@contextmanager
def session(
    folder: str | os.PathLike[str] | None = None,
    *,
    master: str | None = None,
    heap: str | None = None,
    conf: Mapping[str, str] | None = None,
    quiet: bool = False,
) -> Iterator[SparkSession]:
    """One Spark session for many runs: `with hf.session() as spark: process.run(spark=spark)`.

    `folder`: where Spark's logs and scratch go (FOLDER/logs); left out, a temporary one that goes with the session.
    `master`: "local[4,3]" for four tasks at a time, tried three times; `heap`: memory of Spark's driver, as in "4g";
    `conf`: further settings of Spark. `quiet`: no log of Spark's, which may quote rows, as `values="hide"` asks of a run's
    own session. The session ends with the block, however it ends. A second one beside it is refused (HF-E003).
    """
    from holdfast.engine.session.session import close_session, open_session

    said = {"spark.master": master, "spark.driver.memory": heap}
    wanted = {key: value for key, value in said.items() if value is not None} | dict(conf or {})
    place = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="holdfast-session-"))
    try:
        opened = open_session(place, conf=wanted, quiet=quiet)
        try:
            yield opened
        finally:
            close_session(opened)
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)
