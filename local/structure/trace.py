"""The path of one segment through the library, from scan to verdict, counted as moves between packages.

`traced_segment` records what ran. A package is a folder or module directly below the library's root. These are counted:

- **modules**: those of include/ of which a function ran, in any thread that is not a daemon. Daemon threads (heartbeat,
  quota allocations, metrics) run on timers, and a segment does not pass through them.
- **packages**: the packages that hold these modules.
- **moves**: the modules are put in the order in which the segment entered them for the first time, thread by thread in
  the order in which these began: a batch gives a segment to a thread and gets it back. A move is a module of another
  package than the module before it.
- **returns**: moves into a package from which the segment moved away before.
- **calls between packages**: pairs of packages of which the first calls a function of the second, whether directly or
  through code outside include/.

How often something is called is not counted: that depends on how long the process had to wait.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

from local.structure.source import Project

_PROGRAM: Final = Path(__file__).with_name("traced_segment.py")
_TIMEOUT_SECONDS: Final = 300


@dataclass(frozen=True)
class Trace:
    """The modules that ran, by thread in the order of first calls, and calls between modules as (caller, called).

    The threads are in the order in which they began.
    """

    threads: Sequence[Sequence[str]]
    calls: Sequence[tuple[str, str]]
    package_of: Callable[[str], str | None]

    @property
    def modules(self) -> list[str]:
        return sorted({module for thread in self.threads for module in thread})

    @property
    def packages(self) -> dict[str, list[str]]:
        """The modules of each package."""
        found: dict[str, list[str]] = {}
        for module in self.modules:
            found.setdefault(self._package(module), []).append(module)
        return dict(sorted(found.items()))

    @property
    def values(self) -> dict[str, float]:
        """The traced counters, by key."""
        path = [self._package(module) for module in dict.fromkeys(chain.from_iterable(self.threads))]
        pairs = {(self._package(caller), self._package(called)) for caller, called in self.calls}
        return {
            "trace_modules": len(self.modules),
            "trace_packages": len(self.packages),
            "trace_moves": len(_moves(path)),
            "trace_returns": _returns(path),
            "trace_calls_between": len({pair for pair in pairs if pair[0] != pair[1]}),
        }

    def document(self) -> dict[str, Any]:
        """Return the lists behind the counters."""
        return {"threads": self.threads, "packages": self.packages}

    def _package(self, module: str) -> str:
        return self.package_of(module) or module


def run_trace(root: Path, project: Project) -> Trace:
    """Trace one segment in a process of its own, in which only this checkout is imported.

    Args:
        root: the checkout.
        project: the files of the checkout, which define what a package is.

    Raises:
        RuntimeError: the segment could not be copied and verified.
    """
    command = [sys.executable, "-P", str(_PROGRAM), str(root)]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"no segment could be traced in {root}:\n{done.stderr}")
    recorded = json.loads(done.stdout.splitlines()[-1])
    return Trace(
        recorded["threads"], [(caller, called) for caller, called in recorded["calls"]], project.library_package_of
    )


def _moves(path: Sequence[str]) -> list[str]:
    """Return the packages into which the path moves, in order; the first package of the path is left out."""
    return [following for before, following in pairwise(path) if following != before]


def _returns(path: Sequence[str]) -> int:
    moves = _moves(path)
    return len(moves) - len(set(path)) + 1 if path else 0
