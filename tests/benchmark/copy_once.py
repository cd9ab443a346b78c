"""Copy everything that the settings name, once, in this process; its last words are its own account as JSON.

CPU and time count from the first claim to the last FINISHED, start-up apart; memory is the whole process's peak.
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


def main() -> None:
    with open_tiering(load_settings()) as tiering:
        tiering.migrate()
        planned_bytes = tiering.plan_copy("bench").size_bytes
        begun, before = time.monotonic(), cpu_seconds()
        result = tiering.copy_batch("bench", "bench/0")
        after, ended = cpu_seconds(), time.monotonic()
    copied_bytes = sum(segment.size_bytes for segment in result.copied)
    if result.failed or copied_bytes != planned_bytes:
        raise RuntimeError(f"copied {copied_bytes} of {planned_bytes} bytes: {result.failed}")
    account = {
        "wall_seconds": ended - begun,
        "cpu_seconds": after - before,
        "peak_resident_bytes": peak_resident_bytes(),
    }
    sys.stdout.write(json.dumps(account) + "\n")


if __name__ == "__main__":
    main()
