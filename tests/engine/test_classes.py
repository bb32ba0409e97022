"""Which class archive fits, and whether one is there: no JVM. tests/spark/test_classes.py sees it mapped."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.engine.session import class_archive as subject
from holdfast.engine.session.class_archive import ClassArchive, class_archive, classes_options
from holdfast.engine.session.java import Java
from holdfast.engine.session.spark_settings import Places, java_options


@pytest.fixture
def java(tmp_path) -> Java:
    home = tmp_path / "jdk"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "modules").write_text("modules")
    (home / "lib" / "server" / "classes.jsa").write_text("of Java itself")
    return Java(home, "17.0.15", "JAVA_HOME", home)


@pytest.fixture
def jars(tmp_path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    for name in ("spark-core.jar", "scala.jar", "ours.jar"):
        (folder / name).write_text(name)
    (folder / "ours.jar").rename(tmp_path / "ours.jar")
    return folder


@pytest.fixture
def archive_of(tmp_path, java, jars):
    def archive(java: Java = java) -> ClassArchive:
        return class_archive(java, tmp_path / "cache", jars=jars, ours=tmp_path / "ours.jar")

    return archive


def made(archive: ClassArchive) -> ClassArchive:
    """An archive as far as we look: files, and beside them what they look like."""
    archive.folder.mkdir(parents=True)
    for path in archive.files:
        path.write_bytes(b"x" * 100)
    (archive.folder / subject.MADE).write_text(json.dumps(archive.look()))
    return archive


def test_the_same_java_and_jars_have_the_same_archive(archive_of):
    assert archive_of() == archive_of()


def changed_size(jars: Path) -> None:
    (jars / "scala.jar").write_text("another scala")


def changed_time(jars: Path) -> None:
    os.utime(jars / "scala.jar", (1, 1))


def added(jars: Path) -> None:
    (jars / "more.jar").write_text("more")


def removed(jars: Path) -> None:
    (jars / "scala.jar").unlink()


def our_own(jars: Path) -> None:
    (jars.parent / "ours.jar").write_text("built again")


def other_java(jars: Path) -> None:
    (jars.parent / "jdk" / "lib" / "modules").write_text("updated in place")


@pytest.mark.parametrize(
    "change", [changed_size, changed_time, added, removed, our_own, other_java], ids=lambda f: f.__name__
)
def test_whatever_changes_asks_for_another_archive(archive_of, jars, change):
    """Java would find out too, but not in every version and not for every change."""
    before = archive_of()
    change(jars)

    assert archive_of().folder != before.folder
    assert list(archive_of().earlier()) == []
    made(before)
    assert list(archive_of().earlier()) == [before.folder]


def test_another_version_of_java_asks_for_another_archive(archive_of, java):
    assert archive_of(replace(java, version="17.0.16")).folder != archive_of().folder


def test_archives_of_two_javas_do_not_replace_each_other(archive_of, java, tmp_path):
    made(archive_of())

    assert list(archive_of(replace(java, runtime=tmp_path / "other")).earlier()) == []


def test_a_java_without_an_archive_of_its_own_gets_one(archive_of, java):
    assert [path.name for path in archive_of().files] == ["spark.jsa"]
    (java.runtime / "lib" / "server" / "classes.jsa").unlink()

    assert [path.name for path in archive_of().files] == ["java.jsa", "spark.jsa"]


def test_without_an_archive_java_is_told_nothing(java, tmp_path):
    assert classes_options(java, tmp_path / "cache") == []


def test_with_one_java_is_told_where_and_to_be_silent(java, tmp_path):
    archive = made(class_archive(java, tmp_path / "a cache"))
    options = classes_options(java, tmp_path / "a cache")

    assert options == [f"-XX:SharedArchiveFile={archive.classes}", "-Xshare:auto", "-Xlog:cds*=off"]
    assert options == shlex.split(java_options(Places(Path("/l"), Path("/s"), None), classes=options))[:3]


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "gone", "no record", "half a record"])
def test_an_archive_that_is_not_whole_is_none(java, tmp_path, damage):
    """A disk that was full, a power cut, a kill while it was written: Java 17 would crash with it."""
    archive = made(class_archive(java, tmp_path))
    assert archive.is_whole()
    record = archive.folder / subject.MADE
    match damage:
        case "truncated":
            os.truncate(archive.classes, 99)
        case "overwritten":
            archive.classes.write_bytes(b"y" * 100)
            os.utime(archive.classes, (1, 1))
        case "gone":
            archive.classes.unlink()
        case "no record":
            record.unlink()
        case "half a record":
            record.write_text(record.read_text()[:9])

    assert not archive.is_whole()
    assert classes_options(java, tmp_path) == []
