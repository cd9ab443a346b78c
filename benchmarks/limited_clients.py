"""Uploaders with a limit of their own, one process each, for a comparison at the same rates.

    python -m benchmarks.limited_clients s3transfer ENDPOINT RATE FILE    uploads FILE again and again until killed

s3transfer is what boto3's upload_file uses; its `max_bandwidth` is the limit. rclone gets `--bwlimit`, and a directory
with enough links to one file to be busy all the time. Both limits are of one process.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.bench_upload import BUCKET, find_rclone
from tests.doubles.s3_server import ACCESS_KEY, CREDENTIALS, SECRET_KEY


@contextmanager
def s3transfer(endpoint_url: str, quota: int, file: Path, seconds: float) -> Iterator[None]:
    """Uploads while the context lasts."""
    command = [sys.executable, "-m", "benchmarks.limited_clients", "s3transfer", endpoint_url, str(quota)]
    with _running([*command, str(file)], CREDENTIALS):
        yield


@contextmanager
def rclone(endpoint_url: str, quota: int, file: Path, seconds: float) -> Iterator[None]:
    """Uploads while the context lasts, `seconds` at least."""
    directory = file.with_suffix(".links")
    directory.mkdir()
    for number in range(int(quota * (seconds + 10) / file.stat().st_size) + 5):
        os.link(file, directory / f"{number:06d}.log")
    environment = {
        "RCLONE_CONFIG": os.devnull,
        "RCLONE_CONFIG_SINK_TYPE": "s3",
        "RCLONE_CONFIG_SINK_PROVIDER": "Other",
        "RCLONE_CONFIG_SINK_ENDPOINT": endpoint_url,
        "RCLONE_CONFIG_SINK_ACCESS_KEY_ID": ACCESS_KEY,
        "RCLONE_CONFIG_SINK_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    command = [str(find_rclone()), "copy", str(directory), f"sink:{BUCKET}/rclone", "--bwlimit", f"{quota}B"]
    with _running([*command, "--retries", "1", "--quiet"], environment):
        yield


@contextmanager
def _running(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} ended by itself: exit code {process.returncode}")
    finally:
        process.kill()
        process.wait()


def main(client: str, endpoint_url: str, quota: str, file: str) -> None:
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    path_style = Config(s3={"addressing_style": "path"})
    s3 = boto3.client("s3", endpoint_url=endpoint_url, region_name="us-east-1", config=path_style)
    limited = TransferConfig(max_bandwidth=int(quota))
    for number in itertools.count():
        s3.upload_file(file, BUCKET, f"{client}/{number}", Config=limited)


if __name__ == "__main__":
    main(*sys.argv[1:5])
