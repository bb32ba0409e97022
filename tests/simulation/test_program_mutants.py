"""Mutants made by a program: which changes it makes, how it judges them, and that a fixed set of them is found."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

from bench.mutants import children
from bench.mutants.children import Verdict, in_children
from bench.mutants.making import mutants_of
from bench.mutants.reviewed import equivalents, fixed, strangers
from bench.soak_mutants import all_mutants, draw

ROOT = Path(__file__).resolve().parents[2]

MODULE = '''
"""A header that says 1 + 1."""
from __future__ import annotations
from typing import Protocol
__all__ = ["f"]
LIMIT = 3


class Spoken(Protocol):
    def words(self) -> list[int]: ...


def f(items: dict[str, int | None], most: int = 5) -> list[int]:
    """At most 7 of them."""
    invariant(most > 0, f"most is {most + 1} of {len(items)}")
    out = [0, most]
    if not items or most < LIMIT:
        return out + [max(most, 2)]
    items["seen"] = most
    return [n for n in out if n >= 1]
'''


def made(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    return mutants_of(path, tmp_path)


def test_each_kind_of_change_is_made(tmp_path):
    """A kind that is left out is a class of mistakes that nobody looks for."""
    changes = {(mutant.line, mutant.becomes) for mutant in made(tmp_path)}
    for change in (
        ("LIMIT = 3", "LIMIT = 4"),
        ("out = [0, most]", "out = [most]"),
        ("if not items or most < LIMIT:", "if not items and most < LIMIT:"),
        ("if not items or most < LIMIT:", "if not items or most <= LIMIT:"),
        ("if not items or most < LIMIT:", "if (items) or most < LIMIT:"),
        ("if not items or most < LIMIT:", "if (not items):"),
        ("if not items or most < LIMIT:", "if False:"),
        ("return out + [max(most, 2)]", "return out"),
        ("return out + [max(most, 2)]", "return out + [min(most, 2)]"),
        ('items["seen"] = most', "pass"),
        ("return [n for n in out if n >= 1]", "return []"),
        ("return [n for n in out if n >= 1]", "return [n for n in out if n > 1]"),
        ("def f(items: dict[str, int | None], most: int = 5) -> list[int]:",
         "def f(items: dict[str, int | None], most: int = 6) -> list[int]:"),
    ):  # fmt: skip
        assert change in changes


def test_what_cannot_change_behaviour_is_left_alone(tmp_path):
    """Such mutants survive for ever and hide those that matter."""
    for mutant in made(tmp_path):
        assert mutant.line_number not in (2, 3, 4, 5, 10, 14), mutant
        assert 'f"most is {most + 1} of {len(items)}"' in mutant.source or mutant.becomes == "pass", mutant


def test_every_mutant_is_a_program_and_another_one():
    """A syntax error is found by anybody; an unchanged program by nobody."""
    for mutant in draw(all_mutants(), 60, 7):
        original = ast.dump(ast.parse((ROOT / mutant.file).read_text()))
        assert ast.dump(ast.parse(mutant.source)) != original, mutant.name


def test_a_seed_draws_the_same_mutants_again():
    """A survivor that cannot be tried again is a rumour."""
    mutants = all_mutants()
    assert len({mutant.name for mutant in mutants}) == len(mutants)
    names = [mutant.name for mutant in draw(mutants, 20, 3)]
    assert names == [mutant.name for mutant in draw(all_mutants(), 20, 3)]
    assert names != [mutant.name for mutant in draw(mutants, 20, 4)]


def test_reviewed_mutants_exist():
    """An argument about a line that has changed is no argument any more."""
    assert strangers([*equivalents(), *fixed()], all_mutants()) == []
    assert not {*equivalents()} & {*fixed()}


def endless():
    while True:
        pass


def greedy():
    held = []
    while True:
        held.append(bytearray(1 << 24))


def stumbling():
    raise KeyError("edge")


def test_what_hangs_grows_or_stumbles_is_found_and_verdicts_keep_their_order(monkeypatch):
    """A mutant that never ends must not stop the soak, nor count as unnoticed."""
    monkeypatch.setattr(children, "MEMORY_MORE", 1 << 27)
    jobs = [endless, lambda: Verdict(""), greedy, stumbling]
    verdicts = list(in_children(jobs, cpu_s=2, workers=2))
    assert [verdict.by for verdict in verdicts] == ["hang", "", "memory", "import"]
    assert "KeyError" in verdicts[3].what


def test_the_fixed_mutants_are_found():
    """Each was a survivor once; `make soak-mutants` tries all the others."""
    words = [sys.executable, "-m", "bench.soak_mutants", "--fixed", "--schedules", "200", "--workers", "2"]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout.splitlines()[-1])
    assert report["survivors"] == []
    assert report["tried"] == len(fixed()) >= 20
