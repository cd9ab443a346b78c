"""One trial: some tests in a process of their own, over a library with one change. Do they notice it?"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.mutation.operators import Mutant
from tests.mutation.settings import TRIAL

if TYPE_CHECKING:
    from tests.mutation.executed import ExecutedLines

_START_SECONDS: Final = 60.0
_SLOWER: Final = 10.0
"""A trial may take as many times longer than its tests took when they were recorded."""
_GOODBYE_SECONDS: Final = 30.0
"""For a test's servers to be ended, once its time is over."""
_NO_TESTS_COLLECTED: Final = 5
_CRASH: Final = "signal"
_ENDED_BY: Final = {1: "what the tests left behind", 3: "an internal error", 4: "the import of a conftest.py"}
"""By exit code of pytest, where no test failed."""


class Outcome(StrEnum):
    """What became of a mutant."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Result:
    """`noticed_by` is the first test that failed, or how the process ended; `tests`: so many were run at most."""

    mutant: Mutant
    outcome: Outcome
    tests: int
    seconds: float
    noticed_by: str | None = None


@dataclass(frozen=True, slots=True)
class Laboratory:
    """Tries mutants of one checkout.

    Attributes:
        root: the checkout.
        executed: which tests run which line.
        first: so many tests of a line run first.
        most: so many run in all, if those do not notice it.
    """

    root: Path
    executed: "ExecutedLines"
    first: int = 60
    most: int = 400

    def try_mutant(self, mutant: Mutant) -> Result:
        """Raises RuntimeError if none of its tests could be run."""
        began = time.monotonic()
        tests = self.executed.tests_for(mutant)[: self.most]
        if not tests:
            return Result(mutant, Outcome.NOT_RUN, 0, 0.0)
        changed = mutant.applied_to((self.root / mutant.path).read_text())
        run = 0
        for some in (tests[: self.first], tests[self.first :]):
            run += len(some)
            noticed_by = self._failure(mutant.path, changed, some) if some else None
            if noticed_by is not None and noticed_by.startswith(_CRASH):
                # A change of a line of Python hardly crashes the interpreter: chance may have, but not twice.
                noticed_by = self._failure(mutant.path, changed, some)
            if noticed_by is not None:
                return Result(mutant, Outcome.NOTICED, run, time.monotonic() - began, noticed_by)
        return Result(mutant, Outcome.SURVIVED, run, time.monotonic() - began)

    def control(self, mutant: Mutant) -> str | None:
        """The same without the change: why its tests fail all the same, None if they pass. There must be some.

        Raises:
            RuntimeError: as `try_mutant`.
        """
        tests = self.executed.tests_for(mutant)[: self.first]
        return self._failure(mutant.path, (self.root / mutant.path).read_text(), tests)

    def _failure(self, path: str, source: str, tests: Sequence[str]) -> str | None:
        """The first test that fails, or how pytest ended otherwise; None: all pass."""
        limit_seconds = _START_SECONDS + _SLOWER * sum(self.executed.seconds[test] for test in tests)
        with tempfile.TemporaryDirectory(prefix="tiering-mutant-") as directory:
            answer, trial = Path(directory) / "answer", Path(directory) / "trial.json"
            told = {
                "path": str(self.root / path),
                "source": source,
                "tests": {test: self.executed.seconds[test] for test in tests},
                "answer": str(answer),
            }
            trial.write_text(json.dumps(told))
            files = sorted({test.partition("::")[0] for test in tests})
            with (Path(directory) / "output").open("w+") as output:
                code = self._pytest(files, trial, output.fileno(), limit_seconds)
                output.seek(0)
                said = output.read()
            if code == _NO_TESTS_COLLECTED:
                raise RuntimeError(f"none of {len(tests)} tests of {path} could be run:\n{said}")
            if code == 0:
                return None
            if code is None:
                return f"its time, {limit_seconds:.0f} s"
            by = f"{_CRASH} {-code}" if code < 0 else _ENDED_BY.get(code, f"exit code {code}")
            return answer.read_text() if answer.exists() else by

    def _pytest(self, files: Sequence[str], trial: Path, output: int, limit_seconds: float) -> int | None:
        """The exit code, None if it took too long."""
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.mutation.mutated"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=self.root,
            env={**os.environ, TRIAL: str(trial), "HYPOTHESIS_PROFILE": "ci"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            return process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Tests end what they started if they can; then all that is left of the process's own group goes."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
