"""Broken rules are noticed: here those mutants that are quick, all of them by `python -m tests.simulation mutants`."""

from contextlib import ExitStack

import pytest

from tests.simulation.hunt import hunt, mutant_named
from tests.simulation.mutants.all import MUTANTS
from tests.simulation.mutants.mutant import always
from tests.simulation.schedule import run_schedule
from tests.simulation.shrink import shrink
from tests.simulation.story import story_of

QUICK = {
    "finished-first": "FINISHED has its exact bytes",
    "any-replica": "only the leader's replica is read",
    "steal-leases": "a live lease is not given away",
    "same-token": "tokens ascend",
    "counters-grow": "counters equal a recount",
    "short-history": "known leader epochs are never lost",
}


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_one_is_caught(name: str) -> None:
    caught = hunt(mutant_named(name), 40)
    assert caught.invariant == QUICK[name]


def test_a_failure_becomes_a_short_story() -> None:
    mutant = mutant_named("finished-first")
    seed = hunt(mutant, 40).seed
    assert seed is not None
    with mutant.active():
        found = run_schedule(seed)
        choices = shrink(found, runs=40)
        story = story_of(run_schedule(seed, replay=choices, tracing=True))
    assert len(choices) < len(found.taken)
    lines = story.splitlines()
    assert lines[0].lstrip().startswith("1.")
    assert any("records FINISHED" in line for line in lines)
    assert lines[-2].strip() == "broken: FINISHED has its exact bytes"


def test_a_mutant_leaves_nothing_behind() -> None:
    for mutant in MUTANTS:
        with mutant.active():
            pass
    assert run_schedule(1).violation is None


@pytest.mark.parametrize("seed", [5, 6])
def test_a_mutant_that_does_not_bite_changes_nothing(seed: int) -> None:
    """So schedules in which it does not need not be run with it."""
    usual = run_schedule(seed, tracing=True).trace
    bitten: set[str] = set()
    with ExitStack() as stack:
        for mutant in MUTANTS:
            stack.enter_context(mutant.watched(bitten.add))
        assert run_schedule(seed, tracing=True).trace == usual
    spared = [mutant for mutant in MUTANTS if mutant.bites is not always and mutant.name not in bitten]
    assert spared
    for mutant in spared:
        with mutant.active():
            assert run_schedule(seed, tracing=True).trace == usual, mutant.name


def test_names_are_used_once() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 20
