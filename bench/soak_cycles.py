"""Two hundred starts and stops in one program: threads, descriptors, callbacks and memory stay flat. make soak-cycles

A process with two units is run to its second frame in one session, again and again. After a warm-up the counts must be
the same after every tenth cycle, and resident memory may grow by no more than a tenth of a megabyte a cycle.

    python -m bench.soak_cycles [--cycles 200]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import holdfast as hf
from holdfast.engine.run.run import start_graph
from holdfast.engine.session.session import close_session, open_session

__all__ = ["main"]

WARM_UP = 10
MB_PER_CYCLE_MAX = 0.1


def process(folder: Path) -> hf.StreamProcess:
    source = folder / "a.csv"
    source.write_text("ts,zone,celsius\n" + "".join(f"2026-01-01T00:00:{n:02d}Z,{n % 3},{60 + n}\n" for n in range(4)))
    p = hf.StreamProcess("cycles", frame="1 second", time="ts")
    p.source("a", hf.read.files(str(source)), schema="ts timestamp, zone int, celsius double")

    @p.operator(over="frame", apart=True)
    def warm(a):
        return a.where("celsius > 60")

    @p.operator(over="frame", apart=True)
    def hot(warm):
        return warm.where("celsius > 61")

    p.sink("hot", hf.write.sqlite(str(folder / "out.db"), "hot"))
    return p


def counts(spark) -> dict[str, int]:
    gc.collect()
    return {
        "threads": threading.active_count(),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "callbacks": len(spark.sparkContext._gateway.gateway_property.pool),
    }


def is_flat(first: dict[str, int], now: dict[str, int]) -> bool:
    """The JVM's collector has one connection of its own, from the first function it forgets, whenever that is."""
    grown = {what: now[what] - first[what] for what in first}
    return grown["callbacks"] == 0 and grown["threads"] <= 1 and grown["descriptors"] <= 1


def settled(spark, expected: dict[str, int] | None) -> dict[str, int]:
    """Threads end a moment after their connection; looked at until they are as expected, for ten seconds at most."""
    until, found = time.monotonic() + 10, counts(spark)
    while (expected is None or not is_flat(expected, found)) and time.monotonic() < until:
        time.sleep(0.1)
        before, found = found, counts(spark)
        if expected is None and found == before:
            break
    return found


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=200)
    cycles = parser.parse_args().cycles
    root = Path(tempfile.mkdtemp(prefix="cycles-"))
    spark = open_session(root / "session")
    began, first, first_mb, differ = time.monotonic(), None, 0.0, []
    try:
        for at in range(1, WARM_UP + cycles + 1):
            folder = root / "run"
            folder.mkdir()
            with start_graph(process(folder).graph(), state=folder / "state", spark=spark, until_frame=2) as run:
                run.wait()
            shutil.rmtree(folder)
            if at == WARM_UP:
                first, first_mb = settled(spark, None), resident_mb()
            elif at > WARM_UP and at % 10 == 0:
                found = settled(spark, first)
                if not is_flat(first, found):
                    differ.append((at - WARM_UP, found))
                print(f"{at - WARM_UP} of {cycles}: {found}, {resident_mb():.0f} MB", file=sys.stderr, flush=True)
        grown = (resident_mb() - first_mb) / max(1, cycles)
    finally:
        close_session(spark)
        shutil.rmtree(root, ignore_errors=True)
    holds = not differ and grown <= MB_PER_CYCLE_MAX
    print(json.dumps({
        "cycles": cycles, "first": first, "differ": differ, "mb_per_cycle": round(grown, 3),
        "seconds": round(time.monotonic() - began), "holds": holds,
    }))  # fmt: skip
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
