"""One Spark session for all tests that need one, and one undisturbed run per process."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session a stream process runs in, opened as `holdfast run` opens it: a JVM takes seconds to start.

    Without the second compiler: in runs of seconds it costs as much as the work.
    """
    from holdfast.engine.session import close_session, open_session

    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    session = open_session(tmp_path_factory.mktemp("state"), conf=conf)
    yield session
    close_session(session)


@pytest.fixture(scope="session")
def straight(spark):
    """The undisturbed run of each process of `processes.py`, made once."""
    from holdfast.testing.runs import run_frames
    from tests.spark.processes import PROCESSES, changes_of, inputs_of

    made = {}

    def of(name: str):
        if name not in made:
            made[name] = run_frames(PROCESSES[name](), spark=spark, params=changes_of(name), **inputs_of(name))
        return made[name]

    return of
