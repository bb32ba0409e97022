"""What an error about Java, the session, disks or keys tells a person to do is done, without starting Spark."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.engine.flow.disks import _reserve
from holdfast.engine.session import java as java_module
from holdfast.engine.session import session
from holdfast.engine.session.java import find_java
from holdfast.errors import HoldfastError
from holdfast.graph.secrets import Secret
from holdfast.hosts.keys import NOTE, backup_seal
from tests.engine.test_java import environ, make_java


def refused(code: str, asking) -> HoldfastError:
    with pytest.raises(HoldfastError) as caught:
        asking()
    assert caught.value.code == code, caught.value
    return caught.value


def test_a_java_is_found_where_java_home_points(tmp_path, monkeypatch):
    """HF-E001."""
    monkeypatch.setattr(java_module.importlib.util, "find_spec", lambda name: None)
    error = refused("HF-E001", lambda: find_java(environ(tmp_path)))
    assert "point JAVA_HOME to a Java 17+" in error.do
    home = make_java(tmp_path / "jdk")
    assert find_java(environ(tmp_path, JAVA_HOME=str(home))).home == home


def test_the_doctor_says_why_spark_does_not_start(tmp_path, monkeypatch):
    """HF-E002."""
    home = make_java(tmp_path / "jdk", script="echo 'Error: could not reserve enough space for the heap' >&2; exit 1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    error = refused("HF-E002", lambda: session.open_session(tmp_path / "state"))
    assert error.do == "holdfast doctor"
    answer = CliRunner().invoke(app, ["doctor"])
    assert answer.exit_code == 6
    assert str(home) in answer.output and "could not reserve enough space" in answer.output


@pytest.mark.parametrize("name", ["SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"])
def test_a_process_set_to_spark_connect_is_set_back(monkeypatch, name):
    """HF-E004."""
    monkeypatch.setattr(session, "_drop_gateway", lambda: None)
    monkeypatch.setenv(name, "1")
    error = refused("HF-E004", session._refuse_if_open)
    assert f"unset {name}" in error.do
    monkeypatch.delenv(name)
    session._refuse_if_open()


def test_another_folder_is_written(tmp_path):
    """HF-E005."""
    (tmp_path / "file").write_text("")
    error = refused("HF-E005", lambda: session._make_places(tmp_path / "file" / "state"))
    assert "--state DIR" in error.do
    assert session._make_places(tmp_path / "other").logs.is_dir()


def test_a_reserve_is_a_number_or_is_left_to_us(monkeypatch):
    """HF-E006."""
    monkeypatch.setenv("HOLDFAST_DISK_RESERVE", "much")
    error = refused("HF-E006", _reserve)
    assert "e.g. 268435456, or unset it" in error.do
    monkeypatch.setenv("HOLDFAST_DISK_RESERVE", "268435456")
    assert _reserve() == 268435456
    monkeypatch.delenv("HOLDFAST_DISK_RESERVE")
    assert _reserve() > 0


def test_a_key_is_made_as_the_error_says_or_changed(tmp_path, monkeypatch):
    """HF-E060, HF-E061."""
    import subprocess

    key = Secret("HOLDFAST_TEST_KEY")
    monkeypatch.setenv("HOLDFAST_TEST_KEY", "short")
    error = refused("HF-E060", lambda: backup_seal(tmp_path, key, "home"))
    command = error.do.split("=$(")[1].split(")")[0]
    made = subprocess.run(command.split(), capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setenv("HOLDFAST_TEST_KEY", made)
    assert backup_seal(tmp_path, key, "home")
    monkeypatch.setenv("HOLDFAST_TEST_KEY", made[::-1])
    error = refused("HF-E061", lambda: backup_seal(tmp_path, key, "home"))
    assert "give the former key" in error.do and f"remove {tmp_path / NOTE}" in error.do
    monkeypatch.setenv("HOLDFAST_TEST_KEY", made)
    assert backup_seal(tmp_path, key, "home")
    monkeypatch.setenv("HOLDFAST_TEST_KEY", made[::-1])
    (tmp_path / NOTE).unlink()
    assert backup_seal(tmp_path, key, "home")
