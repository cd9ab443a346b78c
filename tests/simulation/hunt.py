"""Find the first schedule that catches a mutant, and make it short."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.simulation.invariants.watch import UNTYPED
from tests.simulation.mutants.all import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.schedule import Outcome, run_schedule
from tests.simulation.shrink import shrink


@dataclass(frozen=True, slots=True)
class Caught:
    """`schedules`: how many were run until one broke an invariant, that one included; None if none did."""

    mutant: Mutant
    schedules: int | None
    seed: int | None
    invariant: str
    seconds: float


def mutant_named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def hunt(mutant: Mutant, most: int, first_seed: int = 1) -> Caught:
    """Run seeds in order until an invariant breaks that holds without the mutant.

    An untyped error catches nothing: most often the mutant no longer fits what it replaces.
    """
    began = time.process_time()
    for tried, seed in enumerate(range(first_seed, first_seed + most), start=1):
        with mutant.active():
            outcome = run_schedule(seed)
        is_caught = outcome.violation is not None and outcome.violation.invariant != UNTYPED
        if is_caught and run_schedule(seed).violation is None:
            return Caught(mutant, tried, seed, outcome.violation.invariant, time.process_time() - began)
    return Caught(mutant, None, None, "", time.process_time() - began)


def shortest(mutant: Mutant, seed: int) -> Outcome:
    """The shrunk schedule of a seed that catches it, with its trace."""
    with mutant.active():
        choices = shrink(run_schedule(seed))
        return run_schedule(seed, replay=choices, tracing=True)


def table(caught: Sequence[Caught]) -> str:
    """Markdown."""
    lines = ["| rule | mutant | what it does | caught by | after schedules |", "|---|---|---|---|---|"]
    lines += [
        f"| {one.mutant.rule} | `{one.mutant.name}` | {one.mutant.broken} |"
        f" {one.invariant or '**survives**'} | {one.schedules or '-'} |"
        for one in caught
    ]
    return "\n".join(lines)
