"""Random changes of single lines in holdfast/protocols: are they noticed by a test without Spark, or by the simulator?

`bench.mutants.making` lists every change it can make; a sample is drawn by the seed, and each mutant runs in a child
process against tests/protocols and then, if those pass, in up to 1,000 schedules over all protocols and graphs.
Survivors are shown with their diff. A mutant counts as equivalent only if bench/mutants/equivalent.toml argues that it is;
those are not drawn. Fails if fewer than 95 of 100 are noticed, if the tree as it is does not pass, or if an entry of the
list names no mutant.

    make soak-mutants             python -m bench.soak_mutants --count 100 --seed 1 --files ecoc.py extended.py
                                  --count 0 tries all; --report FILE keeps every verdict as a line of JSON,
                                  --again FILE tries the survivors of such a report,
                                  --fixed those of bench/mutants/fixed.toml, as `make test` does
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from bench.mutants.children import Verdict
from bench.mutants.making import Mutant, mutants_of
from bench.mutants.reviewed import equivalents, fixed, strangers
from bench.mutants.trying import try_mutants
from bench.report import finish, say

ROOT = Path(__file__).resolve().parents[1]
FOUND_MIN = 0.95


def all_mutants(files: list[str] | None = None) -> list[Mutant]:
    paths = sorted((ROOT / "holdfast" / "protocols").glob("*.py"))
    if files:
        unknown = set(files) - {path.name for path in paths}
        if unknown:
            raise SystemExit(f"no such file in holdfast/protocols: {', '.join(sorted(unknown))}")
        paths = [path for path in paths if path.name in files]
    return [mutant for path in paths for mutant in mutants_of(path, ROOT)]


def draw(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    if count <= 0 or count >= len(mutants):
        return mutants
    chosen = Random(seed).sample(range(len(mutants)), count)
    return [mutants[i] for i in sorted(chosen)]


class Tally:
    """Counts verdicts as they come and shows survivors at once."""

    def __init__(self, chosen: list[Mutant], report: Path | None) -> None:
        self._all = len(chosen)
        self._report = report.open("w") if report else None
        self._begun = time.monotonic()
        self.by: Counter[str] = Counter()
        self.by_file: dict[str, list[int]] = {}
        self.survivors: list[Mutant] = []
        self.cpu_s = 0.0

    @property
    def seconds(self) -> int:
        return round(time.monotonic() - self._begun)

    def told(self, mutant: Mutant, verdict: Verdict) -> None:
        self.by[verdict.by or "survived"] += 1
        self.cpu_s += verdict.cpu_s
        counts = self.by_file.setdefault(short(mutant), [0, 0])
        counts[0] += bool(verdict.by)
        counts[1] += 1
        if self._report:
            found = {**asdict(mutant), **asdict(verdict), "name": mutant.name}
            del found["source"]
            self._report.write(json.dumps(found) + "\n")
            self._report.flush()
        if not verdict.by:
            self.survivors.append(mutant)
            say(f"survived: {mutant.file}:{mutant.line_number} in {mutant.within} ({mutant.kind})")
            say(mutant.diff((ROOT / mutant.file).read_text()))
        number = self.by.total()
        if number % 10 == 0 or number == self._all:
            say(f"  {number} of {self._all}, {len(self.survivors)} survived, {self.seconds} s")


def short(mutant: Mutant) -> str:
    return mutant.file.rpartition("/")[2]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", nargs="+")
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--again", type=Path)
    parser.add_argument("--fixed", action="store_true")
    given = parser.parse_args()

    made = all_mutants(given.files)
    known = equivalents()
    lost = strangers(known, all_mutants())
    for name in lost:
        say(f"equivalent.toml names no mutant: {name}")
    chosen = draw([mutant for mutant in made if mutant.name not in known], given.count, given.seed)
    if given.fixed:
        wanted = set(fixed())
        chosen = [mutant for mutant in made if mutant.name in wanted]
    elif given.again:
        before = {tuple(e["name"]) for e in _lines(given.again) if not e["by"]}
        chosen = [mutant for mutant in made if mutant.name not in known and mutant.name in before]
    say(f"{len(made)} mutants can be made, {len(known)} are listed as equivalent, {len(chosen)} are tried")

    tally = Tally(chosen, given.report)
    try_mutants(chosen, ROOT, given.schedules, given.workers, tally.told)
    survivors = tally.survivors
    share = 1 - len(survivors) / max(len(chosen), 1)
    figures = {
        "seed": given.seed,
        "tried": len(chosen),
        "found": len(chosen) - len(survivors),
        "share": round(share, 4),
        "by": dict(sorted(tally.by.items())),
        "by_file": {file: f"{hit} of {tried}" for file, (hit, tried) in sorted(tally.by_file.items())},
        "can_be_made": len(made),
        "equivalent": len(known),
        "strangers": len(lost),
        "schedules": given.schedules,
        "seconds": tally.seconds,
        "cpu_seconds": round(tally.cpu_s),
        "survivors": [f"{short(m)}:{m.line_number} {m.line} => {m.becomes}" for m in survivors],
    }
    finish("soak-mutants", figures)
    if share < FOUND_MIN or lost:
        raise SystemExit(1)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
