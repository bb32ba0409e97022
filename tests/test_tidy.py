"""House rules that a machine can check: who imports what, headers, sizes, error codes."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "holdfast"
MODULES = sorted(PACKAGE.rglob("*.py"))
# These decide; what happens outside reaches them as values. A replay takes the same way.
PURE = ("graph", "frames", "levels", "protocols", "models")
NOT_PURE = {"pyspark", "py4j", "time", "socket", "random", "secrets", "uuid", "threading", "asyncio"}
CODE = re.compile(r"\bHF-[A-Z]\d{3}\b")
# Folders of whoever wrote it; they mean nothing on another machine.
MACHINE_PATH = re.compile(
    r"/(?:work|root|home/\w+)/|/tmp/\w+/|https?://[\w.-]*(?:pypi|mirror|proxy)[\w.-]*", re.IGNORECASE
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", [p for p in MODULES if p.relative_to(PACKAGE).parts[0] in PURE], ids=name_of)
def test_pure_packages_import_no_spark_clock_socket_or_chance(path):
    assert {each for each in imports(path) if each.partition(".")[0] in NOT_PURE} == set()


@pytest.mark.parametrize("path", [p for p in MODULES if p.relative_to(PACKAGE).parts[0] == "operators"], ids=name_of)
def test_operators_open_no_session(path):
    """They may use pyspark.sql's functions and types, never a session: they run in workers."""
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not names & {"SparkSession", "SparkContext"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_say_what_they_are_and_what_they_offer(path):
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), "no header"
    if path.name == "__init__.py" and len(tree.body) == 1:
        return
    assigned = {
        target.id
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    assert "__all__" in assigned


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_have_one_subject(path):
    assert len(path.read_text().splitlines()) <= 600


def test_no_file_names_the_machine_it_was_written_on():
    if shutil.which("git") is None:
        pytest.skip("no git here")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("no git here")
    found = []
    for name in filter(None, listed.stdout.decode().split("\0")):
        path = ROOT / name
        if path == Path(__file__) or not path.is_file() or path.suffix in (".jar", ".parquet", ".arrow", ".png"):
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            if MACHINE_PATH.search(line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert found == []


def test_the_lock_has_names_and_versions_only():
    lines = (ROOT / "requirements.lock").read_text().splitlines()

    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[\w.]+", line)] == []


def test_declaring_needs_neither_spark_nor_pandas():
    """`holdfast check` has to answer in less than a second."""
    code = "import sys, holdfast, holdfast.cli.main; print([m for m in ('pyspark', 'pandas', 'duckdb') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"


def sections() -> dict[str, str]:
    """code -> name, of the headings in the docs."""
    found: dict[str, str] = {}
    for path in [*sorted((ROOT / "docs" / "errors.d").glob("*.md")), ROOT / "docs" / "errors.md"]:
        if path.exists():
            for code, name in re.findall(r"^## (HF-[A-Z]\d{3}) (\w+)\s*$", path.read_text(), flags=re.MULTILINE):
                assert found.get(code, name) == name, f"{code} has two names"
                found[code] = name
    return found


def used() -> dict[str, str]:
    """code -> where, of the string literals in the package that are codes and nothing else."""
    found: dict[str, str] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                found.setdefault(node.value, f"{name_of(path)}:{node.lineno}")
    return found


def test_every_error_has_a_section_in_the_docs():
    documented = sections()

    assert {code: where for code, where in used().items() if code not in documented} == {}


def test_every_section_is_about_an_error_that_exists():
    existing = used()

    assert [code for code in sections() if code not in existing] == []


def test_the_docs_call_errors_what_the_code_calls_them():
    text = "\n".join(path.read_text() for path in MODULES)
    strangers = [f"{code} {name}" for code, name in sections().items() if not re.search(rf'"{name}"', text)]

    assert strangers == []
