"""What checkpoints cost by the thesis' protocols: SP1 to SP4 of its evaluation, every setting on one run of the data.

Each process (`bench.thesis`) runs once and unprotected; beside it (`engine.protect.shadow`) every
setting has machines, pins and a backup of its own: uncoordinated, ecoc (SP1, SP2) and
extended, by the interval CI, with sensors that trigger apart (phased: a quarter of the
interval, the mean distance of two triggers that fall by chance) or together (aligned).
Counted is every byte written to a backup, where it is written; a round is one interval.
Bytes at virtual pace: producers are held so that nobody is far ahead. Times, and what
depends on them, at the recorded pace; faults as the thesis': the host of the last
operator, then those of the last two.

    make bench-ecoc
    python -m bench.ecoc --quick
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import thesis
from bench.attached import Setting, attached
from bench.losses import losses
from bench.report import finish, say
from bench.shapes import goals, shapes

FRAME_MS = 500
RATES = (200, 20_000)
ROUNDS, QUICK_ROUNDS = 15, 8  # at the longest interval; more at shorter ones
TAIL = 10  # frames after the last round, for what is still on its way
PACED = 600  # frames of the recording for runs at its pace; none is played to its end


def frames_of(ci: int) -> int:
    """An interval of the thesis, in frames of the same duration."""
    return max(1, math.ceil(ci / 200 * 1000 / FRAME_MS))


def settings(name: str, rate: int, cis: tuple[int, ...], *, recorded: bool = False) -> list[Setting]:
    kinds = [kind for kind in kinds_of(name) if kind != "uncoordinated"]
    sensors = thesis.SENSORS[name]
    made = []
    intervals = {ci: frames_of(ci) for ci in cis}
    if rate > 200 and not recorded:
        intervals = {0: 1} | intervals  # as the thesis counts, in elements, every CI is within one frame
    for ci, every in intervals.items():
        if not recorded:
            made.append(Setting("uncoordinated", ci, every, "own", {}))
        for kind in kinds:
            if len(sensors) > 1 and every > 1:
                phases = {sensor: at * max(1, every // 4) for at, sensor in enumerate(sensors)}
                made.append(Setting(kind, ci, every, "phased", phases))
            made.append(Setting(kind, ci, every, "aligned", {}))
    return made


def study(spark, given: argparse.Namespace, work: Path) -> dict:
    kept = Kept(given.keep)
    longest = max(frames_of(ci) for ci in given.cis)
    last = longest * (1 + given.rounds)
    for at, rate in enumerate(given.rates):
        for name in given.processes:
            measure = partial(written, spark, name, rate, work, given.cis, longest, last)
            show(name, rate, kept.part("bytes", rate, name, measure))
        if at == 0 and given.times:
            times(spark, kept, work, given)
    found = kept.found(given.rates, given.processes)
    return {"frame_ms": FRAME_MS, "rounds_least": given.rounds, **found, "shapes": shapes(found), "goals": goals(found)}


def times(spark, kept: Kept, work: Path, given: argparse.Namespace) -> None:
    for name in given.processes:
        for ci in given.loss_cis:
            for kind in kinds_of(name):
                kept.part(f"losses {kind}-{ci}", 200, name, partial(lost, spark, name, work, kind, ci))
        kept.part("pending", 200, name, partial(pending, spark, name, work, min(given.cis), given.rounds))


class Kept:
    """What was measured, part by part: a study that was cut short goes on where it was."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._parts: dict[str, dict] = json.loads(path.read_text()) if path is not None and path.exists() else {}

    def part(self, what: str, rate: int, name: str, measure: Callable[[], dict]) -> dict:
        key = f"{what}/{rate}/{name}"
        if key not in self._parts:
            began = time.monotonic()
            self._parts[key] = {"found": measure(), "seconds": round(time.monotonic() - began, 1)}
            if self._path is not None:
                self._path.write_text(json.dumps(self._parts))
        return self._parts[key]["found"]

    def found(self, rates: tuple[int, ...], names: tuple[str, ...]) -> dict:
        made: dict = {"by_rate": {}, "pending": {}, "losses": {}}
        for key, part in self._parts.items():
            what, rate, name = key.split("/")
            if what == "bytes" and int(rate) in rates and name in names:
                made["by_rate"].setdefault(rate, {})[name] = part["found"]
            elif what == "pending" and name in names:
                made["pending"][name] = part["found"]
            elif what.startswith("losses ") and name in names:
                made["losses"].setdefault(name, {})[what.removeprefix("losses ")] = part["found"]
        return made | {"minutes": round(sum(part["seconds"] for part in self._parts.values()) / 60, 1)}


