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
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.beside_kafka import (
    Dump,
    compared_rates,
    measure_beside_kafka,
    measure_in_a_process,
    parsed,
    rates,
    rounded,
)
from benchmarks.generated_log_dir import status_bytes
from benchmarks.machine import machine_description
from benchmarks.stored_segment import StoredLog, measure_deep, store_segment
from include.tiering.units import KIB, MIB

_BATCH_BYTES: Final = (16 * KIB, KIB)
_MEMORY_SIZES_MIB: Final = (1, 64, 1024)
_GOAL_MEMORY_MIB: Final = 64
_GOAL_TIMES: Final = 5
_MODULE: Final = "benchmarks.bench_verify"


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


def _rates(runs: Sequence[dict[str, Any]], size_gib: float) -> dict[str, Any]:
    return {
        **rates("verify", runs, size_gib),
        "bytes_over_stored": max(run["bytes_over_stored"] for run in runs),
    }


def _compared(result: dict[str, Any], runs: Sequence[Dump], size_gib: float) -> dict[str, float]:
    rate_by_cpu = size_gib / min(run.cpu_seconds for run in runs)
    return {
        **compared_rates("verify", result, runs, size_gib),
        "times_by_cpu_seconds": rounded(result["verify_gib_per_cpu_second"] / rate_by_cpu),
    }


def _run(batch_bytes: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-verify-", dir=options.directory) as directory:
        print(f"storing {options.size_mib} MiB in batches of {batch_bytes} bytes", file=sys.stderr, flush=True)
        stored = store_segment(Path(directory), options.size_mib * MIB, batch_bytes)
        measure_here(stored.directory)
        print("verifying", file=sys.stderr, flush=True)
        result = measure_beside_kafka(_MODULE, stored.directory, stored.plain_log, options, _rates, _compared)
    times = result["dump_log_segments"].get("records", {}).get("times", _GOAL_TIMES)
    return {"batch_bytes": batch_bytes, **result, "goals_met": times >= _GOAL_TIMES}


def _memory_mib(size_mib: int, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-verify-", dir=options.directory) as directory:
        stored = store_segment(Path(directory), size_mib * MIB, 16 * KIB)
        peak_mib = measure_in_a_process(_MODULE, stored.directory)["memory_bytes"] / MIB
    return {"size_mib": size_mib, "above_imports_mib": rounded(peak_mib), "goals_met": peak_mib < _GOAL_MEMORY_MIB}


def main(arguments: Sequence[str]) -> int:
    options = parsed(__doc__, arguments, measured="DIR")
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
