"""Some of all mutants, drawn by a seed: the same seed draws the same ones from the same sources."""

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutation.operators import Mutant, mutants_of


class Sample(NamedTuple):
    """Mutants in the order of files and lines, and among how many they were drawn."""

    mutants: Sequence[Mutant]
    possible: int


def draw(root: Path, files: Iterable[Path], number: int, seed: int) -> Sample:
    """At most `number` mutants of these files (relative to `root`), each as likely as the others."""
    sources = {str(file): (root / file).read_text() for file in files}
    possible = [mutant for path, source in sorted(sources.items()) for mutant in mutants_of(path, source)]
    # Drawn for tests, not for secrets.
    shuffled = random.Random(seed).sample(possible, len(possible))
    chosen: list[Mutant] = []
    for mutant in shuffled:
        if len(chosen) == number:
            break
        if _compiles(mutant.applied_to(sources[mutant.path])):
            chosen.append(mutant)
    return Sample(sorted(chosen, key=lambda one: (one.path, one.start, one.after)), len(possible))


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True
