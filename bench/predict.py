"""How fast and how near predictions are: table 5.4 and figures 5.12 to 5.14 beside the thesis', and the planner's time.

    python -m bench.predict [--replications N] [--out build/predict]

Two hours of bargain discovery, a thousand replications, by the fluid model (the thesis' tool followed every tuple);
20 units of 24 options each through the planner. Writes pictures and a table, and one line of figures. Processor seconds
are of this process alone: a busy machine does not change them, so they are what the lines are judged by.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from bench.report import finish, say
from holdfast.models.fluid import Drops, simulate_drops
from holdfast.models.planning import Choices, cheapest
from holdfast.models.stream import Fault, Operator, Output, Port, Protect, State, StreamModel
from holdfast.models.thesis import (
    TABLE_5_4,
    TABLE_5_4_RATE,
    TABLE_5_4_SECONDS,
    bargain,
    configuration_1,
    configuration_2,
    corrupted_by_hand,
    fully_replicated,
    one_crash,
)
from holdfast.models.waiting import simulate_waits

RATES = (250.0, 350.0, 450.0, 550.0)
MTTFS_MIN = (30, 50, 70, 90)
HOURS_2 = 7200.0
CONFIGURATIONS = {"checkpoints": configuration_1, "groups": configuration_2}
# What the text of the thesis says of figure 5.13; its pictures have no numbers that could be read.
GAIN_AT_MOST, TAINTED_RATIO = 0.009, 0.5


def table_5_4() -> list[dict[str, float | str]]:
    rows = []
    for name, (available, tainted) in TABLE_5_4.items():
        model = configuration_1(bargain(TABLE_5_4_RATE, repair_s=16.0))
        found = simulate_drops(
            model, until_s=TABLE_5_4_SECONDS, replications=1, rng=np.random.default_rng(0), schedule=one_crash(name)
        )
        ours = float(found.available[0]), float(found.tainted[0, 0])
        rows.append(
            {"operator": name, "thesis": available, "ours": ours[0], "thesis_tainted": tainted, "ours_tainted": ours[1]}
        )
    return rows


def crashing(configuration, rate: float, mttf_s: float, repair_s: float, replications: int) -> Drops:
    model = configuration(bargain(rate, mttf_s=mttf_s, repair_s=repair_s))
    return simulate_drops(model, until_s=HOURS_2, replications=replications, rng=np.random.default_rng(512))


def timed(configuration, minutes: int) -> tuple[Drops, float]:
    began = time.process_time()
    found = crashing(configuration, 450.0, 60.0 * minutes, 3.5, 1000)
    return found, time.process_time() - began


def ward() -> StreamModel:
    """A process of Holdfast's: frames wait, a host is lost twice a day."""
    kept = Protect("checkpoint", 5.0)
    names = ("clean", "beats", "rates", "alarms")
    operators = [Operator("ecg", rate=1000.0)]
    for i, name in enumerate(names):
        state = State(60_000.0 / 10**i) if name in ("beats", "rates") else None
        port = Port((operators[-1].name,), 0.1 if name == "beats" else 1.0, state=state)
        operators.append(Operator(name, (port,), frame_cost_s=0.1, host=f"host{1 + i % 2}", protect=kept))
    faults = (Fault("crash", 1800.0, 3.0, names), Fault("host", 43_200.0, 8.0, ("host1", "host2")))
    return StreamModel("ward", tuple(operators), (Output("alarms", 5.0),), faults, (), "waits", 1.0)


def planner_seconds(units: int = 20, options: int = 24) -> float:
    """The slowest of five instances of the size that is asked for."""
    slowest = 0.0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        cost = tuple(np.sort(rng.random(options)) * rng.uniform(0.5, 2.0) for _ in range(units))
        harm = tuple(
            tuple(rng.random(options) * np.linspace(1.0, 0.1, options) for _ in range(units)) for _ in range(3)
        )
        choices = Choices(cost, harm, tuple(float(rng.uniform(0.2, 0.6)) * units * 0.5 for _ in range(3)))
        began = time.process_time()
        cheapest(choices)
        slowest = max(slowest, time.process_time() - began)
    return slowest


