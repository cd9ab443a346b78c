"""Worlds for the benchmark of audits, the job on them, and what it missed or made up."""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.job_usage import watched_usage
from include.tiering.audit.finding import AuditedSegment
from include.tiering.remote_storage.object_store import ListedObject
from spark_jobs.audit import read_findings
from tests.doubles.audit_stores import BUCKET
from tests.doubles.audit_worlds import FINISHED, OLD_MS, World, text_id
from tests.doubles.s3_server import ACCESS_KEY, SECRET_KEY, VersityGateway, raw_client
from tests.doubles.spark import submit_command, submit_environment

PLANTED: Final = 500
TOPICS: Final = 50
PARTITIONS: Final = 4
PREFIX: Final = "remote/"
STORE_URL: Final = f"s3://{BUCKET}/{PREFIX}"
_LOG_BYTES: Final = 900_000
KIND_BYTES: Final = (("log", _LOG_BYTES), ("indexes", 46), ("rsm-manifest", 700))

Plant = Callable[[World], None]


def planted_world(plants: Sequence[Plant], quiet: Sequence[Plant], current_version: str) -> World:
    """Every plant as often as it takes for `PLANTED` findings, among things that only look like findings."""
    world = World.empty(TOPICS, current_version=current_version)
    while len(world.expected) < PLANTED:
        for plant in (*plants, *quiet):
            plant(world)
    return world


def healthy_segments(world: World, keys: int) -> Iterator[tuple[AuditedSegment, str]]:
    """As many FINISHED segments as have `keys` objects, each with what its keys begin with. None is kept."""
    topic_ids = [topic_id for topic_id, known in world.topics.items() if known.is_ours]
    for number in range(keys // 3):
        topic_id = topic_ids[number % TOPICS]
        partition, start_offset = number // TOPICS % PARTITIONS, 10_000_000_000 + number * 1_000
        segment_id = text_id(f"healthy {number}")
        segment = AuditedSegment(
            segment_id, topic_id, partition, FINISHED, start_offset, start_offset + 999, _LOG_BYTES, OLD_MS, 0, "0:0"
        )
        yield segment, f"{world.topics[topic_id].name}-{topic_id}/{partition}/{start_offset:020d}-{segment_id}"


def healthy_objects(world: World, keys: int) -> Iterator[ListedObject]:
    version = world.current_version or None
    for _, stem in healthy_segments(world, keys):
        for kind, size_bytes in KIND_BYTES:
            yield ListedObject(f"{PREFIX}{stem}.{kind}", size_bytes, OLD_MS, version)


def run_job(directory: Path, database: str, endpoint_url: str, *arguments: str) -> dict[str, Any]:
    """The job as Airflow submits it, on two cores."""
    scratch = directory / "scratch"
    scratch.mkdir()
    config = directory / "tiering.toml"
    config.write_text(
        f'metadata.url = "{database}"\nremote_storage.url = "{STORE_URL}"\n'
        f'remote_storage.endpoint_url = "{endpoint_url}"\n'
    )
    command = submit_command(
        "audit.py", ["--output", str(directory / "out"), "--config", str(config), *arguments], scratch
    )
    command[command.index("local[1]")] = "local[2]"
    environment = submit_environment(scratch, AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
    begun = time.monotonic()
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process,
        watched_usage(process.pid) as usage,
    ):
        output = process.communicate()[0]
    seconds = time.monotonic() - begun
    summary = json.loads(output.splitlines()[-1])
    if process.returncode not in (0, 1) or "error" in summary:
        raise SystemExit(f"the job ended with {process.returncode}: {summary}")
    return {
        "objects": summary["objects"],
        "rows": summary["rows"],
        "kinds": {kind: found["findings"] for kind, found in summary["findings"].items()},
        "steps": summary["seconds"],
        "seconds": round(sum(summary["seconds"].values()), 1),
        "with_start_seconds": round(seconds, 1),
        **usage.document(),
    }


def compared(directory: Path, world: World) -> dict[str, Any]:
    """Planted beside found. A few of what differs are named."""
    found = [finding.identity for finding in read_findings(directory / "out")]
    planted = set(world.expected)
    missed, invented = planted - set(found), [key for key in found if key not in planted]
    return {
        "planted": len(planted),
        "found": len(found),
        "missed": len(missed),
        "invented": len(invented) + len(found) - len(set(found)),
        "examples": [*sorted(missed)[:5], *sorted(invented)[:5]],
    }


@contextmanager
def bucket_of(server: VersityGateway, *, versioned: bool = False) -> Iterator[Path]:
    """An empty bucket; what is in its directory is in it."""
    server.make_bucket(BUCKET)
    if versioned:
        raw_client(server.endpoint_url).put_bucket_versioning(
            Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"}
        )
    try:
        yield server.data / BUCKET
    finally:
        (server.data / BUCKET).rename(server.data.parent / f"done-{time.monotonic_ns()}")


def store(root: Path, key: str, content: bytes) -> Path:
    path = root / PREFIX / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    # versitygw keeps the ETag of an object there; without it the answers are none of S3.
    os.setxattr(path, "user.etag", hashlib.md5(content, usedforsecurity=False).hexdigest().encode())
    return path
