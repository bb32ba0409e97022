"""Every way to keep something between frames, in every kind of function that a process runs: each is refused.

The functions stand in a file of their own, as a user's do: their source is read.
"""

from __future__ import annotations

import importlib.util
import textwrap

import pytest

import holdfast as hf
from holdfast.graph.rules import check_structure

HEAD = """
import functools
from collections import Counter
import pandas as pd
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

SEEN, COUNTS, TOTAL = [], Counter(), 0
class Held:
    rows = []
    last = 0
@functools.lru_cache
def cached(v):
    SEEN.append(v)
    return v
def helper(v):
    COUNTS[v] += 1
"""
# What a body does; {own} is the function itself.
WAYS = {
    "a global": "SEEN.append(1)",
    "a global of its own": "global TOTAL; TOTAL += 1",
    "a global through a helper": "helper(1)",
    "the function around it": "around.append(1)",
    "a default": "kept.append(1)",
    "a class attribute": "Held.last = 1",
    "what a class holds": "Held.rows.append(1)",
    "an attribute of the function": "{own}.last = 1",
    "a cached function that keeps": "cached(1)",
}
OPERATORS = {
    "frame": "def f(probes, kept=[]):\n    {body}\n    return probes",
    "stream": "def f(probes, kept=[]):\n    {body}\n    return probes",
    "keyed": "def f(state, probes, kept=[]):\n    {body}\n    return state, None",
}
INNER = {
    "udf": ("def inner(v, kept=[]):\n    {body}\n    return v", 'probes.select(F.udf(inner, LongType())("v"))'),
    "decorated udf": ("@F.udf(LongType())\ndef inner(v, kept=[]):\n    {body}\n    return v", 'probes.select(inner("v"))'),
    "pandas udf": (
        "@F.pandas_udf(LongType())\ndef inner(v: pd.Series, kept: pd.Series = []) -> pd.Series:\n    {body}\n    return v", 'probes.select(inner("v"))',
    ),
    "mapInPandas": ("def inner(parts, kept=[]):\n    for part in parts:\n        {body}\n        yield part", 'probes.mapInPandas(inner, "v long")'),
    "applyInPandas": ("def inner(rows, kept=[]):\n    {body}\n    return rows", 'probes.groupBy("v").applyInPandas(inner, "v long")'),
    "mapInArrow": ("def inner(parts, kept=[]):\n    {body}\n    yield from parts", 'probes.mapInArrow(inner, "v long")'),
    "rdd": ("def inner(v, kept=[]):\n    {body}\n    return v", "probes.sparkSession.createDataFrame(probes.rdd.map(inner))"),
}  # fmt: skip


def source(kind: str, way: str) -> str:
    """The file: the function stands in another one, so that there is something around it."""
    if kind in OPERATORS:
        text = OPERATORS[kind].format(body=WAYS[way].format(own="f"))
    else:
        function, use = INNER[kind]
        text = function.format(body=WAYS[way].format(own="inner")) + f"\ndef f(probes):\n    return {use}"
    return HEAD + "def make():\n    around = []\n" + textwrap.indent(text, "    ") + "\n    return f\nf = make()\n"


def declared(kind: str, way: str, folder) -> hf.StreamProcess:
    path = folder / "keeping.py"
    path.write_text(source(kind, way))
    spec = importlib.util.spec_from_file_location(f"keeping_{abs(hash((kind, way)))}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    process = hf.StreamProcess("p", frame="1 second", time="ts")
    process.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, v long")
    over = {"stream": "stream"}.get(kind, "frame")
    inputs = {"inputs": {"kept": "probes"}} if kind in OPERATORS else {}  # a default of a port is no port's
    if kind == "keyed":
        process.keyed("v", state="n long", emits="v long", **inputs)(module.f)
    else:
        process.operator(over=over, **inputs)(module.f)
    process.sink("f", hf.write.callback(lambda table, n: None))
    return process


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [*OPERATORS, *INNER])
def test_it_is_refused_and_the_line_is_named(kind, way, tmp_path):
    process = declared(kind, way, tmp_path)
    found = [finding for finding in check_structure(process.graph()) if finding.code == "HF-G040"]
    assert found, source(kind, way)
    assert "keeping.py:" in found[0].where
    line = int(found[0].where.split("keeping.py:")[1].split(",")[0])
    text = (tmp_path / "keeping.py").read_text().splitlines()[line - 1]
    assert any(word in text for word in ("append", "TOTAL", "COUNTS", "last")), text


def test_sinks_may_keep_what_they_like():
    """They are the end of it: nothing of theirs goes into a frame."""
    seen = []
    process = hf.StreamProcess("p", frame="1 second", time="ts")
    process.source("probes", hf.read.files("probes.parquet"), schema="ts timestamp, v long")
    process.filter("all", of="probes", where="true")
    process.sink("all", hf.write.callback(lambda table, n: seen.append(n)), name="one")
    process.sink("all", hf.write.foreach_batch(lambda df, n: seen.append(n)), name="two")
    assert [finding.code for finding in check_structure(process.graph()) if not finding.warning] == []
