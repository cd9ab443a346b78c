"""A measure of segments in fresh processes, and by turns with it Kafka's DumpLogSegments on the same bytes."""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.dump_log_segments import KAFKA_VERSION, Dump, ToolUnavailableError, dump, libs
from include.tiering.units import GIB

_ROOT: Final = Path(__file__).resolve().parents[1]
_MAX_DUMPS: Final = 2
_WAYS: Final = ("batches", "records")

Rates = Callable[[Sequence[dict[str, Any]], float], dict[str, Any]]
Compared = Callable[[dict[str, Any], Sequence[Dump], float], dict[str, float]]


def rounded(value: float) -> float:
    return round(value, 3)


def parsed(description: str | None, arguments: Sequence[str], *, measured: str) -> argparse.Namespace:
    """Parse the arguments of a benchmark; `measured` is what `--measure` takes: the program's call of itself."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size-mib", type=int, default=1024, help="size of the segments whose rate counts (default 1024)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes per figure (default 5)")
    parser.add_argument("--directory", help="where to write the segments (default: the temporary directory)")
    parser.add_argument(
        "--dump-log-segments",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare with Kafka's tool; needs java, and mvn the first time (default: yes)",
    )
    parser.add_argument(
        "--measure", type=Path, metavar=measured, help="measure this once, here; used by the program itself"
    )
    return parser.parse_args(arguments)


def measure_in_a_process(module: str, path: Path) -> dict[str, Any]:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", module, "--measure", str(path)], cwd=_ROOT, stdout=subprocess.PIPE, check=True
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return {**measured, "process_seconds": time.perf_counter() - begun}


def rates(verb: str, runs: Sequence[dict[str, Any]], size_gib: float) -> dict[str, Any]:
    return {
        f"{verb}_gib_per_second": {
            "best": rounded(size_gib / min(run["seconds"] for run in runs)),
            "median": rounded(size_gib / statistics.median(run["seconds"] for run in runs)),
        },
        f"{verb}_gib_per_cpu_second": rounded(size_gib / min(run["cpu_seconds"] for run in runs)),
        "process_gib_per_second": rounded(size_gib / min(run["process_seconds"] for run in runs)),
    }


def compared_rates(verb: str, result: dict[str, Any], runs: Sequence[Dump], size_gib: float) -> dict[str, float]:
    rate = size_gib / min(run.seconds for run in runs)
    return {
        "gib_per_second": rounded(rate),
        "times": rounded(result[f"{verb}_gib_per_second"]["best"] / rate),
        "times_with_start": rounded(result["process_gib_per_second"] / rate),
    }


def measure_beside_kafka(
    module: str, path: Path, log: Path, options: argparse.Namespace, rates_of: Rates, compared: Compared
) -> dict[str, Any]:
    """Measure `path` and run DumpLogSegments on `log` by turns, so that both see the same neighbours on the machine."""
    measures, dumps, skipped = [], defaultdict(list), None if options.dump_log_segments else "not asked for"
    for number in range(options.repeats):
        measures.append(measure_in_a_process(module, path))
        if skipped is None and number < _MAX_DUMPS:
            try:
                for way in _WAYS:
                    dumps[way].append(dump(log, libs(), records=way == "records"))
            except ToolUnavailableError as error:
                skipped = str(error)
    size_gib = log.stat().st_size / GIB
    result = rates_of(measures, size_gib)
    if skipped is not None:
        return {**result, "dump_log_segments": {"skipped": skipped}}
    by_way = {way: compared(result, runs, size_gib) for way, runs in dumps.items()}
    return {**result, "dump_log_segments": {"version": KAFKA_VERSION, **by_way}}
