"""The log of a run: `logs/holdfast.log` in the state folder, through Python's `logging`.

Loggers are `holdfast` and `holdfast.unit.NAME`, so a program that embeds a run can take
their lines to wherever its own go. What is logged follows from the statuses of the run:
a line when something has changed and none while it goes on, so a log of a quiet year is
short. Lines are searched for secrets, files are bounded while the run lasts; Spark's own
log is bounded by log4j, and what the JVM prints (`jvm.log`) is cut here.

Spark's log is one file, not one per unit: its tasks run in threads that do not know
whose query they serve. Lines of a query's own thread carry the unit's name.
"""

from __future__ import annotations

import logging
import logging.handlers
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.engine.session.jvm_log import cut_log
from holdfast.redaction import redacted

__all__ = ["RunLog", "StatusLog"]

BYTES_MAX = 5_000_000
FILES_OLD = 2
CUT_EVERY_S = 60.0
# Late rows come in drops; one line a minute says as much as one a frame.
LATE_EVERY_S = 60.0


class _Formatter(logging.Formatter):
    converter = time.gmtime  # type: ignore[assignment]
    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        return redacted(super().format(record)).replace("\n", "\n    ")


class RunLog:
    """The handler of one run. Closing it leaves the loggers as they were."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._logger = logging.getLogger("holdfast")
        self._jvm_log = folder / "jvm.log"
        self._handler = logging.handlers.RotatingFileHandler(
            folder / "holdfast.log", maxBytes=BYTES_MAX, backupCount=FILES_OLD, encoding="utf-8", delay=True
        )
        self._handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
        self._handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk must not end a run, nor print
        self._level = self._logger.level
        if self._level == logging.NOTSET:
            self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self._handler)
        self._cut_at = 0.0

    def look(self, now_s: float) -> None:
        if now_s - self._cut_at >= CUT_EVERY_S:
            self._cut_at = now_s
            cut_log(self._jvm_log)

    def close(self) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.setLevel(self._level)
        self._handler.close()


class StatusLog:
    """Turns statuses (in JSON form) into lines, by what has changed since the last one."""

    def __init__(self) -> None:
        self._log = logging.getLogger("holdfast")
        self._before: Mapping[str, Any] = {}
        self._late: dict[str, int] = {}
        self._late_at = float("-inf")

    def saw(self, status: Mapping[str, Any], now_s: float) -> None:
        before, self._before = self._before, status
        process = status["process"]
        if status["state"] != before.get("state"):
            self._log.info("%s is %s at frame %s", process, status["state"], f"{status['frame']:,}")
        for note in status.get("notes", ()):
            if note not in before.get("notes", ()):
                self._log.info("%s", note)
        self._units(before, status)
        for name, sink in _by_name(status, "sinks").items():
            was = _by_name(before, "sinks").get(name, {})
            if sink.get("why", "") != was.get("why", "") and bool(sink.get("why")) != bool(was.get("why")):
                level = logging.WARNING if sink["why"] else logging.INFO
                self._log.log(level, "sink %s: %s", name, sink["why"] or "takes frames again")
            if sink.get("marked", "") != was.get("marked", "") and bool(sink.get("marked")) != bool(was.get("marked")):
                self._log.warning("sink %s: %s", name, sink["marked"])
        self._promises(before, status)
        if bool(status.get("degraded")) != bool(before.get("degraded")):
            if status.get("degraded"):
                self._log.warning("%s is DEGRADED: %s", process, status["degraded"])
            else:
                self._log.info("%s is as declared again", process)
        for sentence in status.get("delays", ()):
            name = sentence.partition(" took")[0]
            if not any(other.startswith(name) for other in before.get("delays", ())):
                self._log.warning("%s", sentence)
        self._late_rows(status, now_s)
        if status.get("error") and status["error"] != before.get("error"):
            self._log.error("%s", status["error"])

    def _units(self, before: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        known = _by_name(before, "units")
        for name, unit in _by_name(status, "units").items():
            was, now = _trouble(known.get(name, {})), _trouble(unit)
            if was == now:
                continue
            log = logging.getLogger(f"holdfast.unit.{name}")
            if now == "":
                log.info("runs again at frame %s", f"{unit['processed'] + 1:,}")
            else:
                level = (
                    logging.ERROR if now in ("GIVEN_UP", "DEAD") else logging.WARNING if unit["why"] else logging.INFO
                )
                why = unit["why"] or "a parameter changed, or what it reads is made again"
                log.log(level, "%s at frame %s: %s", now, f"{unit['processed'] + 1:,}", why)

    def _promises(self, before: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        known = {(each["sink"], each["promise"]): each["state"] for each in before.get("promises", ())}
        for each in status.get("promises", ()):
            was = known.get((each["sink"], each["promise"]))
            if each["state"] == "BROKEN" and was != "BROKEN":
                self._log.warning("sink %s: promise %s is BROKEN: %s", each["sink"], each["promise"], each["why"])
            elif was == "BROKEN" and each["state"] == "kept":
                self._log.info("sink %s: promise %s is kept again", each["sink"], each["promise"])

    def _late_rows(self, status: Mapping[str, Any], now_s: float) -> None:
        late = {each["name"]: each["late"] for each in status.get("sources", ())}
        if now_s - self._late_at < LATE_EVERY_S and status["state"] == "running":
            return
        for name, count in late.items():
            if count > self._late.get(name, 0):
                self._late_at = now_s
                self._log.info("source %s: %s rows came late so far", name, f"{count:,}")
        self._late = late


def _by_name(status: Mapping[str, Any], part: str) -> dict[str, Mapping[str, Any]]:
    return {each["name"]: each for each in status.get(part, ())}


def _trouble(unit: Mapping[str, Any]) -> str:
    """The state of a unit if it is news; running and waiting come and go many times a second."""
    state = unit.get("state", "")
    return state if state in ("RESTARTING", "PROBING", "GIVEN_UP", "DEAD") else ""
