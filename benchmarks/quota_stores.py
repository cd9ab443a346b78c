"""Quotas of real copies to a real S3 server at a distance: batches of the product, and versitygw behind `far_store`.

    batches -> far_store (delay) -> payload_meter (counts what arrives) -> versitygw

A cell is a delay each way, a size of segments and a number of batches. All batches have segments to copy all the time.
Cells of different deployments may run at the same time; each has its own database, ledger and server.
"""

import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.bench_upload import BUCKET
from benchmarks.copy_once import COMMAND, begin, ready_batches
from benchmarks.generated_log_dir import TOPIC, Shape, write_log_dir
from benchmarks.payload_meter import payload_meter
from benchmarks.quota_scenarios import FULL_USE, Bounds, Outcome, steady_checks
from include.tiering.configs.config_catalogue import TOTAL_COPY_QUOTA
from include.tiering.units import KIB, MIB
from tests.doubles.s3_server import CREDENTIALS, versitygw_server

DELAYS_MS: Final = (0, 15, 40)
SEGMENTS: Final = {"256 KiB": (256 * KIB, 4_000_000), "2 MiB": (2 * MIB, 10_000_000), "64 MiB": (64 * MIB, 10_000_000)}
"""Sizes and quotas: fifteen segments a second at most, so that five batches on two cores are not limited by the CPU."""

BATCHES: Final = (1, 4)
MANY_BATCHES: Final = 16
_PARTITIONS: Final = 16
"""At least; at least two for each batch, because a batch that finds no partition to claim ends."""
_BATCH_BYTES: Final = 16 * KIB
_SPARE_S: Final = 30.0
"""Of work beyond what is measured: until all batches have begun, and for what they have in flight at the end."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One measurement. The delay is one way, the quota bytes a second of all batches together."""

    delay_ms: int
    segment_bytes: int
    batches: int
    quota: int


def measured(cell: Cell, binary: Path, *, seconds: float, bounds: Bounds = FULL_USE) -> Outcome:
    """Run the batches for so long from the first byte that arrives. Raises RuntimeError if work did not last."""
    with tempfile.TemporaryDirectory(prefix="bench-quota-") as directory, ExitStack() as stack:
        scratch = Path(directory)
        write_log_dir(scratch / "broker", _shape(cell, seconds))
        server = stack.enter_context(versitygw_server(binary, scratch / "kept"))
        server.make_bucket(BUCKET)
        port, arrivals = stack.enter_context(payload_meter(_port_of(server.endpoint_url)))
        if cell.delay_ms:
            port = stack.enter_context(far_store(port, cell.delay_ms))
        environment = {
            **os.environ,
            **CREDENTIALS,
            "TIERING_LOG_DIRS": f"1:{scratch / 'broker'}",
            "TIERING_TOPICS__INCLUDE": TOPIC,
            "TIERING_METADATA__URL": f"sqlite:///{scratch / 'metadata.sqlite'}",
            "TIERING_REMOTE_STORAGE__URL": f"s3://{BUCKET}/quota",
            "TIERING_REMOTE_STORAGE__ENDPOINT_URL": f"http://127.0.0.1:{port}",
        }
        subprocess.run([*COMMAND, "plan"], env=environment, stdout=subprocess.PIPE, check=True)
        quota = f"{TOTAL_COPY_QUOTA}={cell.quota}"
        subprocess.run([_CONFIGS, *_ALTER, quota], env=environment, stdout=subprocess.PIPE, check=True)
        batches = stack.enter_context(ready_batches(cell.batches, environment))
        arrivals.reset()
        begun_s = time.monotonic()
        begin(batches)
        while not arrivals.trace().total_bytes:
            if time.monotonic() > begun_s + _SPARE_S:
                raise RuntimeError(f"no byte arrived within {_SPARE_S:g} s")
            time.sleep(0.1)
        time.sleep(seconds + 0.5)
        if ended := [process.returncode for process in batches if process.poll() is not None]:
            raise RuntimeError(f"{len(ended)} of {cell.batches} batches ended before the measurement did: {ended}")
        trace = arrivals.trace()
    checks, figures = steady_checks(trace.checked(seconds), cell.quota, bounds)
    return Outcome(checks, trace, ((begun_s, cell.quota),), reported=figures)


_CONFIGS: Final = Path(__file__).resolve().parents[1] / "tiering"
_ALTER: Final = ("configs", "--alter", "--entity-type", "brokers", "--entity-default", "--add-config")


def pair(delay_ms: int, segment: str) -> tuple[Cell, ...]:
    """Return the cells of this distance and size, which run at the same time."""
    size_bytes, quota = SEGMENTS[segment]
    return tuple(Cell(delay_ms, size_bytes, batches, quota) for batches in BATCHES)


def many() -> Cell:
    """Return the cell with the most batches."""
    size_bytes, quota = SEGMENTS["2 MiB"]
    return Cell(0, size_bytes, MANY_BATCHES, quota)


def _shape(cell: Cell, seconds: float) -> Shape:
    work_bytes = cell.quota * (seconds + _SPARE_S)
    partitions = max(_PARTITIONS, 2 * cell.batches)
    segments = math.ceil(work_bytes / cell.segment_bytes / partitions)
    return Shape(partitions, segments, cell.segment_bytes, _BATCH_BYTES)


def _port_of(endpoint_url: str) -> int:
    return int(endpoint_url.rpartition(":")[2])


@contextmanager
def far_store(port: int, delay_ms: float) -> Iterator[int]:
    """Give a port behind which this one is so far away."""
    command = [sys.executable, "-m", "benchmarks.far_store", str(port), "--delay-ms", str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()
