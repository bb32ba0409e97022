"""Columns may have any name but ours, and our list is the one in the docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.graph.reserved import RESERVED
from holdfast.graph.rules import check_structure
from holdfast.graph.schemas import Schema

ROOT = Path(__file__).resolve().parents[2]
ODD = [
    "_more",
    "Gr\u00f6\u00dfe",
    "\u00dcbel",
    "a b",
    "a.b",
    "a`b",
    "a``b",
    "1st",
    "select",
    "o0_x",
    "p0_x",
    "-",
    "\u6e29\u5ea6",
    "x'y",
    'x"y',
    "a\\b",
]


def process(name):
    p = hf.StreamProcess("p", frame="1 second", time="ts")
    quoted = "`" + name.replace("`", "``") + "`"
    p.source("probes", hf.read.files("probes.parquet"), schema=f"ts timestamp, {quoted} long")

    @p.operator
    def same(probes):
        return probes

    p.sink("same", hf.write.callback(lambda table, n: None))
    return p


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_ours_are_refused(name):
    [finding] = [each for each in check_structure(process(name).graph()) if not each.warning]
    assert finding.code == "HF-G044" and repr(name) in finding.what


@pytest.mark.parametrize("name", ODD)
def test_others_are_read_and_written_back_as_they_are(name):
    assert [each for each in check_structure(process(name).graph()) if not each.warning] == []
    schema = process(name).graph().sources[0].schema
    assert schema.names == ("ts", name)
    assert Schema.of(schema.ddl) == schema == Schema.of(schema.arrow)
    assert schema.ddl.isascii() or "`" in schema.ddl


def test_a_name_with_letters_of_another_language_needs_no_quotes_in_a_declaration():
    assert Schema.of("Gr\u00f6\u00dfe double, \u00dcbel long").names == ("Gr\u00f6\u00dfe", "\u00dcbel")


def test_the_list_is_the_one_in_the_docs():
    text = (ROOT / "docs" / "errors.d" / "graph.md").read_text().split("## HF-G044")[1].split("## ")[0]
    assert set(re.findall(r"`(_\w+)`", text)) == RESERVED
