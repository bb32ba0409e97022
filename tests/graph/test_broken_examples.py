"""Every rule has a process that breaks it, and the remedy the rule prints mends it.

The offending line carries the code as a comment. Rules that need Spark's analyser are
seen with a JVM in tests/spark; here their files must be sound in structure.
"""

import re
from pathlib import Path

import pytest

from holdfast.declare.loading import load
from holdfast.errors import Finding, ProcessRefused
from holdfast.graph.rules import check_structure

BROKEN = Path(__file__).parents[2] / "examples" / "broken"
NEEDS_SPARK = {"HF-G020", "HF-G021", "HF-G022", "HF-G023", "HF-G024", "HF-G025", "HF-G027"}
NAMES = sorted(path.stem for path in BROKEN.glob("*.py") if not path.stem.endswith("_mended"))


def marked(path: Path) -> tuple[str, int]:
    lines = path.read_text().splitlines()
    found = [(match[1], n) for n, line in enumerate(lines, 1) if (match := re.search(r"# (HF-G\d+)$", line))]
    assert len(found) == 1, f"{path.name} must mark exactly one line"
    return found[0]


def errors(path: Path) -> list[Finding]:
    try:
        return [finding for finding in check_structure(load(path).graph()) if not finding.warning]
    except ProcessRefused as refused:
        return refused.findings


def needs_spark(name: str) -> bool:
    return marked(BROKEN / f"{name}.py")[0] in NEEDS_SPARK or name == "port_types_differ"


STRUCTURAL = [name for name in NAMES if not needs_spark(name)]


@pytest.mark.parametrize("name", STRUCTURAL)
def test_a_broken_process_gets_its_code_and_its_line_and_nothing_else(name):
    """A cascade of findings would hide the one that has to be mended."""
    path = BROKEN / f"{name}.py"
    code, line = marked(path)
    found = errors(path)
    assert [finding.code for finding in found] == [code], "\n".join(map(str, found))
    assert re.match(rf"\S*{path.name}:{line}\b", found[0].where), found[0].where
    assert found[0].why and found[0].do and found[0].effect


@pytest.mark.parametrize(
    ("name", "vertex", "port"),
    [
        ("port_without_stream", "'hot'", "'probe'"),
        ("stream_without_consumer", "'parts'", "'cold'"),
        ("feedback_types_differ", "'damped'", "'last'"),
        ("cycle_without_feedback", "damped", "'last'"),
        ("feedback_without_schema", "'damped'", "'last'"),
        ("key_column_missing", "'average'", "'of'"),
        ("unknown_port", "'hot'", "'reading'"),
        ("delay_below_minimum", "'hot'", ""),
        ("outside_to_outside", "'probes'", ""),
    ],
)
def test_a_finding_names_vertex_and_port(name, vertex, port):
    (finding,) = errors(BROKEN / f"{name}.py")
    assert vertex in str(finding)
    assert port in str(finding)


@pytest.mark.parametrize("name", NAMES)
def test_the_remedy_mends_it(name):
    assert errors(BROKEN / f"{name}_mended.py") == []


@pytest.mark.parametrize("name", [name for name in NAMES if needs_spark(name)])
def test_what_needs_a_jvm_is_sound_in_structure(name):
    assert errors(BROKEN / f"{name}.py") == []


def test_every_rule_has_its_example():
    shown = {marked(BROKEN / f"{name}.py")[0] for name in NAMES}
    assert shown == {f"HF-G{n:03}" for n in (*range(1, 30), 32, 33)}
