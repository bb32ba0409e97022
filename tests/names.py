"""Names of columns that people and other systems give: a list of the nastiest, and any other."""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.graph.reserved import RESERVED
from holdfast.graph.schemas import folded

__all__ = ["NASTY", "WORST", "lists_of_names", "names"]

NASTY = (
    "Gr\u00f6\u00dfe", "\u00dcbel", "stra\u00dfe", "STRASSE", "a b", "a.b", "a`b", "a``b", "`", "``", "x'y", 'x"y', '"', "''", "a\\b", "a\\", "\\`",
    "\U0001f600", "\u6e29\u5ea6", "e\u0301", "\u00e9", "\u0131", "\u017fx", "1st", "1", "-", "a-b", "a,b", "a;b--", "--", "/*", "%s", "%", "?", "{x}", "$1", ":x",
    " lead", "trail ", " ", "a\tb", "a\nb", "a/b", "../x", "a=b", "a:b", "<a>", "array<int>", "(", ")", "sum(v)", "*", "a as b",
    "select", "from", "null", "timestamp", "interval", "order", "group", "table", "as", "true", "not null", "comment",
    "_more", "o0_x", "p0_x", "o1_x", "_x0", "_o0", "_all", "wake", "_l_x", "_first", "_sumx0", "frame", "n", "state", "boundary",
)  # fmt: skip

# One of each kind of trouble.
WORST = (
    "Gr\u00f6\u00dfe", "a b", "a.b", "a`b", "x'y", 'x"y', "a\\b", "\U0001f600", "1st", "a;b--", "%s", "?", "a\nb", "select", "_x0", "_o0", "wake", "_first",
)  # fmt: skip

_TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=12)


def names() -> st.SearchStrategy[str]:
    """Any name that is not ours."""
    found = st.one_of(
        st.sampled_from(NASTY), _TEXT, st.lists(st.sampled_from(NASTY), min_size=2, max_size=3).map("".join)
    )
    return found.filter(lambda name: folded(name) not in RESERVED)


def lists_of_names(count_max: int = 8) -> st.SearchStrategy[list[str]]:
    return st.lists(names(), min_size=1, max_size=count_max, unique_by=folded)
