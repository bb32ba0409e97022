"""A log that says what changed, stays small, and keeps secrets."""

from __future__ import annotations

import logging
import os

import pytest

from holdfast import redaction
from holdfast.engine.observe.logs import RunLog, StatusLog
from holdfast.engine.session.jvm_log import cut_log
from tests.engine.test_metrics import STATUS


@pytest.fixture
def log(tmp_path):
    made = RunLog(tmp_path)
    yield tmp_path / "holdfast.log"
    made.close()
    redaction.forget_all()


def lines(path):
    return [line.split(" ", 1)[1] for line in path.read_text().splitlines()]


def unit(state, why="", processed=12):
    return {"units": [{"name": "hot", "state": state, "processed": processed, "why": why}]}


def test_changes_are_lines_and_going_on_is_none(log):
    subject = StatusLog()
    quiet = STATUS | {"promises": []}
    for at, change in enumerate(
        [
            {},
            unit("WAITING", "waits for frame 13 of source probes"),
            unit("RESTARTING", "Python worker died; try 1 of 8") | {"degraded": "unit hot is RESTARTING"},
            unit("RESTARTING", "Python worker died; try 1 of 8, next in 2 s") | {"degraded": "unit hot is RESTARTING"},
            {},
            unit("GIVEN_UP", "8 tries"),
        ]
    ):
        subject.saw(quiet | change, at * 0.5)

    assert lines(log) == [
        "INFO    holdfast: kiln is running at frame 12",
        "INFO    holdfast: source probes: 2 rows came late so far",
        "WARNING holdfast.unit.hot: RESTARTING at frame 13: Python worker died; try 1 of 8",
        "WARNING holdfast: kiln is DEGRADED: unit hot is RESTARTING",
        "INFO    holdfast.unit.hot: runs again at frame 13",
        "INFO    holdfast: kiln is as declared again",
        "ERROR   holdfast.unit.hot: GIVEN_UP at frame 13: 8 tries",
    ]


def test_promises_sinks_and_errors_are_news(log):
    subject = StatusLog()
    subject.saw(STATUS | {"sources": []}, 0)
    away = [{"name": "hot", "stream": "hot", "written": 12, "rows": 37, "why": "AWAY for 3 s"}]
    subject.saw(
        STATUS | {"sources": [], "sinks": away, "promises": [], "error": "HF-K005 SinkFailed: x.\n  why  disk"}, 1
    )

    assert lines(log)[1:] == [
        "WARNING holdfast: sink hot: promise within 5 s is BROKEN: late",
        "WARNING holdfast: sink hot: AWAY for 3 s",
        "ERROR   holdfast: HF-K005 SinkFailed: x.",
        "     why  disk",
    ]


def test_a_secret_is_not_logged_whoever_logs(log):
    redaction.remember("hunter2-but-longer", "hf.secret('PG')")
    try:
        raise ValueError("hunter2-but-longer")
    except ValueError:
        logging.getLogger("holdfast.sources").exception("login with %s failed", "hunter2-but-longer")

    assert "hunter2" not in log.read_text()
    assert "hf.secret('PG')" in log.read_text()


def test_the_log_is_bounded_while_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.engine.observe.logs.BYTES_MAX", 2_000)
    made = RunLog(tmp_path)
    try:
        for at in range(500):
            logging.getLogger("holdfast").info("line %s", at)
    finally:
        made.close()

    assert sorted(path.name for path in tmp_path.iterdir()) == ["holdfast.log", "holdfast.log.1", "holdfast.log.2"]
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 6_000
    assert "line 499" in (tmp_path / "holdfast.log").read_text()


def test_loggers_are_left_as_they_were(tmp_path):
    logger = logging.getLogger("holdfast")
    before = (logger.level, list(logger.handlers))
    RunLog(tmp_path).close()

    assert (logger.level, logger.handlers) == before


def test_a_file_another_process_appends_to_is_cut_in_place(tmp_path):
    path = tmp_path / "jvm.log"
    writer = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(writer, b"old\n" * 1000)
        assert cut_log(path, 3_000, 400) is True
        os.write(writer, b"new\n")
        assert cut_log(path, 3_000, 400) is False
    finally:
        os.close(writer)

    assert path.read_bytes() == b"new\n"
    assert (tmp_path / "jvm.log.old").stat().st_size == 400
