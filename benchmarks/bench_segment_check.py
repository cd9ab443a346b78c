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
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.beside_kafka import Dump, compared_rates, measure_beside_kafka, parsed, rates, rounded
from benchmarks.generated_log_dir import FileSource, status_bytes, write_segment
from benchmarks.machine import machine_description
from include.tiering.formats.log_batches import check_segment
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.units import GIB, KIB, MIB

_GOAL_GIB_PER_SECOND: Final = {16 * KIB: 1.5, KIB: 250 * MIB / GIB}
_GOAL_MEMORY_MIB: Final = 64
_GOAL_TIMES: Final = 8
_MODULE: Final = "benchmarks.bench_segment_check"


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


def _rates(runs: Sequence[dict[str, Any]], size_gib: float) -> dict[str, Any]:
    return {
        "batches": runs[0]["batches"],
        **rates("check", runs, size_gib),
        "memory_above_imports_mib": rounded(max(run["memory_bytes"] for run in runs) / MIB),
    }


def _compared(result: dict[str, Any], runs: Sequence[Dump], size_gib: float) -> dict[str, float]:
    if any(run.valid_batches != result["batches"] for run in runs):
        raise RuntimeError(f"DumpLogSegments counts {runs[0].valid_batches} batches, the check {result['batches']}")
    return compared_rates("check", result, runs, size_gib)


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
        result = measure_beside_kafka(_MODULE, path, path, options, _rates, _compared)
    return {"batch_bytes": batch_bytes, **result, "goals_met": _goals_met(batch_bytes, result)}


def main(arguments: Sequence[str]) -> int:
    options = parsed(__doc__, arguments, measured="LOG")
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
