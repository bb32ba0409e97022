"""The protocol pages name tests and mutants that exist."""

import re
from pathlib import Path

import pytest

from tests.simulation.more_mutants import MORE_MUTANTS
from tests.simulation.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "protocols").glob("*.md"))
TESTS = {path.name: path.read_text() for path in (ROOT / "tests").glob("*/test_*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_named_on_a_page_exists(page):
    """A lemma that points nowhere is not proved."""
    file = None
    for name, test in re.findall(r"`(test_\w+\.py)?(?:::(test_\w+))?`", page.read_text()):
        file = name or file
        if name:
            assert name in TESTS, name
        if test:
            # A state machine of Hypothesis is a test by assignment.
            assert re.search(rf"^(def {test}\(|{test} = )", TESTS[file], re.MULTILINE), f"{file}::{test}"


def test_every_mutant_is_named_on_a_page_and_every_name_is_a_mutant():
    """A rule without a page is a rule nobody can look up."""
    text = "\n".join(page.read_text() for page in PAGES)
    named = set()
    for line in re.findall(r"[Mm]utants? (\*[^|\n]*)", text):
        named |= set(re.findall(r"\*([^*]+)\*", line))
    assert named == {mutant.rule for mutant in [*MUTANTS, *MORE_MUTANTS]}
