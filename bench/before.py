"""This tree against an earlier commit of it: what a change costs, measured side by side.

The earlier commit is checked out beside this one. Each side is a process of its own that imports its own
`holdfast`, warm, and the parent lets them take turns over the same rows:

    large, small   filter and aggregate built in, a million and a thousand rows a frame (as bench-overhead)
    stream         the same as an over="stream" operator, a thousand rows a frame
    keyed          a running sum per key in Python (as bench-keyed)
    live           lines over TCP from four senders to a source log: rows a second that were answered `ok`

Figures are ratios of speed, now by then, in the same turn. The side that is started second is slower by some per cent
even where both are the same tree (memory of the first is laid out better), so everything is measured twice, with each
side started first once; the geometric mean of the two medians and its 95 % interval count. `--twins` puts this tree on
both sides: what is left beside 1.0 is the error of the study.
Bars: none below 0.97, live 0.8. Where the interval reaches further than 3 % below a bar, the run does not hold.

    make bench-before                    python -m bench.before --commit HEAD~1 --turns 9 --kinds live,keyed
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The last commit before every byte, sync and token was checked.
COMMIT = "bb03f1c"
BARS = {"large": 0.97, "small": 0.97, "stream": 0.97, "keyed": 0.97, "live": 0.8}
LIVE_ROWS, LIVE_SENDERS = 40_000, 4
SIZES = {"large": (1_000_000, 24), "small": (1_000, 80)}  # rows a frame, frames of a turn


# ---- one side: imports the holdfast of the folder it was started in ----


def live(work: Path) -> float:
    """Rows a second from the first byte sent to the last answer."""
    from holdfast.graph.schemas import Schema
    from holdfast.sources import read
    from holdfast.sources.reader import SourceContext

    work.mkdir(parents=True)
    schema = Schema.of("ts timestamp, zone int, celsius double, name string")
    context = SourceContext(
        "rows", schema, "ts", 0, "admit", work / "state", work, 1_000_000, 1, None, 1, time.monotonic, bad="quarantine"
    )
    source = read.lines("tcp://127.0.0.1:0").open(context)
    source._ingest(0)
    stop = threading.Event()

    def log() -> None:
        while not stop.is_set():
            source._ingest(0.02)

    def send(number: int) -> None:
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        lines = [
            json.dumps({"ts": moment, "zone": row % 50, "celsius": row / 8, "name": f"sender {number}"}) + "\n"
            for row in range(LIVE_ROWS // LIVE_SENDERS)
        ]
        with socket.create_connection(("127.0.0.1", source._feed.port), 60) as sender:
            threading.Thread(target=sender.sendall, args=("".join(lines).encode(),), daemon=True).start()
            answers, last = b"", b"ok %d\n" % len(lines)  # counts all lines of the connection so far
            while not answers.endswith(last):
                if not (more := sender.recv(1 << 16)):
                    raise RuntimeError(f"closed before {last!r}: {answers[-200:]!r}")
                answers = (answers + more)[-200:]

    logging = threading.Thread(target=log)
    logging.start()
    began = time.monotonic()
    senders = [threading.Thread(target=send, args=(number,)) for number in range(LIVE_SENDERS)]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    seconds = time.monotonic() - began
    stop.set()
    logging.join()
    if source.logged != LIVE_ROWS:
        raise RuntimeError(f"{source.logged} of {LIVE_ROWS} rows are logged")
    source.close()
    return LIVE_ROWS / seconds


def side() -> None:
    from bench import keyed, overhead
    from holdfast.engine.session.session import open_session

    scratch = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    spark = None
    print("ready", flush=True)
    for number, text in enumerate(sys.stdin):
        order = json.loads(text)
        kind, work = order["kind"], scratch / f"turn-{number}"
        if kind != "live" and spark is None:
            spark = open_session(scratch / "session")
        if kind == "live":
            speed = live(work)
        elif kind == "keyed":
            speed = keyed.rate(keyed.ours(spark, Path(order["data"]), work)[0], keyed.ROWS)
        else:
            rows, frames = order["rows"], order["frames"]
            seen = overhead.ours(spark, Path(order["data"]), work, frames, stream=kind == "stream")
            speed = rows * (len(seen) - 1) / (seen[-1] - seen[0])
        print(json.dumps({"speed": speed}), flush=True)


# ---- the parent ----


class Side:
    def __init__(self, tree: Path) -> None:
        # Its own holdfast and studies first, whatever is installed.
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"import runpy; runpy.run_path({str(Path(__file__).resolve())!r})['side']()"],
            cwd=tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if self._process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the side of {tree.name} did not start")

    def turn(self, order: dict) -> float:
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("a side died")
        return json.loads(answer)["speed"]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=120)


def middle(halves: list[list[float]]) -> float:
    """Of the turns with either side started first, in equal parts."""
    return statistics.geometric_mean([statistics.median(ratios) for ratios in halves])


def interval(halves: list[list[float]]) -> tuple[float, float]:
    """95 % of the middles of samples drawn from these turns (percentile bootstrap, seeded)."""
    draw = random.Random(1)
    found = sorted(middle([draw.choices(ratios, k=len(ratios)) for ratios in halves]) for _ in range(2000))
    return found[50], found[1949]


def half(trees: dict[str, Path], orders: dict[str, dict], turns: int) -> dict[str, list[float]]:
    """Ratios by kind; the sides are started in the order of `trees`."""
    from bench.report import say

    sides = {name: Side(tree) for name, tree in trees.items()}
    ratios: dict[str, list[float]] = {kind: [] for kind in orders}
    for turn in range(-1, turns):  # the first one warms up
        for kind, order in orders.items():
            speeds = {name: sides[name].turn(order) for name in sorted(sides, reverse=turn % 2 == 1)}
            ratio = speeds["now"] / speeds["then"]
            if turn >= 0:
                ratios[kind].append(ratio)
            say(f"  turn {turn + 1} of {turns}  {kind:<7} then {speeds['then']:12,.0f} rows/s  now by then {ratio:.3f}")
    for side in sides.values():
        side.close()
    return ratios


def main() -> None:
    from bench import keyed, overhead
    from bench.report import finish, say

    parser = argparse.ArgumentParser()
    parser.add_argument("--commit", default=COMMIT)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--kinds", default=",".join(BARS))
    parser.add_argument("--twins", action="store_true")
    given = parser.parse_args()
    kinds = given.kinds.split(",")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        before = Path(folder) / "before"
        subprocess.run(
            ["git", "worktree", "add", "--quiet", "--detach", str(before), given.commit], cwd=ROOT, check=True
        )
        try:
            orders: dict[str, dict] = {kind: {"kind": kind} for kind in kinds}
            for kind, size in (("large", "large"), ("small", "small"), ("stream", "small")):
                if kind in orders:
                    rows, frames = SIZES[size]
                    data = Path(folder) / size
                    if not data.exists():
                        overhead.make_files(data, rows, frames)
                    orders[kind] |= {"data": str(data), "rows": rows, "frames": frames}
            if "keyed" in orders:
                keyed.make_files(Path(folder) / "keyed", keyed.ROWS, keyed.KEYS, keyed.FRAMES)
                orders["keyed"] |= {"data": str(Path(folder) / "keyed")}
            trees = {"then": ROOT if given.twins else before, "now": ROOT}
            halves = []
            for first in trees:
                say(f"{first} is started first")
                halves.append(half(dict(sorted(trees.items(), key=lambda each: each[0] != first)), orders, given.turns))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(before)], cwd=ROOT, check=False)
    figures: dict[str, dict] = {}
    for kind in kinds:
        found = [each[kind] for each in halves]
        low, high = interval(found)
        figures[kind] = {
            "ratio": round(middle(found), 3),
            "low": round(low, 3),
            "high": round(high, 3),
            "bar": BARS[kind],
        }
        figures[kind]["holds"] = middle(found) >= BARS[kind] and low >= BARS[kind] - 0.03
    holds = all(each["holds"] for each in figures.values())
    finish(
        "before",
        {
            "commit": given.commit,
            "turns": 2 * given.turns,
            "twins": given.twins,
            "holds": holds,
            "speed_now_by_then": figures,
        },
    )
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
