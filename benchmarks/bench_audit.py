"""Audits: a million keys of an S3 Inventory, a live listing of 50,000, and how fast a listing is beside boto3's.

    python -m benchmarks.bench_audit [--keys 1000000] [--live-keys 50000] [--only inventory|live|rate]

Findings that are planted must be found and none must be invented: otherwise the exit code is 1. Seconds and the rate
are goals, which fail nothing. The job runs through spark-submit on two local cores; `seconds` are those of its steps,
without the start of Spark, `peak_bytes` what the job and all below it hold at once.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.audit_scene import (
    KIND_BYTES,
    PREFIX,
    STORE_URL,
    TOPICS,
    bucket_of,
    compared,
    healthy_objects,
    healthy_segments,
    planted_world,
    run_job,
    store,
)
from include.tiering.remote_storage.object_store import KeyInterval, S3Credentials
from include.tiering.remote_storage.s3.listing import S3Listing
from include.tiering.remote_storage.store_ownership import MARKER_KEY, marker_to_bytes
from tests.doubles.audit_plants import PLANTS, QUIET, VERSION_PLANTS
from tests.doubles.audit_stores import BUCKET, write_database, write_inventory
from tests.doubles.audit_worlds import LISTED_AT_MS, OLD_MS, World
from tests.doubles.s3_server import (
    ACCESS_KEY,
    SECRET_KEY,
    VersityGateway,
    find_versitygw,
    raw_client,
    versitygw_server,
)

GOAL_SECONDS: Final = 180.0
GOAL_RATE: Final = 3.0
MOST_GROWN: Final = 1.5
RATE_KEYS: Final = 20_000
ROUNDS: Final = 3


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--live-keys", type=int, default=50_000)
    parser.add_argument("--only", choices=("inventory", "live", "rate"))
    options = parser.parse_args(arguments)
    binary = find_versitygw()
    if binary is None:
        raise SystemExit("versitygw is not here: `make s3-server` builds it where Go is installed")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="bench-audit-") as name:
        directory = Path(name)
        with versitygw_server(binary, directory / "s3", versioning=True) as server:
            if options.only in (None, "inventory"):
                few = options.keys // 10
                found["inventory"] = {
                    f"{few:,} keys, CSV": inventory(server, directory / "few", few, parquet=False),
                    f"{options.keys:,} keys, CSV": inventory(server, directory / "csv", options.keys, parquet=False),
                    f"{options.keys:,} keys, Parquet": inventory(server, directory / "pq", options.keys, parquet=True),
                }
            if options.only in (None, "live"):
                found["live"] = live(server, directory / "live", options.live_keys)
            if options.only in (None, "rate"):
                found["rate"] = rate(server)
    held, goals = checked(found)
    sys.stdout.write(json.dumps({**found, "held": held, "goals": goals}) + "\n")
    return int(not all(held.values()))


def checked(found: dict[str, Any]) -> tuple[dict[str, bool], dict[str, bool]]:
    """What must hold, and what is only hoped for."""
    inventories = list(found.get("inventory", {}).values())
    audits = [*inventories, *([found["live"]] if "live" in found else [])]
    held = {}
    goals = {}
    if audits:
        held["all found"] = all(not audit["missed"] for audit in audits)
        held["none invented"] = all(not audit["invented"] for audit in audits)
    if inventories:
        few, *many = (inventory["peak_bytes"] for inventory in inventories)
        held["memory flat"] = max(many) <= MOST_GROWN * few
        goals["under 3 minutes"] = all(inventory["seconds"] < GOAL_SECONDS for inventory in inventories)
    if "rate" in found:
        goals["3 times boto3 per core"] = found["rate"]["times_boto3_per_core"] >= GOAL_RATE
    return held, goals


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# --- an inventory ---------------------------------------------------------------------------------------------------


def inventory(server: VersityGateway, directory: Path, keys: int, *, parquet: bool) -> dict[str, Any]:
    """The store holds the marker and manifests of what was planted; all else is in the inventory alone."""
    directory.mkdir()
    world = planted_world(list(PLANTS.values()) + list(VERSION_PLANTS.values()), list(QUIET.values()), "v1")
    healthy = keys - len(world.objects)
    begun = time.monotonic()
    database = f"sqlite:///{directory / 'tiering.sqlite'}"
    marker = write_database(
        database, world, (segment for segment, _ in healthy_segments(world, healthy)), store_url=STORE_URL
    )
    planted = (listed._replace(key=PREFIX + listed.key) for listed in world.objects)
    rows = (listed for some in (planted, healthy_objects(world, healthy)) for listed in some)
    manifest = write_inventory(directory, LISTED_AT_MS, rows, parquet=parquet)
    note(f"{keys:,} keys written in {time.monotonic() - begun:.1f} s")
    with bucket_of(server) as root:
        store(root, MARKER_KEY, marker_to_bytes(marker))
        for key, content in world.manifests.items():
            store(root, key, content)
        job = run_job(directory, database, server.endpoint_url, "--inventory", str(manifest))
    result = {**job, **compared(directory, world)}
    note(f"{keys:,} keys, {'Parquet' if parquet else 'CSV'}: {result}")
    return result


# --- a live listing -------------------------------------------------------------------------------------------------

_LIVE_QUIET: Final = ("of brokers", "a copy under way", "encrypted by a broker", "compressed by a broker", "our own")
_NULL_VERSION: Final = "null"


def live(server: VersityGateway, directory: Path, keys: int) -> dict[str, Any]:
    """A versioned bucket with every kind. What is written behind the server's back has the version `null`; old
    versions, markers and uploads are made through it."""
    directory.mkdir()
    world = planted_world(list(PLANTS.values()), [QUIET[name] for name in _LIVE_QUIET], _NULL_VERSION)
    healthy = keys - len(world.objects)
    database = f"sqlite:///{directory / 'tiering.sqlite'}"
    with bucket_of(server, versioned=True) as root:
        old_seconds = OLD_MS / 1000
        for listed in world.objects:
            os.utime(store(root, listed.key, world.content_of(listed)), (old_seconds, old_seconds))
        segments = [segment._replace(size_bytes=8) for segment, _ in healthy_segments(world, healthy)]
        for _, stem in healthy_segments(world, healthy):
            for kind, _ in KIND_BYTES:
                os.utime(store(root, f"{stem}.{kind}", b"12345678"), (old_seconds, old_seconds))
        plant_versions(server, world)
        plant_uploads(server, root, world, old_seconds)
        marker = write_database(database, world, segments, store_url=STORE_URL)
        store(root, MARKER_KEY, marker_to_bytes(marker))
        job = run_job(directory, database, server.endpoint_url)
    result = {**job, **compared(directory, world)}
    note(f"{keys:,} live keys: {result}")
    return result


def plant_versions(server: VersityGateway, world: World, number: int = 25) -> None:
    client = raw_client(server.endpoint_url)
    for _ in range(number):
        attempt = world.healthy()
        names = {"Bucket": BUCKET, "Key": PREFIX + attempt.key("log")}
        for kind in ("indexes", "rsm-manifest"):
            content = attempt.manifest() if kind == "rsm-manifest" else bytes(attempt.size_bytes(kind))
            client.put_object(Bucket=BUCKET, Key=PREFIX + attempt.key(kind), Body=content)
        first = client.put_object(**names, Body=b"first")["VersionId"]
        client.put_object(**names, Body=bytes(attempt.log_bytes))
        world.expect("old-version", attempt.key("log"), version=first)
        gone = {"Bucket": BUCKET, "Key": f"{PREFIX}gone/{world.attempts}"}
        written = client.put_object(**gone, Body=b"x")["VersionId"]
        marker = client.delete_object(**gone)["VersionId"]
        world.expect("old-version", f"gone/{world.attempts}", version=written)
        world.expect("delete-marker", f"gone/{world.attempts}", version=marker)


def plant_uploads(server: VersityGateway, root: Path, world: World, old_seconds: float, number: int = 25) -> None:
    """Half of them old, half of them young; their age is that of the directory in which the server keeps the parts."""
    client = raw_client(server.endpoint_url)
    for _ in range(number):
        for is_old in (True, False):
            key = world.attempt().key("log")
            upload = client.create_multipart_upload(Bucket=BUCKET, Key=PREFIX + key)["UploadId"]
            if is_old:
                (kept,) = (root / ".sgwtmp" / "multipart").glob(f"*/{upload}")
                os.utime(kept, (old_seconds, old_seconds))
                world.expect("open-multipart-upload", key, upload=upload)


# --- the rate of a listing ------------------------------------------------------------------------------------------


def rate(server: VersityGateway) -> dict[str, Any]:
    """Both list the same keys in turns in one process; seconds of its own CPU are per core."""
    with bucket_of(server) as root:
        world = World.empty(TOPICS)
        for _, stem in healthy_segments(world, RATE_KEYS):
            for kind, _ in KIND_BYTES:
                store(root, f"{stem}.{kind}", b"")
        ours = S3Listing(
            BUCKET, PREFIX, endpoint_url=server.endpoint_url, credentials=S3Credentials(ACCESS_KEY, SECRET_KEY)
        )
        paginator = raw_client(server.endpoint_url).get_paginator("list_objects_v2")
        cpu: dict[str, list[float]] = {"ours": [], "boto3": []}
        wall: dict[str, list[float]] = {"ours": [], "boto3": []}
        for _ in range(ROUNDS + 1):
            listed = {}
            for name in cpu:
                begun, cpu_begun = time.perf_counter(), time.process_time()
                if name == "ours":
                    listed[name] = {listed_object.key for page in ours.pages(KeyInterval()) for listed_object in page}
                else:
                    pages = paginator.paginate(Bucket=BUCKET, Prefix=PREFIX)
                    listed[name] = {
                        listed_object["Key"].removeprefix(PREFIX)
                        for page in pages
                        for listed_object in page["Contents"]
                    }
                cpu[name].append(time.process_time() - cpu_begun)
                wall[name].append(time.perf_counter() - begun)
            if listed["ours"] != listed["boto3"]:
                raise SystemExit("the two listings differ")
    keys = len(listed["ours"])
    warm = {name: list(islice(taken, 1, None)) for name, taken in cpu.items()}
    ratios = [boto3 / ours for boto3, ours in zip(warm["boto3"], warm["ours"], strict=True)]
    result = {
        "keys": keys,
        "keys_per_cpu_second": {name: round(keys / statistics.median(taken)) for name, taken in warm.items()},
        "keys_per_second": {name: round(keys / statistics.median(taken[1:])) for name, taken in wall.items()},
        "times_boto3_per_core": round(statistics.median(ratios), 1),
        "spread": [round(min(ratios), 1), round(max(ratios), 1)],
    }
    note(f"listing rate: {result}")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
