"""Copy rate with all checks on: every batch, the whole file's CRC-32C, what the store has, the source again, metadata.

    python -m benchmarks.bench_copy [--rounds 3] [--quick] [--directory DIR]

Segments of 16 KiB batches in the page cache, in two sets: many small ones, few large ones. To a directory, beside `cp`
of the same files; to a sink on loopback that verifies checksums and keeps nothing (its CPU is not counted), beside
boto3's upload_file at its defaults and, where it is installed, rclone, which both check nothing; to a real S3 server
that keeps the bytes, where its own hashing is the limit. Clients take turns within a round; medians are reported, and
ratios are medians of the ratios within a round. CPU seconds per GB (10^9 bytes) are the firm figure on a busy machine.
Our start-up, scan and plan are not counted.

A copy runs as many batches as set-up gives the pool slots: one process and one upload stream for each core.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_upload import (
    BUCKET,
    Measured,
    find_rclone,
    python_client,
    rclone_client,
    sink,
    summary,
    tell,
)
from benchmarks.copy_once import COMMAND, begin, ready_batches
from benchmarks.generated_log_dir import TOPIC, Shape, write_log_dir
from include.tiering.units import KIB, MIB
from tests.doubles.s3_server import CREDENTIALS, find_versitygw, versitygw_server

BATCH_BYTES: Final = 16 * KIB
SETTLE_SECONDS: Final = 2.0
BATCHES: Final = len(os.sched_getaffinity(0))
SETS: Final = {
    "64 x 16 MiB": Shape(4, 16, 16 * MIB, BATCH_BYTES),
    "4 x 512 MiB": Shape(4, 1, 512 * MIB, BATCH_BYTES),
}
QUICK_SETS: Final = {"8 x 16 MiB": Shape(2, 4, 16 * MIB, BATCH_BYTES)}

Client = Callable[[], Measured]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure copies with all checks on; prints JSON.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a small set: to see whether it works")
    parser.add_argument("--directory", type=Path, help="where the files are made (up to 5 GiB)")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {"rounds": options.rounds, "batches": BATCHES, "file": {}, "sink": {}, "versitygw": {}}
    for name, shape in (QUICK_SETS if options.quick else SETS).items():
        with tempfile.TemporaryDirectory(prefix="bench-copy-", dir=options.directory) as directory:
            scratch = Path(directory)
            write_log_dir(scratch / "broker", shape)
            results["file"][name] = against_cp(scratch, options.rounds, name)
            results["sink"][name] = against_uploaders(scratch, options.rounds, name)
            results["versitygw"][name] = to_versitygw(scratch, options.rounds, name)
    sys.stdout.write(json.dumps(results) + "\n")


def logs_of(scratch: Path) -> list[Path]:
    """The rolled segments' records: what the other clients copy."""
    return sorted(path for path in scratch.glob(f"broker/{TOPIC}-*/*.log") if path.stat().st_size)


def files_of(scratch: Path) -> list[Path]:
    """The same as links in the directory `flat`, for clients that take one directory or name objects by file name."""
    logs, flat = logs_of(scratch), scratch / "flat"
    flat.mkdir()
    files = [flat / f"{number:04d}.log" for number in range(len(logs))]
    for log, file in zip(logs, files, strict=True):
        os.link(log, file)
    return files


def against_cp(scratch: Path, rounds: int, name: str) -> dict[str, Any]:
    target = scratch / "target"

    def ours() -> Measured:
        return copy(scratch, f"file://{target}")

    def cp() -> Measured:
        copied = [str(path) for path in logs_of(scratch)]
        return whole_process(["cp", "--parents", *copied, str(target)])

    def emptied(client: Client) -> Client:
        def run() -> Measured:
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            return client()

        return run

    return in_turns({"ours": emptied(ours), "cp": emptied(cp)}, logs_of(scratch), rounds, f"file, {name}")


def against_uploaders(scratch: Path, rounds: int, name: str) -> dict[str, Any]:
    files = files_of(scratch)
    with sink() as (endpoint_url, ask):

        def forgetting(client: Client) -> Client:
            def run() -> Measured:
                ask("forget")
                return client()

            return run

        clients = {
            "ours": forgetting(lambda: copy(scratch, f"s3://{BUCKET}/ours", endpoint_url)),
            "upload_file": forgetting(lambda: python_client("upload_file", endpoint_url, files, "theirs/")),
        }
        if find_rclone() is not None:
            clients["rclone"] = forgetting(lambda: rclone_client("rclone", endpoint_url, files, "rclone/"))
        return in_turns(clients, files, rounds, f"sink, {name}")


def to_versitygw(scratch: Path, rounds: int, name: str) -> dict[str, Any]:
    binary = find_versitygw()
    if binary is None:
        return {"skipped": "versitygw is not here: make s3-server"}

    def ours() -> Measured:
        kept = scratch / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        with versitygw_server(binary, kept) as server:
            server.make_bucket(BUCKET)
            return copy(scratch, f"s3://{BUCKET}/ours", server.endpoint_url)

    return in_turns({"ours": ours}, logs_of(scratch), rounds, f"versitygw, {name}")


def copy(scratch: Path, url: str, endpoint_url: str | None = None, *, batches: int = BATCHES) -> Measured:
    """One run of the product with a database of its own, one process per batch."""
    for database in scratch.glob("metadata.sqlite*"):
        database.unlink()
    environment = environment_of(scratch, url, endpoint_url)
    planned = subprocess.run([*COMMAND, "plan"], env=environment, stdout=subprocess.PIPE, check=True)
    with ready_batches(batches, environment) as processes:
        begin(processes)
        accounts = [json.loads(process.communicate()[0]) for process in processes]
    copied_bytes = sum(account["copied_bytes"] for account in accounts)
    if copied_bytes != json.loads(planned.stdout)["planned_bytes"]:
        raise RuntimeError(f"{copied_bytes} bytes were copied, planned were {planned.stdout!r}")
    return Measured(
        max(account["ended"] for account in accounts) - min(account["begun"] for account in accounts),
        sum(account["cpu_seconds"] for account in accounts),
        max(account["peak_resident_bytes"] for account in accounts),
    )


def environment_of(scratch: Path, url: str, endpoint_url: str | None) -> dict[str, str]:
    """Return the settings of a copy, and of what reads its database."""
    environment = {
        **os.environ,
        **CREDENTIALS,
        "TIERING_LOG_DIRS": f"1:{scratch / 'broker'}",
        "TIERING_TOPICS__INCLUDE": TOPIC,
        "TIERING_METADATA__URL": f"sqlite:///{scratch / 'metadata.sqlite'}",
        "TIERING_REMOTE_STORAGE__URL": url,
    }
    return environment if endpoint_url is None else environment | {"TIERING_REMOTE_STORAGE__ENDPOINT_URL": endpoint_url}


def whole_process(command: list[str]) -> Measured:
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True)
    ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(ended - begun, cpu_seconds, after.ru_maxrss * 1024)


def in_turns(clients: dict[str, Client], files: list[Path], rounds: int, name: str) -> dict[str, Any]:
    measured = []
    for number in range(rounds):
        one_round = {}
        for client, run in clients.items():
            tell(f"{name}, round {number + 1}, {client}")
            # What one client left to the disk, to sockets and to exiting processes is not the next one's.
            os.sync()
            time.sleep(SETTLE_SECONDS)
            one_round[client] = run()
        measured.append(one_round)
    return summary(measured, files)


if __name__ == "__main__":
    main(sys.argv[1:])