def kinds_of(name: str) -> tuple[str, ...]:
    """Plain ecoc cannot protect a cycle."""
    return ("uncoordinated", "ecoc", "extended") if name in ("sp1", "sp2") else ("uncoordinated", "extended")


def data_of(work: Path, rate: int, frames: int) -> Path:
    folder = work / f"data-{rate}-{frames}"
    if not folder.exists():
        say(f"{rate:,} elements/s: making {frames} frames")
        thesis.make_data(folder, frames, rate * FRAME_MS // 1000, FRAME_MS)
    return folder


def written(spark, name: str, rate: int, work: Path, cis: tuple[int, ...], first: int, last: int) -> dict:
    """At virtual pace: what every setting writes."""
    rows = rate * FRAME_MS // 1000
    data = data_of(work, rate, last + TAIL)
    return attached(
        spark, name, data, work, settings(name, rate, cis), rows=rows, frame_ms=FRAME_MS, window=(first, last)
    )


def lost(spark, name: str, work: Path, kind: str, ci: int) -> dict:
    every = frames_of(ci)
    return losses(spark, name, data_of(work, 200, PACED), work, kind, every, frame_ms=FRAME_MS)


def pending(spark, name: str, work: Path, ci: int, rounds: int) -> dict:
    """At the recorded pace: how long a checkpoint waits for others, and how many are extended."""
    every = frames_of(ci)
    last = every * (1 + rounds)
    say(f"{name} at the recorded pace, {(last + TAIL) * FRAME_MS / 1000:.0f} s: how long checkpoints are pending")
    found = attached(
        spark, name, data_of(work, 200, PACED), work, settings(name, 200, (ci,), recorded=True), rows=200 * FRAME_MS // 1000,
        frame_ms=FRAME_MS, window=(every, last), rate="1x", until=last + TAIL,
    )  # fmt: skip
    told = ("checkpoints", "pending_s", "extended_share", "bytes_per_round")
    cells = {cell: {key: own[key] for key in told} for cell, own in found["cells"].items()}
    for cell, own in cells.items():
        say(f"  {cell:<28} pending {own['pending_s'] * 1000:.0f} ms, extended {own['extended_share']:.1%}")
    return cells


def show(name: str, rate: int, found: dict) -> None:
    say(f"{name} at {rate:,}/s: {found['frames']} frames in {found['seconds']} s, lag by edge {found['lag_frames']}")
    said = ("setting", "rounds", "B/round", "KB/s", "thesis", "of payload", "of own", "extended")
    say("  {:<28} {:>6} {:>10} {:>9} {:>7} {:>10} {:>8} {:>8}".format(*said))
    for cell, own in found["cells"].items():
        theirs = own["thesis_kb_per_s"]
        say(
            f"  {cell:<28} {own['rounds']:>6.0f} {own['bytes_per_round']:>10,.0f} {own['kb_per_s']:>9.2f} "
            f"{'' if theirs is None else theirs:>7} {own['of_payload']:>10.2%} {own['of_own_bytes']:>8.2%} "
            f"{own['extended_share']:>8.1%}"
        )


def main() -> None:
    from holdfast.engine.session.session import close_session, open_session

    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="two intervals, and losses at one of them")
    parser.add_argument("--processes", default=",".join(thesis.PROCESSES))
    parser.add_argument("--rates", default=",".join(map(str, RATES)))
    parser.add_argument("--cis", help="intervals in elements at 200/s")
    parser.add_argument("--rounds", type=int, help="of the longest interval")
    parser.add_argument(
        "--keep", type=Path, help="a file that keeps what is measured; with it the study goes on where it was"
    )
    parser.add_argument("--no-times", dest="times", action="store_false", help="bytes only")
    given = parser.parse_args()
    given.processes = tuple(given.processes.split(","))
    given.rates = tuple(map(int, given.rates.split(",")))
    given.cis = tuple(map(int, given.cis.split(","))) if given.cis else (500, 1000) if given.quick else thesis.CIS
    given.rounds = given.rounds or (QUICK_ROUNDS if given.quick else ROUNDS)
    given.loss_cis = (500,) if given.quick else (500, 3000)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        spark = open_session(Path(folder) / "session")
        try:
            found = study(spark, given, Path(folder))
        finally:
            close_session(spark)
    finish("ecoc", {"quick": given.quick, **found})


if __name__ == "__main__":
    main()
