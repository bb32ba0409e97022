"""The settings as values: no JVM. tests/spark/test_session.py sees them at work."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from holdfast.engine.session.spark_settings import JAR, MASTER, SETTINGS, Places, java_options, remarks, session_conf

PLACES = Places(Path("/s t/logs"), Path("/s t/spark/1"), Path("/run/x"))


def test_every_setting_argues_its_value():
    assert all(setting.why.endswith(".") and setting.kind in {"safe", "fast", "flat", "quiet"} for setting in SETTINGS)
    keys = [setting.key for setting in SETTINGS]
    assert len(keys) == len(set(keys))


def test_the_callers_settings_win():
    conf = session_conf(PLACES, conf={"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": True})

    assert conf["spark.sql.shuffle.partitions"] == "4"
    assert conf["spark.ui.enabled"] == "true"
    assert conf["spark.master"] == MASTER


@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.driver.extraClassPath"])
def test_the_callers_java_options_are_added_to_ours(key):
    """Replacing ours would lose the log file, or the file system's jar."""
    ours = session_conf(PLACES)[key]

    assert session_conf(PLACES, conf={key: "/mine"})[key] in (f"{ours} /mine", f"{ours}:/mine")


def test_a_state_folder_with_blanks_stays_one_option():
    options = shlex.split(java_options(PLACES))

    assert "-Dholdfast.logs=/s t/logs" in options
    assert all(option.startswith("-") for option in options)


def test_without_a_short_folder_sockets_are_tcp():
    """A path that is too long for a socket would fail in the first Python task."""
    conf = session_conf(Places(PLACES.logs, PLACES.scratch, None))

    assert conf["spark.python.unix.domain.socket.enabled"] == "false"
    assert "spark.python.unix.domain.socket.dir" not in conf


def test_nothing_is_written_outside_the_state_folder():
    conf = session_conf(PLACES)

    assert conf["spark.local.dir"].startswith("/s t/")
    assert conf["spark.sql.warehouse.dir"] == "file:///s%20t/spark/1/warehouse"


def test_a_session_like_ours_needs_no_remark():
    ours = {setting.key: setting.value for setting in SETTINGS}

    assert remarks(ours.get, MASTER, lambda key: False) == []


def test_a_plain_session_is_told_what_it_gives_away():
    """Only what cannot be changed any more: the rest we set for our own queries."""
    said = remarks(lambda key: None, "local[2]", lambda key: key.startswith("spark.sql.streaming"))

    assert said[0].startswith("unsafe: master local[2] never retries")
    assert any("fs.file.impl" in sentence and sentence.startswith("slower") for sentence in said)
    assert not any("spark.sql.streaming" in sentence for sentence in said)


def test_the_jar_is_there():
    assert JAR.is_file()
