"""Run benchmarks one after another and print one JSON document: the machine, then each result.

    python -m benchmarks.run_all               all of them
    python -m benchmarks.run_all scan start    some

Each benchmark is a program of its own, `bench_<name>.py`, whose last line of standard output is a JSON object; what it
says meanwhile goes to standard error. One that fails is named with its exit code and does not stop the others; one that
checks may fail and have printed its figures all the same.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import machine_description

_HERE: Final = Path(__file__).resolve().parent
_ROOT: Final = _HERE.parent
NAMES: Final = tuple(sorted(path.stem.removeprefix("bench_") for path in _HERE.glob("bench_*.py")))


def run_one(name: str) -> dict[str, Any]:
    """What the benchmark printed, with the seconds it took; `error` if it failed, at once or by its own verdict."""
    print(f"--- {name}", file=sys.stderr, flush=True)
    begun = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.bench_{name}"]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=False)
    seconds = round(time.monotonic() - begun, 1)
    measured: dict[str, Any] = {"seconds": seconds}
    if done.returncode != 0:
        measured["error"] = f"exit code {done.returncode}"
    if done.returncode == 0 or done.stdout.strip():
        measured["result"] = last_json(done.stdout)
    return measured


def last_json(output: str) -> Any:
    """The document that ends `output`: all of it, else its last line.

    Raises:
        json.JSONDecodeError: neither is JSON.
    """
    try:
        return json.loads(output)
    except json.JSONDecodeError:
        return json.loads(output.rstrip().rpartition("\n")[2])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Run benchmarks and print one JSON document.")
    parser.add_argument("names", nargs="*", help=f"which of {', '.join(NAMES)}; all without it")
    names = parser.parse_args(arguments).names or NAMES
    if unknown := sorted(set(names) - set(NAMES)):
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    machine = machine_description()
    results = {name: run_one(name) for name in names}
    print(json.dumps({"machine": machine, "benchmarks": results}, indent=2))
    return int(any("error" in result for result in results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
