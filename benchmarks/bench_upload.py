"""Upload speed of remote storage beside boto3's upload_file at its defaults, and rclone where it is installed.

    python -m benchmarks.bench_upload [--rounds 3] [--quick] [--versitygw] [--rclone] [--directory DIR]

Everything goes to a sink on loopback that computes the checksum it is told and throws the bytes away; its CPU is not
counted, though on few cores it takes some from the client. Two sets: many small segments, few large ones, in the page
cache. Clients take turns within a round, so that other load on the machine hits all of them; medians are reported, and
ratios are medians of the ratios within a round. CPU seconds per GB (10^9 bytes) are the firm figure on a busy machine.
Start-up is not counted for the Python clients; for rclone it is part of the process (about 0.1 s).

`--versitygw` adds a real server that keeps the bytes: there its own hashing is the limit.

rclone takes part if it is on the PATH or in Go's bin directory; `--rclone` first builds it there with Go.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from include.tiering.units import MIB
from tests.doubles.s3_server import ACCESS_KEY, CREDENTIALS, SECRET_KEY, find_versitygw, versitygw_server

BUCKET: Final = "bucket"
RCLONE_MODULE: Final = "github.com/rclone/rclone@v1.75.1"
SETS: Final = {"64 x 16 MiB": (64, 16 * MIB), "4 x 512 MiB": (4, 512 * MIB)}
QUICK_SETS: Final = {"8 x 16 MiB": (8, 16 * MIB), "1 x 128 MiB": (1, 128 * MIB)}


@dataclass(frozen=True)
class Measured:
    """One upload of one set."""

    wall_seconds: float
    cpu_seconds: float
    peak_resident_bytes: int


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure uploads; prints JSON.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small sets: to see whether it works")
    parser.add_argument("--versitygw", action="store_true", help="also to a real server that keeps the bytes")
    parser.add_argument("--rclone", action="store_true", help="build rclone with Go if it is not here (minutes)")
    parser.add_argument("--directory", type=Path, help="where the files are made (about 3 GiB)")
    options = parser.parse_args(arguments)
    if options.rclone and find_rclone() is None:
        subprocess.run(["go", "install", RCLONE_MODULE], check=True)
    results: dict[str, Any] = {"rounds": options.rounds, "sink": {}}
    with tempfile.TemporaryDirectory(prefix="bench-upload-", dir=options.directory) as scratch:
        for name, (count, size_bytes) in (QUICK_SETS if options.quick else SETS).items():
            files = made_files(Path(scratch) / "source", count, size_bytes)
            results["sink"][name] = against_sink(files, options.rounds, name)
            if options.versitygw:
                results.setdefault("versitygw", {})[name] = against_versitygw(files, options.rounds, Path(scratch))
            shutil.rmtree(Path(scratch) / "source")
    sys.stdout.write(json.dumps(results) + "\n")


def made_files(directory: Path, count: int, size_bytes: int) -> list[Path]:
    directory.mkdir()
    files = [directory / f"{number:04d}.log" for number in range(count)]
    block = os.urandom(MIB)
    for path in files:
        with path.open("wb") as file:
            for _ in range(size_bytes // MIB):
                file.write(block)
    return files


def against_sink(files: list[Path], rounds: int, name: str) -> dict[str, Any]:
    clients = {"ours": python_client, "upload_file": python_client}
    if find_rclone() is not None:
        clients["rclone"] = rclone_client
    rounds_measured = []
    with sink() as (endpoint_url, ask):
        for number in range(rounds):
            measured = {}
            for client, run in clients.items():
                tell(f"{name}, round {number + 1}, {client}")
                before = ask("forget")
                measured[client] = run(client, endpoint_url, files, f"{client}-{number}/")
                check_arrived(client, files, before, ask("count"))
            rounds_measured.append(measured)
    return summary(rounds_measured, files)


def against_versitygw(files: list[Path], rounds: int, scratch: Path) -> dict[str, Any]:
    binary = find_versitygw()
    if binary is None:
        return {"skipped": "versitygw is not here: make s3-server"}
    rounds_measured = []
    for number in range(rounds):
        measured = {}
        for client in ("ours", "upload_file"):
            tell(f"versitygw, round {number + 1}, {client}")
            kept = scratch / f"kept-{client}-{number}"
            with versitygw_server(binary, kept) as server:
                server.make_bucket(BUCKET)
                measured[client] = python_client(client, server.endpoint_url, files, "p/")
            shutil.rmtree(kept)
        rounds_measured.append(measured)
    return summary(rounds_measured, files)


def summary(rounds: list[dict[str, Measured]], files: list[Path]) -> dict[str, Any]:
    size_bytes = sum(path.stat().st_size for path in files)
    result: dict[str, Any] = {
        client: {
            "mb_per_second": round(statistics.median(size_bytes / each[client].wall_seconds for each in rounds) / 1e6),
            "cpu_seconds_per_gb": round(
                statistics.median(each[client].cpu_seconds for each in rounds) / size_bytes * 1e9, 2
            ),
            "peak_resident_mib": round(max(each[client].peak_resident_bytes for each in rounds) / MIB),
        }
        for client in rounds[0]
    }
    for other in rounds[0].keys() - {"ours"}:
        ratios = [each[other].wall_seconds / each["ours"].wall_seconds for each in rounds]
        result["ours"][f"times_{other}"] = round(statistics.median(ratios), 2)
    return result


def python_client(client: str, endpoint_url: str, files: list[Path], prefix: str) -> Measured:
    command = [sys.executable, "-m", "benchmarks.upload_clients", client, endpoint_url, BUCKET, prefix]
    done = subprocess.run(
        [*command, *map(str, files)], env={**os.environ, **CREDENTIALS}, stdout=subprocess.PIPE, check=True
    )
    return Measured(**json.loads(done.stdout))


def rclone_client(client: str, endpoint_url: str, files: list[Path], prefix: str) -> Measured:
    """`rclone copy` at its defaults, of the directory that holds the files; the whole process counts."""
    environment = {
        **os.environ,
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CONFIG_SINK_TYPE": "s3",
        "RCLONE_CONFIG_SINK_PROVIDER": "Other",
        "RCLONE_CONFIG_SINK_ENDPOINT": endpoint_url,
        "RCLONE_CONFIG_SINK_ACCESS_KEY_ID": ACCESS_KEY,
        "RCLONE_CONFIG_SINK_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    command = [str(find_rclone()), "copy", str(files[0].parent), f"sink:{BUCKET}/{prefix}", "--retries", "1"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    subprocess.run(command, env=environment, check=True)
    ended = time.monotonic()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Measured(ended - begun, cpu_seconds, after.ru_maxrss * 1024)


def find_rclone() -> Path | None:
    on_path = shutil.which("rclone")
    candidates = [Path(on_path)] if on_path else []
    candidates.append(Path(os.environ.get("GOPATH") or Path.home() / "go") / "bin" / "rclone")
    return next((path for path in candidates if os.access(path, os.X_OK)), None)


@contextlib.contextmanager
def sink() -> Iterator[tuple[str, Any]]:
    """Endpoint of a sink in a process of its own, and a way to ask it: (requests, bytes, verified, refused)."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.s3_sink"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    questions, answers = process.stdin, process.stdout

    def ask(question: str) -> list[int]:
        questions.write(f"{question}\n")
        questions.flush()
        return [int(number) for number in answers.readline().split()]

    try:
        yield answers.readline().strip(), ask
    finally:
        questions.close()
        process.wait(timeout=10)
        answers.close()


def check_arrived(client: str, files: list[Path], before: list[int], after: list[int]) -> None:
    """A figure counts only if all bytes came in and, where the client sends checksums, every one of them held."""
    _, payload_bytes, verified, refused = (new - old for new, old in zip(after, before, strict=True))
    size_bytes = sum(path.stat().st_size for path in files)
    if payload_bytes != size_bytes or refused or (client != "rclone" and verified < len(files)):
        raise RuntimeError(f"{client}: {payload_bytes} of {size_bytes} bytes, {verified} verified, {refused} refused")


def tell(words: str) -> None:
    sys.stderr.write(f"{words}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
