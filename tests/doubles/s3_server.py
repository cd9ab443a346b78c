"""S3 servers for tests, on loopback: moto inside this process (control flow), versitygw as a process (the real thing).

Each server object gives an `endpoint_url`, makes buckets, and opens a back door to one of them.
"""

import itertools
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import boto3
from botocore.config import Config

from local.cluster.programs import NO_VERSITYGW as NO_VERSITYGW
from local.cluster.programs import find_versitygw as find_versitygw
from local.ports import free_port
from tests.doubles.storage_backdoor import Backdoor, DirectoryBackdoor

if TYPE_CHECKING:
    import pytest

ACCESS_KEY: Final = "test-access-key"
SECRET_KEY: Final = "test-secret-key"
CREDENTIALS: Final = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
_BUCKETS: Final = itertools.count(1)


class S3Server(Protocol):
    @property
    def endpoint_url(self) -> str: ...

    def make_bucket(self, bucket: str) -> None: ...

    def backdoor(self, bucket: str, prefix: str) -> Backdoor:
        """A way to the objects of `bucket` below `prefix` (empty, or ending in a slash)."""
        ...


def raw_client(endpoint_url: str) -> Any:
    """A client with nothing of ours in it."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=Config(s3={"addressing_style": "path"}),
    )


def bucket_of_its_own(server: S3Server, environment: "pytest.MonkeyPatch") -> str:
    """Make a bucket that no other test of this process has, and put the server's credentials into the environment."""
    for name, value in CREDENTIALS.items():
        environment.setenv(name, value)
    bucket = f"bucket-{next(_BUCKETS)}"
    server.make_bucket(bucket)
    return bucket


@dataclass(frozen=True)
class ClientBackdoor:
    """Objects as a stranger's client sees them."""

    client: Any
    bucket: str
    prefix: str

    def raw_keys(self) -> set[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=self.prefix)
        return {found["Key"].removeprefix(self.prefix) for page in pages for found in page.get("Contents", ())}

    def raw_read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=self.prefix + key)["Body"].read())

    def raw_write(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=content)

    def raw_delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=self.prefix + key)


@dataclass(frozen=True)
class MotoServer:
    endpoint_url: str

    def make_bucket(self, bucket: str) -> None:
        raw_client(self.endpoint_url).create_bucket(Bucket=bucket)

    def backdoor(self, bucket: str, prefix: str) -> Backdoor:
        return ClientBackdoor(raw_client(self.endpoint_url), bucket, prefix)


@contextmanager
def moto_server() -> Iterator[MotoServer]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield MotoServer(f"http://{host}:{port}")
    finally:
        server.stop()


@dataclass(frozen=True)
class VersityGateway:
    """Buckets are directories of `data`, objects are files: what is on disk can be looked at."""

    endpoint_url: str
    data: Path
    pid: int

    def make_bucket(self, bucket: str) -> None:
        raw_client(self.endpoint_url).create_bucket(Bucket=bucket)

    def backdoor(self, bucket: str, prefix: str) -> Backdoor:
        return DirectoryBackdoor(self.data / bucket / prefix, ignored=frozenset({".sgwtmp"}))


@contextmanager
def versitygw_server(
    binary: Path, directory: Path, *options: str, versioning: bool = False
) -> Iterator[VersityGateway]:
    """Serves `directory`/data until the block ends; `options` are versitygw's own global ones. With `versioning` a
    bucket may be told to keep versions."""
    data, versions = directory / "data", directory / "versions"
    data.mkdir(parents=True)
    versions.mkdir()
    port = free_port()
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                str(binary),
                *("--port", f"127.0.0.1:{port}"),
                *("--quiet", "--keep-alive"),
                *options,
                "posix",
                *(("--versioning-dir", str(versions)) if versioning else ()),
                str(data),
            ],
            env={**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        await_listener(port, process, log)
        yield VersityGateway(f"http://127.0.0.1:{port}", data, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def versitygw_or_skip(directory: Path, *options: str, versioning: bool = False) -> Iterator[VersityGateway]:
    """For a test, which is skipped where versitygw was not built."""
    import pytest

    binary = find_versitygw()
    if binary is None:
        pytest.skip(NO_VERSITYGW)
    with versitygw_server(binary, directory, *options, versioning=versioning) as server:
        yield server


def await_listener(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until somebody accepts connections on `port`. Raises RuntimeError with the process's words if it ended."""
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=60).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-2000:]}") from None
            time.sleep(0.02)
        else:
            return
