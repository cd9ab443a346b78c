"""Find the first schedule that catches each mutant, and make it short.

All of them are hunted side by side, seed by seed. A schedule runs once as it should, watched by every mutant that is at
large; those that it never came to, or that would not have done anything else there, need no schedule of their own. The
others get one each.
"""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.invariants.watch import UNTYPED
from tests.simulation.mutants.all import MUTANTS
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.schedule import Outcome, run_schedule
from tests.simulation.shrink import shrink

_CHUNK = 10


@dataclass(frozen=True, slots=True)
class Caught:
    """`schedules`: how many seeds there were until one broke an invariant, that one included; all of them if none did,
    and then there is no `seed`. `bitten`: how many of them had to be run with the mutant."""

    name: str
    schedules: int
    seed: int | None = None
    invariant: str = ""
    bitten: int = 0

    @property
    def is_caught(self) -> bool:
        return self.seed is not None


@dataclass(slots=True)
class Chunk:
    """What a few seeds came to: by mutant the first of them that caught it and what broke, and how often it was run."""

    seeds: range
    found: dict[str, tuple[int, str]] = field(default_factory=dict)
    bitten: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str]] = field(default_factory=list)
    """Seeds that fail without any mutant: they catch nothing."""
    cpu_seconds: float = 0.0


def mutant_named(name: str) -> Mutant:
    return next(mutant for mutant in MUTANTS if mutant.name == name)


def hunt(mutant: Mutant, most: int) -> Caught:
    """One alone."""
    return next(iter(hunted([mutant.name], most, 1)))


def hunted(
    names: Sequence[str], most: int, processes: int, on_chunk: Callable[[Chunk], None] = lambda _chunk: None
) -> Iterator[Caught]:
    """As they are caught, then those that survive. Seeds from 1 on; `on_chunk` gets what each few of them came to."""
    at_large = dict.fromkeys(names)
    bitten: Counter[str] = Counter()
    for chunk in _chunks(at_large, most, processes):
        on_chunk(chunk)
        bitten += chunk.bitten
        for name in [one for one in at_large if one in chunk.found]:
            del at_large[name]
            seed, invariant = chunk.found[name]
            yield Caught(name, seed, seed, invariant, bitten[name])
        if not at_large:
            return
    for name in at_large:
        yield Caught(name, most, bitten=bitten[name])


def _chunks(at_large: dict[str, None], most: int, processes: int) -> Iterator[Chunk]:
    """In the order of seeds. Each is hunted for what is at large when it begins."""
    parts = [range(first, min(first + _CHUNK, most + 1)) for first in range(1, most + 1, _CHUNK)]
    if processes == 1:
        yield from (run_chunk(tuple(at_large), seeds) for seeds in parts)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for turn in range(0, len(parts), processes):
            if at_large:
                yield from pool.map(partial(run_chunk, tuple(at_large)), parts[turn : turn + processes], chunksize=1)


def run_chunk(names: Sequence[str], seeds: range) -> Chunk:
    """An untyped error catches nothing: most often the mutant no longer fits what it replaces."""
    chunk, began = Chunk(seeds), time.process_time()
    mutants = [mutant_named(name) for name in names]
    for seed in seeds:
        at_large = [mutant for mutant in mutants if mutant.name not in chunk.found]
        if not at_large:
            break
        outcome, bites = _watched(seed, at_large)
        if outcome.violation is not None:
            chunk.broken.append((seed, str(outcome.violation)))
            continue
        for mutant in (one for one in at_large if one.name in bites):
            chunk.bitten[mutant.name] += 1
            with mutant.active():
                violation = run_schedule(seed).violation
            if violation is not None and violation.invariant != UNTYPED:
                chunk.found[mutant.name] = seed, violation.invariant
    chunk.cpu_seconds = time.process_time() - began
    return chunk


def _watched(seed: int, mutants: Sequence[Mutant]) -> tuple[Outcome, set[str]]:
    """A schedule as it should be, and the mutants that would make a difference to it."""
    bites: set[str] = set()
    with ExitStack() as stack:
        for mutant in mutants:
            stack.enter_context(mutant.watched(bites.add))
        return run_schedule(seed), bites


def shortest(mutant: Mutant, seed: int) -> Outcome:
    """The shrunk schedule of a seed that catches it, with its trace."""
    with mutant.active():
        choices = shrink(run_schedule(seed))
        return run_schedule(seed, replay=choices, tracing=True)


def table(caught: Sequence[Caught]) -> str:
    """Markdown, in the order of `MUTANTS`."""
    lines = ["| rule | mutant | what it does | caught by | after schedules |", "|---|---|---|---|---|"]
    by_name = {one.name: one for one in caught}
    for mutant in MUTANTS:
        one = by_name.get(mutant.name)
        if one is not None:
            found = f"{one.invariant} | {one.schedules}" if one.is_caught else f"**survives** | {one.schedules}"
            lines.append(f"| {mutant.rule} | `{one.name}` | {mutant.broken} | {found} |")
    return "\n".join(lines)
