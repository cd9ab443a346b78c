"""python -m tests.simulation: run schedules, tell one, hunt mutants, show what was covered.

run [--seeds N] [--first SEED] [--processes P]    schedules, resumable; exit code 1 if one fails
story SEED [--mutant NAME] [--whole]              what happened, made short unless --whole
mutants [NAME ...] [--most N] [--processes P]     the first schedule that catches each; exit code 1 if one survives
coverage                                          how often what happened, over all runs
"""

import argparse
import sys
from contextlib import nullcontext

from tests.simulation.coverage import report
from tests.simulation.documented import write_part
from tests.simulation.hunt import Chunk, hunted, mutant_named, shortest, table
from tests.simulation.mutants.all import MUTANTS
from tests.simulation.runner import by_version, run, say, version
from tests.simulation.schedule import run_schedule
from tests.simulation.shrink import shrink
from tests.simulation.story import story_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--seeds", type=int, default=1_000)
    running.add_argument("--first", type=int, default=0)
    running.add_argument("--processes", type=int, default=1)
    telling = commands.add_parser("story")
    telling.add_argument("seed", type=int)
    telling.add_argument("--mutant")
    telling.add_argument("--whole", action="store_true")
    hunting = commands.add_parser("mutants")
    hunting.add_argument("names", nargs="*")
    hunting.add_argument("--most", type=int, default=10_000)
    hunting.add_argument("--processes", type=int, default=1)
    hunting.add_argument("--write", action="store_true")
    covering = commands.add_parser("coverage")
    covering.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "run":
        tally = run(arguments.first, arguments.seeds, arguments.processes)
        return 1 if tally.failures else 0
    if arguments.command == "story":
        return _story(arguments.seed, arguments.mutant, whole=arguments.whole)
    if arguments.command == "mutants":
        return _mutants(arguments.names, arguments.most, arguments.processes, write=arguments.write)
    covered = report(by_version())
    say(covered)
    if arguments.write:
        write_part("coverage", covered)
    return 0


def _story(seed: int, mutant_name: str | None, *, whole: bool) -> int:
    mutant = mutant_named(mutant_name) if mutant_name else None
    with mutant.active() if mutant else nullcontext():
        found = run_schedule(seed)
        if found.violation is None:
            say(f"seed {seed}: every invariant held in {found.steps} steps")
        short = None if whole or found.violation is None else shrink(found)
        say(story_of(run_schedule(seed, replay=short, tracing=True)))
    return 0 if found.violation is None else 1


def _mutants(names: list[str], most: int, processes: int, *, write: bool) -> int:
    """One run of one version; the page is written anew if all of them are hunted."""
    wanted = [mutant.name for mutant in MUTANTS if not names or mutant.name in names]
    sources, caught, broken = version(), [], []

    def progress(chunk: Chunk) -> None:
        broken.extend(chunk.broken)
        bitten = ", ".join(f"{name} {times}" for name, times in sorted(chunk.bitten.items()))
        say(f"seeds {chunk.seeds[0]}..{chunk.seeds[-1]}, {chunk.cpu_seconds:.0f} s: {bitten}")
        for seed, why in chunk.broken:
            say(f"  seed {seed} fails without a mutant: {why}")

    for one in hunted(wanted, most, processes, progress):
        caught.append(one)
        say(f"{one.name}: {one.invariant or 'survives'} after {one.schedules} schedules, run in {one.bitten} of them")
        if names and one.seed is not None:
            say(story_of(shortest(mutant_named(one.name), one.seed)))
    most_schedules = max(one.schedules for one in caught)
    summary = (
        f"{len(caught)} mutants in one run over sources `{sources}`, the last one after {most_schedules} schedules."
    )
    say(f"{summary}\n\n{table(caught)}")
    if version() != sources:
        say("the page stays as it is: sources changed meanwhile")
    elif write and not names:
        write_part("mutants", f"{summary}\n\n{table(caught)}")
    return 0 if all(one.is_caught for one in caught) and not broken else 1


if __name__ == "__main__":
    sys.exit(main())
