"""One batch of a planned run in this process; its last words are its own account as JSON.

    python -m benchmarks.copy_once plan            set up, and plan the run `bench`
    python -m benchmarks.copy_once batch NUMBER    run one batch of it

CPU and time count from the first claim to the last FINISHED, start-up apart; memory is the whole process's peak. A
batch says when it is ready to begin and waits for a line on standard input, so that several begin together.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from benchmarks.upload_clients import peak_resident_bytes
from include.tiering.app import open_app
from include.tiering.settings import load_settings

COMMAND: Final = (sys.executable, "-m", "benchmarks.copy_once")


@contextmanager
def ready_batches(count: int, environment: Mapping[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Start batches that wait for a line on standard input; those that still run are killed."""
    batches = [
        subprocess.Popen(
            [*COMMAND, "batch", str(number)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    try:
        for process in batches:
            assert process.stdout is not None
            if "ready" not in json.loads(process.stdout.readline() or "{}"):
                raise RuntimeError(f"a batch did not start: {process.wait()}")
        yield batches
    finally:
        for process in batches:
            process.kill()
            process.communicate()


def begin(batches: Sequence[subprocess.Popen[str]]) -> None:
    """Give all of these batches their line."""
    for process in batches:
        assert process.stdin is not None
        process.stdin.write("begin\n")
        process.stdin.flush()


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def plan() -> None:
    with open_app(load_settings()) as app:
        app.set_up.migrate()
        tell({"planned_bytes": app.copying.plan("bench").size_bytes})


def batch(number: str) -> None:
    with open_app(load_settings()) as app:
        app.adapters.storage.check_writable()
        app.adapters.stores.work.paused_topics()
        copying = app.copying
        tell({"ready": number})
        sys.stdin.readline()
        begun, before = time.monotonic(), cpu_seconds()
        result = copying.run_batch("bench", f"bench/{number}")
        after, ended = cpu_seconds(), time.monotonic()
    if result.failed:
        raise RuntimeError(f"not all was copied: {result.failed}")
    tell(
        {
            "copied_bytes": sum(segment.size_bytes for segment in result.copied),
            "begun": begun,
            "ended": ended,
            "cpu_seconds": after - before,
            "peak_resident_bytes": peak_resident_bytes(),
        }
    )


def tell(words: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    plan() if sys.argv[1] == "plan" else batch(sys.argv[2])
