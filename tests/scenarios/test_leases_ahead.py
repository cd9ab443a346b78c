"""A clock that was ahead while a copy was killed, and is right again: nothing waits, and a person is told."""

import json
from pathlib import Path

import pytest

from include.tiering.runs.contract import Lease
from include.tiering.runs.store import SqlWorkStore
from include.tiering.units import format_utc
from tests.doubles.archive import ORDERS, Archive

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("on_each_database")]

AHEAD_MS = 400 * 24 * 3_600_000
LEASE_MS = 30_000


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive.of(tmp_path)


def _killed_while_the_clock_was_ahead(archive: Archive) -> Lease:
    with archive.open() as opened:
        opened.copying.plan("copy-killed")
        now_ms = opened.adapters.clock.now_ms() + AHEAD_MS
        work = SqlWorkStore(opened.adapters.engine, opened.adapters.cluster_id, now_ms=lambda _: now_ms)
        lease = work.claim("copy-killed", "batch-killed", lease_ms=LEASE_MS)
        assert lease is not None
        return lease


def test_ready_and_doctor_name_it_and_a_copy_ends_it(archive, app) -> None:
    before = {command: app(*command).exit_code for command in (("ready",), ("doctor", ORDERS))}
    lease = _killed_while_the_clock_was_ahead(archive)
    partition = lease.fence.topic_id_partition
    words = (
        "the lease to copy of batch batch-killed of run copy-killed ends at"
        f" {format_utc(lease.expires_at_ms)}, further ahead than it may last: a clock was ahead,"
        " and the lease is ignored"
    )
    ready = app("ready", "--json")
    assert ready.exit_code == before["ready",] == 0
    checks = {check["name"]: check for check in json.loads(ready.stdout)["checks"]}
    assert checks["leases"]["message"] == (
        f"{partition}: {words}; this run continues: no work waits for such a lease, and the next batch that takes the"
        " partition ends it"
    )
    doctor = app("doctor", ORDERS, "--json")
    assert doctor.exit_code == before["doctor", ORDERS] == 0
    findings = {one["partition"]: one["finding"] for one in json.loads(doctor.stdout)["partitions"]}
    assert findings.pop(partition.partition).endswith(f"; {words}")
    assert not any("a clock was ahead" in finding for finding in findings.values())

    assert app("copy").exit_code == 0
    assert "a clock was ahead" not in app("ready").output + app("doctor", ORDERS).output
    checks = {check["name"]: check for check in json.loads(app("ready", "--json").stdout)["checks"]}
    assert checks["leases"] == {
        "name": "leases",
        "ok": True,
        "waitable": True,
        "message": "no lease ends further ahead than it may last",
    }


def test_many_are_named_by_the_first_and_their_number(archive, app) -> None:
    with archive.open() as opened:
        plan = opened.copying.plan("copy-killed")
        now_ms = opened.adapters.clock.now_ms() + AHEAD_MS
        work = SqlWorkStore(opened.adapters.engine, opened.adapters.cluster_id, now_ms=lambda _: now_ms)
        leases = [work.claim("copy-killed", f"batch-{n}", lease_ms=LEASE_MS) for n in range(len(plan.partitions))]
    said = " ".join(app("ready").output.split())
    assert len(leases) > 1
    assert said.count("a clock was ahead") == min(5, len(leases))
