"""500 schedules of every protocol: nothing breaks, and the rare states were reached."""

import json
from random import Random

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.protocols.invariants import ProtocolRefused
from holdfast.simulation.graphs import GRAPHS, graph_for, ideal_run
from holdfast.simulation.protections import PROTECTIONS
from holdfast.simulation.run import PROBES, play_one, simulate

ACYCLIC = ("sp1", "sp2", "diamond", "random")
SEEDS = 500


def graphs_of(protocol):
    return ACYCLIC if protocol in ("ecoc", "synchronised") else GRAPHS


@pytest.mark.parametrize("protocol", PROTECTIONS)
def test_five_hundred_schedules_hold(protocol):
    """The protocols as they are; the soak plays 20,000 of each."""
    graphs = graphs_of(protocol)
    share = -(-SEEDS // len(graphs))
    reports = [simulate(protocol, graph, range(share)) for graph in graphs]
    broken = [
        f"{report.replay_line(b.seed)}\n{b.what}\n" + "\n".join(b.story)
        for report in reports
        for b in report.broken
    ]
    assert not broken, "\n\n".join(broken)
    seeds = sum(report.seeds for report in reports)
    assert seeds >= SEEDS
    assert sum(report.steps for report in reports) >= 300 * seeds
    assert sum(report.faults for report in reports) >= 2 * seeds
    # Without checkpoints nothing is pending and nothing is shipped.
    probes = PROBES if protocol != "none" else [p for p in PROBES if not p.startswith("fault_while")]
    for probe in probes:
        assert sum(report.probes[probe] for report in reports) > 0.01 * seeds, probe


@pytest.mark.parametrize("protocol", ["ecoc", "synchronised"])
def test_protocols_that_cannot_complete_on_cycles_refuse_them(protocol):
    """An endless wait would look like a quiet system."""
    with pytest.raises(ProtocolRefused, match="extended=True"):
        play_one(protocol, "sp3", 0)


def test_a_seed_replays_exactly():
    """A line in a report is worth nothing if it does not bring the failure back."""
    assert play_one("extended", "cycles", 7) == play_one("extended", "cycles", 7)


def test_lossless_protocols_lose_nothing_and_partial_ones_say_what():
    """Loss must be counted where it is allowed and impossible where it is not."""
    lossless = simulate("uncoordinated", "sp2", range(60), workers=1)
    partial = simulate("checkpoint", "sp2", range(60), workers=1)
    assert lossless.counts["frames_lost"] == lossless.counts["frames_tainted"] == 0
    assert partial.counts["frames_lost"] > 0


def test_checkpoints_keep_more_than_nothing():
    """A state of a declared age must save frames that none loses."""
    none = simulate("none", "sp1", range(60), workers=1)
    partial = simulate("checkpoint", "sp1", range(60), workers=1)
    assert partial.counts["frames_lost"] < none.counts["frames_lost"]


def test_the_ideal_run_depends_on_every_frame():
    """Else a lost frame could go unseen."""
    for name in GRAPHS:
        graph = graph_for(name, Random(1))
        states = ideal_run(graph, 20)
        for unit in graph.inner:
            assert len(set(states[unit])) == 21, (name, unit)


def shell(*words: str):
    return CliRunner().invoke(app, ["simulate", *words])


def test_the_command_reports_in_one_json_line():
    """Programs read the last line."""
    ended = shell("--protocol", "ecoc", "--graph", "sp1", "--seeds", "10", "--workers", "1")
    assert ended.exit_code == 0
    report = json.loads(ended.stdout.splitlines()[-1])
    assert (report["seeds"], report["broken"]) == (10, 0)


def test_the_command_says_why_a_graph_is_refused():
    """An exit code alone would not tell the remedy."""
    ended = shell("--protocol", "ecoc", "--graph", "sp4", "--seeds", "1")
    assert ended.exit_code == 2
    assert "HF-E040" in ended.stderr
    assert "extended=True" in ended.stderr


def test_a_mistyped_protocol_is_told_the_nearest():
    ended = shell("--protocol", "ecocc", "--graph", "sp1")
    assert ended.exit_code == 2
    assert "did you mean 'ecoc'" in ended.stderr
