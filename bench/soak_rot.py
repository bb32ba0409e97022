"""Fifty thousand flipped bits and lost ends over every kind of file we write: the right rows, or an error with a code.

Each strike is decided by the seed and its number. The readers run in processes of their own, so one
that is ended by a signal is seen, and is a violation like a changed row, an error without a
code or a hang. What may be read after an end was cut off is right, too, where that is how a
crash leaves a file (the column `shorter`: entries before the cut).

    make soak-rot             python -m bench.soak_rot --strikes 2000 --seed 3 for a short one
"""

from __future__ import annotations

import argparse
import json
import threading
import time

from tests.rot import striking

COLUMNS = ("same", "code", "cured", "shorter", "WRONG")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strikes", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2)
    given = parser.parse_args()
    found: list[striking.Strike] = []
    errors: list[BaseException] = []
    share = -(-given.strikes // given.at_once)
    began = time.monotonic()

    def strike(first: int) -> None:
        try:
            for each in striking.run(given.seed, first, min(share, given.strikes - first)):
                found.append(each)
                if each.verdict.startswith("WRONG"):
                    print(f"strike {each.number}, {each.kind}, {each.what}: {each.verdict}", flush=True)
                if len(found) % 5_000 == 0:
                    print(f"{len(found):>6} strikes, {time.monotonic() - began:.0f} s", flush=True)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=strike, args=(first,)) for first in range(0, given.strikes, share)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = striking.table(found)
    print(f"{'kind of file':<34}" + "".join(f"{name:>9}" for name in COLUMNS))
    for kind, counts in sorted(counted.items()):
        print(f"{kind:<34}" + "".join(f"{counts[name]:>9}" for name in COLUMNS))
    wrong = sum(counts["WRONG"] for counts in counted.values())
    for error in errors:
        print(f"{type(error).__name__}: {error}")
    result = {
        "soak": "rot", "seed": given.seed, "strikes": len(found), "wrong": wrong, "seconds": round(time.monotonic() - began, 1),
        "kinds": {kind: dict(counts) for kind, counts in sorted(counted.items())},
    }  # fmt: skip
    print(json.dumps(result))
    return 1 if wrong or errors or len(found) != given.strikes else 0


if __name__ == "__main__":
    raise SystemExit(main())
