"""Thirty random fault plans over processes that live on logical hosts: lossless outputs equal the ideal run, row by row.

SP1 to SP4 (`bench.processes`) and the ward, each under its protections in turn. Every
plan is drawn by the seed: a third strikes at once at a commit point, a third into a
recovery, the rest apart. Every second one loses a host, the others that or the state of a
unit; beside that copies are damaged, stores slow or away, queries and workers killed. What the sinks got is compared with an undisturbed run as
`holdfast verify` does it. Four more plans lose the host of a unit with `none` or
`checkpoint`: what is lost there is within what its sink declares.

All runs share one Spark session. A plan that differs prints the line that repeats it. With
--work DIR every plan's result is kept there, and a soak that was cut off goes on with the
plans that are left (--seconds: begin none after so long).

    make soak-hosts           python -m bench.soak_hosts --plans 6 --seed 3 for a short one, --only K for one
"""

from __future__ import annotations

import argparse
import collections
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import holdfast as hf
from bench import processes
from bench.report import finish, say
from holdfast import failpoints as points
from holdfast.declare.loading import load
from holdfast.faults.keeping import output_of
from holdfast.faults.plans import INSIDE, Fault, Victims, drawn_plan, environment, homes_of
from holdfast.faults.trial import redirected, sink_folder
from holdfast.graph.hosting import Host
from holdfast.levels.judging import judge
from holdfast.levels.measuring import Measured, measure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.graph.model import Graph

ROOT = Path(__file__).resolve().parents[1]
HOSTS = ("h1", "h2", "h3")
LOSSY_PLANS = 4
# A run takes half a minute, two under load. One that takes this long hangs.
HANGS_S = 300
FRAMES = 24
WARD_FRAMES = 16
EVERY = hf.frames(4)
SHAPES = ("at once", "during a recovery", "apart")
TAKES = ("lose host", "damage state", "delete state")
LOSSLESS = {
    "uncoordinated": hf.uncoordinated(EVERY),
    "ecoc": hf.ecoc(EVERY),
    "extended": hf.ecoc(EVERY, extended=True),
}
LOSSY = {"none": hf.none, "checkpoint": hf.checkpoint(EVERY)}
# Half of the elements is more than what lies between two checkpoints, and in a queue; the window is
# four elements of each of four keys, of twelve elements a second.
DECLARED = hf.loses(at_most=0.5, wrong_at_most=0.1)
# Plain ecoc is refused on a cycle.
ON = {name: tuple(LOSSLESS) for name in ("sp1", "sp2", "ward")}
ON |= {"sp3": ("uncoordinated", "extended"), "sp4": ("extended", "uncoordinated")}


def graph_of(name: str, protection: hf.Protection, data: Path) -> Graph:
    """Three hosts, two copies: two of the three may be broken at any one time."""
    backup = hf.backup(copies=2)
    if name != "ward":
        made = processes.process(name, data, protection, sink=hf.write.console(), hosts=HOSTS, backup=backup)
        return made.graph()
    ward = load(str(ROOT / "examples" / "ward.py")).graph()
    operators = tuple(replace(operator, protect=None) for operator in ward.operators)
    return replace(ward, operators=operators, protect=protection, hosts=tuple(map(Host, HOSTS)), backup=backup)


def lossy_of(kind: str, data: Path) -> Graph:
    """smooth may lose, what is above it may not."""
    made = processes.process(
        "window", data, hf.uncoordinated(EVERY), sink=hf.write.console(), promise=(DECLARED, hf.in_order), hosts=HOSTS
    )
    made.protect(LOSSY[kind], "smooth")
    return made.graph()


class Runs:
    """Runs of processes in one session; the undisturbed ones are made once."""

    def __init__(self, work: Path, spark: SparkSession) -> None:
        self._work, self._spark = work, spark
        self._ideals: dict[str, list] = {}

    def ideal(self, name: str, graph: Graph) -> list:
        if name not in self._ideals:
            calm = replace(
                graph, hosts=(), backup=None, protect=hf.none,
                operators=tuple(replace(operator, protect=None) for operator in graph.operators),
            )  # fmt: skip
            folder = self._work / f"ideal-{name}"
            if not (folder / "whole").exists():  # a soak that was cut off may have left half of it
                shutil.rmtree(folder, ignore_errors=True)
                self.outputs(calm, folder, ())
                (folder / "whole").touch()
            self._ideals[name] = outputs_in(folder, calm)
        return self._ideals[name]

    def outputs(self, graph: Graph, folder: Path, plan: tuple[Fault, ...]) -> tuple[list, list[bool]]:
        from holdfast.engine.run.run import start_graph

        graph = redirected(graph, folder)
        marks = [folder / f"hit-{at}" for at in range(len(plan))]
        folder.mkdir(parents=True)
        until = WARD_FRAMES if graph.name.startswith("ward") else None
        with points.arming(environment(plan, marks, homes_of(graph, folder / "state"))):
            with start_graph(graph, state=folder / "state", spark=self._spark, rate="fast", until_frame=until) as run:
                hangs = threading.Timer(
                    HANGS_S, lambda: run.parts.board.fail(TimeoutError(f"the run hangs: {run.status()}"))
                )
                hangs.start()
                try:
                    run.wait()
                finally:
                    hangs.cancel()
        return outputs_in(folder, graph), [mark.exists() for mark in marks]


def outputs_in(folder: Path, graph: Graph) -> list:
    return [output_of(sink.name, sink_folder(folder, sink.name)) for sink in graph.sinks]


