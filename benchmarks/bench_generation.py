"""What the generation of the store costs: requests and milliseconds of a plan and of a segment; prints one JSON object.

    python -m benchmarks.bench_generation [--times 100] [--directory DIR]

On versitygw and in a directory, the database in SQLite on disk. A plan raises the generation, a segment compares the
marker with what the database says. Exit code 1: a plan sent more than one GET and one conditional PUT, or a segment
more than one GET.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from include.tiering.app import App, open_app
from tests.doubles.archive import planned_run, settings_of
from tests.doubles.marker_requests import counted, s3_deployment
from tests.doubles.s3_server import NO_VERSITYGW, find_versitygw, versitygw_server

GET, REPLACE = ("GET marker", ""), ("PUT marker", "if it is the expected one")
ALLOWED: Final = {"plan": {GET: 1, REPLACE: 1}, "segment": {GET: 1}}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure what the generation of the store costs; prints JSON.")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--directory", type=Path, help="where server, store and database keep their files")
    options = parser.parse_args(arguments)
    binary = find_versitygw()
    if binary is None:
        sys.exit(NO_VERSITYGW)
    with tempfile.TemporaryDirectory(prefix="bench-generation-", dir=options.directory) as scratch:
        on_s3, in_directory = Path(scratch) / "on-s3", Path(scratch) / "in-directory"
        on_s3.mkdir()
        in_directory.mkdir()
        with (
            versitygw_server(binary, Path(scratch) / "server") as server,
            open_app(settings_of(s3_deployment(on_s3, server))) as app,
        ):
            app.set_up.migrate()
            app.ownership.claim()  # Finds out whether the server heeds conditions, once.
            requests = requests_of(app)
            result: dict[str, Any] = {"versitygw": milliseconds(app, options.times)}
        with open_app(settings_of(planned_run(in_directory))) as app:
            result["directory"] = milliseconds(app, options.times)
    shown = {
        run: {f"{what} {condition}".strip(): number for (what, condition), number in sent.items()}
        for run, sent in requests.items()
    }
    sys.stdout.write(json.dumps({"requests": shown, "milliseconds": result}) + "\n")
    return int(requests != ALLOWED)


def requests_of(app: App) -> dict[str, dict[tuple[str, str], int]]:
    with counted(app) as requests:
        app.ownership.claim()
        of_plan = requests.take()
        app.adapters.storage.check_marker()
        return {"plan": of_plan, "segment": requests.take()}


def milliseconds(app: App, times: int) -> dict[str, float]:
    """Medians."""
    return {
        "plan": _median_ms(app.ownership.claim, times),
        "segment": _median_ms(app.adapters.storage.check_marker, times),
        "of that the database's row": _median_ms(app.adapters.stores.generations.accepted, times),
    }


def _median_ms(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return round(1000 * median(taken), 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
