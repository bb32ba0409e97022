"""The committed jar is what its source says."""

from __future__ import annotations

import importlib.util
import zipfile
from pathlib import Path

import pytest

from holdfast.engine.session.spark_settings import JAR

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("jvm_build", ROOT / "jvm" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_classes_are_those_of_the_source(build, tmp_path):
    """A jar nobody can rebuild is a jar nobody can trust."""
    javac = build.find_javac()
    if javac is None:
        pytest.skip("no javac here")
    classes = build.compile_classes(javac, tmp_path / "classes")
    build.build(tmp_path / "again.jar", classes)

    with zipfile.ZipFile(JAR) as jar:
        committed = {name: jar.read(name) for name in jar.namelist() if name.endswith(".class")}
    assert committed == classes
    assert (tmp_path / "again.jar").read_bytes() == JAR.read_bytes()


def test_the_jar_has_class_files_for_java_17():
    with zipfile.ZipFile(JAR) as jar:
        classes = [name for name in jar.namelist() if name != "META-INF/MANIFEST.MF"]
        assert {name.partition("$")[0].removesuffix(".class") for name in classes} == {
            "holdfast/FrameTicks",
            "holdfast/LocalFiles",
        }
        for name in classes:
            assert int.from_bytes(jar.read(name)[6:8], "big") == 61
