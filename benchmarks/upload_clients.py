"""One uploader in a process of its own; its last words are its own account as JSON.

    python -m benchmarks.upload_clients ours|upload_file ENDPOINT BUCKET PREFIX FILE...

Counted from after imports, client and checksums to the last answer: wall seconds, CPU seconds of this process, and the
peak of its resident memory (with all that came before). `ours` is told each file's CRC-32C (of the whole and of each
step), as a copy is by its check pass, which is measured elsewhere; the sink proves it. `upload_file` is boto3 with
nothing set.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.segments import RUNNING_CRC32C_STEP_BYTES
from include.tiering.quotas.contract import UnlimitedBytes


class FileSource:
    """A `ByteSource` over an open file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self.size_bytes = os.fstat(self._fd).st_size

    def read_into(self, position: int, buffer: memoryview) -> int:
        return os.preadv(self._fd, [buffer], position)


def running_crc32c_of(path: Path) -> list[int]:
    """Of the first step, of the first two, … and last of the whole file."""
    running = [0]
    with path.open("rb") as file:
        while block := file.read(RUNNING_CRC32C_STEP_BYTES):
            running.append(extend_crc32c(running[-1], block))
    return running[1:]


def ours(endpoint_url: str, bucket: str, prefix: str, files: Sequence[Path]) -> Callable[[], None]:
    from include.tiering.remote_storage.s3.store import S3ObjectStore

    store = S3ObjectStore(bucket, prefix, endpoint_url=endpoint_url)
    checked = [(path.name, FileSource(path), running_crc32c_of(path)) for path in files]

    def upload() -> None:
        for name, source, running in checked:
            store.put(
                name,
                source,
                running[-1],
                limiter=UnlimitedBytes(),
                on_sent=lambda _: None,
                running_crc32c=running,
            )

    return upload


def upload_file(endpoint_url: str, bucket: str, prefix: str, files: Sequence[Path]) -> Callable[[], None]:
    import boto3
    from botocore.config import Config

    path_style = Config(s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=endpoint_url, region_name="us-east-1", config=path_style)

    def upload() -> None:
        for path in files:
            client.upload_file(str(path), bucket, prefix + path.name)

    return upload


def peak_resident_bytes() -> int:
    """VmHWM: unlike the accounting of a child by its parent it starts anew with the program."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main(client: str, endpoint_url: str, bucket: str, prefix: str, files: Sequence[Path]) -> None:
    upload = {"ours": ours, "upload_file": upload_file}[client](endpoint_url, bucket, prefix, files)
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    upload()
    after, ended = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    account = {
        "wall_seconds": ended - begun,
        "cpu_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "peak_resident_bytes": peak_resident_bytes(),
    }
    sys.stdout.write(json.dumps(account) + "\n")


if __name__ == "__main__":
    client, endpoint_url, bucket, prefix, *files = sys.argv[1:]
    main(client, endpoint_url, bucket, prefix, [Path(file) for file in files])
