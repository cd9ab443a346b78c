"""A worker on the broker's host, with a network, a name and mounts of its own, and a scheduler without any log dir.

The worker is a process that shares no directory with the scheduler: it has the broker's log dir, and reaches PostgreSQL
and a real S3 server over the network. The scheduler, which is this process, plans, sizes and audits.
"""

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from include.tiering.app import open_app
from include.tiering.runs.contract import Placement
from include.tiering.settings import load_settings
from tests.doubles.databases import create_postgresql_database
from tests.doubles.log_dirs import ORDERS, BrokerLogDir
from tests.doubles.other_host import OtherHost, other_host_or_skip, relay
from tests.doubles.s3_server import CREDENTIALS, bucket_of_its_own, versitygw_or_skip
from tests.doubles.source_tree import ROOT

__all__ = ["create_postgresql_database"]
pytestmark = pytest.mark.integration

QUEUE = "rack-a"
WORKER = """
import json, os, socket, sys
from include.tiering.app import open_app
from include.tiering.runs.contract import Placement
from include.tiering.settings import load_settings
step, hidden, scheduler = sys.argv[1:]
with open_app(load_settings(environ=dict(os.environ))) as app:
    found = {"host": socket.gethostname(), "sees": sorted(os.listdir(hidden))}
    try:
        socket.create_connection(("127.0.0.1", int(scheduler)), timeout=1).close()
        found["reaches"] = True
    except OSError:
        found["reaches"] = False
    if step == "migrate":
        app.set_up.migrate()
    elif step == "scan":
        found["replicas"] = len(app.copying.report_queue("rack-a", "run").replicas)
    else:
        result = app.copying.run_batch("run", "run/0", placement=Placement("rack-a"))
        found |= {"copied": len(result.copied), "failed": len(result.failed)}
print(json.dumps(found))
"""


@dataclass
class World:
    """The scheduler's side, and the worker's host."""

    host: OtherHost
    data: Path
    hidden: Path
    environ: dict[str, str]
    environ_there: dict[str, str]
    listening: int

    def worker(self, step: str) -> dict[str, Any]:
        arguments = [sys.executable, "-c", WORKER, step, str(self.hidden), str(self.listening)]
        done = self.host.run(arguments, self.environ_there)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert (found["host"], found["sees"], found["reaches"]) == (QUEUE, ["data"], False)
        return found


@pytest.fixture
def world(
    tmp_path: Path, create_postgresql_database: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    log_dir = BrokerLogDir(tmp_path / "of-the-broker")
    log_dir.create_topic()
    log_dir.partition().filled(0, 10, 20)
    log_dir.all_current({"orders-0": 20})
    url = make_url(create_postgresql_database("another_host"))
    data = tmp_path / "data"
    with (
        versitygw_or_skip(tmp_path / "s3") as store,
        other_host_or_skip(QUEUE, log_dir.path, data, tmp_path) as host,
        socket.create_server(("127.0.0.1", 0)) as listening,
        relay(host.near, lambda: _unix(str(url.query["host"]))) as database_port,
        relay(host.near, lambda: _tcp(store.endpoint_url)) as store_port,
    ):
        bucket = bucket_of_its_own(store, monkeypatch)
        common = {
            "TIERING_LOG_DIRS": json.dumps([{"broker_id": 1, "path": str(data), "queue": QUEUE}]),
            "TIERING_REMOTE_STORAGE__URL": f"s3://{bucket}",
            "TIERING_TOPICS__INCLUDE": "orders",
        }
        here = {
            **common,
            "HOME": str(tmp_path),
            "TIERING_METADATA__URL": url.render_as_string(hide_password=False),
            "TIERING_REMOTE_STORAGE__ENDPOINT_URL": store.endpoint_url,
        }
        over_the_network = url.set(host=host.near, port=database_port, query={})
        there = {
            **common,
            **CREDENTIALS,
            "AWS_EC2_METADATA_DISABLED": "true",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "TIERING_METADATA__URL": over_the_network.render_as_string(hide_password=False),
            "TIERING_REMOTE_STORAGE__ENDPOINT_URL": f"http://{host.near}:{store_port}",
        }
        yield World(host, data, tmp_path, here, there, listening.getsockname()[1])


def _unix(directory: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"{directory}/.s.PGSQL.5432")
    return connection


def _tcp(endpoint_url: str) -> socket.socket:
    host, _, port = endpoint_url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)))


def test_placement_sizes_and_audit_need_no_folder_that_both_hosts_share(world: World) -> None:
    world.worker("migrate")
    assert world.worker("scan")["replicas"] == 1
    assert not world.data.exists()
    with open_app(load_settings(environ=world.environ)) as app:
        readiness = app.operations.ready(pool="remote_log_copier")
        assert readiness.ready, readiness.missing
        (planned,) = app.copying.plan("run").partitions
        assert (planned.placement, planned.replica_id.topic_id_partition.topic_id) == (Placement(QUEUE), ORDERS)
    assert world.worker("copy") == {"host": QUEUE, "sees": ["data"], "reaches": False, "copied": 2, "failed": 0}
    with open_app(load_settings(environ=world.environ)) as app:
        assert app.copying.plan("again").partitions == ()
        sizes = app.sizes.report()
        assert [size.segments for size in sizes.sizes] == [2]
        assert sizes.tiers is not None
        assert [lag.size_bytes for lag in sizes.tiers.copy_lags] == [0]
        app.audit.run("audit")
        assert app.audit.findings("audit") == []
        assert app.verification.verify_run().failed == ()
