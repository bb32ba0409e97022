"""Build holdfast/engine/session/jars/holdfast.jar from jvm/holdfast/*.java.

The jar is committed, so that users need no compiler. It is reproducible: fixed
times, fixed order, no manifest beyond the version line. tests/engine/test_jar.py
compares the committed classes with what the compiler at hand makes.

    python jvm/build.py [--out FILE]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

__all__ = ["JAR", "build", "compile_classes", "find_javac"]

HERE = Path(__file__).resolve().parent
JAR = HERE.parent / "holdfast" / "engine" / "session" / "jars" / "holdfast.jar"
# Spark 4 needs Java 17; newer compilers must not use newer class files.
RELEASE = "17"
# The earliest time a zip entry can hold: the same bytes on every machine.
EPOCH = (1980, 1, 1, 0, 0, 0)


def find_javac() -> str | None:
    return shutil.which("javac")


def compile_classes(javac: str, folder: Path) -> dict[str, bytes]:
    """Compile against the classes of the installed pyspark."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    sources = sorted(str(path) for path in HERE.glob("holdfast/*.java"))
    command = [javac, "--release", RELEASE, "-g:none", "-proc:none", "-Xlint:-options", "-nowarn"]
    command += ["-cp", f"{jars}/*", "-d", str(folder), *sources]
    subprocess.run(command, check=True)
    classes = sorted(folder.rglob("*.class"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in classes}


def build(out: Path, classes: dict[str, bytes]) -> None:
    entries = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n", **classes}
    with zipfile.ZipFile(out, "w") as jar:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = 0o644 << 16
            # Stored, not deflated: zlib versions differ in their bytes, and it is 16 KB.
            jar.writestr(entry, content, zipfile.ZIP_STORED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=JAR)
    out = parser.parse_args().out
    javac = find_javac()
    if javac is None:
        print("no javac on PATH: install a JDK 17 or newer to rebuild the jar", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        classes = compile_classes(javac, Path(folder))
    out.parent.mkdir(parents=True, exist_ok=True)
    build(out, classes)
    print(f"{out.name}: {out.stat().st_size:,} bytes, {len(classes)} classes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
