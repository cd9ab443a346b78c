"""Starts `copy_worker`, or another one, and sees how it ended."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]


def run_worker(run_id: str, *options: str, worker: str = "copy_worker") -> int:
    """The exit code; negative: the signal that ended it."""
    command = [sys.executable, "-m", f"tests.doubles.{worker}", run_id, *options]
    return subprocess.run(command, cwd=_ROOT, env={**os.environ, "PYTHONPATH": str(_ROOT)}, timeout=60).returncode


def kill_worker(run_id: str, *options: str, worker: str = "copy_worker") -> None:
    """Run it with `options` that make it die; fails if it ended in any other way."""
    code = run_worker(run_id, *options, worker=worker)
    assert code == -signal.SIGKILL, f"the worker ended with {code} instead of dying where planned"
