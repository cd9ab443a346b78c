"""The JSON shapes that programs rely on, member by member."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from include.tiering.configs.pools import POOLS, UNLIMITED_SLOTS, PoolsStatus, PoolStatus, PoolUsage, SeenPool
from include.tiering.configs.usage_report import present_pools
from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.copying.report import CopyRun, present_copy, present_plan, present_scan
from include.tiering.database.metric_series import Series, SeriesKey
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.model.sizes import CostEstimate, PartitionLag, PriceTable
from include.tiering.operations.alarms import alarms
from include.tiering.operations.checks import Check
from include.tiering.operations.monitoring import Traffic, UnreadableLogDir
from include.tiering.operations.overview import Limit, Overview, totals
from include.tiering.operations.readiness import (
    NotReady,
    PartitionReadiness,
    Readiness,
    present_ready,
    waiting_lines,
)
from include.tiering.operations.status import Activity, present_status
from include.tiering.operations.waiting import waiting as grouped
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, Scope
from include.tiering.reading.fetch import FetchedRecords, PartitionFetch
from include.tiering.reading.report import present_fetch, present_records
from include.tiering.runs.cluster_log_dirs import KnownLogDir
from include.tiering.runs.contract import BatchProgress, PlannedPartition, PlannedSegment, SegmentOutcome
from include.tiering.segments.failed_copies import FailedCopy, Loss
from include.tiering.segments.sizes_contract import ArchiveSize
from include.tiering.segments.topics import TopicDeletion
from include.tiering.settings import load_settings
from include.tiering.sizes.compare import DuplicateBytes, LogDirDescription, ReplicaSize, TierComparison
from include.tiering.sizes.report import SizeReport, present_log_dirs, present_sizes
from include.tiering.verification.report import present_verify
from include.tiering.verification.rules import QualityFinding
from include.tiering.verification.verify_segments import VerifyReport
from tests.doubles import sample_values as sample

LABELS = sample.LABELS
ERROR = {
    "path": "/data/orders-1/00000000000000000000.log",
    "position": 61,
    "error": "CorruptFileError",
    "message": "CRC-32C differs",
}
NO_REASON = {"reason": None, "reason_message": None}
HELD_BACK = {
    **LABELS,
    "partition": 1,
    "next_offset": 0,
    "reason": "stopped",
    "reason_message": "stopped by a failed segment",
    "segment_reason": None,
    "detail": "segment 0..99 failed Q102",
    "lost": [],
    "follow_from": None,
}


def test_scan() -> None:
    presented = present_scan(sample.scan_report(sample.SCAN_ERROR))
    assert presented.document() == {
        "cluster_id": "cluster-1",
        "partitions": [
            {
                "broker_id": 1,
                "directory_id": "dir-a",
                **LABELS,
                "chosen": True,
                "log_start_offset": 100,
                "log_end_offset": 200,
                "high_watermark": 200,
                "last_stable_offset": 199,
                "bounds": "lower",
                "leader_epochs": [[0, 0], [3, 120]],
                "segments": [
                    {
                        "base_offset": 100,
                        "end_offset": 199,
                        "size_bytes": 4096,
                        "max_timestamp_ms": 1_700_000_000_000,
                        "leader_epochs": [[0, 0], [3, 120]],
                        "active": False,
                        "eligible": True,
                        "reason": None,
                        "reason_message": None,
                    },
                    {
                        "base_offset": 200,
                        "end_offset": 199,
                        "size_bytes": 0,
                        "max_timestamp_ms": -1,
                        "leader_epochs": [[0, 0], [3, 120]],
                        "active": True,
                        "eligible": False,
                        "reason": "active",
                        "reason_message": "active segment",
                    },
                ],
            }
        ],
        "errors": [ERROR],
    }
    assert not presented.ok


def test_a_deep_scan_adds_the_number_of_batches() -> None:
    deep = LogSegment(0, 9, 100, 5, sample.EPOCHS, active=False, reason=None, batch_count=7)
    report = sample.scan_report()
    replica = sample.replica(deep)
    document = present_scan(type(report)(None, (replica,), ())).document()
    assert document["partitions"][0]["segments"][0]["batch_count"] == 7


@pytest.mark.parametrize(
    ("reason", "ok"),
    [
        (None, True),
        (IneligibleReason.ACTIVE, True),
        (IneligibleReason.CORRUPT, False),
        (IneligibleReason.AFTER_CORRUPT, False),
    ],
)
def test_a_scan_has_findings_if_something_is_damaged(reason: IneligibleReason | None, ok: bool) -> None:
    segment = LogSegment(0, 9, 100, 5, sample.EPOCHS, active=False, reason=reason)
    report = sample.scan_report()
    assert present_scan(type(report)(None, (sample.replica(segment),), ())).ok is ok


def test_plan() -> None:
    plan = sample.copy_plan(held_back=(sample.DAMAGED_PLAN_ITEM,), errors=(sample.SCAN_ERROR,))
    assert present_plan(plan).document() == {
        "run_id": "run-1",
        "partitions": [
            {
                "broker_id": 1,
                **LABELS,
                "urgency": 0.5,
                "placement": {"queue": None, "spark_resource": None},
                "segments": [
                    {"base_offset": 100, "end_offset": 199, "size_bytes": 4096, "supersedes": None},
                    {"base_offset": 200, "end_offset": 299, "size_bytes": 1024, "supersedes": None},
                ],
            }
        ],
        "held_back": [HELD_BACK],
        "errors": [ERROR],
        "segments": 2,
        "bytes": 5120,
    }


def test_what_is_never_copied_does_not_wait() -> None:
    held = [
        HeldBackPartition(partition, 0, HeldBack.NOT_ELIGIBLE, str(reason), ineligible=reason)
        for partition, reason in (
            (sample.ORDERS_0, IneligibleReason.ACTIVE),
            (sample.ORDERS_1, IneligibleReason.COMPACTED),
        )
    ]
    presented = present_plan(sample.copy_plan(held_back=tuple(held)))
    assert "1 waiting" in presented.summary
    rows = {table.title: [row[0] for row in table.rows] for table in presented.tables()}
    assert (rows["waiting"], rows["never copied"]) == (["orders-0"], ["orders-1"])
    assert len(presented.document()["held_back"]) == 2


def test_a_plan_has_findings_only_for_reasons_that_need_a_person() -> None:
    fine = {reason: present_plan(sample.copy_plan(held_back=(waiting(reason),))).ok for reason in HeldBack}
    assert {reason for reason, ok in fine.items() if not ok} == {
        HeldBack.OUT_OF_SIGHT,
        HeldBack.STOPPED,
        HeldBack.LOST,
        HeldBack.FAILED_AGAIN,
        HeldBack.STORE_IN_DOUBT,
        HeldBack.COPY_IN_DOUBT,
        HeldBack.HOLE,
        HeldBack.DIVERGENCE,
        HeldBack.DAMAGED,
        HeldBack.COMPACTED,
    }
    assert present_plan(sample.copy_plan()).ok
    assert not present_plan(sample.copy_plan(errors=(sample.SCAN_ERROR,))).ok


def waiting(reason: HeldBack) -> HeldBackPartition:
    return HeldBackPartition(sample.ORDERS_1, 0, reason, "detail")


def test_copy() -> None:
    presented = present_copy(sample.copy_run())
    assert presented.document() == {
        "run_id": "run-1",
        "copied": [
            {
                **LABELS,
                "start_offset": 0,
                "end_offset": 99,
                "bytes": 1024,
                "segment_id": sample.SEGMENT_ID_TEXT,
                "supersedes": None,
            }
        ],
        "failed": [
            {
                **LABELS,
                "base_offset": 200,
                "path": "/d/2.log",
                "position": 61,
                "error": "CorruptFileError",
                "message": "CRC-32C",
            }
        ],
        "skipped": [{**LABELS, "start_offset": 100, "end_offset": 199, "bytes": 1024}],
        "left": [{**LABELS, "start_offset": 300, "end_offset": 399, "bytes": 1024}],
        "held_back": [HELD_BACK],
        "errors": [ERROR],
        "bytes": 1024,
        "seconds": 2.0,
    }
    assert presented.summary == "copied 1 segment, 1.0 KiB in 2.0s (512 B/s); 1 failed, 1 still planned"
    assert not presented.ok


def test_a_run_without_failures_is_fine_and_an_empty_one_too() -> None:
    assert present_copy(CopyRun("run-1", [sample.work_item(SegmentOutcome.COPIED, 0)], 0.0)).ok
    empty = present_copy(CopyRun("run-1", [], 0.0))
    assert (empty.ok, empty.tables(), empty.document()["copied"]) == (True, (), [])


def test_sizes() -> None:
    assert present_sizes(SizeReport([sample.partition_size()])).document() == {
        "partitions": [
            {
                **LABELS,
                "bytes": 5120,
                "stored_bytes": 5120,
                "segments": 2,
                "leader_epochs": [
                    {"epoch": 0, "bytes": 4096, "segments": 1},
                    {"epoch": 3, "bytes": 5120, "segments": 2},
                ],
            }
        ],
        "delete_lag": [],
        "cost": None,
    }


def test_what_is_stored_beside_what_is_finished() -> None:
    presented = present_sizes(SizeReport([sample.partition_size()], stored={sample.ORDERS_0: 7168}))
    (partition,) = presented.document()["partitions"]
    assert (partition["bytes"], partition["stored_bytes"]) == (5120, 7168)
    assert presented.tables()[1].rows == (("orders-0", "7.0 KiB", "2.0 KiB"),)


def test_sizes_with_all_that_waits_and_what_it_costs() -> None:
    report = SizeReport(
        [sample.partition_size()],
        delete_lags=[PartitionLag(sample.ORDERS_0, 10, 1, 2.0)],
        tiers=TierComparison(
            (PartitionLag(sample.ORDERS_0, 2048, 2, 3600.5),),
            (DuplicateBytes(sample.ORDERS_0, 4096),),
            (sample.SCAN_ERROR,),
        ),
        cost=CostEstimate("EUR", Decimal("12.5"), None, Decimal("0.0000421"), Decimal(0)),
    )
    presented = present_sizes(report)
    document = presented.document()
    assert document["copy_lag"] == [{**LABELS, "bytes": 2048, "segments": 2, "seconds": 3600.5}]
    assert document["delete_lag"] == [{**LABELS, "bytes": 10, "segments": 1, "seconds": 2.0}]
    assert document["duplicates"] == [{**LABELS, "local_bytes": 4096}]
    assert document["cost"] == {
        "currency": "EUR",
        "storage_per_month": "12.50",
        "writing": None,
        "reading": "0.000042",
        "deleting": "0.00",
    }
    assert [error["path"] for error in document["errors"]] == [sample.SCAN_ERROR.path]
    assert presented.summary.endswith("2.0 KiB wait for a copy, about 12.50 EUR a month")
    titles = [table.title for table in presented.tables()]
    assert titles[1:4] == ["waits to be copied", "waits to be deleted", "both local and remote"]


def test_log_dirs_have_the_shape_of_kafkas_tool_and_the_remote_tier_beside_it() -> None:
    replica = ReplicaSize(sample.ORDERS_0, 8192, 3, False, sample.partition_size())
    described = [
        LogDirDescription(KnownLogDir(2, "/gone", None, "SourceUnreadableError: /gone"), ()),
        LogDirDescription(KnownLogDir(1, "/data", "dir-a"), (replica,)),
    ]
    presented = present_log_dirs(described, [sample.partition_size(), sample.partition_size(sample.ORDERS_1)])
    assert presented.document() == {
        "version": 1,
        "brokers": [
            {
                "broker": 1,
                "logDirs": [
                    {
                        "logDir": "/data",
                        "error": None,
                        "partitions": [
                            {
                                "partition": "orders-0",
                                "size": 8192,
                                "offsetLag": 3,
                                "isFuture": False,
                                "topicId": sample.TOPIC_ID_TEXT,
                                "remoteSize": 5120,
                                "remoteSegments": 2,
                            }
                        ],
                    }
                ],
            },
            {"broker": 2, "logDirs": [{"logDir": "/gone", "error": "SourceUnreadableError: /gone", "partitions": []}]},
        ],
        "remote": [
            {"partition": f"orders-{number}", "topicId": sample.TOPIC_ID_TEXT, "size": 5120, "segments": 2}
            for number in (0, 1)
        ],
    }
    assert not presented.ok
    assert [row[0] for row in presented.tables()[0].rows] == ["2:/gone", "1:/data", "only remote"]


def test_verify() -> None:
    finding = QualityFinding(
        "orders", 0, sample.TOPIC_ID_TEXT, sample.SEGMENT_ID_TEXT, 100, "Q102", "object", "differs"
    )
    presented = present_verify(VerifyReport(3, (finding,), (), 2048, 0.5))
    assert presented.document() == {
        "segments": 3,
        "failed": [
            {
                **LABELS,
                "segment_id": sample.SEGMENT_ID_TEXT,
                "start_offset": 100,
                "rule": "Q102",
                "level": "object",
                "message": "differs",
            }
        ],
        "warnings": [],
        "not_opened": [],
        "bytes_read": 2048,
        "not_served": [],
    }
    assert not presented.ok
    warned = present_verify(VerifyReport(3, (), (finding,), 0, 0.5))
    assert (warned.ok, len(warned.document()["warnings"])) == (True, 1)
    assert "3 passed, 0 failed, 1 warning" in warned.summary
    assert (warned.document()["not_opened"], "too large" in warned.summary) == ([], False)
    large = present_verify(VerifyReport(3, (), (finding, replace(finding, rule="Q270")), 0, 0.5))
    assert large.ok
    assert [one["rule"] for one in large.document()["not_opened"]] == ["Q270"]
    assert "2 warnings" in large.summary
    assert "1 segment with batches too large to be opened" in large.summary


def test_segments_that_fail_with_their_partition_are_not_subtracted_from_those_that_were_verified() -> None:
    ids = [f"{number:021d}A" for number in range(3)]
    findings = [QualityFinding("orders", 0, sample.TOPIC_ID_TEXT, id_, 100, "Q401", "partition", "gap") for id_ in ids]
    report = VerifyReport(1, (findings[0],), (), 2048, 0.5).with_partitions(findings, (), verified=ids[:1])
    assert present_verify(report).summary == (
        "verified 1 segment: 0 passed, 1 failed, 0 warnings; read 2.0 KiB; 2 segments beside these failed by rules"
        " about whole partitions"
    )
    passed = VerifyReport(1, (), (), 2048, 0.5).with_partitions(findings[1:], (), verified=ids[:1])
    assert present_verify(passed).summary.startswith("verified 1 segment: 1 passed, 0 failed, ")


def test_a_verified_segment_that_fails_with_its_partition_did_not_pass() -> None:
    ids = [f"{number:021d}A" for number in range(3)]
    findings = [QualityFinding("orders", 0, sample.TOPIC_ID_TEXT, id_, 100, "Q401", "partition", "gap") for id_ in ids]
    report = VerifyReport(7, (), (), 2048, 0.5).with_partitions(findings, (), verified=ids[:2])
    assert present_verify(report).summary == (
        "verified 7 segments: 5 passed, 2 failed (2 only by rules about whole partitions), 0 warnings; read 2.0 KiB;"
        " 1 segment beside these failed by rules about whole partitions"
    )


def test_verify_names_what_is_not_served_with_its_offsets_and_what_becomes_of_it() -> None:
    metadata = sample.segment_row().metadata
    copies = [
        FailedCopy(metadata, "Q102"),
        FailedCopy(metadata, "Q102", lost_because="the source's log starts at 500"),
        FailedCopy(metadata, "Q102", lost_because="the source's log starts at 500", given_up=True),
    ]
    presented = present_verify(VerifyReport(0, (), (), 0, 0.5), copies)
    assert presented.ok
    (table,) = presented.tables()
    assert [(row[1], row[3].split(";")[0]) for row in table.rows] == [
        ("100..199", "the next run copies it again, if the source still has the same segment"),
        ("100..199", "lost: the source's log starts at 500"),
        ("100..199", "given up by decision"),
    ]
    assert presented.document()["not_served"][1] == {
        **LABELS,
        "segment_id": sample.SEGMENT_ID_TEXT,
        "start_offset": 100,
        "end_offset": 199,
        "bytes": 4096,
        "lost_because": "the source's log starts at 500",
        "given_up": False,
        "was_left": False,
    }


def test_a_loss_and_a_new_copy_are_members_of_the_plan() -> None:
    segment_id = sample.segment_row().metadata.remote_log_segment_id
    loss = Loss(segment_id, OffsetRange(100, 199), "gone")
    held = HeldBackPartition(sample.ORDERS_0, 100, HeldBack.LOST, "offsets 100..199", lost=(loss,))
    again = PlannedSegment(100, 199, 4096, segment_id.id)
    plan = CopyPlan("run-1", (PlannedPartition(sample.REPLICA_0, 0.5, (again,)),), (held,), ())
    document = present_plan(plan).document()
    assert document["partitions"][0]["segments"][0]["supersedes"] == sample.SEGMENT_ID_TEXT
    assert document["held_back"][0]["lost"] == [
        {
            "segment_id": sample.SEGMENT_ID_TEXT,
            "start_offset": 100,
            "end_offset": 199,
            "in_source": False,
            "why": "gone",
        }
    ]
    titles = [table.title for table in present_plan(plan).tables()]
    assert titles == ["to copy", "copied again, as they failed the quality gate", "waiting"]


def test_fetch() -> None:
    written = sample.fetched(Path("/out/orders-0/00000000000000000100.log"))
    refused = sample.fetched(None, "not served: its verdict is none")
    segment = {"segment_id": sample.SEGMENT_ID_TEXT, "start_offset": 100, "end_offset": 199, "bytes": 4096}
    segment |= {"by_decision": False, "history": 0, "said": []}
    presented = present_fetch(sample.ORDERS_0, [written, refused])
    assert presented.document() == {
        **LABELS,
        "segments": [
            {**segment, "path": "/out/orders-0/00000000000000000100.log", "refused": None},
            {**segment, "path": None, "refused": "not served: its verdict is none"},
        ],
        "bytes": 4096,
    }
    assert presented.summary == "fetched 1 segment of orders-0, 4.0 KiB into /out/orders-0; 1 not fetched"
    assert not presented.ok


def test_what_a_decision_left_is_named_and_no_fault() -> None:
    written = sample.fetched(Path("/out/orders-0/00000000000000000100.log"))
    left = replace(sample.fetched(None, "of the history that was left"), by_decision=True)
    said = replace(written, said=("offsets 150..199: replaced",))
    presented = present_fetch(sample.ORDERS_0, [said, left])
    assert presented.ok
    assert presented.summary.endswith("into /out/orders-0; 1 left out: other histories")
    (table,) = presented.tables()
    assert table.rows[0][-1] == "/out/orders-0/00000000000000000100.log; offsets 150..199: replaced"


def test_fetch_from_an_offset() -> None:
    fetch = PartitionFetch(sample.ORDERS_0, 120, 5000, 3)
    path = Path("/out/orders-0/118-130.batches")
    written = present_records(FetchedRecords(fetch, 118, 131, bytes(2048)), path)
    assert written.document() == {
        **LABELS,
        "offset": 120,
        "leader_epoch": 3,
        "base_offset": 118,
        "next_offset": 131,
        "bytes": 2048,
        "path": str(path),
        "throttle_ms": 0,
        "said": [],
    }
    assert written.summary == f"fetched offsets 118..130 of orders-0, 2.0 KiB, into {path}"
    throttled = present_records(FetchedRecords.without_records(fetch, throttle_ms=900), None)
    assert (throttled.ok, throttled.document()["throttle_ms"], throttled.document()["path"]) == (False, 900, None)
    assert "ask again in 900 ms" in throttled.summary
    nothing = present_records(FetchedRecords.without_records(fetch), None)
    assert (nothing.ok, nothing.document()["next_offset"]) == (True, 120)
    assert nothing.summary == "no batch of orders-0 from offset 120 on is in remote storage"


def test_ready() -> None:
    checks = (Check("schema", True, True, "at head"), Check("storage", False, True, "503"))
    presented = present_ready(Readiness(checks))
    assert presented.document() == {
        "ready": False,
        "checks": [
            {"name": "schema", "ok": True, "waitable": True, "message": "at head"},
            {"name": "storage", "ok": False, "waitable": True, "message": "503"},
        ],
        "partitions": [],
    }
    assert presented.summary == "not ready: storage"
    assert present_ready(Readiness(checks[:1])).ok


def test_ready_names_the_partitions_that_wait() -> None:
    one, two = (PartitionReadiness(TopicIdPartition(sample.TOPIC_ID, number, "orders"), None) for number in (0, 1))
    paused = replace(two, reason=NotReady.PAUSED, detail="./tiering resume")
    checks = (Check("schema", True, True, "at head"),)
    presented = present_ready(Readiness(checks, (one, paused)))
    assert presented.document()["partitions"] == [
        {**LABELS, "partition": 0, "ready": True, **NO_REASON, "waitable": True, "detail": ""},
        {
            **LABELS,
            "partition": 1,
            "ready": False,
            "reason": "paused",
            "reason_message": "paused",
            "waitable": True,
            "detail": "./tiering resume",
        },
    ]
    assert presented.tables()[1].rows == (("orders-1", "paused", "./tiering resume"),)
    assert (presented.ok, presented.summary) == (True, "1 of 2 partitions ready")
    assert not present_ready(Readiness(checks, (one, paused)), all_of_them=True).ok
    assert present_ready(Readiness(checks, (paused,))).summary == "not ready: 0 of 1 partition ready"


def test_a_long_list_of_waiting_partitions_is_cut() -> None:
    waiting = tuple(
        PartitionReadiness(TopicIdPartition(sample.TOPIC_ID, n, "orders"), NotReady.STOPPED, "Q102") for n in range(23)
    )
    lines = waiting_lines(Readiness((), waiting))
    assert (len(lines), lines[0], lines[-1]) == (
        21,
        "orders-0: stopped until a person decides: Q102",
        "and 3 more: ./tiering ready",
    )


def _pools() -> PoolsStatus:
    """One that Airflow answered for, one that was seen before, one that nobody has seen."""
    copier, expiration, reader = POOLS
    return PoolsStatus(
        (
            PoolStatus(copier, PoolUsage(2, 1, 1, 3, 4), SeenPool(2, 1_000), ["run-1.0"]),
            PoolStatus(expiration, None, SeenPool(UNLIMITED_SLOTS, 1_000)),
            PoolStatus(reader, None, None),
        ),
        "no answer",
    )


def test_pools() -> None:
    presented = present_pools(_pools())
    unknown: dict[str, Any] = {"running": None, "queued": None, "deferred": None, "live_batches": []}
    assert presented.document() == {
        "pools": [
            {
                "name": "remote_log_copier",
                "config": "remote.log.manager.copier.thread.pool.size",
                "slots": 2,
                "running": 1,
                "queued": 4,
                "deferred": 4,
                "live_batches": ["run-1.0"],
                "source": "Airflow pool",
                "seen_at_ms": 1_000,
            },
            {
                **unknown,
                "name": "remote_log_expiration",
                "config": "remote.log.manager.expiration.thread.pool.size",
                "slots": -1,
                "source": "Airflow pool, as seen last",
                "seen_at_ms": 1_000,
            },
            {
                **unknown,
                "name": "remote_log_reader",
                "config": "remote.log.reader.threads",
                "slots": None,
                "source": "never seen",
                "seen_at_ms": None,
            },
        ],
        "airflow": "no answer",
    }
    rows = presented.tables()[0].rows
    assert rows[0] == ("remote_log_copier", "2", "1", "4", "1", "Airflow pool")
    assert [row[1] for row in rows] == ["2", "unlimited", "not known"]
    assert presented.summary == ("3 pools, 1 live batch; Airflow was not read, sizes are the last known: no answer")
    assert presented.ok


def test_a_pool_of_size_0_is_a_pause() -> None:
    status = PoolsStatus((PoolStatus(POOLS[0], PoolUsage(0, 0, 0, 0, 0), None),))
    assert (
        present_pools(status).summary == "1 pool, 0 live batches; 0 slots, so nothing of it begins: remote_log_copier"
    )


def test_status() -> None:
    settings = load_settings(environ={"TIERING_METADATA__URL": "postgresql://u:hunter2@h/db"})
    deleted = {Uuid(bytes(16)): TopicDeletion("old", 1_700_000_000_000, "RemoveTopicRecord in a log")}
    running = BatchProgress("run-1", "run-1.0", None, "host-a", 17, "orders-0", 2048, 10240, 1024.0, finished=False)
    traffic = (Traffic(1, 600, 0.25, 0, 0.0, 2), Traffic(60, 7200, 1.5, 36, 0.0, 2))
    held_back = Series(
        SeriesKey("tiering_copy_held_back_partitions", (("reason", "hole"), ("topic", "orders"))), 2.0, 1_600_000
    )
    failed = Series(SeriesKey("tiering_failed_segments", (("topic", "orders"),)), 1.0, 1_700_000)
    overview = Overview(
        1_800_000,
        totals(ArchiveSize(0, 0, 0, 0), {}, {}, PriceTable("EUR")),
        frozenset({"pay", "orders"}),
        _pools(),
        (running,),
        (Limit(Scope(QuotaKind.COPY, QuotaLevel.TOTAL), 2048, 2000.0, limits=True),),
        grouped([held_back]),
        alarms({"tiering_failed_segments": [failed]}, 1_800_000),
        {"TieringCopyLagOld": 3},
        (UnreadableLogDir(2, "/data-2", 1_600_000),),
    )
    activity = Activity(overview, deleted_topics=deleted, traffic=traffic)
    presented = present_status(settings, activity)
    document = dict(presented.document())
    by_name = {setting.pop("name"): setting for setting in document.pop("settings")}
    assert by_name["metadata.url"] == {
        "value": "postgresql://u:***@h/db",
        "origin": "environment TIERING_METADATA__URL",
        "dynamic": False,
    }
    assert by_name["tiering.copier.batch.max.seconds"] == {"value": 600, "origin": "default", "dynamic": True}
    assert document.pop("traffic") == [
        {
            "minutes": minutes,
            "copied_bytes": copied,
            "copy_throttled_seconds": waited,
            "fetched_bytes": fetched,
            "fetch_throttled_seconds": 0.0,
            "delete_requests": 2,
        }
        for minutes, copied, waited, fetched in ((1, 600, 0.25, 0), (60, 7200, 1.5, 36))
    ]
    (table,) = (table for table in presented.tables() if table.title.startswith("traffic"))
    assert [[str(cell) for cell in row] for row in table.rows] == [
        ["1m 00s", "600 B", "10 B", "0.2s", "0 B", "0 B", "0.0s", "2"],
        ["1h 00m", "7.0 KiB", "2 B", "1.5s", "36 B", "0 B", "0.0s", "2"],
    ]
    assert [table.title for table in presented.tables()][1:6] == [
        "running batches",
        "alarms",
        "waiting, as of the last plan",
        "log directories that cannot be read",
        "quotas in force",
    ]
    (table,) = (table for table in presented.tables() if table.title == "alarms")
    assert [row[1:] for row in table.rows][1] == (
        "TieringCopyLagOld holds for 3 more, with values no higher than these.",
        "docs/runbook.md#the-copy-lag-grows",
    )
    unknown = {"value": None, "as_of_ms": None}
    assert document.pop("totals") == {
        **dict.fromkeys(("topics", "segments", "finished_bytes", "stored_bytes"), 0),
        **dict.fromkeys(("judged_bytes", "safe_bytes", "waiting_bytes", "waiting_segments"), unknown),
        **dict.fromkeys(("waiting_seconds", "failed_segments", "findings"), unknown),
        "unmeasured_partitions": 0,
        "cost_per_month": None,
    }
    assert document == {
        "as_of_ms": 1_800_000,
        "stopped_pools": [],
        "limits": [
            {"kind": "copy", "level": "total", "entity": "", "per_second": 2048, "rate": 2000.0, "limits": True}
        ],
        "waiting": [
            {
                "reason": "hole",
                "reason_message": str(HeldBack.HOLE),
                "partitions": 2,
                "topics": ["orders"],
                "more_topics": 0,
                "advice": "./tiering doctor orders",
                "as_of_ms": 1_600_000,
            }
        ],
        "unreadable_log_dirs": [{"broker_id": 2, "log_dir": "/data-2", "as_of_ms": 1_600_000}],
        "alarms": [
            {
                "alert": "TieringFailedSegments",
                "severity": "critical",
                "subject": "orders",
                "sentence": "1 segments of orders failed their verification, and no run has copied them again.",
                "runbook": "docs/runbook.md#a-segment-failed-the-quality-gate",
                "as_of_ms": 1_700_000,
            }
        ],
        "more_alarms": [{"alert": "TieringCopyLagOld", "alarms": 3}],
        "paused_topics": ["orders", "pay"],
        "batches": [
            {
                "run_id": "run-1",
                "batch_id": "run-1.0",
                "pool": None,
                "host": "host-a",
                "pid": 17,
                "partition": "orders-0",
                "done_bytes": 2048,
                "planned_bytes": 10240,
                "bytes_per_second": 1024.0,
                "seconds_left": 8.0,
                "started_at_ms": 0,
                "updated_at_ms": 0,
            }
        ],
        "pools": present_pools(_pools()).document()["pools"],
        "topic_quotas": {"enabled": False, "total_thresholds": {}, "topic_thresholds": {}, "brokers": []},
        "deleted_topics": [
            {
                "topic": "old",
                "topic_id": "AAAAAAAAAAAAAAAAAAAAAA",
                "seen_at_ms": 1_700_000_000_000,
                "evidence": "RemoveTopicRecord in a log",
            }
        ],
    }
    assert presented.tables()[-1].rows == (
        ("old", "AAAAAAAAAAAAAAAAAAAAAA", "2023-11-14 22:13:20 UTC", "RemoveTopicRecord in a log"),
    )
    assert presented.summary == "paused: orders, pay; 1 batch runs; 4 alarms"
    assert "hunter2" not in str(presented.tables())


def test_status_without_a_database() -> None:
    presented = present_status(load_settings(environ={}), None, "refused")
    assert presented.document()["unavailable"] == "refused"
    assert (presented.ok, len(presented.tables())) == (False, 1)


@pytest.mark.parametrize(("topics", "words"), [({"*"}, "all topics are paused"), (set(), "nothing is paused")])
def test_pause_in_words(topics: set[str], words: str) -> None:
    nothing = totals(ArchiveSize(0, 0, 0, 0), {}, {}, PriceTable("EUR"))
    activity = Activity(Overview(0, nothing, topics, PoolsStatus(())))
    assert present_status(load_settings(environ={}), activity).summary.startswith(words)
