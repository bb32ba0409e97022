"""Whether a table still has the rows that its ledger says were written.

Asked once, when a run opens the sink. Of a table without keys the rows per frame are
counted, from the newest frame back as far as the ledger knows and `ROWS_COUNTED_MAX`
rows reach: a table of ours is clustered or indexed by frame, so no more than these are
read. A row of a table with keys may stand for any frame, so the whole table is counted:
when a run ends and when the next one begins. After a kill that count is missing; then
only an empty table is noticed.

`differing` is pure; the rest speaks SQL through the ledger it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast.errors import SinkError

__all__ = ["ROWS_COUNTED_MAX", "Difference", "changed", "differing", "newest_frames"]

#: SQLite counts a million rows in a tenth of a second, PostgreSQL in two; a start may take a second longer.
ROWS_COUNTED_MAX = 5_000_000

Run = Callable[[str, Sequence[object]], list[tuple]]


@dataclass(frozen=True, slots=True)
class Difference:
    frame: int | None  # None: of the table as a whole
    expected: int
    there: int


def differing(expected: Mapping[int, int], there: Mapping[int, int]) -> list[Difference]:
    """Frames whose rows are not as many as were written, in order."""
    return [
        Difference(n, expected.get(n, 0), there.get(n, 0))
        for n in sorted({*expected, *there})
        if expected.get(n, 0) != there.get(n, 0)
    ]


def newest_frames(rows: Sequence[tuple[int, int]], rows_max: int = ROWS_COUNTED_MAX) -> dict[int, int]:
    """Of (frame, rows), newest first, as many frames as hold no more than `rows_max` rows; at least one."""
    found: dict[int, int] = {}
    total = 0
    for n, count in rows:
        total += count
        if found and total > rows_max:
            break
        found[int(n)] = int(count)
    return found


def changed(what: str, found: Sequence[Difference], where: str) -> SinkError:
    lost = sum(max(0, each.expected - each.there) for each in found)
    gained = sum(max(0, each.there - each.expected) for each in found)
    words = " and ".join(
        f"{count:,} {'row' if count == 1 else 'rows'} {verb}"
        for count, verb in ((lost, "fewer"), (gained, "more"))
        if count
    )
    words = words or f"{len(found):,} {'file' if len(found) == 1 else 'files'} other"
    frames = [each for each in found if each.frame is not None]
    named = ", ".join(f"frame {each.frame} has {each.there:,} of {each.expected:,}" for each in frames[:3])
    more = f" and {len(frames) - 3:,} more frames" if len(frames) > 3 else ""
    whole = next((f"it has {each.there:,} rows, it had {each.expected:,}" for each in found if each.frame is None), "")
    return SinkError(
        "HF-K034",
        "RowsChanged",
        f"{what} has {words} than were written.",
        where=where,
        why=f"somebody else deleted or added rows since the last run: {named or whole}{more}",
        effect="nothing was started and nothing was written; rows that were deleted do not come again by themselves",
        do="bring the rows back, from a backup or by a replay into another table (docs/howto/replay.md);\n"
        "or accept the target as it is now:\nholdfast adopt-table FILE SINK\n"
        "if others delete or add rows there as a rule, declare it: shared=True on the sink",
    )
