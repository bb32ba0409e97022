"""The class archive at work: a session maps it, and one of no use is no matter and no noise."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.engine.session.class_archive import MADE, class_archive, classes_options, spark_jars
from holdfast.engine.session.java import Java, cache_dir, find_java

ROOT = Path(__file__).resolve().parents[2]

OPENED = """
import sys
from holdfast.engine.session.session import close_session, jvm_pid, open_session
session = open_session(sys.argv[1])
mapped = {line.split()[-1] for line in open(f"/proc/{jvm_pid(session)}/maps") if ".jsa" in line}
assert session.range(3).count() == 3
close_session()
print(sys.argv[2] in mapped)
"""


def in_this_environment(*command: object, **more: str) -> subprocess.CompletedProcess:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return subprocess.run([sys.executable, *map(str, command)], env=environ, capture_output=True, text=True)


@pytest.fixture(scope="module")
def prepared() -> dict:
    """What `holdfast doctor --prepare` says; it makes the archive where `make test` has not."""
    answer = in_this_environment("-c", "from holdfast.cli.main import main; main()", "doctor", "--prepare", "--json")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stderr == ""
    return json.loads(answer.stdout)


def test_a_session_maps_the_archive_that_was_prepared(prepared):
    """An archive that fits no session would be 180 MB for nothing."""
    assert prepared["classes"]["there"], prepared
    assert prepared["classes"]["mapped"], prepared
    assert prepared["session_seconds"] > 0


def test_the_class_path_is_one_that_java_keeps_archives_for(spark):
    """Java 21 takes none if a name of the path leads nowhere, or if a jar is there twice."""
    path = spark._jvm.System.getProperty("java.class.path").split(":")

    assert [name for name in path if not os.path.exists(name)] == []
    assert len({os.path.realpath(name) for name in path}) == len(path)
    assert {os.path.realpath(jar) for jar in spark_jars().glob("*.jar")} <= {os.path.realpath(name) for name in path}


def test_a_session_opens_beside_a_truncated_archive(prepared, tmp_path):
    """Java 17 believes the head of the file and crashes: it must not be told of it."""
    archive = class_archive(find_java(), cache_dir({"XDG_CACHE_HOME": str(tmp_path)}))
    shutil.copytree(prepared["classes"]["folder"], archive.folder)
    assert archive.is_whole()
    archive.classes.chmod(0o600)  # nobody may write to it, but for root
    os.truncate(archive.classes, archive.classes.stat().st_size // 2)

    answer = in_this_environment("-c", OPENED, tmp_path / "state", archive.classes, XDG_CACHE_HOME=str(tmp_path))

    assert (answer.stdout, answer.stderr) == ("False\n", "")
    assert ".jsa" not in (tmp_path / "state" / "logs" / "jvm.log").read_text()


def start_java(java: Java, *options: str, classes: str = "") -> subprocess.CompletedProcess:
    """The quickest program in Spark's jars; what the JVM does with an archive it does before."""
    command = [
        java.home / "bin" / "java",
        *options,
        "-cp",
        classes or f"{spark_jars()}/*",
        "org.apache.spark.launcher.Main",
    ]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(params=["first found", "inside the environment"])
def java(request, tmp_path) -> Java:
    environ = dict(os.environ) if request.param == "first found" else {"HOME": str(tmp_path), "PATH": str(tmp_path)}
    return find_java(environ)


@pytest.mark.parametrize("how", ["garbage", "empty", "of another class path"])
def test_an_archive_of_no_use_is_no_matter_and_no_noise(java, tmp_path, how):
    cache = tmp_path / "cache"
    archive = class_archive(java, cache)
    archive.folder.mkdir(parents=True)
    if how == "of another class path":
        base = []
        if archive.base is not None:
            dump = [java.home / "bin" / "java", "-Xshare:dump", f"-XX:SharedArchiveFile={archive.base}"]
            subprocess.run(dump, check=True, capture_output=True)
            base = [f"-XX:SharedArchiveFile={archive.base}"]
        launcher = next(spark_jars().glob("spark-launcher_*.jar"))
        start_java(java, *base, f"-XX:ArchiveClassesAtExit={archive.classes}", classes=str(launcher))
    else:
        for path in archive.files:
            path.write_bytes(b"no archive\n" * 100_000 if how == "garbage" else b"")
    (archive.folder / MADE).write_text(json.dumps(archive.look()))  # we would take it: Java has to refuse it
    options = classes_options(java, cache)
    assert options

    without, answer = start_java(java), start_java(java, *options)

    assert (answer.returncode, answer.stdout, answer.stderr) == (without.returncode, without.stdout, without.stderr)
    assert "missing class name" in without.stderr
