"""One batch of a planned run in this process; its last words are its own account as JSON.

    python -m benchmarks.copy_once plan            set up, and plan the run `bench`
    python -m benchmarks.copy_once batch NUMBER    run one batch of it

CPU and time count from the first claim to the last FINISHED, start-up apart; memory is the whole process's peak. A
batch says when it is ready to begin and waits for a line on standard input, so that several begin together.
"""

import json
import resource
import sys
import time

from benchmarks.upload_clients import peak_resident_bytes
from include.tiering.app import open_app
from include.tiering.settings import load_settings


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
        tell({"ready": number})
        sys.stdin.readline()
        begun, before = time.monotonic(), cpu_seconds()
        result = app.copying.run_batch("bench", f"bench/{number}")
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
