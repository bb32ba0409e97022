"""One Spark session for all tests that need one, and one undisturbed run per process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.checksums import Checksums

CHECKSUMS = Checksums()


def pytest_addoption(parser):
    parser.addoption(
        "--record-checksums", action="store_true", help="write tests/spark/checksums.json (see checksums.py)"
    )


def pytest_sessionfinish(session):
    if session.config.getoption("--record-checksums", False):
        CHECKSUMS.record()


@pytest.fixture(autouse=True)
def same_frames_as_recorded(request, monkeypatch):
    """Whatever a test is about: the frames it makes are the ones it made when they were recorded."""
    from holdfast.engine.unit.sealing import Sealer

    test = request.node.nodeid.removeprefix("tests/spark/")
    CHECKSUMS.begin(test)
    plain = Sealer.seal

    def seal(self, *args, **kwargs):
        sealed = plain(self, *args, **kwargs)
        for stream, frame in sealed.items():
            CHECKSUMS.sealed(test, stream, frame.n, frame.checksum)
        return sealed

    monkeypatch.setattr(Sealer, "seal", seal)
    yield
    if not request.config.getoption("--record-checksums", False):
        assert CHECKSUMS.differing(test) == []


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session a stream process runs in, opened as `holdfast run` opens it: a JVM takes seconds to start.

    Without the second compiler: in runs of seconds it costs as much as the work. Java would then keep
    room for 48 MB of compiled code, which the plans of all tests fill: it dies of that, or stops compiling.
    """
    from holdfast.engine.session.session import close_session, open_session

    conf = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"}
    session = open_session(tmp_path_factory.mktemp("state"), conf=conf)
    yield session
    close_session(session)


@pytest.fixture(scope="session")
def straight(tmp_path_factory):
    """The undisturbed run of each process of `processes.py`, made once, on one core.

    What the tests do runs on two: a frame that depended on the number of cores would show in each of them.
    """
    from holdfast.testing.runs import Outcome

    log = tmp_path_factory.mktemp("one_core") / "log"
    made: dict[str, Outcome] = {}
    with (
        open(log, "wb") as said,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.one_core"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as runner,
    ):

        def of(name: str) -> Outcome:
            if name not in made:
                print(name, file=runner.stdin, flush=True)
                answer = runner.stdout.readline().strip()
                assert answer, log.read_text()[-3000:]
                made[name] = Outcome(*pickle.loads(Path(answer).read_bytes()))
            return made[name]

        yield of
