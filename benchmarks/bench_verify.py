"""How fast one core verifies a copied segment deeply, beside Kafka's DumpLogSegments; what memory and bytes that takes.

    python -m benchmarks.bench_verify
    python -m benchmarks.bench_verify --size-mib 64 --repeats 3 --no-dump-log-segments

Stores a segment as the platform does: log, indexes, producer snapshot, leader epochs, manifest, in a file store. Fresh
processes measure it deeply through the storage contract and evaluate its rules: every batch's CRC-32C, offsets, epochs,
headers and records, every index entry, transactions and producers against the batches, the whole checksum. By turns
with it, on the same bytes, Kafka's own DumpLogSegments in two ways: `batches` checks the CRC of each batch, `records`
(--deep-iteration) also whether the offsets follow each other. Then segments of other sizes, for the memory alone.

Standard output is one JSON object:
  machine                                 what it ran on; the load says how much to believe the wall clock
  results[].verify_gib_per_second         size / wall-clock seconds of the measure alone: best, median
  results[].verify_gib_per_cpu_second     the same by CPU time (one thread), which a busy machine disturbs less: best
  results[].process_gib_per_second        best, with the start of the interpreter and all imports
  results[].bytes_over_stored             bytes that the fetch quota was charged / bytes of the stored objects
  results[].dump_log_segments             per way: GiB per second with the start of the JVM, how many `times` that the
                                          verification does, the same with the interpreter's start, the same by CPU
                                          time of all threads; or why it was skipped
  memory[]                                peak resident memory minus that after the imports, by size of the segment
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
from benchmarks.generated_segment import status_bytes
from benchmarks.machine import machine_description
from benchmarks.stored_segment import StoredLog, measure_deep, store_segment
from include.tiering.units import GIB, KIB, MIB

_ROOT: Final = Path(__file__).resolve().parents[1]
_BATCH_BYTES: Final = (16 * KIB, KIB)
_MEMORY_SIZES_MIB: Final = (1, 64, 1024)
_GOAL_MEMORY_MIB: Final = 64
_GOAL_TIMES: Final = 5
_MAX_DUMPS: Final = 2
_WAYS: Final = ("batches", "records")


def measure_here(directory: Path) -> dict[str, Any]:
    """One deep measure in this process, which must find nothing."""
    after_imports = status_bytes("VmRSS")
    stored = StoredLog.of(directory)
    wall, cpu = time.perf_counter(), time.process_time()
    measure, charged_bytes = measure_deep(stored)
    seconds, cpu_seconds = time.perf_counter() - wall, time.process_time() - cpu
    if measure.bytes_read != charged_bytes:
        raise RuntimeError(f"{measure.bytes_read} bytes were read, {charged_bytes} charged")
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "memory_bytes": status_bytes("VmHWM") - after_imports,
        "bytes_over_stored": charged_bytes / stored.objects_bytes,
    }


def _measure_in_a_process(directory: Path) -> dict[str, Any]:
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.bench_verify", "--measure", str(directory)],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return {**measured, "process_seconds": time.perf_counter() - begun}


def _rates(runs: Sequence[dict[str, Any]], size_gib: float) -> dict[str, Any]:
    return {
        "verify_gib_per_second": {
            "best": _rounded(size_gib / min(run["seconds"] for run in runs)),
            "median": _rounded(size_gib / statistics.median(run["seconds"] for run in runs)),
        },
        "verify_gib_per_cpu_second": _rounded(size_gib / min(run["cpu_seconds"] for run in runs)),
        "process_gib_per_second": _rounded(size_gib / min(run["process_seconds"] for run in runs)),
        "bytes_over_stored": max(run["bytes_over_stored"] for run in runs),
    }


def _measure_side_by_side(stored: StoredLog, options: argparse.Namespace) -> dict[str, Any]:
    """Verification and DumpLogSegments by turns, so that both see the same neighbours on the machine."""
    verified, dumps, skipped = [], defaultdict(list), None if options.dump_log_segments else "not asked for"
    for number in range(options.repeats):
        verified.append(_measure_in_a_process(stored.directory))
        if skipped is None and number < _MAX_DUMPS:
            try:
                for way in _WAYS:
                    dumps[way].append(dump(stored.plain_log, libs(), records=way == "records"))
            except ToolUnavailableError as error:
                skipped = str(error)
    size_gib = stored.plain_log.stat().st_size / GIB
    result = _rates(verified, size_gib)
    if skipped is not None:
        return {**result, "dump_log_segments": {"skipped": skipped}}
    compared = {way: _compared(result, runs, size_gib) for way, runs in dumps.items()}
    return {**result, "dump_log_segments": {"version": KAFKA_VERSION, **compared}}


def _compared(result: dict[str, Any], runs: Sequence[Dump], size_gib: float) -> dict[str, float]:
    rate = size_gib / min(run.seconds for run in runs)
    rate_by_cpu = size_gib / min(run.cpu_seconds for run in runs)
    return {
        "gib_per_second": _rounded(rate),
        "times": _rounded(result["verify_gib_per_second"]["best"] / rate),
        "times_with_start": _rounded(result["process_gib_per_second"] / rate),
        "times_by_cpu_seconds": _rounded(result["verify_gib_per_cpu_second"] / rate_by_cpu),
    }


def _run(batch_bytes: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-verify-", dir=options.directory) as directory:
        print(f"storing {options.size_mib} MiB in batches of {batch_bytes} bytes", file=sys.stderr, flush=True)
        stored = store_segment(Path(directory), options.size_mib * MIB, batch_bytes)
        measure_here(stored.directory)
        print("verifying", file=sys.stderr, flush=True)
        result = _measure_side_by_side(stored, options)
    times = result["dump_log_segments"].get("records", {}).get("times", _GOAL_TIMES)
    return {"batch_bytes": batch_bytes, **result, "goals_met": times >= _GOAL_TIMES}


def _memory_mib(size_mib: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-verify-", dir=options.directory) as directory:
        stored = store_segment(Path(directory), size_mib * MIB, 16 * KIB)
        peak_mib = _measure_in_a_process(stored.directory)["memory_bytes"] / MIB
    return {"size_mib": size_mib, "above_imports_mib": _rounded(peak_mib), "goals_met": peak_mib < _GOAL_MEMORY_MIB}


def _rounded(value: float) -> float:
    return round(value, 3)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--size-mib", type=int, default=1024, help="size of the segments whose rate counts (default 1024)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="fresh processes per figure (default 5)")
    parser.add_argument("--directory", help="where to store the segments (default: the temporary directory)")
    parser.add_argument(
        "--dump-log-segments",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare with Kafka's tool; needs java, and mvn the first time (default: yes)",
    )
    parser.add_argument(
        "--measure", type=Path, metavar="DIR", help="verify what is stored there once, here; used by the program itself"
    )
    options = parser.parse_args(arguments)
    if options.measure is not None:
        print(json.dumps(measure_here(options.measure)))
        return 0
    machine = machine_description()
    results = [_run(batch_bytes, options) for batch_bytes in _BATCH_BYTES]
    memory = [_memory_mib(size_mib, options) for size_mib in _MEMORY_SIZES_MIB]
    goals = {"memory_above_imports_mib": _GOAL_MEMORY_MIB, "times_dump_log_segments_records": _GOAL_TIMES}
    print(json.dumps({"machine": machine, "goals": goals, "results": results, "memory": memory}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
