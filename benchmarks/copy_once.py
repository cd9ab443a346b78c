"""One batch of a planned run in this process; its last words are its own account as JSON.

    python -m benchmarks.copy_once plan            set up, and plan the run `bench`
    python -m benchmarks.copy_once batch NUMBER    run one batch of it

CPU and time count from the first claim to the last FINISHED, start-up apart; memory is the whole process's peak. A
batch says when it is ready to begin and waits for a line on standard input, so that several begin together. Where
segments are read from leaders, plan and batch also say what they read there.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.counted_reads import CountedReads
from benchmarks.upload_clients import peak_resident_bytes
from include.tiering.app import App, open_app
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
        reads = counted_reads(app)
        begun, before = time.monotonic(), cpu_seconds()
        planned_bytes = app.copying.plan("bench").size_bytes
        after, ended = cpu_seconds(), time.monotonic()
    tell({"planned_bytes": planned_bytes, **account(begun, before, ended, after), **reads()})


def batch(number: str) -> None:
    with open_app(load_settings()) as app:
        app.adapters.storage.check_writable()
        app.adapters.stores.work.paused_topics()
        reads = counted_reads(app)
        copying = app.copying
        tell({"ready": number})
        sys.stdin.readline()
        begun, before = time.monotonic(), cpu_seconds()
        result = copying.run_batch("bench", f"bench/{number}")
        after, ended = cpu_seconds(), time.monotonic()
    if result.failed:
        raise RuntimeError(f"not all was copied: {result.failed}")
    copied_bytes = sum(segment.size_bytes for segment in result.copied)
    tell({"copied_bytes": copied_bytes, **account(begun, before, ended, after), **reads()})


def account(begun: float, cpu_before: float, ended: float, cpu_after: float) -> dict[str, object]:
    """Say when it was, and what it took; memory and bytes from storage are those of the process so far."""
    return {
        "begun": begun,
        "ended": ended,
        "cpu_seconds": cpu_after - cpu_before,
        "peak_resident_bytes": peak_resident_bytes(),
        "disk_read_bytes": disk_read_bytes(),
    }


def disk_read_bytes() -> int:
    """What this process has had fetched from storage so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def counted_reads(app: App) -> Callable[[], dict[str, object]]:
    """Count from now on what is read from leaders; the result returns it, and nothing if log directories are read."""
    if not app.log_dirs.reads_leaders:
        return dict
    counted = CountedReads(app.adapters.leader_logs, app.adapters.clock)
    vars(app.adapters)["leader_logs"] = counted  # in place of what the cached property keeps
    return lambda: {"reads": counted.document()}


def tell(words: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    plan() if sys.argv[1] == "plan" else batch(sys.argv[2])
