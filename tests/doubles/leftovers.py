"""What a test run left behind: processes that carry its mark, and names that are new in the checkout."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MARK: Final = "PYTEST_RUN_MARK"

# Helpers that end with the pytest process they belong to: a Spark session's JVM and Python daemon, and what the
# multiprocessing and xdist modules start.
_ENDS_WITH_PYTEST: Final = (
    "pyspark-shell",
    "pyspark.daemon",
    "multiprocessing.",
    "from execnet",
    "import sys;exec(eval",
)


def processes_left_behind(mark: str, *, patience_seconds: float) -> list[str]:
    """``"<pid> <command line>"`` of every process that inherited `mark` and has not ended after `patience_seconds`."""
    deadline = time.monotonic() + patience_seconds
    while left := list(_marked_processes(mark)):
        if time.monotonic() >= deadline:
            return left
        time.sleep(0.1)
    return []


def _marked_processes(mark: str) -> Iterator[str]:
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if wanted in environment and command and not any(known in command for known in _ENDS_WITH_PYTEST):
            yield f"{entry.name} {command[:160]}"


def root_entries(root: Path) -> frozenset[str]:
    return frozenset(entry.name for entry in root.iterdir())


def new_root_entries(root: Path, before: frozenset[str]) -> list[str]:
    """Names that a run added at the top of the checkout; caches and hidden files are what tools keep there."""
    return sorted(name for name in root_entries(root) - before if not name.startswith("."))
