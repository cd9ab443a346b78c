"""One line per partition, from values alone: what the first obstacle is, and that healthy partitions are none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.kafka.log_dirs.contract import (
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanError,
    UnfinishedTransaction,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.operations.checks import Check
from include.tiering.operations.doctor import Cause, Diagnosis, Evidence, diagnose
from include.tiering.operations.readiness import NotReady, PartitionReadiness, Readiness
from include.tiering.quotas.contract import QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.quotas.topic_quotas import BrokerUsage, MeterKind, TopicMeters, TopicQuotaReport, TopicUsage
from include.tiering.runs.contract import LeaseHolder, PlannedPartition, PlannedSegment
from tests.doubles.segments import whole_replica

EPOCHS = LeaderEpochs.of([(0, 0)])
ORDERS = TopicIdPartition(Uuid(b"1" * 16), 3, "orders")
ACTIVE = LogSegment(30, 39, 2048, 0, EPOCHS, True, IneligibleReason.ACTIVE)
ROLLED = LogSegment(0, 29, 4096, 0, EPOCHS, False, None)
REPLICA = whole_replica(
    ReplicaId(ORDERS, 1, "dir"),
    (ROLLED, ACTIVE),
    40,
    leader_epochs=EPOCHS,
    log_start_offset=5,
    high_watermark=35,
    last_stable_offset=20,
    recovery_point=25,
    leader_epoch=0,
)
PLANNED = PlannedPartition(REPLICA.replica_id, 0.5, (PlannedSegment(0, 29, 1_048_576),))
CHECKS = (Check("schema", True, True, "at head"),)
NOW_MS = 1_000_000_000


def _no_transactions(_: Replica) -> Sequence[UnfinishedTransaction]:
    raise AssertionError("asked although no transaction keeps anything")


HEALTHY = Evidence(
    topic="orders",
    included=True,
    readiness=Readiness(CHECKS, (PartitionReadiness(ORDERS, None),)),
    plan=CopyPlan("doctor", (), (), ()),
    replicas=(REPLICA,),
    now_ms=NOW_MS,
    transactions=_no_transactions,
)


def one(**changes: Any) -> Diagnosis:
    (found,) = diagnose(replace(HEALTHY, **changes))
    return found


def held_back(reason: HeldBack, detail: str | IneligibleReason, **plan: Any) -> CopyPlan:
    ineligible = detail if isinstance(detail, IneligibleReason) else None
    waiting = HeldBackPartition(ORDERS, 0, reason, str(detail), ineligible=ineligible)
    return CopyPlan("doctor", plan.get("partitions", ()), (waiting,), plan.get("errors", ()))


def test_nothing_left_is_healthy() -> None:
    found = one()
    assert (found.cause, found.cause.tiers) == (Cause.UP_TO_DATE, True)
    assert found.finding == "all that has rolled is remote; active segment from offset 30, 2.0 KiB"
    alone = one(replicas=(replace(REPLICA, segments=(ACTIVE,)),))
    assert (alone.cause, alone.finding) == (Cause.NOTHING_ROLLED, "only the active segment from offset 30, 2.0 KiB")


@pytest.mark.parametrize(
    ("detail", "finding"),
    [
        (IneligibleReason.ABOVE_HIGH_WATERMARK, "segment at 0: above the high watermark 35"),
        (IneligibleReason.NOT_FLUSHED, "segment at 0: above the recovery point and not replicated (recovery point 25)"),
        (IneligibleReason.BELOW_LOG_START, "segment at 0: wholly below the log start offset 5"),
        (IneligibleReason.PAST_RETENTION, "segment at 0: past the broker's retention"),
        (IneligibleReason.COPY_DELAYED, "segment at 0: its copy is delayed by remote.copy.lag of the topic"),
        (IneligibleReason.NO_PRODUCER_SNAPSHOT, "segment at 0: no producer snapshot at its end"),
        (IneligibleReason.NOT_LEADER, "segment at 0: not the leader's replica"),
    ],
)
def test_a_segment_that_is_not_eligible_with_the_bound(detail: IneligibleReason, finding: str) -> None:
    found = one(plan=held_back(HeldBack.NOT_ELIGIBLE, detail))
    assert (found.cause, found.finding, found.cause.tiers) == (Cause.NOT_ELIGIBLE, finding, False)
    assert found.advice


def test_damage_names_the_file() -> None:
    error = ScanError("/data/orders-3/0.log", 61, "CorruptFileError", "CRC-32C differs")
    found = one(plan=held_back(HeldBack.DAMAGED, IneligibleReason.CORRUPT, errors=(error,)))
    assert found.finding == "segment at 0: corrupt: /data/orders-3/0.log: CRC-32C differs"


@pytest.mark.parametrize(
    ("open_ones", "finding"),
    [
        (
            [UnfinishedTransaction(7, 20, NOW_MS - 3 * 3_600_000), UnfinishedTransaction(8, 22, -1)],
            (
                "open transaction of producer 7 for 3h 00m from offset 20, and 1 more; "
                "last stable offset 20, high watermark 35"
            ),
        ),
        (
            [UnfinishedTransaction(7, 20, -1)],
            "open transaction of producer 7 from offset 20; last stable offset 20, high watermark 35",
        ),
        (
            [UnfinishedTransaction(7, 20, NOW_MS - 60_000, "payments\x1b-1")],
            (
                "open transaction of producer 7 (payments\\x1b-1) for 1m 00s from offset 20; "
                "last stable offset 20, high watermark 35"
            ),
        ),
        (
            [UnfinishedTransaction(7, 20, NOW_MS + 5)],
            "open transaction of producer 7 for 0.0s from offset 20; last stable offset 20, high watermark 35",
        ),
        ([], "last stable offset 20, high watermark 35; the end marker is not below the high watermark yet"),
    ],
)
def test_a_transaction_with_its_producer_and_age(open_ones: list[UnfinishedTransaction], finding: str) -> None:
    plan = held_back(HeldBack.NOT_ELIGIBLE, IneligibleReason.ABOVE_LAST_STABLE_OFFSET)
    found = one(plan=plan, transactions=lambda _: open_ones)
    assert (found.cause, found.finding) == (Cause.OPEN_TRANSACTION, finding)


@pytest.mark.parametrize("reason", [HeldBack.HOLE, HeldBack.DIVERGENCE, HeldBack.STOPPED])
def test_what_is_held_back_keeps_its_words(reason: HeldBack) -> None:
    found = one(plan=held_back(reason, "why"))
    assert (found.cause, found.finding) == (Cause.HELD_BACK, f"from offset 0: {reason}: why")


@pytest.mark.parametrize("reason", [HeldBack.HOLE, HeldBack.LOST, HeldBack.FAILED_AGAIN])
def test_what_is_lost_has_a_command_as_its_way_out(reason: HeldBack) -> None:
    advice = one(plan=held_back(reason, "why")).advice
    assert "./tiering skip orders --partition 3 --reason" in advice


def test_a_partition_that_is_not_ready() -> None:
    stopped = PartitionReadiness(ORDERS, NotReady.STOPPED, "segment 0..9 failed Q102")
    found = one(readiness=Readiness(CHECKS, (stopped,)))
    assert (found.cause, found.finding) == (
        Cause.NOT_READY,
        "stopped until a person decides: segment 0..9 failed Q102",
    )
    bare = PartitionReadiness(ORDERS, NotReady.METADATA)
    assert one(readiness=Readiness(CHECKS, (bare,))).finding == "its metadata is not complete"


def test_a_platform_that_is_not_ready_is_one_line() -> None:
    checks = (*CHECKS, Check("storage", False, False, "foreign"), Check("pool", False, True, "0 slots"))
    found = one(readiness=Readiness(checks), plan=CopyPlan("doctor", (), (), ()), replicas=())
    assert (found.partition, found.cause, found.finding) == (None, Cause.PLATFORM, "storage: foreign; pool: 0 slots")


UNREADABLE = Check("log dirs", False, True, "1 of 2 readable: /b is missing", needed=False, wrong=True)


def test_a_missing_disk_is_named_although_the_pool_has_no_slots_either() -> None:
    checks = (*CHECKS, UNREADABLE, Check("pool", False, True, "0 slots"))
    pool, disk = diagnose(replace(HEALTHY, readiness=Readiness(checks)))
    assert (pool.cause, pool.finding) == (Cause.PLATFORM, "pool: 0 slots")
    assert (disk.cause, disk.finding) == (Cause.PLATFORM, "log dirs: 1 of 2 readable: /b is missing")
    assert disk.advice


def test_a_topic_that_may_be_on_a_missing_disk_is_not_called_unknown_or_tiered() -> None:
    checks = (*CHECKS, UNREADABLE)
    lines = diagnose(replace(HEALTHY, readiness=Readiness(checks), replicas=()))
    assert [line.cause for line in lines] == [Cause.NOT_FOUND, Cause.PLATFORM]
    partly = replace(HEALTHY, readiness=Readiness(checks, (PartitionReadiness(ORDERS, None),)))
    assert [line.cause for line in diagnose(partly)] == [Cause.UP_TO_DATE, Cause.PLATFORM]
    # The cluster says that it has no other partition: the disk is no matter of this topic.
    assert [line.cause for line in diagnose(replace(partly, has_all=True))] == [Cause.UP_TO_DATE]


def test_what_waits_for_a_run_with_the_narrowest_quota() -> None:
    quotas = {
        Scope(QuotaKind.COPY, QuotaLevel.TOTAL): 1_048_576,
        Scope(QuotaKind.COPY, QuotaLevel.BROKER): 524_288,
        Scope(QuotaKind.FETCH, QuotaLevel.TOTAL): 1,
    }
    found = one(plan=CopyPlan("doctor", (PLANNED,), (), ()), quotas=QuotasInForce(1, quotas), workers=3)
    assert (found.cause, found.cause.tiers) == (Cause.WAITS_FOR_A_RUN, True)
    assert found.finding == (
        "1 segment, 1.0 MiB, from 0 to copy; copy quota 512.0 KiB/s of broker 1, shared by 3 workers: 2.0s at least"
    )
    free = one(plan=CopyPlan("doctor", (PLANNED,), (), ()))
    assert free.finding == "1 segment, 1.0 MiB, from 0 to copy"


def test_who_holds_it_since_when() -> None:
    holder = LeaseHolder("run-1", "run-1/0", NOW_MS - 90_000, NOW_MS + 1, 1)
    found = one(plan=CopyPlan("doctor", (PLANNED,), (), ()), holders={ORDERS: holder})
    assert found.cause is Cause.BEING_COPIED
    assert found.finding == "batch run-1/0 has held its lease for 1m 30s: 1 segment, 1.0 MiB, from 0 to go"


def test_what_stands_behind_planned_segments_is_the_finding() -> None:
    plan = held_back(HeldBack.NOT_ELIGIBLE, IneligibleReason.ABOVE_HIGH_WATERMARK, partitions=(PLANNED,))
    assert one(plan=plan).cause is Cause.NOT_ELIGIBLE


def test_a_failed_segment_that_is_copied_anew_is_named_beside_what_stands_behind_it() -> None:
    anew = replace(PLANNED, segments=(PlannedSegment(0, 29, 1_048_576, supersedes=Uuid(b"2" * 16)),))
    assert one(plan=CopyPlan("doctor", (anew,), (), ())).finding == (
        "1 segment, 1.0 MiB, from 0 (1 of them again, which failed the quality gate) to copy"
    )
    behind = one(plan=held_back(HeldBack.NOT_ELIGIBLE, IneligibleReason.ABOVE_HIGH_WATERMARK, partitions=(anew,)))
    assert behind.cause is Cause.NOT_ELIGIBLE
    assert behind.finding.endswith("35; the next run first copies 1 segment again that failed the quality gate")


def test_every_cause_but_five_is_a_finding() -> None:
    assert [cause for cause in Cause if cause.tiers] == [
        Cause.BEING_COPIED,
        Cause.WAITS_FOR_A_RUN,
        Cause.PUBLISHED,
        Cause.NOTHING_ROLLED,
        Cause.UP_TO_DATE,
    ]


METERS = TopicMeters.new(0).mark(MeterKind.IO, 10_000, 20, 0).mark(MeterKind.ACCEPTED, 10_000, 20, 0).at(5_000)


@pytest.mark.parametrize(
    ("total", "own", "enabled", "refused"),
    [(1_000, 600, True, True), (1_000, 600, False, False), (3_000, 600, True, False), (1_000, 3_000, True, False)],
)
def test_a_topic_quota_refuses_only_if_both_are_exceeded(total: int, own: int, enabled: bool, refused: bool) -> None:
    usage = BrokerUsage(1, METERS, total, (TopicUsage("orders", METERS, own, explicit=True),))
    report = TopicQuotaReport(enabled=enabled, brokers=(usage,))
    found = one(plan=CopyPlan("doctor", (PLANNED,), (), ()), topic_quotas=report)
    assert (found.cause is Cause.TOPIC_QUOTA) is refused
    if refused:
        assert found.finding == (
            "receives 2.0 KiB/s (threshold 600 B/s) while broker 1 receives 2.0 KiB/s (threshold 1000 B/s)"
        )


def test_thresholds_without_effect_are_named() -> None:
    report = TopicQuotaReport(enabled=False, explicit={"orders": 10})
    found = one(plan=CopyPlan("doctor", (PLANNED,), (), ()), topic_quotas=report)
    assert "bytes.in.per.sec.threshold has no effect while topic quotas are off" in found.finding


def test_a_topic_that_is_not_included_is_told_so_first() -> None:
    found = one(included=False, plan=held_back(HeldBack.HOLE, "why"))
    assert (found.cause, found.advice) == (Cause.NOT_INCLUDED, "add orders to topics.include")
