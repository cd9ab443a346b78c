"""Find the first schedule that catches a mutant, and make it short."""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.simulation.invariants.watch import UNTYPED
from tests.simulation.mutants.all import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.schedule import Outcome, run_schedule
from tests.simulation.shrink import shrink


@dataclass(frozen=True, slots=True)
class Caught:
    """`schedules`: how many were run until one broke an invariant, that one included; all of them if none did, and then
    there is no `seed`."""

    name: str
    schedules: int
    seed: int | None
    invariant: str
    seconds: float

    @property
    def is_caught(self) -> bool:
        return self.seed is not None


def mutant_named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def hunt(mutant: Mutant, most: int, first_seed: int = 1) -> Caught:
    """Run seeds in order until an invariant breaks that holds without the mutant.

    An untyped error catches nothing: most often the mutant no longer fits what it replaces.
    """
    began = time.process_time()
    for tried, seed in enumerate(range(first_seed, first_seed + most), start=1):
        if not mutant.is_reached_in(seed):
            continue
        with mutant.active():
            outcome = run_schedule(seed)
        is_caught = outcome.violation is not None and outcome.violation.invariant != UNTYPED
        if is_caught and run_schedule(seed).violation is None:
            return Caught(mutant.name, tried, seed, outcome.violation.invariant, time.process_time() - began)
    return Caught(mutant.name, most, None, "", time.process_time() - began)


def hunted(names: Sequence[str], most: int, processes: int) -> Iterator[Caught]:
    """In the order given."""
    if processes == 1:
        yield from (hunt(mutant_named(name), most) for name in names)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(_Hunt(most), names)


@dataclass(frozen=True, slots=True)
class _Hunt:
    """Goes to another process."""

    most: int

    def __call__(self, name: str) -> Caught:
        return hunt(mutant_named(name), self.most)


def shortest(mutant: Mutant, seed: int) -> Outcome:
    """The shrunk schedule of a seed that catches it, with its trace."""
    with mutant.active():
        choices = shrink(run_schedule(seed))
        return run_schedule(seed, replay=choices, tracing=True)


def table(caught: Sequence[Caught]) -> str:
    """Markdown."""
    lines = ["| rule | mutant | what it does | caught by | after schedules |", "|---|---|---|---|---|"]
    for one in caught:
        mutant = mutant_named(one.name)
        found = f"{one.invariant} | {one.schedules}" if one.is_caught else f"**survives** | {one.schedules}"
        lines.append(f"| {mutant.rule} | `{one.name}` | {mutant.broken} | {found} |")
    return "\n".join(lines)
