"""Quotas as a receiver sees them: real processes, real sockets, a sink that counts what comes in.

    python -m benchmarks.bench_quota [--full] [--postgresql] [--seconds 60] [--traces DIR]
                                          [--parts stores nested readers combinations clients scenarios limiter ledger]

parts           what                                                                 verdict
stores          real copies to versitygw, 0, 15 and 40 ms away, 1, 4 and 16 batches  firm, each
nested          workers under a narrower quota, beside one that has only the total   firm, each
readers         8 readers under one fetch quota; others beside a client beyond its   firm, each
combinations    quota x segment x processes, five or all 27 (--full, FULL=1)         firm, each
clients         the limits of s3transfer and rclone at the same rates (only --full)  beside ours
scenarios       live change, busy among idle or slow, SIGKILL, ledger gone, brokers  firm, each
limiter         CPU of the limiter alone at 200 MB/s                                 firm
ledger          32 processes: latency of a round, statements a second                statements firm

Each outcome stands beside the share of the machine that was idle meanwhile: on a busy machine a slow second says
little. Exit code 1 if a firm criterion failed. Without --postgresql the ledger is in SQLite. With --traces every trace
is kept as JSON, for `plot_trace`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.bench_upload import find_rclone, tell
from benchmarks.limited_clients import rclone, s3transfer
from benchmarks.machine import IdleMeter
from benchmarks.quota_nested import NESTED, nested
from benchmarks.quota_readers import archive, beside_a_rogue, shared
from benchmarks.quota_scenarios import (
    Check,
    Outcome,
    busy_among,
    killed,
    ledger_gone,
    live_change,
    outage_of,
    steady,
    steady_checks,
    two_brokers,
)
from benchmarks.quota_scene import TOTAL, Scene, begin, end, scene
from benchmarks.quota_stores import DELAYS_MS, Cell, many, measured, pair
from benchmarks.quota_stores import SEGMENTS as STORED_SEGMENTS
from include.tiering.units import GIB, MIB
from tests.doubles.databases import postgresql_server
from tests.doubles.s3_server import NO_VERSITYGW, find_versitygw

MB: Final = 1_000_000
PARTS: Final = ("stores", "nested", "readers", "combinations", "clients", "scenarios", "limiter", "ledger")
QUOTAS: Final = (1 * MB, 10 * MB, 100 * MB)
SEGMENTS: Final = {"1 MiB": MIB, "64 MiB": 64 * MIB, "1 GiB": GIB}
PROCESSES: Final = (1, 2, 8)
CHOSEN: Final = frozenset(
    {
        (1 * MB, "1 GiB", 2),
        (10 * MB, "1 MiB", 8),
        (100 * MB, "1 MiB", 1),
        (100 * MB, "64 MiB", 8),
        (100 * MB, "1 GiB", 1),
    }
)
NESTED_QUOTA: Final = 10 * MB
FETCH_QUOTA: Final = 20 * MB
ROGUE_QUOTA: Final = 5 * MB
MOST_NESTED_SECONDS: Final = 20.0
CLIENT_SECONDS: Final = 20.0
"""Enough to see the others settle; they are not checked."""

LIMITER_SECONDS: Final = 10.0
LEDGER_PROCESSES: Final = 32
LEDGER_SECONDS: Final = 30.0


class Run:
    """Measures one thing after another and remembers whether all of it passed."""

    def __init__(self, opened: Scene, traces: Path | None) -> None:
        self.scene = opened
        self.passed = True
        self._traces = traces

    def outcome(self, name: str, measure: Callable[[], Outcome]) -> dict[str, Any]:
        """What came out, with the idle share; a run that broke is a failure with its reason."""
        tell(name)
        idle = IdleMeter()
        try:
            outcome = measure()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            self.passed = False
            return {"passed": False, "error": f"{type(error).__name__}: {error}"}
        for check in outcome.failed:
            tell(f"  FAILED {check.name}: {check.to_json()}")
        self.passed &= not outcome.failed
        if self._traces is not None:
            (self._traces / f"{name.replace(' ', '-').replace('/', '-')}.json").write_text(
                json.dumps(outcome.trace_json())
            )
        return {**outcome.to_json(), "idle_share": idle.share()}


def stores(run: Run, seconds: float) -> dict[str, Any]:
    """Cells of one distance and size run at the same time: one batch, and several in a deployment of their own."""
    binary = find_versitygw()
    if binary is None:
        return {"skipped": NO_VERSITYGW}

    def outcomes(cells: Sequence[tuple[str, Cell]]) -> dict[str, Any]:
        with ThreadPoolExecutor(len(cells)) as threads:
            begun = [
                (name, threads.submit(run.outcome, name, partial(measured, cell, binary, seconds=seconds)))
                for name, cell in cells
            ]
            return {name: outcome.result() for name, outcome in begun}

    results = {}
    for delay_ms in DELAYS_MS:
        for segment in STORED_SEGMENTS:
            cells = [(f"{segment}, {delay_ms} ms, {cell.batches} batches", cell) for cell in pair(delay_ms, segment)]
            results.update(outcomes(cells))
    return results | outcomes([(f"2 MiB, 0 ms, {many().batches} batches", many())])


def nested_quotas(run: Run, seconds: float) -> dict[str, Any]:
    return {
        name: run.outcome(f"nested: {name}", partial(nested, run.scene, case, NESTED_QUOTA, seconds=seconds))
        for name, case in NESTED.items()
    }


def readers(run: Run, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-quota-") as directory, archive(Path(directory)) as opened:
        return {
            "8 readers, 20 MB/s": run.outcome("8 readers", partial(shared, opened, FETCH_QUOTA, seconds=seconds)),
            "3 readers beside a rogue of 5 MB/s, 20 MB/s": run.outcome(
                "3 readers beside a rogue",
                partial(beside_a_rogue, opened, FETCH_QUOTA, ROGUE_QUOTA, seconds=seconds),
            ),
        }


def combinations(run: Run, seconds: float, *, full: bool) -> dict[str, Any]:
    chosen = [
        (quota, segment, processes)
        for quota in QUOTAS
        for segment in SEGMENTS
        for processes in PROCESSES
        if full or (quota, segment, processes) in CHOSEN
    ]
    results = {}
    for quota, segment, processes in chosen:
        name = f"{quota // MB} MB/s, {segment}, {processes} processes"
        measure = partial(
            steady, run.scene, quota, segment_bytes=SEGMENTS[segment], processes=processes, seconds=seconds
        )
        results[name] = run.outcome(name, measure)
    return results


def clients(run: Run, seconds: float, *, full: bool) -> dict[str, Any]:
    """The others are checked as ours are, and reported alone: none of them fails this benchmark."""
    if not full:
        return {"skipped": "FULL=1 measures them"}
    results: dict[str, Any] = {}
    available = {"s3transfer": s3transfer} | ({"rclone": rclone} if find_rclone() is not None else {})
    for quota in QUOTAS:
        for segment, size_bytes in SEGMENTS.items():
            for client, uploading in available.items():
                name = f"{client}, {quota // MB} MB/s, {segment}"
                tell(name)
                idle = IdleMeter()
                with tempfile.TemporaryDirectory(prefix="bench-quota-") as scratch:
                    file = Path(scratch) / "segment.log"
                    file.touch()
                    os.truncate(file, size_bytes)
                    run.scene.forget()
                    with uploading(run.scene.endpoint_url, quota, file, seconds):
                        checked = _checked_from_first_byte(run.scene, seconds, quota)
                results[name] = {**checked, "idle_share": idle.share()}
    return results


def _checked_from_first_byte(opened: Scene, seconds: float, quota: int) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while not opened.trace().total_bytes and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(seconds)
    checks, figures = steady_checks(opened.trace().checked(seconds), quota)
    return {"checks": {check.name: check.to_json() for check in checks}, **figures}


def scenarios(run: Run, metadata_url: str) -> dict[str, Any]:
    opened = run.scene
    measures: dict[str, Callable[[], Outcome]] = {
        "live change 100 to 10 to 50 MB/s, 8 processes": lambda: live_change(
            opened, (100 * MB, 10 * MB, 50 * MB), hold_s=10, change=Scene.set_quotas_by_command
        ),
        "1 busy among 7 idle, 100 MB/s": lambda: busy_among(opened, 100 * MB, "idle"),
        "1 busy among 7 slow, 100 MB/s": lambda: busy_among(opened, 100 * MB, "slow"),
        "SIGKILL of 4 of 8, 100 MB/s": lambda: killed(opened, 100 * MB),
        "ledger gone for 10 s, 4 processes, 50 MB/s": lambda: ledger_gone(opened, 50 * MB, outage_of(metadata_url)),
        "two brokers, 20 MB/s each, then 30 MB/s in all": lambda: two_brokers(opened, 20 * MB, seconds=15),
    }
    return {name: run.outcome(name, measure) for name, measure in measures.items()}


def limiter_alone(run: Run) -> dict[str, Any]:
    """Grants at 200 MB/s that nobody sends: CPU of the limiter, its rounds with the ledger included."""

    def measure() -> Outcome:
        quota = 200 * MB
        run.scene.set_quotas({TOTAL: quota})
        run.scene.forget()
        workers = run.scene.start(1, "take")
        begin(workers)
        time.sleep(LIMITER_SECONDS)
        (account,) = end(workers)
        share = account["cpu_seconds"] / account["seconds"]
        checks = (
            Check("share of a core", share, 0, 0.02),
            Check("average", account["charged_bytes"] / account["seconds"] / quota, 0.98, 1.0),
        )
        return Outcome(checks, run.scene.trace(), ())

    return run.outcome("limiter alone, 200 MB/s", measure)


def ledger_load(run: Run) -> dict[str, Any]:
    """Many processes that all send a little: what a round costs them, and what they cost the database."""

    def measure() -> Outcome:
        run.scene.set_quotas({TOTAL: 20 * MB})
        run.scene.forget()
        workers = run.scene.start(LEDGER_PROCESSES, "busy", MIB)
        begin(workers)
        time.sleep(LEDGER_SECONDS)
        accounts = end(workers)
        rounds_ms = np.concatenate([account["round_seconds"] for account in accounts]) * 1000
        rates = [len(account["statement_seconds"]) / account["seconds"] for account in accounts]
        return Outcome(
            (Check("statements a second of the busiest process", max(rates), 0, 4.0),),
            run.scene.trace(),
            (),
            reported={
                "rounds": len(rounds_ms),
                "round_ms": {
                    name: round(float(np.percentile(rounds_ms, percent)), 2)
                    for name, percent in (("p50", 50), ("p99", 99), ("max", 100))
                },
                "mean_statements_a_second": round(float(np.mean(rates)), 2),
            },
        )

    return run.outcome(f"ledger of {LEDGER_PROCESSES} processes", measure)


@contextmanager
def empty_database(*, postgresql: bool) -> Iterator[str]:
    if postgresql:
        with postgresql_server() as create_database:
            yield create_database("bench_quota")
    else:
        with tempfile.TemporaryDirectory(prefix="bench-quota-") as directory:
            yield f"sqlite:///{directory}/metadata.sqlite"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Evaluate quotas by what a receiver sees; prints JSON.")
    parser.add_argument("--full", action="store_true", default=os.environ.get("FULL") == "1")
    parser.add_argument("--postgresql", action="store_true", default=os.environ.get("POSTGRESQL") == "1")
    parser.add_argument("--seconds", type=float, default=60.0, help="checked in each combination; firm: 60 or more")
    parser.add_argument("--traces", type=Path, help="an existing directory for the traces")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {"ledger": "PostgreSQL" if options.postgresql else "SQLite", "seconds": options.seconds}
    with empty_database(postgresql=options.postgresql) as metadata_url, scene(metadata_url) as opened:
        run = Run(opened, options.traces)
        measures: dict[str, Callable[[], dict[str, Any]]] = {
            "combinations": lambda: combinations(run, options.seconds, full=options.full),
            "clients": lambda: clients(run, min(options.seconds, CLIENT_SECONDS), full=options.full),
            "stores": lambda: stores(run, options.seconds),
            "nested": lambda: nested_quotas(run, min(options.seconds, MOST_NESTED_SECONDS)),
            "readers": lambda: readers(run, options.seconds),
            "scenarios": lambda: scenarios(run, metadata_url),
            "limiter": lambda: limiter_alone(run),
            "ledger": lambda: ledger_load(run),
        }
        for part in PARTS:
            if part in options.parts:
                results[part] = measures[part]()
    results["passed"] = run.passed
    sys.stdout.write(json.dumps(results) + "\n")
    return 0 if run.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
