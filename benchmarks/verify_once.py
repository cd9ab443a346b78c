"""Read all stored segments of a database deeply in this process, as `./tiering verify --depth deep` does; prints JSON.

    python -m benchmarks.verify_once

Time, CPU and requests count from the first request to the last measure: start-up, plan, the evaluation of the rules and
their results apart. Memory is what the process had at its peak above what it had when it began to read.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any
from unittest import mock

from botocore.httpsession import URLLib3Session

from benchmarks.copy_once import cpu_seconds
from benchmarks.generated_log_dir import status_bytes
from include.tiering.app import App, open_app
from include.tiering.model.segments import Depth
from include.tiering.settings import load_settings
from include.tiering.verification.measures import SegmentMeasure
from include.tiering.verification.verify_planned import ToMeasure


def verify_once(environment: Mapping[str, str]) -> dict[str, Any]:
    """Run this module in a process of its own; return its account."""
    command = [sys.executable, "-m", "benchmarks.verify_once"]
    done = subprocess.run(command, env=dict(environment), stdout=subprocess.PIPE, check=True)
    account: dict[str, Any] = json.loads(done.stdout)
    return account


def main() -> None:
    with open_app(load_settings()) as app:
        wanted = _wanted(app)
        app.adapters.storage.check_marker()
        measure_all = app.verification.measure_all
        resident_bytes = status_bytes("VmRSS")
        with mock.patch.object(URLLib3Session, "send", autospec=True, side_effect=URLLib3Session.send) as sent:
            begun, before = time.monotonic(), cpu_seconds()
            measures = list(measure_all(wanted))
            seconds, used_seconds = time.monotonic() - begun, cpu_seconds() - before
    sound = [
        measure
        for measure in measures
        if isinstance(measure, SegmentMeasure) and measure.read_log_crc32c == measure.log_crc32c
    ]
    if len(sound) != len(wanted):
        raise RuntimeError(f"only {len(sound)} of {len(wanted)} segments were read and are sound")
    account: dict[str, Any] = {
        "wall_seconds": seconds,
        "cpu_seconds": used_seconds,
        "peak_resident_bytes": status_bytes("VmHWM") - resident_bytes,
        "requests": sent.call_count,
        "read_bytes": sum(measure.bytes_read for measure in sound),
        "segments": len(sound),
    }
    sys.stdout.write(json.dumps(account) + "\n")


def _wanted(app: App) -> list[ToMeasure]:
    rows = [
        row
        for partition in app.adapters.stores.metadata.partitions()
        for row in app.adapters.stores.metadata.list_segments(partition)
    ]
    return [
        ToMeasure(row.metadata.remote_log_segment_id, None, Depth.DEEP, row.metadata.segment_size_bytes)
        for row in rows
        if row.metadata.is_finished
    ]


if __name__ == "__main__":
    main()
