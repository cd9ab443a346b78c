"""The newest scan of each queue, on every database."""

from dataclasses import replace

import pytest
from sqlalchemy import Engine

from include.tiering.kafka.log_dirs.contract import ScanReport
from include.tiering.runs import sql_queue_scans
from include.tiering.runs.cluster_log_dirs import KnownLogDir, QueueScan
from include.tiering.runs.sql_queue_scans import SqlQueueScans
from tests.doubles.databases import SHARED, each_database
from tests.doubles.segments import CLUSTER_ID

DIRS = (KnownLogDir(1, "/data", "dir-1"), KnownLogDir(1, "/more", None, "SourceUnreadableError: /more"))
NOTHING = ScanReport(None, (), ())
SCAN = QueueScan("rack-a", "run-1", "host-a", ("orders*", "clicks"), DIRS, NOTHING)

database_kind = each_database(SHARED)


@pytest.fixture
def scans(engine: Engine) -> SqlQueueScans:
    return SqlQueueScans(engine, CLUSTER_ID)


def test_the_newest_scan_of_a_queue_replaces_the_one_before(engine: Engine, scans: SqlQueueScans) -> None:
    began = scans.now_ms()
    scans.save(SCAN)
    scans.save(replace(SCAN, queue="rack-b"))
    first = scans.all()
    assert first["rack-a"] == replace(SCAN, scanned_at_ms=first["rack-a"].scanned_at_ms)
    assert began <= first["rack-a"].scanned_at_ms <= scans.now_ms()
    later = replace(SCAN, run_id="run-2", report=replace(NOTHING, cluster_id="x"))
    scans.save(later)
    assert (scans.all()["rack-a"].report.cluster_id, scans.all()["rack-b"]) == ("x", first["rack-b"])
    assert scans.runs() == {"rack-a": "run-2", "rack-b": "run-1"}
    assert SqlQueueScans(engine, "another cluster").all() == {}


def test_a_report_is_read_once(scans: SqlQueueScans, monkeypatch: pytest.MonkeyPatch) -> None:
    scans.save(SCAN)
    read: list[bytes] = []

    def report_of_bytes(stored: bytes) -> ScanReport:
        read.append(stored)
        return NOTHING

    monkeypatch.setattr(sql_queue_scans, "report_of_bytes", report_of_bytes)
    assert scans.all() == scans.all()
    assert len(read) == 1


def test_a_report_in_another_form_counts_as_none(scans: SqlQueueScans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_queue_scans, "_FORM", 2)
    scans.save(SCAN)
    monkeypatch.undo()
    assert scans.all() == {}
    assert scans.runs() == {"rack-a": "run-1"}
