"""What a protection costs: bench-overhead's process (filter, running aggregate per key) with ecoc and without.

CPU: frames of a million rows; CPU seconds of this process and all below it (JVM, Python
workers, those that ended) per million rows, from the start of a run to its end, so what
the claim and the stores of a protected run cost is inside. Frame time: frames of a
thousand rows, ecoc to stores of which every write takes 200 ms longer; milliseconds
between two frames becoming visible.

Turns alternate in one warm session and in changing order, to and fro, so that the JVM of
one side is not a luckier one; of each side an alternation has four turns of twenty frames
(CPU), of which the median counts:

    none, none_again    the process without hosts; against each other they are the control
    ecoc                hf.ecoc(every="5 seconds"): every fifth frame
    slow                the same with slow stores (frame time only)

    make bench-protection          10 alternations
    python -m bench.protection --quick
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.overhead import make_files, ours
from bench.report import finish, median, say, spread

ALTERNATIONS = 10
SIZES = {"large": (1_000_000, 20), "small": (1_000, 40)}  # rows a frame, frames
# Of an alternation every side has so many turns, to and fro, and the median counts: this machine's own pace
# changes by a third within a minute, more than any protection costs.
TURNS = {"large": 4, "small": 1}
WARM = {"large": 4, "small": 3}  # rounds before the counted ones: until then the JVM still compiles
QUICK = {"large": (200_000, 10), "small": (1_000, 20)}
SLOW_S = 0.2
# Of Student's distribution, two-sided 95 %, by degrees of freedom.
T95 = {
    1: 12.71,
    2: 4.303,
    3: 3.182,
    4: 2.776,
    5: 2.571,
    6: 2.447,
    7: 2.365,
    8: 2.306,
    9: 2.262,
    10: 2.228,
    14: 2.145,
    19: 2.093,
}
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s() -> float:
    """CPU seconds of this process, of all below it and of those of them that ended."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
                used[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
    total, left = 0.0, [os.getpid()]
    while left:
        pid = left.pop()
        total += used.get(pid, 0.0)
        left += parents.get(pid, [])
    return total


@contextlib.contextmanager
def slow_stores() -> Iterator[None]:
    from holdfast.hosts.places import Folder

    plain = Folder.write

    def write(self, path: str, content: bytes) -> None:
        time.sleep(SLOW_S)
        plain(self, path, content)

    Folder.write = write
    try:
        yield
    finally:
        Folder.write = plain


def turn(spark, kind: str, data: Path, work: Path, frames: int) -> tuple[float, float]:
    """CPU seconds and seconds a frame."""
    import holdfast as hf

    protection = None if kind.startswith("none") else hf.ecoc(every="5 seconds")
    gc.collect()
    spark._jvm.System.gc()
    with slow_stores() if kind == "slow" else contextlib.nullcontext():
        before = cpu_s()
        seen = ours(spark, data, work, frames, stream=False, protection=protection)
        used = cpu_s() - before
    shutil.rmtree(work, ignore_errors=True)
    return used, (seen[-1] - seen[0]) / (len(seen) - 1)


def turns(
    spark, size: str, kinds: list[str], alternations: int, folder: Path, shape: tuple[int, int]
) -> dict[str, list]:
    rows, frames = shape
    say(f"making {frames} files of {rows:,} rows")
    make_files(folder / size, rows, frames)
    found: dict[str, list] = {kind: [] for kind in kinds}

    def a_round(number: int) -> dict[str, float]:
        shift = number // 2 % len(kinds)
        order = (kinds[shift:] + kinds[:shift])[:: -1 if number % 2 else 1]
        made = {}
        for kind in order:
            used, seconds = turn(spark, kind, folder / size, folder / "turn", frames)
            made[kind] = used * 1_000_000 / (rows * frames) if size == "large" else seconds * 1000
        return made

    for number in range(WARM[size]):
        say("  warming up: " + ", ".join(f"{kind} {value:.3f}" for kind, value in a_round(number).items()))
    for alternation in range(alternations):
        made = [a_round(alternation + at) for at in range(TURNS[size])]
        for kind in kinds:
            found[kind].append(median([each[kind] for each in made]))
        unit = "CPU s a million rows" if size == "large" else "ms a frame"
        said = ", ".join(f"{kind} {found[kind][-1]:.3f}" for kind in kinds)
        say(f"  alternation {alternation + 1} of {alternations}: {said} {unit}")
    return found


def interval(values: list[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval."""
    mean = statistics.mean(values)
    if len(values) < 2:
        return mean, mean, mean
    free = len(values) - 1
    t = T95[max(known for known in T95 if known <= free)]
    half = t * statistics.stdev(values) / len(values) ** 0.5
    return mean, mean - half, mean + half


def cpu_study(spark, shape: tuple[int, int], alternations: int, folder: Path) -> dict:
    cpu = turns(spark, "large", ["none", "ecoc", "none_again"], alternations, folder, shape)
    # Both unprotected turns of an alternation are what the protected one is compared with.
    over = interval([e * 2 / (a + b) - 1 for a, b, e in zip(cpu["none"], cpu["none_again"], cpu["ecoc"], strict=True)])
    control = interval([b / a - 1 for a, b in zip(cpu["none"], cpu["none_again"], strict=True)])
    return {
        "cpu_s_per_million_rows": {kind: round(median(each), 3) for kind, each in cpu.items()},
        "cpu_spread": {kind: round(spread(each), 3) for kind, each in cpu.items()},
        "ecoc_over_none": [round(value, 4) for value in over],
        "none_over_none": [round(value, 4) for value in control],
        "upper_end_above_control": round(over[2] - control[0], 4),
        "cpu_met": over[2] - control[0] <= 0.03,
    }


def time_study(spark, shape: tuple[int, int], alternations: int, folder: Path) -> dict:
    times = turns(spark, "small", ["none", "slow", "none_again", "ecoc"], alternations, folder, shape)
    plain = times["none"] + times["none_again"]
    slow = median(times["slow"])
    return {
        "ms_per_frame": {kind: round(median(each), 1) for kind, each in times.items()},
        "ms_of_control": [round(min(plain), 1), round(max(plain), 1)],
        "slow_over_none": round(slow / median(plain), 4),
        "frame_time_met": slow <= max(plain),
    }


PARTS = {"cpu": ("large", cpu_study), "time": ("small", time_study)}


def main() -> None:
    from holdfast.engine.session.session import close_session, open_session

    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="3 alternations, frames of 200,000 rows")
    parser.add_argument("--alternations", type=int)
    parser.add_argument("--part", choices=list(PARTS), action="append", help="both unless named")
    given = parser.parse_args()
    alternations = given.alternations or (3 if given.quick else ALTERNATIONS)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        spark = open_session(Path(folder) / "session")
        found: dict = {"quick": given.quick, "alternations": alternations}
        for part in given.part or PARTS:
            size, study = PARTS[part]
            found |= study(spark, (QUICK if given.quick else SIZES)[size], alternations, Path(folder))
        close_session(spark)
    finish("protection", found)


if __name__ == "__main__":
    main()
