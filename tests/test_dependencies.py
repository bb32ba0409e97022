"""What is asked for, what was tried, and what is imported fit together; the core needs no extra."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from holdfast.errors import EnvironmentRefused
from holdfast.extras import EXTRAS, need

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = dict(line.split("==") for line in (ROOT / "requirements.lock").read_text().split())
# Where the name of a package and that of its module differ.
MODULES = {"paho-mqtt": "paho", "prometheus-client": "prometheus_client", "protobuf": "google"}
BLOCKED = sorted({module for modules in EXTRAS.values() for module in modules})


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> list[Requirement]:
    extras = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]
    return [Requirement(each) for each in (*PROJECT["dependencies"], *extras)]


def module_of(requirement: str) -> str:
    name = Requirement(requirement).name
    return MODULES.get(name, name.replace("-", "_"))


@pytest.mark.parametrize("wanted", requirements(), ids=str)
def test_what_was_tried_is_what_is_asked_for(wanted):
    """A range that leaves out the version the tests run with says something nobody has seen."""
    tried = {normal(name): version for name, version in LOCK.items()}[normal(wanted.name)]

    assert wanted.specifier.contains(tried), f"{tried} is in the lock"
    assert "==" not in str(wanted.specifier)


def test_extras_are_what_the_error_names():
    for extra, modules in EXTRAS.items():
        assert set(modules) <= {module_of(each) for each in PROJECT["optional-dependencies"][extra]}


def test_modules_import_the_core_alone_until_an_extra_is_asked_for():
    """At the top of a module an import happens to everybody."""
    core = {module_of(each) for each in PROJECT["dependencies"]} | {"py4j", "holdfast", *sys.stdlib_module_names}
    # Imported only by what has asked for its extra.
    behind = {"holdfast/sources/connectors/mqtt_client.py"}
    found = []
    for path in sorted((ROOT / "holdfast").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("holdfast/apps/", "holdfast/models/", "holdfast/records/deriving")) or name in behind:
            continue
        for node in ast.parse(path.read_text()).body:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [
                f"{name}: {each}"
                for each in names
                if each.partition(".")[0] not in core and name != "holdfast/testing/plugin.py"
            ]
    assert found == []


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_extra_is_an_error_that_names_the_line(extra, monkeypatch):
    """HF-E064: not an ImportError out of the middle of a run."""
    need(extra, "this")
    monkeypatch.setitem(sys.modules, EXTRAS[extra][0], None)
    with pytest.raises(EnvironmentRefused) as refused:
        need(extra, "this", "there")
    assert refused.value.code == "HF-E064" and refused.value.do == f"pip install 'holdfast[{extra}]'"
    assert extra in PROJECT["optional-dependencies"]


def test_the_core_works_without_any_extra(tmp_path):
    """Everything is declared and checked; what needs an extra says so when it is opened."""
    program = f"""
import sys
for name in {BLOCKED}:
    sys.modules[name] = None
import holdfast as hf
from holdfast.errors import EnvironmentRefused
from holdfast.sinks.writer import SinkContext
from holdfast.graph.schemas import Schema
from pathlib import Path
p = hf.StreamProcess("p", frame="1 second", time="ts")
p.source("a", hf.read.files("a.csv"), schema="ts timestamp, n int")
p.source("b", hf.read.mqtt("mqtt://127.0.0.1/b"), schema="ts timestamp, n int")
p.union("both", of=["a", "b"])
for name, writer in dict(d=hf.write.duckdb("o.duckdb", "t"), g=hf.write.postgres("postgresql://h/d", "t"), s=hf.write.sqlite("o.db", "t")).items():
    p.sink("both", writer, name=name)
p.check()
print(p.show().count("both") > 0)
for sink in p.graph().sinks:
    try:
        sink.writer.open(SinkContext("p", sink.name, Schema.of("ts timestamp, n int"), "ts", Path({str(tmp_path)!r}), 1)).close()
        print(sink.name, "opened")
    except EnvironmentRefused as error:
        print(sink.name, error.do)
try:
    import holdfast.apps.telemonitoring.qrs
except EnvironmentRefused as error:
    print(error.do)
"""
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)

    assert answer.stdout.splitlines() == [
        "True",
        "d pip install 'holdfast[duckdb]'",
        "g pip install 'holdfast[postgres]'",
        "s opened",
        "pip install 'holdfast[demo]'",
    ], answer.stderr


def test_versions_are_said_once():
    import holdfast

    assert PROJECT["version"] == holdfast.__version__
