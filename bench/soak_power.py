"""The power goes: a real run is recorded, cut at seeded moments, and goes on from what a disk may have kept.

One run per case is recorded, with all that its driver, JVM and Python workers write below the state folder,
the hosts and the sinks' files (`power/recorder.c`, preloaded; built here with cc). From the log a model of a
disk as POSIX promises it (`power/disk.py`) makes the folders as they may be found after a loss of power at any moment:
what was synced is there, of the rest a seeded part. From each such image the process is started again and run to
its end; then the tables have to be those of the undisturbed run, or, of a live source, hold every row whose
sender had its answer before the cut, and none twice. A function that is a sink may be told a frame again, and then the same.

    make soak-power         python -m bench.soak_power --points 30 --cases live

That the log is whole is checked: played to its end it must give the folders byte for byte.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from bench.power.disk import Disk, records, told, whole
from bench.report import finish, say
from holdfast.atomic import sync_folder

ROOT = Path(__file__).resolve().parents[1]
RECORDER = Path(__file__).with_name("power") / "recorder.c"
POINTS = 1000
# Threads and callbacks that PySpark never gives back: a new process after so many runs.
PER_PROCESS = 50
FRAMES, PER_FRAME, KEYS = 8, 6, 3
LIVE_ROWS, APART_S = 60, 0.02
CASES = ("sqlite", "duckdb", "parquet", "callback", "spark", "ecoc", "live")


# ---- the processes ----


def process(case: str, work: Path, port: int) -> Any:
    import holdfast as hf

    p = hf.StreamProcess(
        "power", frame="200 ms" if case == "live" else "1 second", time="ts", state=work / "state",
        hosts={name: work / "hosts" / name for name in "ab"} if case == "ecoc" else None,
    )  # fmt: skip
    schema = "ts timestamp, id bigint, k bigint, v bigint"
    if case == "live":
        p.source("rows", hf.read.lines(f"tcp://127.0.0.1:{port}"), schema=schema)
    else:
        p.source("rows", hf.read.files(work.parent / "input.csv"), schema=schema)

    @p.operator(apart=True)
    def cleaned(rows):
        return rows.where("v >= 0")

    if case == "spark":

        @p.operator(over="stream", mode="update")
        def summed(cleaned):
            from pyspark.sql import functions as F

            return cleaned.groupBy("k").agg(
                F.max("ts").alias("ts"), F.max("id").alias("id"), F.count("*").alias("n"), F.sum("v").alias("sum")
            )
    else:

        @p.keyed("k", state="n bigint, sum bigint", emits="ts timestamp, k bigint, id bigint, n bigint, sum bigint")
        def summed(state: pd.DataFrame, cleaned: pd.DataFrame):
            before = cleaned[["k"]].merge(state, on="k", how="left").fillna(0)
            out = cleaned.assign(
                n=cleaned.groupby("k").cumcount() + 1 + before.n.to_numpy(),
                sum=cleaned.groupby("k").v.cumsum() + before["sum"].to_numpy(),
            ).astype({"n": "int64", "sum": "int64"})
            return out.groupby("k", as_index=False)[["n", "sum"]].last(), out[["ts", "k", "id", "n", "sum"]]

    out = work / "out"
    if case == "duckdb":
        p.sink("summed", hf.write.duckdb(out / "summed.duckdb", "summed"))
    elif case in ("parquet", "spark"):
        p.sink("summed", hf.write.parquet(out / "summed"))
    elif case == "callback":

        def tell(rows, frame):
            """Whole and synced, line by line, as an outside world would have it."""
            with open(out / "told.jsonl", "ab") as file:
                told_now = [[r["k"], r["id"], r["n"], r["sum"]] for r in rows.to_pylist()]
                file.write(b"\n" + json.dumps([frame, told_now]).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            sync_folder(out)

        p.sink("summed", hf.write.callback(tell))
    else:
        p.sink("summed", hf.write.sqlite(out / "summed.db", "summed"))
    if case == "ecoc":
        p.protect(hf.ecoc(every=hf.frames(2)))
    return p


def table(case: str, work: Path) -> list[tuple]:
    """What the sink has, in an order of its own."""
    out = work / "out"
    if case == "duckdb":
        import duckdb

        with duckdb.connect(out / "summed.duckdb", read_only=True) as opened:
            return sorted(opened.execute("select k, id, n, sum, _frame from summed").fetchall())
    if case in ("parquet", "spark"):
        import pyarrow.parquet as pq

        found = []
        for path in sorted((out / "summed").glob("frame-*.parquet")):
            rows = pq.read_table(path, columns=["k", "id", "n", "sum"]).to_pylist()
            found += [(row["k"], row["id"], row["n"], row["sum"], int(path.stem[6:])) for row in rows]
        return sorted(found)
    if case == "callback":
        frames: dict[int, list] = {}
        for line in (out / "told.jsonl").read_bytes().split(b"\n"):
            with contextlib.suppress(ValueError):  # torn: the call never returned
                frame, rows = json.loads(line)
                if frames.setdefault(frame, rows) != rows:
                    raise AssertionError(f"frame {frame} was told as {frames[frame]} and as {rows}")
        return sorted((*row, frame) for frame, rows in frames.items() for row in rows)
    import sqlite3

    with contextlib.closing(sqlite3.connect(out / "summed.db")) as opened:
        return sorted(opened.execute("select k, id, n, sum, _frame from summed"))


# ---- recording ----


def record(case: str, work: Path, log: Path, port: int) -> None:
    """In a process of its own, with the recorder preloaded: one undisturbed run."""
    from holdfast.engine.run.run import start_graph
    from holdfast.engine.session.session import close_session, open_session

    spark = open_session(work.parent / "session")
    handle = os.open(log, os.O_WRONLY | os.O_APPEND)
    _since(work).write_text(pd.Timestamp.now("UTC").isoformat())
    sender = Sender(port, range(LIVE_ROWS), _since(work), lambda row: told(handle, str(row).encode()))
    if case == "live":
        sender.start()
    run = start_graph(process(case, work, port).graph(), spark=spark, frames_at_once=1)
    if case == "live":
        sender.join()
        if sender.failed:
            raise SystemExit(f"a row was refused: {sender.failed}")
        until(lambda: len(table(case, work)) >= LIVE_ROWS, run)
        run.stop()
    run.wait()
    close_session(spark)


class Sender(threading.Thread):
    """One row after the other, from when the source listens; a live process starts with its first row.

    Times are those of the recorded run, also hours later: the time between is not what is tried.
    """

    def __init__(self, port: int, rows: range, since: Path, tell: Any = lambda row: None) -> None:
        super().__init__(daemon=True)
        self._port, self._rows, self._tell = port, rows, tell
        self._since = pd.Timestamp(since.read_text())
        self.answered: list[int] = []
        self.failed = ""
        self.over = threading.Event()

    def run(self) -> None:
        line = None
        while line is None:
            with contextlib.suppress(OSError):
                line = socket.create_connection(("127.0.0.1", self._port))
            if line is None and self.over.wait(0.05):
                return
        with line, line.makefile("rwb") as file:
            for row in self._rows:
                at = (self._since + pd.Timedelta(seconds=row * APART_S)).isoformat()
                file.write(json.dumps({"ts": at, "id": row, "k": row % KEYS, "v": row}).encode() + b"\n")
                file.flush()
                answer = file.readline()
                if not answer.startswith(b"ok"):
                    self.failed = f"row {row} was answered {answer!r}"
                    return
                self._tell(row)
                self.answered.append(row)
                self.over.wait(APART_S)


def _since(work: Path) -> Path:
    return work.parent / "since"


def until(reached: Any, run: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not run.finished:
        with contextlib.suppress(Exception):  # the table is not there yet, or being written
            if reached():
                return
        time.sleep(0.05)


# ---- going on ----


def go_on(case: str, work: Path, log: Path, port: int, seed: int, points: list[int], ideal: list[tuple]) -> None:
    """In a process of its own: an image for each cut, and a run from it. A JSON line each."""
    from holdfast.engine import reboot
    from holdfast.engine.session.session import close_session, open_session

    disk = _fresh_disk(work)
    spark = open_session(work.parent / "session")
    played, log_records = 0, list(records(log))
    for cut in points:
        for each in log_records[played:cut]:
            disk.play(each)
        played = cut
        disk.image(random.Random(f"{seed}-{case}-{cut}"))
        reboot.boot_id = lambda cut=cut: f"boot after cut {cut}"
        began = time.monotonic()
        verdict = _one(case, work, port, spark, ideal, [int(each) for each in disk.told])
        print(json.dumps({"case": case, "cut": cut, "s": round(time.monotonic() - began, 2), **verdict}), flush=True)
    close_session(spark)


def _one(case: str, work: Path, port: int, spark: Any, ideal: list[tuple], answered: list[int]) -> dict[str, Any]:
    from holdfast.engine.run.run import start_graph
    from holdfast.errors import HoldfastError

    sender = Sender(port, range(LIVE_ROWS, LIVE_ROWS + 2), _since(work))  # new rows come, whatever was lost
    try:
        if case == "live":
            sender.start()
        run = start_graph(process(case, work, port).graph(), spark=spark, frames_at_once=1)
        notes = [note for note in run.notes if "went down" in note or "put back" in note]
        if case == "live":
            sender.join(60.0)
            answered = answered + sender.answered
            until(lambda: {*answered} <= {row[1] for row in table(case, work)}, run, 20.0)
            run.stop()
        run.wait()
    except HoldfastError as error:
        return {"is": "refused", "code": error.code, "what": str(error)}
    except Exception as error:
        return {"is": "broken", "what": f"{type(error).__name__}: {error}"}
    finally:
        sender.over.set()
    if case == "live" and len(sender.answered) < 2:
        return {"is": "WRONG", "what": f"new rows were not taken: {sender.failed or 'no answer'}"}
    try:
        rows = table(case, work)
    except AssertionError as error:
        return {"is": "WRONG", "what": str(error)}
    if case == "live":
        ids = [row[1] for row in rows]
        lost, doubled = {*answered} - {*ids}, [i for i, count in Counter(ids).items() if count > 1]
        sums = Counter()
        wrong = []
        for k, i, _, total, _ in sorted(rows, key=lambda row: (row[0], row[2])):
            sums[k] += i
            if i % KEYS != k or total != sums[k]:
                wrong.append(i)
        bad = {"lost": sorted(lost), "doubled": doubled, "wrong": wrong}
        return {
            "is": "right" if not any(bad.values()) else "WRONG",
            "notes": notes,
            **({} if not any(bad.values()) else bad),
        }
    if rows != ideal:
        return {
            "is": "WRONG",
            "missing": [r for r in ideal if r not in rows][:5],
            "extra": [r for r in rows if r not in ideal][:5],
        }
    return {"is": "right", "notes": notes}


def _fresh_disk(work: Path) -> Disk:
    shutil.rmtree(work, ignore_errors=True)
    for name in ("state", "out", "hosts"):
        (work / name).mkdir(parents=True)
    return Disk([work / "state", work / "out", work / "hosts"])


# ---- all of it ----


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=POINTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "power")
    parser.add_argument("--record", default="")
    parser.add_argument("--go-on", default="")
    parser.add_argument("--cuts", type=Path)
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    case = asked.record or asked.go_on
    work, log = asked.folder / case / "work", asked.folder / case / "log"
    if asked.record:
        record(case, work, log, asked.port)
        return
    if asked.go_on:
        told_apart = json.loads(asked.cuts.read_text())
        ideal = [tuple(row) for row in told_apart["ideal"]]
        go_on(case, work, log, asked.port, asked.seed, told_apart["cuts"], ideal)
        return
    began = time.monotonic()
    asked.folder.mkdir(parents=True, exist_ok=True)
    recorder = asked.folder / "recorder.so"
    subprocess.run(
        [
            "cc",
            "-O2",
            "-shared",
            "-fPIC",
            "-D_LARGEFILE64_SOURCE",
            "-U_FORTIFY_SOURCE",
            "-o",
            recorder,
            RECORDER,
            "-ldl",
        ],
        check=True,
    )
    found: list[dict[str, Any]] = []
    syncs: dict[str, float] = {}
    for place, case in enumerate(asked.cases):
        share = asked.points // len(asked.cases) + (place < asked.points % len(asked.cases))
        found += _case(case, asked, recorder, share, syncs)
    counts = Counter(f"{each['case']} {each['is']}" for each in found)
    bad = [each for each in found if each["is"] != "right"]
    for each in bad[:20]:
        say(json.dumps(each))
    finish(
        "soak_power",
        {"points": len(found), "seed": asked.seed, "verdicts": dict(sorted(counts.items())), "syncs": syncs,
         "made_again": sum(bool(each.get("notes")) for each in found), "seconds": round(time.monotonic() - began)},
    )  # fmt: skip
    if bad or len(found) != asked.points:
        raise SystemExit(1)


def _case(
    case: str, asked: argparse.Namespace, recorder: Path, points: int, syncs: dict[str, float]
) -> list[dict[str, Any]]:
    folder = asked.folder / case
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    work, log = folder / "work", folder / "log"
    _write_input(folder / "input.csv")
    disk = _fresh_disk(work)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    roots = ":".join(disk.roots)
    env = {**os.environ, "LD_PRELOAD": str(recorder), "HOLDFAST_RECORD_LOG": str(log), "HOLDFAST_RECORD_ROOTS": roots}
    log.touch()
    base = [
        sys.executable,
        "-m",
        "bench.soak_power",
        "--folder",
        str(asked.folder),
        "--port",
        str(port),
        "--seed",
        str(asked.seed),
    ]
    with open(folder / "recording.txt", "wb") as said:
        if subprocess.run([*base, "--record", case], env=env, stdout=said, stderr=said).returncode:
            raise SystemExit(f"{case}: the recorded run failed, see {folder / 'recording.txt'}")
    all_records = list(records(log))
    for each in all_records:
        disk.play(each)
    if wrong := whole(disk):
        raise SystemExit(f"{case}: the log is not the run: {wrong[:5]}")
    if disk.mapped:
        raise SystemExit(f"{case}: written through a mapping, which nobody can see: {sorted(disk.mapped)[:5]}")
    ideal = table(case, work)
    syncs[case] = disk.syncs
    say(f"{case}: {len(all_records)} changes, {disk.syncs} syncs, {len(ideal)} rows in the table; {points} cuts")
    chance = random.Random(f"{asked.seed}-{case}")
    cuts = sorted(chance.sample(range(len(all_records)), min(points, len(all_records))))
    found: list[dict[str, Any]] = []
    for first in range(0, len(cuts), PER_PROCESS):
        part = folder / "cuts.json"
        part.write_text(json.dumps({"cuts": cuts[first : first + PER_PROCESS], "ideal": ideal}))
        with open(folder / "going-on.txt", "ab") as said:
            answer = subprocess.run(
                [*base, "--go-on", case, "--cuts", str(part)], stdout=subprocess.PIPE, stderr=said, text=True
            )
        done = [json.loads(line) for line in answer.stdout.splitlines() if line.startswith('{"case"')]
        for each in done:
            if each["is"] != "right":
                say(json.dumps(each))
        found += done
        kinds = Counter(each["is"] for each in found)
        say(f"{case}: {len(found)} of {len(cuts)}: {dict(kinds)}")
    return found


def _write_input(path: Path) -> None:
    rows = ["ts,id,k,v"]
    for i in range(FRAMES * PER_FRAME):
        at = pd.Timestamp("2026-01-01", tz="UTC") + pd.Timedelta(seconds=i / PER_FRAME)
        rows.append(f"{at.isoformat()},{i},{i % KEYS},{i}")
    path.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
