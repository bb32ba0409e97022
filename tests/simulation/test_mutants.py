"""Each broken rule is found within 1,000 schedules, by what it does and not by its name."""

import pytest

from holdfast.simulation.run import play_one
from tests.simulation.more_mutants import MORE_MUTANTS
from tests.simulation.mutants import MUTANTS

SEEDS = 1_000


@pytest.mark.parametrize("mutant", [*MUTANTS, *MORE_MUTANTS], ids=lambda mutant: mutant.rule)
def test_a_broken_rule_is_found(mutant):
    """A simulator that cannot see is worse than none."""
    for seed in range(SEEDS):
        outcome = play_one(mutant.protocol, mutant.graph, seed, mutant.parts)
        if outcome.broken is not None:
            assert outcome.story
            return
    pytest.fail(f"{mutant.rule} was not found in {SEEDS} schedules")
