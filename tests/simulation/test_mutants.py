"""Each broken rule is found within 1,000 schedules, by what it does and not by its name."""

import os
from multiprocessing import get_context

import pytest

from holdfast.simulation.run import play_one
from tests.simulation.life_mutants import LIFE_MUTANTS
from tests.simulation.more_mutants import MORE_MUTANTS
from tests.simulation.mutants import MUTANTS

SEEDS = 1_000
ALL = [*MUTANTS, *MORE_MUTANTS, *LIFE_MUTANTS]


def find(number):
    """The first schedule that breaks, or None."""
    mutant = ALL[number]
    for seed in range(SEEDS):
        outcome = play_one(mutant.protocol, mutant.graph, seed, mutant.parts)
        if outcome.broken is not None:
            return outcome
    return None


@pytest.fixture(scope="module")
def found(request):
    """Outcomes of the mutants asked for, found on all cores."""
    wanted = {
        item.callspec.params["number"]
        for item in request.session.items
        if item.path == request.path and getattr(item, "originalname", None) == "test_a_broken_rule_is_found"
    }
    with get_context("fork").Pool(os.cpu_count()) as pool:
        return dict(zip(sorted(wanted), pool.map(find, sorted(wanted), chunksize=1), strict=True))


@pytest.mark.parametrize("number", range(len(ALL)), ids=[mutant.rule for mutant in ALL])
def test_a_broken_rule_is_found(number, found):
    """A simulator that cannot see is worse than none."""
    assert found[number] is not None, f"{ALL[number].rule} was not found in {SEEDS} schedules"
    assert found[number].story


def test_no_two_mutants_have_one_name():
    """The pages name them."""
    assert len({mutant.rule for mutant in ALL}) == len(ALL)
