"""500 schedules of every protocol: nothing breaks, and the rare states were reached."""

import json
from random import Random

import pytest
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.protocols.invariants import ProtocolRefused
from holdfast.protocols.unit import Unit
from holdfast.simulation import run
from holdfast.simulation.graphs import GRAPHS, graph_for, ideal_run
from holdfast.simulation.protections import PROTECTIONS
from holdfast.simulation.run import graphs_of, play_one, shares, simulate, total
from holdfast.simulation.schedule import Parts, Schedule
from tests.simulation.mutants import MUTANTS

SEEDS = 500


@pytest.mark.parametrize("protocol", PROTECTIONS)
def test_five_hundred_schedules_hold(protocol):
    """The protocols as they are; the soak plays 20,000 of each."""
    whole = total(protocol, [simulate(protocol, *share) for share in shares(graphs_of(protocol), SEEDS)])
    broken = [f"{b.replay}\n{b.what}\n" + "\n".join(b.story) for b in whole.broken]
    assert not broken, "\n\n".join(broken)
    assert whole.seeds == sum(whole.per_graph.values()) == SEEDS
    assert whole.steps >= 300 * SEEDS
    assert whole.faults >= 2 * SEEDS
    assert whole.rare() == []


@pytest.mark.parametrize("protocol", ["ecoc", "two_phase"])
def test_protocols_that_cannot_complete_on_cycles_refuse_them(protocol):
    """An endless wait would look like a quiet system."""
    with pytest.raises(ProtocolRefused, match="extended=True"):
        play_one(protocol, "sp3", 0)
    assert graphs_of(protocol) == ("sp1", "sp2", "diamond", "random")


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
    assert "ecoc on sp1: 10 schedules, none broken" in ended.stderr


@pytest.mark.parametrize(
    ("words", "meant"), [(("--protocol", "ecocc"), "ecoc"), (("--protocol", "ecoc", "--graph", "diamnd"), "diamond")]
)
def test_a_mistyped_word_is_answered_with_the_right_one(words, meant):
    ended = shell(*words)
    assert ended.exit_code == 2
    assert f"did you mean '{meant}'?" in ended.stderr
    assert "nothing was simulated" in ended.stderr
    assert ".py:" not in ended.stderr


def test_the_command_spreads_its_seeds_over_the_graphs_that_can_be_had():
    """20,000 seeds are 20,000, also where some graphs are refused."""
    ended = shell("--protocol", "ecoc", "--seeds", "10")
    *each, whole = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [report["graph"] for report in each] == ["sp1", "sp2", "diamond", "random"]
    assert whole["seeds"] == sum(report["seeds"] for report in each) == 10
    assert whole["seeds_per_graph"] == {report["graph"]: report["seeds"] for report in each}


def test_several_workers_report_what_one_does():
    """The report may not depend on how many cores there are."""
    reports = [simulate("ecoc", "random", range(60), workers).as_dict() for workers in (1, 2)]
    assert {**reports[0], "seconds": 0} == {**reports[1], "seconds": 0}


def test_a_broken_invariant_is_an_error_with_the_line_that_replays_it(monkeypatch):
    """A red soak that cannot be repeated is a rumour."""
    parts = next(m.parts for m in MUTANTS if m.rule == "forgotten sink")
    monkeypatch.setattr(run, "Schedule", lambda *args: Schedule(*args[:3], parts))
    ended = shell("--protocol", "ecoc", "--graph", "sp1", "--seeds", "40", "--workers", "1")
    assert ended.exit_code == 4
    assert "HF-E041 InvariantBroken" in ended.stderr
    seed = json.loads(ended.stdout.splitlines()[-1])["broken_seeds"][0]
    line = f"holdfast simulate --protocol ecoc --graph sp1 --first {seed} --seeds 1"
    assert line in ended.stderr
    again = shell(*line.split()[2:])
    assert again.exit_code == 4
    assert "HF-E041" in again.stderr


def test_a_machine_that_stumbles_counts_as_broken():
    """An error of Python's in a protocol must name its seed like any other."""

    class Stumbles(Unit):
        def _flush(self, edge):
            raise KeyError(edge)

    outcome = play_one("ecoc", "sp1", 3, Parts(unit=Stumbles))
    assert "KeyError" in outcome.broken
    assert any("_flush" in line for line in outcome.story)


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
