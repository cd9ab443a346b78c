"""What the kills on a cluster rest on: only processes of the cluster are killed, and no difference is overlooked."""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from include.tiering.copying.metrics import COPY_SENT_BYTES
from include.tiering.quotas.metrics import HELD
from include.tiering.units import KIB
from local import processes
from local.cluster import in_flight, kills, scrape
from local.cluster.host import State
from local.cluster.in_flight import Part, Progress, Work
from local.cluster.scrape import Endpoint
from local.cluster.throttle import Throttled
from local.platform import PlatformError
from tests.doubles.patience import PATIENCE_SECONDS, eventually
from tests.doubles.segments import DELETE_STARTED, FINISHED, STARTED, partition_of, segment_of

ORDERS = partition_of("orders")
_WAIT = "import time; time.sleep(600)"
_WITH_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_WAIT!r}, *sys.argv[1:]])"


class Running:
    """Processes of a cluster that its state names, each with a child, and others."""

    def __init__(self, root: Path) -> None:
        self.state = State(root)
        self.cluster: Any = SimpleNamespace(state=self.state, host=SimpleNamespace(addresses={}))
        self.started: list[psutil.Process] = []

    def start(self, name: str, *words: str, is_named: bool = True) -> psutil.Process:
        found = processes.start(
            name,
            [sys.executable, "-c", _WITH_CHILD, *words],
            environment={},
            log=self.state.root / "log",
            pid_files=self.state.pid_files if is_named else self.state.root / "elsewhere",
        )
        self.started.append(found)
        eventually(lambda: bool(found.children()), "its child runs")
        return found


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    yield made
    processes.end([*processes.family(made.started, ""), *made.started], patience_seconds=PATIENCE_SECONDS)


def test_a_part_is_killed_with_its_children_and_nothing_else_is(running: Running) -> None:
    scheduler, other = running.start("airflow-scheduler"), running.start("airflow-triggerer")
    namesake = running.start("airflow-scheduler-2", is_named=False)
    name, victims = in_flight.find_victims(running.cluster, Part.SCHEDULER, Work.COPY)
    assert (name, set(victims)) == ("airflow-scheduler", {scheduler, *scheduler.children()})
    in_flight.kill(victims)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in victims)
    assert all(process.is_running() and process.children() for process in (other, namesake))


def test_the_worker_is_the_one_that_runs_the_job(running: Running) -> None:
    running.start("airflow-worker-1", "/srv/spark_jobs/expiration.py")
    copies = running.start("airflow-worker-2", "/srv/spark_jobs/copying.py")
    name, victims = in_flight.find_victims(running.cluster, Part.WORKER, Work.COPY)
    assert (name, victims[0]) == ("airflow-worker-2", copies)
    with pytest.raises(PlatformError, match="no airflow-worker runs tiering_audit"):
        in_flight.find_victims(running.cluster, Part.WORKER, Work.AUDIT)