def draw_figures(out: Path, replications: int) -> dict[str, list[float]]:
    """Figures 5.12 to 5.14; where the text gives a bound, it is drawn as a line."""
    figure = Figure(figsize=(15, 8), layout="constrained")
    top, below = figure.subplots(2, 3)
    for repair_s, style in ((3.5, "-"), (15.0, "--")):
        for name, configuration in CONFIGURATIONS.items():
            found = [crashing(configuration, rate, 5400.0, repair_s, replications) for rate in RATES]
            label, bars = f"{name}, repair {repair_s:g} s", [each.availability().half_width for each in found]
            top[0].errorbar(
                RATES, [each.availability().mean for each in found], bars, linestyle=style, marker="o", label=label
            )
            top[1].errorbar(
                RATES,
                [each.tainted_at().mean for each in found],
                [each.tainted_at().half_width for each in found],
                linestyle=style,
                marker="o",
                label=label,
            )
            top[2].plot(
                RATES, [100 * each.tainted_share().mean for each in found], linestyle=style, marker="o", label=label
            )
    over = {
        name: [crashing(each, 450.0, 60.0 * mttf, 3.5, replications) for mttf in MTTFS_MIN]
        for name, each in CONFIGURATIONS.items()
    }
    for name, found in over.items():
        below[0].errorbar(
            MTTFS_MIN,
            [each.availability().mean for each in found],
            [each.availability().half_width for each in found],
            marker="o",
            label=name,
        )
        below[0].plot(
            MTTFS_MIN,
            [each.up.mean() for each in found],
            linestyle=":",
            marker=".",
            label=f"{name}, without propagation",
        )
    pairs = list(zip(over["checkpoints"], over["groups"], strict=True))
    gain = [two.availability().mean - one.availability().mean for one, two in pairs]
    ratio = [two.tainted_at().mean / one.tainted_at().mean for one, two in pairs]
    below[1].plot(MTTFS_MIN, [100 * each for each in gain], marker="o", label="gain of groups, points")
    below[1].axhline(100 * GAIN_AT_MOST, linestyle=":", label="thesis: at most 0.9")
    below[1].plot(MTTFS_MIN, ratio, marker="s", label="tainted, groups by checkpoints")
    below[1].axhline(TAINTED_RATIO, linestyle="--", label="thesis: about half")
    for mttf_s in (1 / 1.52e-4, 1 / 1.39e-4):
        model = [fully_replicated(bargain(rate, corruption_mttf_s=mttf_s)) for rate in RATES]
        found = [
            simulate_drops(each, until_s=HOURS_2, replications=replications, rng=np.random.default_rng(514))
            for each in model
        ]
        below[2].errorbar(
            RATES,
            [each.tainted_at().mean for each in found],
            [each.tainted_at().half_width for each in found],
            marker="o",
            label=f"simulated, every {mttf_s:,.0f} s",
        )
        below[2].plot(RATES, [corrupted_by_hand(rate, mttf_s)[1] for rate in RATES], linestyle=":", label="by hand")
    below[2].axhline(300, linestyle="--", label="thesis: below 300")
    titles = (
        "5.12 availability",
        "5.12 tainted tuples",
        "5.12 tainted, %",
        "5.13 availability",
        "5.13 gain and ratio",
        "5.14 corruption: tainted tuples",
    )
    for axis, title, label in zip(
        (*top, *below), titles, ("tuples/s",) * 3 + ("MTTF, min",) * 2 + ("tuples/s",), strict=True
    ):
        axis.set_title(title)
        axis.set_xlabel(label)
        axis.legend(fontsize=7)
    figure.savefig(out / "figures.png", dpi=110)
    return {"gain": gain, "tainted_ratio": ratio}


def draw_table(out: Path, rows: list[dict]) -> None:
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = [row["operator"] for row in rows]
    for axis, key, title in ((left, "", "availability"), (right, "_tainted", "tainted tuples")):
        for shift, who in ((-0.2, "thesis"), (0.2, "ours")):
            axis.bar([k + shift for k in range(len(rows))], [row[who + key] for row in rows], 0.4, label=who)
        axis.set_xticks(range(len(rows)), names, rotation=40)
        axis.set_title(f"Table 5.4: {title}")
        axis.legend()
    left.set_ylim(0.8, 1.0)
    figure.savefig(out / "table_5_4.png", dpi=110)
    lines = ["| crash of | availability, thesis | ours | tainted, thesis | ours |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['operator']} | {row['thesis']:.5f} | {row['ours']:.5f} | {row['thesis_tainted']:,.2f} | {row['ours_tainted']:,.2f} |"
        for row in rows
    ]
    (out / "table_5_4.md").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replications", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("build/predict"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    say("two hours, a thousand times, by configuration")
    runs = {
        f"{name}, MTTF {minutes} min": timed(each, minutes)
        for name, each in CONFIGURATIONS.items()
        for minutes in (30, 90)
    }
    began = time.process_time()
    waits = simulate_waits(ward(), until_s=HOURS_2, replications=1000, rng=np.random.default_rng(1))
    waits_s = time.process_time() - began
    say("table 5.4 and figures")
    rows = table_5_4()
    draw_table(given.out, rows)
    shapes = draw_figures(given.out, given.replications)
    say("the planner")
    planner_s = planner_seconds()
    figures = {
        "replications": 1000,
        "cpu_s": {name: round(seconds, 3) for name, (_, seconds) in runs.items()} | {"ward, waits": round(waits_s, 3)},
        "half_width": {name: round(found.availability().half_width, 5) for name, (found, _) in runs.items()},
        "ward_late": round(float(waits.late.mean()), 6),
        "table_5_4": {
            "availability_off": round(max(abs(row["ours"] - row["thesis"]) for row in rows), 6),
            "tainted_off": round(
                max(abs(row["ours_tainted"] / row["thesis_tainted"] - 1) for row in rows if row["thesis_tainted"]), 6
            ),
        },
        "gain": [round(each, 4) for each in shapes["gain"]],
        "tainted_ratio": [round(each, 3) for each in shapes["tainted_ratio"]],
        "planner_20x24_cpu_s": round(planner_s, 2),
    }
    holds = {
        "2 h x 1,000 replications in less than 5 s": all(seconds < 5 for _, seconds in runs.values()) and waits_s < 5,
        # Does not hold for groups at 30 minutes, 0.0012: their second fault falls into a refill of three minutes, or does not.
        "half-width at most 0.001": all(width <= 0.001 for width in figures["half_width"].values()),
        "table 5.4": figures["table_5_4"]["availability_off"] <= 0.0005
        and figures["table_5_4"]["tainted_off"] <= 0.005,
        "gain 0.005 to 0.010": all(0.005 <= each <= 0.010 for each in shapes["gain"]),
        "tainted ratio 0.3 to 0.6": all(0.3 <= each <= 0.6 for each in shapes["tainted_ratio"]),
        "20 units x 24 options in less than 5 s": planner_s < 5,
    }
    say(f"pictures in {given.out}")
    finish("predict", {**figures, "lines": holds, "holds": all(holds.values())})
    raise SystemExit(0 if all(holds.values()) else 1)


if __name__ == "__main__":
    main()
