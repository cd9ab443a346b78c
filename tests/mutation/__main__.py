"""python -m tests.mutation: would the tests notice a wrong line? Some mutants of the library, each against them.

A mutant is one small change: a comparison, an operator, a constant, a returned value, a removed call or `raise`, the
end of a slice. `--number` of all possible ones are drawn by a seed. Against each run the fast tests and the scenarios
that run its line: 60 at first, and up to 400 if those do not notice it; which they are is recorded once for each
version of the sources, which takes minutes. The work tree stays as it is. The exit code says nothing of the score; it
is 2 if tests fail without any change, which would make a score worthless.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final

from tests.mutation.executed import executed_lines
from tests.mutation.operators import Mutant
from tests.mutation.report import Report
from tests.mutation.sample import draw
from tests.mutation.trial import Laboratory, Result

ROOT: Final = Path(__file__).resolve().parents[2]
LIBRARY: Final = ROOT / "include"
TESTS: Final = ("tests/unit", "tests/property", "tests/contract", "tests/scenarios")
_CONTROLS: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, try, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--number", type=int, default=200, help="so many mutants (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="by which they are drawn (default: %(default)s)")
    parser.add_argument("--only", default="", help="of files whose path begins so: include/tiering/model")
    parser.add_argument("--processes", type=int, default=1, help="so many at once (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="the report as a JSON document")
    given = parser.parse_args(arguments)
    began = time.monotonic()
    files = [file.relative_to(ROOT) for file in sorted(LIBRARY.rglob("*.py"))]
    sample = draw(ROOT, [file for file in files if str(file).startswith(given.only)], given.number, given.seed)
    laboratory = Laboratory(ROOT, executed_lines(ROOT, LIBRARY, TESTS, given.processes))
    controls = (mutant for mutant in sample.mutants if laboratory.executed.tests_for(mutant))
    for mutant in islice(controls, _CONTROLS):
        if (failure := laboratory.control(mutant)) is not None:
            sys.stderr.write(f"without any change of {mutant.path} it fails all the same: {failure}\n")
            return 2
    results = _tried(laboratory, sample.mutants, given.processes)
    report = Report(results, sample.possible, given.seed, time.monotonic() - began)
    sys.stdout.write(f"{json.dumps(report.document(), indent=1) if given.json else report.text()}\n")
    return 0


def _tried(laboratory: Laboratory, mutants: Sequence[Mutant], processes: int) -> list[Result]:
    """In the order of `mutants`; what became of each is told at once."""

    def try_mutant(mutant: Mutant) -> Result:
        result = laboratory.try_mutant(mutant)
        by = f" by {result.noticed_by}" if result.noticed_by else ""
        sys.stderr.write(f"{result.outcome}{by}, {result.seconds:.0f} s: {mutant}\n")
        return result

    with ThreadPoolExecutor(processes, "trial") as threads:
        return list(threads.map(try_mutant, mutants))


if __name__ == "__main__":
    sys.exit(main())
