"""How fast one core checks every batch of a segment, and what memory that takes.

    python -m benchmarks.bench_segment_check
    python -m benchmarks.bench_segment_check --size-mib 64 --repeats 3 --no-dump-log-segments

Writes a segment of each batch size to a temporary directory, reads it once so that it is in the page cache, and checks
it in fresh processes: every batch (length, magic, CRC-32C, offsets, epoch) and the CRC-32C of the whole file. By turns
with it, on the same file, Kafka's own DumpLogSegments in two ways: `batches` checks the CRC of each batch, `records`
(--deep-iteration) also whether the offsets follow each other. It prints a line for each.

Standard output is one JSON object:
  machine                                 what it ran on; the load says how much to believe the wall clock
  results[].check_gib_per_second          size / wall-clock seconds of the check alone: best, median
  results[].check_gib_per_cpu_second      the same by CPU time (one thread), which a busy machine disturbs less: best
  results[].process_gib_per_second        best, with the start of the interpreter and all imports
  results[].memory_above_imports_mib      peak resident memory minus that after the imports: highest
  results[].dump_log_segments             per way: GiB per second with the start of the JVM, how many `times` that the
                                          check does, the same with the interpreter's start; or why it was skipped
  goals, goals_met                        the floors that the project promises, and whether these numbers reach them
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.dump_log_segments import KAFKA_VERSION, Dump, ToolUnavailableError, dump, libs
from benchmarks.generated_segment import FileSource, status_bytes, write_segment
from benchmarks.machine import machine_description
from include.tiering.formats.log_batches import check_segment
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.units import GIB, KIB, MIB

_ROOT: Final = Path(__file__).resolve().parents[1]
_GOAL_GIB_PER_SECOND: Final = {16 * KIB: 1.5, KIB: 250 * MIB / GIB}
_GOAL_MEMORY_MIB: Final = 64
_GOAL_TIMES: Final = 8
_MAX_DUMPS: Final = 2
_WAYS: Final = ("batches", "records")


def measure_here(path: Path) -> dict[str, Any]:
    """One check in this process."""
    after_imports = status_bytes("VmRSS")
    source = FileSource(path)
    wall, cpu = time.perf_counter(), time.process_time()
    batches = check_segment(source, base_offset=0, end_offset=2**31, leader_epochs=LeaderEpochs.of([(0, 0)]))
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "memory_bytes": status_bytes("VmHWM") - after_imports,
        "batches": batches.batch_count,
    }


def _measure_in_a_process(path: Path) -> dict[str, Any]:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_segment_check", "--measure", str(path)],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return {**measured, "process_seconds": time.perf_counter() - begun}


def _check_rates(runs: Sequence[dict[str, Any]], size_gib: float) -> dict[str, Any]:
    return {
        "batches": runs[0]["batches"],
        "check_gib_per_second": {
            "best": _rounded(size_gib / min(run["seconds"] for run in runs)),
            "median": _rounded(size_gib / statistics.median(run["seconds"] for run in runs)),
        },
        "check_gib_per_cpu_second": _rounded(size_gib / min(run["cpu_seconds"] for run in runs)),
        "process_gib_per_second": _rounded(size_gib / min(run["process_seconds"] for run in runs)),
        "memory_above_imports_mib": _rounded(max(run["memory_bytes"] for run in runs) / MIB),
    }


def _measure_side_by_side(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Check and DumpLogSegments by turns, so that both see the same neighbours on the machine."""
    checks, dumps, skipped = [], defaultdict(list), None if options.dump_log_segments else "not asked for"
    for number in range(options.repeats):
        checks.append(_measure_in_a_process(path))
        if skipped is None and number < _MAX_DUMPS:
            try:
                for way in _WAYS:
                    dumps[way].append(dump(path, libs(), records=way == "records"))
            except ToolUnavailableError as error:
                skipped = str(error)
    size_gib = path.stat().st_size / GIB
    result = _check_rates(checks, size_gib)
    if skipped is not None:
        return {**result, "dump_log_segments": {"skipped": skipped}}
    compared = {way: _compared(result, runs, size_gib) for way, runs in dumps.items()}
    return {**result, "dump_log_segments": {"version": KAFKA_VERSION, **compared}}


def _compared(result: dict[str, Any], runs: Sequence[Dump], size_gib: float) -> dict[str, float]:
    if any(run.valid_batches != result["batches"] for run in runs):
        raise RuntimeError(f"DumpLogSegments counts {runs[0].valid_batches} batches, the check {result['batches']}")
    rate = size_gib / min(run.seconds for run in runs)
    return {
        "gib_per_second": _rounded(rate),
        "times": _rounded(result["check_gib_per_second"]["best"] / rate),
        "times_with_start": _rounded(result["process_gib_per_second"] / rate),
    }


def _goals_met(batch_bytes: int, result: dict[str, Any]) -> bool:
    return bool(
        result["check_gib_per_cpu_second"] >= _GOAL_GIB_PER_SECOND[batch_bytes]
        and result["memory_above_imports_mib"] < _GOAL_MEMORY_MIB
        and result["dump_log_segments"].get("records", {}).get("times_with_start", _GOAL_TIMES) >= _GOAL_TIMES
    )


def _run(batch_bytes: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-segment-check-", dir=options.directory) as directory:
        path = Path(directory) / f"{0:020d}.log"
        print(f"writing {options.size_mib} MiB in batches of {batch_bytes} bytes", file=sys.stderr, flush=True)
        write_segment(path, options.size_mib * MIB, batch_bytes)
        measure_here(path)
        print("checking", file=sys.stderr, flush=True)
        result = _measure_side_by_side(path, options)
    return {"batch_bytes": batch_bytes, **result, "goals_met": _goals_met(batch_bytes, result)}


def _rounded(value: float) -> float:
    return round(value, 3)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mib", type=int, default=1024, help="size of each segment (default 1024)")
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes per figure (default 5)")
    parser.add_argument("--directory", help="where to write the segments (default: the temporary directory)")
    parser.add_argument(
        "--dump-log-segments",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare with Kafka's tool; needs java, and mvn the first time (default: yes)",
    )
    parser.add_argument(
        "--measure", type=Path, metavar="LOG", help="check this file once, here; used by the program itself"
    )
    options = parser.parse_args(arguments)
    if options.measure is not None:
        print(json.dumps(measure_here(options.measure)))
        return 0
    machine = machine_description()
    results = [_run(batch_bytes, options) for batch_bytes in _GOAL_GIB_PER_SECOND]
    goals = {
        "gib_per_cpu_second": _GOAL_GIB_PER_SECOND,
        "memory_above_imports_mib": _GOAL_MEMORY_MIB,
        "times_dump_log_segments_records": _GOAL_TIMES,
    }
    print(json.dumps({"machine": machine, "goals": goals, "results": results}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
