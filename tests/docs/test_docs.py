"""The docs are whole: the page of errors is made from its parts, links lead somewhere."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "examples").rglob("*.md"))]


def test_the_page_of_errors_is_made_from_its_parts():
    built = runpy.run_path(str(ROOT / "docs" / "build_errors.py"))["built"]

    assert (ROOT / "docs" / "errors.md").read_text() == built(), "run: python docs/build_errors.py"


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    # Parts of the page of errors are read there, one folder up.
    folder = page.parent.parent if page.parent.name == "errors.d" else page.parent
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (folder / name) if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []
