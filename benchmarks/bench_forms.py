"""What compression and encryption cost a copy, and whoever reads it back.

    python -m benchmarks.bench_forms [--rounds 3] [--size-mib 256] [--directory DIR]

One segment of JSON-like records goes into a file store in each form of the aiven layout and is read back whole; chunks
of 4 MiB. Forms take turns within a round, each in a process of its own; medians. CPU seconds per GB (10^9 bytes of the
segment) are the firm figure on a busy machine; `plain` is what remains of them without any form: two checksums of the
object, writing and reading. Peak memory is that above the imports.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.generated_log_dir import FileSource, status_bytes
from benchmarks.upload_clients import running_crc32c_of
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.layouts.key_ring import KeyRing
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.units import KIB, MIB
from tests.doubles.key_pairs import key_files
from tests.doubles.record_batches import record, record_batch
from tests.doubles.stored_log import some_segment

FORMS: Final = {
    "plain": AivenForm(),
    "encrypted": AivenForm(encrypts=True),
    "compressed": AivenForm(compresses=True),
    "compressed and encrypted": AivenForm(compresses=True, encrypts=True),
}


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure the forms of segments; prints JSON.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size-mib", type=int, default=256)
    parser.add_argument("--directory", type=Path, help="where the files are made (about four times the size)")
    parser.add_argument("--one", nargs=2, metavar=("FORM", "LOG"), help="measure one form of one file: for itself")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="bench-forms-", dir=options.directory) as scratch:
        result: dict[str, Any]
        if options.one:
            result = measured(FORMS[options.one[0]], Path(options.one[1]), Path(scratch))
        else:
            log = Path(scratch) / "segment.log"
            write_records(log, options.size_mib * MIB)
            result = {"size_mib": options.size_mib, "forms": in_turns(log, options.rounds, scratch)}
    sys.stdout.write(json.dumps(result) + "\n")


def in_turns(log: Path, rounds: int, scratch: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.bench_forms", "--directory", scratch, "--one"]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in FORMS}
    for number in range(rounds):
        for name in FORMS:
            sys.stderr.write(f"round {number + 1}, {name}\n")
            done = subprocess.run([*command, name, str(log)], stdout=subprocess.PIPE, check=True)
            found[name].append(json.loads(done.stdout))
    return {
        name: {figure: round(statistics.median(each[figure] for each in runs), 2) for figure in runs[0]}
        for name, runs in found.items()
    }


def measured(form: AivenForm, log: Path, scratch: Path) -> dict[str, float]:
    storage = SegmentStorage(FileObjectStore(scratch), AivenLayout(form, KeyRing([key_files(scratch, "one")], "one")))
    metadata, data = segment_of(log)
    gb = data.log.size_bytes / 1e9
    before_bytes = status_bytes("VmHWM")
    begun, cpu_begun = time.monotonic(), time.process_time()
    sent = storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    copied, cpu_copied = time.monotonic(), time.process_time()
    read_bytes = sum(map(len, storage.fetch_log_segment(metadata, limiter=UnlimitedBytes())))
    read, cpu_read = time.monotonic(), time.process_time()
    if read_bytes != data.log.size_bytes:
        raise SystemExit(f"{read_bytes} of {data.log.size_bytes} bytes were read back")
    return {
        "copy_cpu_seconds_per_gb": (cpu_copied - cpu_begun) / gb,
        "copy_mb_per_second": gb * 1000 / (copied - begun),
        "read_cpu_seconds_per_gb": (cpu_read - cpu_copied) / gb,
        "read_mb_per_second": gb * 1000 / (read - copied),
        "stored_share": sent[0].size_bytes / data.log.size_bytes,
        "peak_mib": (status_bytes("VmHWM") - before_bytes) / MIB,
    }


def segment_of(log: Path) -> Any:
    metadata, data = some_segment(1)
    running = running_crc32c_of(log)
    source = FileSource(log)
    return (
        replace(metadata, segment_size_bytes=source.size_bytes),
        replace(data, log=source, log_crc32c=running[-1], log_running_crc32c=tuple(running[:-1])),
    )


def write_records(path: Path, size_bytes: int) -> None:
    """Batches of about 16 KiB of small JSON documents, as services write them: zstd makes a fifth of them."""
    chosen = random.Random(7)
    with path.open("wb") as log:
        offset = 0
        while log.tell() < size_bytes:
            documents = (_document(chosen, offset + number) for number in range(16 * KIB // 200))
            records = [record(delta, document) for delta, document in enumerate(documents)]
            log.write(record_batch(offset, count=len(records), records=b"".join(records)))
            offset += len(records)


def _document(chosen: random.Random, number: int) -> bytes:
    order = {
        "order_id": number,
        "customer": f"customer-{chosen.randrange(50_000)}",
        "status": chosen.choice(["created", "paid", "shipped", "returned"]),
        "amount": chosen.randrange(1, 99_999) / 100,
        "currency": "EUR",
        "trace": os.urandom(8).hex(),
        "items": [{"sku": f"sku-{chosen.randrange(9_999)}", "count": chosen.randrange(1, 5)}],
    }
    return json.dumps(order).encode()


if __name__ == "__main__":
    main(sys.argv[1:])
