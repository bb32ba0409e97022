"""One flipped bit, or one lost end, in every kind of file we write: the right rows or an error with a code.

Never a changed row, never a crash without a code, never a hang. `make soak-rot` does 50,000 of them.
"""

from __future__ import annotations

import threading

from tests.rot import striking
from tests.rot.kinds import KINDS

# A fifth of them are cuts: 2,000 flips are left.
STRIKES = 2_640
SEED = 20_261


def test_two_thousand_flips_and_some_cuts_over_every_kind_of_file():
    found: list[striking.Strike] = []
    half = STRIKES // 2
    threads = [
        threading.Thread(target=lambda first=first: found.extend(striking.run(SEED, first, half)))
        for first in (0, half)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [strike for strike in found if strike.verdict.startswith("WRONG")] == []
    assert sum(" bit " in f" {strike.what.partition(': ')[2]}" for strike in found) >= 2_000
    counted = striking.table(found)
    assert sorted(counted) == sorted(kind.name for kind in KINDS)
    # A fuzz that strikes what nobody looks at would pass as well.
    assert [
        name for name, counts in counted.items() if not counts["code"] + counts["cured"] and "made again" not in name
    ] == []