def plan_of(seed: int, number: int, victims: Victims, frames: int) -> list[Fault]:
    """One that takes something away: stores that are slow, and copies nobody needs, prove little."""
    shape, chance = SHAPES[number % len(SHAPES)], Random(f"{seed}/{number}")
    while True:
        # The first frames have no checkpoint behind them, the last ones none after them: both are wanted now and then.
        plan = drawn_plan(victims, 1, frames, chance, kinds=INSIDE, shape=shape)
        if any(fault.do in (TAKES if number % 2 else TAKES[:1]) for fault in plan):
            return plan


def broken(graph: Graph, kind: str, measured: Sequence[Measured]) -> list[str]:
    """What differs from the undisturbed run; where a unit may lose, only what is beyond what the sink declares."""
    promises = {sink.name: sink.promises if kind in LOSSY else (hf.lossless, hf.in_order) for sink in graph.sinks}
    verdicts = [verdict for each in measured for verdict in judge(promises[each.output], each)]
    return [f"{each.output}: {each.what} {each.measured}, {each.words}" for each in verdicts if each.state == "BROKEN"]


def drawn(seed: int, number: int, plans: int, data: Path) -> tuple[str, str, Graph, list[Fault]]:
    """Which process, under which protection, through which faults."""
    if number > plans:
        kind = tuple(LOSSY)[number % len(LOSSY)]
        graph, chance = lossy_of(kind, data), Random(f"{seed}/{number}")
        host = Victims.of(graph).host_of["smooth"]
        frame, point = chance.randint(6, FRAMES - 4), chance.choice(points.POINTS)
        return "window", kind, graph, [Fault("lose host", "smooth", frame, point, at=host)]
    name = (*processes.PROCESSES, "ward")[number % 5]
    kind = ON[name][number // 5 % len(ON[name])]
    graph = graph_of(name, LOSSLESS[kind], data)
    return name, kind, graph, plan_of(seed, number, Victims.of(graph), WARD_FRAMES if name == "ward" else FRAMES)


@dataclass(frozen=True)
class Result:
    """What became of one plan."""

    number: int
    process: str
    protection: str
    faults: int
    hit: int
    at_commit_points: bool
    during_recovery: bool  # a fault struck while another was being recovered from
    lost: int  # elements, where they may be
    wrong: list[str]
    seconds: float


def carried_out(
    runs: Runs, work: Path, number: int, name: str, kind: str, graph: Graph, plan: Sequence[Fault]
) -> Result:
    folder, started, lost = work / f"plan-{number}", time.monotonic(), 0
    shutil.rmtree(folder, ignore_errors=True)
    try:
        ideal = runs.ideal(name, graph)
        started = time.monotonic()
        faulty, hit = runs.outputs(graph, folder, tuple(plan))
        measured = measure(ideal, faulty)
        wrong = broken(graph, kind, measured)
        if kind in LOSSY:
            lost = sum(sum(each.lost.values()) for each in measured)
    except Exception as error:
        wrong, hit = [f"{type(error).__name__}: {error}"], [False] * len(plan)
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    struck = [fault.point for fault, is_hit in zip(plan, hit, strict=True) if is_hit]
    return Result(
        number, name, kind, len(plan), len(struck), all(point in points.POINTS for point in struck),
        any(point in points.RECOVERING for point in struck), lost, wrong, round(time.monotonic() - started, 1),
    )  # fmt: skip


def summary(results: Sequence[Result]) -> dict[str, object]:
    return {
        "plans": len(results),
        "by protection": dict(sorted(collections.Counter(each.protection for each in results).items())),
        "by process": dict(sorted(collections.Counter(each.process for each in results).items())),
        "faults": sum(each.faults for each in results),
        "faults hit": sum(each.hit for each in results),
        "plans at commit points": sum(each.at_commit_points for each in results),
        "plans that struck into a recovery": sum(each.during_recovery for each in results),
        "elements lost that may be": sum(each.lost for each in results),
        "differ": [each.number for each in results if each.wrong],
        "seconds": round(sum(each.seconds for each in results)),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plans", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this plan")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no plan after so long")
    parser.add_argument("--work", type=Path, help="keep results and what differs here, and go on from there")
    given = parser.parse_args()
    from holdfast.engine.session.session import close_session, open_session

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-soak-", ignore_cleanup_errors=True) as temporary:
        work = given.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        kept = work / f"results-{given.seed}-{given.plans}.jsonl"
        results = [Result(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
        left = [given.only] if given.only is not None else range(1, given.plans + 1 + LOSSY_PLANS)
        left = [number for number in left if number not in {each.number for each in results}]
        processes.make_data(work / "data", FRAMES)
        spark = open_session(
            Path(temporary) / "session", conf={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
        )
        runs = Runs(work, spark)
        for number in left:
            if time.monotonic() - began > given.seconds:
                break
            name, kind, graph, plan = drawn(given.seed, number, given.plans, work / "data")
            result = carried_out(runs, work, number, name, kind, graph, plan)
            results.append(result)
            with open(kept, "a") as file:
                print(json.dumps(asdict(result)), file=file)
            said = "; ".join(map(str, plan))
            say(f"plan {number:>2} {name:<6} {kind:<13} {result.seconds:5.0f} s  {result.hit}/{len(plan)} hit  {said}")
            for line in result.wrong:
                say(f"  DIFFERS {line}")
            if result.wrong:
                say(f"  again   python -m bench.soak_hosts --seed {given.seed} --plans {given.plans} --only {number}")
        close_session(spark)
    finish("soak-hosts", {"seed": given.seed, **summary(results)})
    if any(each.wrong for each in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