def test_the_executor_is_one_that_holds_a_core_for_the_work(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = running.start("spark-worker-1", "org.apache.CoarseGrainedExecutorBackend", "--app-id", "app-1")
    running.start("spark-worker-2", "org.apache.CoarseGrainedExecutorBackend", "--app-id", "app-2")
    held = {"app-1": 1, "app-2": 0}
    monkeypatch.setattr(in_flight, "applications", lambda *_: held)
    name, victims = in_flight.find_victims(running.cluster, Part.EXECUTOR, Work.COPY)
    assert (name, victims) == ("", worker.children())
    held["app-1"] = 0
    with pytest.raises(PlatformError, match="no executor works for tiering_copy"):
        in_flight.find_victims(running.cluster, Part.EXECUTOR, Work.COPY)


@pytest.mark.parametrize(
    ("progress", "is_so"),
    [(Progress(2, 1, 3), True), (Progress(2, 0, 3), False), (Progress(2, 1, 0), False), (Progress(0, 1, 1), True)],
)
def test_work_is_in_the_middle_while_some_is_under_way_and_some_is_left(progress: Progress, is_so: bool) -> None:
    assert progress.is_in_the_middle is is_so


def test_kills_are_named_by_part_and_work() -> None:
    assert kills._kill_of("executor") == (Part.EXECUTOR, Work.COPY)
    assert kills._kill_of("worker:audit") == (Part.WORKER, Work.AUDIT)
    with pytest.raises(SystemExit, match=r"broker: parts are executor, worker, .*; works are copy, expiration, audit"):
        kills._kill_of("broker")
    assert len(set(kills._DEFAULT)) == 10


class Stored:
    """Segments of ten offsets, equal to the broker's, whose active segment comes after them."""

    def __init__(self, root: Path, number: int = 4) -> None:
        self.broker, self.store = root / "orders-0", root / "store"
        self.broker.mkdir()
        self.store.mkdir()
        self.rows = [segment_of(ORDERS, each, each * 10, each * 10 + 9, state=FINISHED) for each in range(number)]
        for row in self.rows:
            for place, name in ((self.broker, ""), (self.store, f"-{row.remote_log_segment_id.id}")):
                (place / f"{row.start_offset:020d}{name}.log").write_text(f"segment {row.start_offset}")
        (self.broker / f"{number * 10:020d}.log").write_text("active")

    def faults(self, *, is_complete: bool = True) -> list[str]:
        rolled = in_flight.rolled_segments(self.broker)
        return list(kills.faults(self.rows, rolled, self.store.iterdir(), is_complete=is_complete))


def test_equal_segments_have_no_fault(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    assert stored.faults() == []
    del stored.rows[0]
    assert stored.faults(is_complete=False) == []
    (fault,) = stored.faults()
    assert "begin at [10, 20, 30], and the broker's at [0, 10, 20, 30]" in fault


@pytest.mark.parametrize("state", [STARTED, DELETE_STARTED])
def test_an_attempt_that_was_left_is_a_fault(tmp_path: Path, state: Any) -> None:
    stored = Stored(tmp_path)
    stored.rows[2] = segment_of(ORDERS, 2, 20, 29, state=state)
    assert [state.name in fault for fault in stored.faults()] == [True]


def test_other_bytes_a_missing_object_an_overlap_and_a_hole_are_faults(tmp_path: Path) -> None:
    stored = Stored(tmp_path)
    first, second, *_ = sorted(stored.store.iterdir())
    first.write_text("other bytes")
    second.unlink()
    stored.rows[2] = segment_of(ORDERS, 2, 20, 30, state=FINISHED)
    found = stored.faults()
    assert "ends at 30, the next one begins at 30" in found[0]
    assert found[1].startswith(f"{first.name} differs")
    assert found[2] == f"there is no object {second.name}"
    del stored.rows[1]
    assert len(stored.faults(is_complete=False)) == 1


METRICS = """\
# TYPE tiering_copy_sent_bytes counter
tiering_copy_sent_bytes_total{topic="orders"} 130.0
tiering_copy_sent_bytes_total{topic="clicks"} 7.0
# TYPE tiering_quota_held_back counter
tiering_quota_held_back_total{kind="copy"} 3.0
tiering_quota_held_back_total{kind="fetch"} 4.0
# TYPE other counter
other_total{topic="orders"} 1.0
"""


@pytest.fixture
def endpoint() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_allowed = self.headers["Authorization"] == "Bearer right"
            self.send_response(200 if is_allowed else 401)
            self.end_headers()
            self.wfile.write((METRICS if is_allowed else json.dumps({"error": "token"})).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_scrape_has_the_bytes_of_each_topic(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"orders": 130, "clicks": 7}
    right = Endpoint(endpoint, "right")
    assert right.wait_for_sent(expected).by_topic(COPY_SENT_BYTES) == expected
    monkeypatch.setattr(scrape, "_WRITTEN_SECONDS", 0.0)
    found = right.wait_for_sent({"orders": 131})
    assert found.by_topic(COPY_SENT_BYTES) == expected
    assert (found.total(HELD, kind="copy"), found.total(HELD), found.total(COPY_SENT_BYTES)) == (3, 7, 137)
    with pytest.raises(PlatformError, match="answers 401"):
        Endpoint(endpoint, "wrong").scrape()
    with pytest.raises(PlatformError, match="does not answer"):
        Endpoint("127.0.0.1:1", "right").scrape()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"held_back": 4}, "4 segments that a quota held back, not 5"),
        ({"held_back": 6, "throttle_seconds": 2.2}, None),
        ({"held_back": 6, "throttle_seconds": 1.4}, "expected at least"),
        ({"segments": 0, "held_back": 0}, "not 0"),
        ({"throttle_seconds": 1.4}, "expected at least"),
        ({"throttle_seconds": 2.2}, "at most 2.10"),
    ],
)
def test_a_throttle_time_is_nearly_size_by_quota_and_no_longer_than_a_segment_was_in_flight(
    changes: dict[str, Any], said: str | None
) -> None:
    right = Throttled("slow", 32 * KIB, 5, 5, throttle_seconds=1.9, model_seconds=2.0, in_flight_seconds=2.1)
    fault = replace(right, **changes).fault
    assert fault is None if said is None else said in str(fault)
