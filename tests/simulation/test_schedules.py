"""A fixed small set of seeds, and the seeds that once found something."""

import pytest

from tests.simulation.schedule import run_schedule

SEEDS = range(1, 61)


@pytest.mark.parametrize("first", SEEDS[::20])
def test_every_invariant_holds(first: int) -> None:
    for seed in range(first, first + 20):
        outcome = run_schedule(seed)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
