"""The fetch quota over real readers, in processes of their own: what holds on any machine, however busy.

`make bench-quota` (part `readers`) measures how near to the quota they come, and how even the seconds are.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from benchmarks.generated_log_dir import TOPIC
from benchmarks.quota_readers import REFUSED, ROGUE, SHAPE, Archive, archive, end, together
from benchmarks.quota_scene import TOTAL_FETCH, Worker, begin
from benchmarks.quota_trace import Trace, farthest_ahead_bytes
from include.tiering.app import open_app
from include.tiering.clock import SystemClock
from include.tiering.database.engine import LOCK_WAIT_MS
from include.tiering.quotas.contract import NAMELESS_CLIENT, fetch_scopes
from include.tiering.quotas.shared_quotas import SqlLedgerStore, open_ledger_engine
from tests.doubles.patience import eventually
from tests.doubles.source_tree import ROOT
from tests.doubles.spark import NO_JAVA

pytestmark = pytest.mark.integration

MB: Final = 1_000_000
QUOTA: Final = 20 * MB
AHEAD_SECONDS: Final = 0.25
"""Of the quota, as in test_quota_scenarios.py."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    with archive(tmp_path_factory.mktemp("archive")) as found:
        yield found


def shares(opened: Archive) -> Mapping[int, float]:
    """Bytes a second of the total fetch quota that each process may read now."""
    engine = open_ledger_engine(opened.environment["TIERING_METADATA__URL"], SystemClock(), patience_ms=LOCK_WAIT_MS)
    try:
        workers = SqlLedgerStore(engine, opened.app.adapters.cluster_id).exchange(lambda row: row).workers
    finally:
        engine.dispose()
    allocations = {int(name.split(":")[1]): entry.allocations for name, entry in workers.items()}
    return {pid: found[TOTAL_FETCH].share for pid, found in allocations.items() if TOTAL_FETCH in found}


def await_shares(opened: Archive, workers: Sequence[Worker], at_least: float) -> None:
    pids = {worker.process.pid for worker in workers}
    eventually(
        lambda: sum(share for pid, share in shares(opened).items() if pid in pids) >= at_least,
        f"these readers have {at_least:.0f} bytes a second",
    )


def require_within(trace: Trace, begun_s: float, quota: int) -> None:
    assert trace.total_bytes
    assert farthest_ahead_bytes(trace, [(begun_s, quota)]) <= AHEAD_SECONDS * quota


def test_eight_readers_hold_one_quota(opened: Archive) -> None:
    opened.set_quotas(QUOTA)
    readers = opened.start(8)
    begun_s = begin(readers)
    pids = {reader.process.pid for reader in readers}
    eventually(
        lambda: all(shares(opened).get(pid, 0.0) > 0.1 * QUOTA / len(pids) for pid in pids), "each has a part of it"
    )
    time.sleep(3.0)
    require_within(together(end(readers)), begun_s, QUOTA)


def test_a_client_beyond_its_own_quota_leaves_the_rest_to_the_others(opened: Archive) -> None:
    """And so does one that is refused each time, and asks again without a pause."""
    limited = QUOTA // 4
    opened.set_quotas(QUOTA, rogue=limited)
    try:
        rogues = (*opened.start(1, client=ROGUE), *opened.start(1, "ask", client=REFUSED))
        others = opened.start(2, client="other")
        begun_s = begin((*rogues, *others))
        await_shares(opened, others, 0.95 * (QUOTA - limited))
        time.sleep(2.0)
        await_shares(opened, others, 0.95 * (QUOTA - limited))
        reads = end((*rogues, *others))
    finally:
        opened.set_quotas(QUOTA)
    assert reads[1].refused > 0
    assert reads[1].trace.total_bytes == 0
    require_within(reads[0].trace, begun_s, limited)
    require_within(together(reads), begun_s, QUOTA)


def test_a_spent_quota_answers_the_command_at_once(opened: Archive, tmp_path: Path) -> None:
    opened.set_quotas(MB)
    with open_app(opened.app.settings) as busy:
        others = busy.adapters.quotas.admission(samples=11, sample_ms=1_000)
        others.record(fetch_scopes(1, TOPIC, NAMELESS_CLIENT), 1_000 * MB)
    begun_s = time.monotonic()
    done = subprocess.run(
        [ROOT / "tiering", "fetch", TOPIC, "0", "--offset", "0", "--output", tmp_path / "out", "--json"],
        env={**os.environ, **opened.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begun_s
    opened.set_quotas(QUOTA)
    assert done.returncode == 3, done.stderr
    throttle_ms = json.loads(done.stdout)["throttle_ms"]
    assert throttle_ms > 60_000
    assert seconds < throttle_ms / 1000 / 4, "it started, and did not wait"
    assert not list(tmp_path.rglob("*.batches"))


@NO_JAVA
@pytest.mark.timeout(300)
def test_tasks_of_a_spark_read_wait_within_the_quota_and_say_so(opened: Archive, tmp_path: Path) -> None:
    quota_seconds = 12
    quota = SHAPE.total_bytes // quota_seconds
    opened.set_quotas(quota)
    begun_s = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "tests.doubles.read_kafka_tiered", str(settings_file(opened, tmp_path)), TOPIC],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - begun_s
    opened.set_quotas(QUOTA)
    assert done.returncode == 0, done.stderr[-2_000:]
    outcome = json.loads(done.stdout.splitlines()[-1])
    assert outcome["tasks"] > 1
    assert len(outcome["rows"]) == SHAPE.partitions * SHAPE.segments * SHAPE.batches
    assert seconds > quota_seconds - AHEAD_SECONDS
    assert "the fetch quota holds it for" in done.stderr
    assert "the fetch quota has held back this read for" in done.stderr


def settings_file(opened: Archive, directory: Path) -> Path:
    config = directory / "tiering.toml"
    environment = opened.environment
    config.write_text(
        f'topics.include = ["{TOPIC}"]\n'
        f'remote_storage.url = "{environment["TIERING_REMOTE_STORAGE__URL"]}"\n'
        f'metadata.url = "{environment["TIERING_METADATA__URL"]}"\n'
        f'[[log_dirs]]\nbroker_id = 1\npath = "{opened.directory / "broker"}"\n'
    )
    config.chmod(0o600)
    return config
