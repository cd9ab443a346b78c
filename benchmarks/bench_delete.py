"""Expiration of 3,000 segments (9,000 objects) on a real S3 server, beside one call for each object.

    python -m benchmarks.bench_delete [--segments 3000] [--directory DIR]

The whole path is measured: plan, deletion limits, and a batch with its metadata in SQLite on disk; the other way is a
loop of DeleteObject with the same client and without any metadata. Calls are counted by the server's access log. Exit
code 1: fewer than 100 times fewer calls, or something was left.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import SecretStr

from include.tiering.app import App, open_app
from include.tiering.configs.config_store import ConfigEntity, EntityType
from include.tiering.database.migrations import upgrade
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.database.transactions import database_now_ms, writing
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.object_store import S3Credentials
from include.tiering.remote_storage.s3.client import s3_client
from include.tiering.segments.sql_changes import SegmentChanges
from include.tiering.settings import TieringSettings
from tests.doubles.s3_server import (
    ACCESS_KEY,
    NO_VERSITYGW,
    SECRET_KEY,
    VersityGateway,
    find_versitygw,
    versitygw_server,
)
from tests.doubles.segments import FINISHED, STARTED, planned, segment_of, update_of

BUCKET: Final = "bucket"
PREFIX: Final = "tiered"
PARTITIONS: Final = 3
TOPIC: Final = "orders"
TIMES_FEWER: Final = 100
_OPERATION: Final = re.compile(r" s3_(\w+) ")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Measure deletions; prints JSON.")
    parser.add_argument("--segments", type=int, default=3_000)
    parser.add_argument("--directory", type=Path, help="where server and database keep their files")
    options = parser.parse_args(arguments)
    binary = find_versitygw()
    if binary is None:
        sys.exit(NO_VERSITYGW)
    with tempfile.TemporaryDirectory(prefix="bench-delete-", dir=options.directory) as scratch:
        log = Path(scratch) / "access.log"
        with versitygw_server(binary, Path(scratch) / "s3", "--access-log", str(log)) as server:
            server.make_bucket(BUCKET)
            result = measured(server, AccessLog(log), Path(scratch), options.segments)
    sys.stdout.write(json.dumps(result) + "\n")
    return int(result["times_fewer_calls"] < TIMES_FEWER or result["objects_left"] > 0)


def measured(server: VersityGateway, log: "AccessLog", scratch: Path, segments: int) -> dict[str, Any]:
    with open_app(settings_of(server, scratch)) as app:
        rows = filled(app, segments)
        keys = [key for row in rows for _, key in AivenLayout(AivenForm(with_txn_index_empty=True)).keys(row)]
        put_objects(server, keys)
        expired = expire(app, log)
        left = sum(1 for _ in app.adapters.storage.list_objects()) - 1
    put_objects(server, keys)
    single = one_by_one(server, log, keys)
    return {
        "segments": segments,
        "objects": len(keys),
        "expiration": expired,
        "one_call_per_object": single,
        "times_fewer_calls": round(single["calls"] / expired["calls"], 1),
        "times_faster": round(single["seconds"] / expired["delete_seconds"], 1),
        "objects_left": left,
    }


def settings_of(server: VersityGateway, scratch: Path) -> TieringSettings:
    defaults = TieringSettings()
    remote = defaults.remote_storage.model_copy(
        update={
            "url": f"s3://{BUCKET}/{PREFIX}",
            "endpoint_url": server.endpoint_url,
            "region": "us-east-1",
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SecretStr(SECRET_KEY),
        }
    )
    metadata = defaults.metadata.model_copy(update={"url": SecretStr(f"sqlite:///{scratch / 'metadata.sqlite'}")})
    return defaults.model_copy(update={"remote_storage": remote, "metadata": metadata})


def filled(app: App, segments: int) -> list[RemoteLogSegmentMetadata]:
    """A deployment without log dirs, and so many FINISHED segments of a platform topic, without their objects."""
    upgrade(app.adapters.create_database())
    app.adapters.unguarded_storage.create_marker(
        StoreIdentities(app.adapters.engine, "bench").create(Uuid(b"s" * 16), place=app.adapters.place).current
    )
    rows = []
    for number in range(PARTITIONS):
        partition = TopicIdPartition(Uuid(b"t" * 16), number, TOPIC)
        app.adapters.stores.work.save_plan(f"copy-{number}", [planned(partition)])
        lease = app.adapters.stores.work.claim(f"copy-{number}", "bench", lease_ms=600_000)
        assert lease is not None
        with writing(app.adapters.engine) as connection:
            changes = SegmentChanges(connection, "bench", database_now_ms)
            for index in range(number, segments, PARTITIONS):
                segment = segment_of(partition, index, 100 * index, 100 * index + 99)
                changes.add(segment, lease.fence, None, None)
                rows.append(changes.change_state(update_of(segment, FINISHED), STARTED, lease.fence, None))
        app.adapters.stores.work.release(lease)
    app.adapters.stores.registry.set_owner(
        Uuid(b"t" * 16), TOPIC, TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="bench"
    )
    return rows


def put_objects(server: VersityGateway, keys: Sequence[str]) -> None:
    """Behind the server's back: an object is a file."""
    for key in keys:
        path = server.data / BUCKET / PREFIX / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 512)


def expire(app: App, log: "AccessLog") -> dict[str, Any]:
    retention = ConfigEntity(EntityType.TOPICS, TOPIC)
    app.configs.alter(retention, {"retention.ms": "0"}, author="bench")
    log.read()
    began = time.monotonic()
    plan = app.expiration.plan("bench")
    app.expiration.apply_limits("bench")
    app.expiration.approve("bench", plan.plan_hash, author="bench")
    planned_seconds = time.monotonic() - began
    result = app.expiration.run_batch("bench", "bench/0")
    by_operation = log.read()
    return {
        "segments": len(result.deleted),
        "calls": sum(by_operation.values()),
        "calls_by_operation": dict(by_operation),
        "plan_seconds": round(planned_seconds, 2),
        "delete_seconds": round(result.seconds, 2),
    }


def one_by_one(server: VersityGateway, log: "AccessLog", keys: Sequence[str]) -> dict[str, Any]:
    client: Any = s3_client(
        endpoint_url=server.endpoint_url,
        region="us-east-1",
        credentials=S3Credentials(ACCESS_KEY, SECRET_KEY, None),
        max_attempts=1,
    )
    log.read()
    began = time.monotonic()
    for key in keys:
        client.delete_object(Bucket=BUCKET, Key=f"{PREFIX}/{key}")
    seconds = time.monotonic() - began
    return {"calls": sum(log.read().values()), "seconds": round(seconds, 2)}


@dataclass
class AccessLog:
    """The server's own account of its calls, in the format of S3 server access logs."""

    path: Path
    position: int = 0

    def read(self) -> Counter[str]:
        """Calls by operation since the last time."""
        with self.path.open() as file:
            file.seek(self.position)
            lines = file.readlines()
            self.position = file.tell()
        return Counter(found[1] for line in lines if (found := _OPERATION.search(line)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
