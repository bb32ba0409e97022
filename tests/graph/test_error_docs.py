"""Every code of holdfast.graph and holdfast.declare has its section, under its own name."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESERVED = {f"HF-G{n:03}" for n in (*range(20, 26), 27)}  # raised by the engine


def test_codes_and_sections_agree():
    raised = {}
    package = ROOT / "holdfast"
    functions = package / "sources" / "connectors" / "functions.py"
    for path in [*(package / "graph").glob("*.py"), *(package / "declare").glob("*.py"), functions]:
        for code, name in re.findall(r'"(HF-[A-Z]\d{3})",\s*"(\w+)"', path.read_text()):
            assert raised.setdefault(code, name) == name, f"{code} has two names"
    text = (ROOT / "docs" / "errors.d" / "graph.md").read_text()
    written = dict(re.findall(r"^## (HF-[A-Z]\d{3}) (\w+)$", text, flags=re.MULTILINE))
    assert raised == {code: name for code, name in written.items() if code not in RESERVED}
    assert set(written) >= RESERVED
