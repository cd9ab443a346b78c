"""Starts `copy_worker`, or another one, and sees how it ended."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
_template: subprocess.Popen[str] | None = None


@contextmanager
def worker_template() -> Iterator[None]:
    """While it lasts, workers are forked from a process that has imported what they need."""
    global _template
    command = [sys.executable, "-m", "tests.doubles.worker_template"]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    with subprocess.Popen(
        command, cwd=_ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as _template:
        yield
    _template = None


def run_worker(run_id: str, *options: str, worker: str = "copy_worker") -> int:
    """The exit code; negative: the signal that ended it."""
    assert _template is not None
    assert _template.stdin is not None
    assert _template.stdout is not None
    order = {"worker": worker, "arguments": [run_id, *options], "environment": dict(os.environ)}
    _template.stdin.write(json.dumps(order) + "\n")
    _template.stdin.flush()
    return int(_template.stdout.readline())


def kill_worker(run_id: str, *options: str, worker: str = "copy_worker") -> None:
    """Run it with `options` that make it die; fails if it ended in any other way."""
    code = run_worker(run_id, *options, worker=worker)
    assert code == -signal.SIGKILL, f"the worker ended with {code} instead of dying where planned"
