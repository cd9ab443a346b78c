"""One batch of a planned run in this process; its last words are its own account as JSON.

    python -m tests.benchmark.copy_once plan            set up, and plan the run `bench`
    python -m tests.benchmark.copy_once batch NUMBER    run one batch of it

CPU and time count from the first claim to the last FINISHED, start-up apart; memory is the whole process's peak. A
batch says when it is ready to begin and waits for a line on standard input, so that several begin together.
"""

import json
import resource
import sys
import time

from include.tiering.settings import load_settings
from include.tiering.wiring import open_tiering
from tests.benchmark.upload_clients import peak_resident_bytes


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def plan() -> None:
    with open_tiering(load_settings()) as tiering:
        tiering.migrate()
        tell({"planned_bytes": tiering.plan_copy("bench").size_bytes})


def batch(number: str) -> None:
    with open_tiering(load_settings()) as tiering:
        tiering.storage.check_writable()
        tiering.work.paused_topics()
        tell({"ready": number})
        sys.stdin.readline()
        begun, before = time.monotonic(), cpu_seconds()
        result = tiering.copy_batch("bench", f"bench/{number}")
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
