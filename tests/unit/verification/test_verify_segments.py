"""Verification of segments, what it costs and its metrics."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from include.tiering.errors import ForeignStoreError, RemoteStorageUnavailableError, RuleEvaluationError
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import Depth, RemoteLogSegmentId, RemoteLogSegmentState, Verdict, VerdictTotal
from include.tiering.quotas.contract import UNLIMITED, QuotaKind, QuotaLevel, QuotasInForce, Scope
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.remote_storage.store_ownership import MARKER_KEY
from include.tiering.segments.contract import PartitionRetentionState
from include.tiering.verification import verify_segments as module
from include.tiering.verification.measures import bytes_to_read
from include.tiering.verification.metrics import publish_verdicts
from include.tiering.verification.plan import CostOfReading, ReadCost
from include.tiering.verification.rules import RuleEvaluator
from include.tiering.verification.verify_segments import VerifyReport, verify_segments
from tests.doubles.generations import always
from tests.doubles.manual_clock import ManualClock
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.quotas import NoQuotas
from tests.doubles.recorded_metrics import RecordedMetrics
from tests.doubles.segments import partition_of, segment_of
from tests.doubles.stored_log import CopiedPartition, copied_partition

# The gate: who is verified, what is stored, and that a second call changes nothing.


@pytest.fixture
def partition(tmp_path: Path) -> CopiedPartition:
    return copied_partition(tmp_path)


@pytest.fixture
def metadata(partition: CopiedPartition) -> MemoryMetadata:
    return MemoryMetadata(partition.rows)


def verify(
    metadata: MemoryMetadata,
    partition: CopiedPartition,
    *,
    run_id: str | None = None,
    evaluator: RuleEvaluator[Any] | None = None,
    **rest,
) -> VerifyReport:
    return verify_segments(
        metadata,
        partition.storage,
        evaluator or PlainEvaluator(),
        run_id=run_id,
        quotas=NoQuotas(),
        clock=ManualClock(),
        **rest,
    )


def id_of(partition: CopiedPartition, number: int) -> RemoteLogSegmentId:
    return partition.rows[number].metadata.remote_log_segment_id


def verdicts(metadata: MemoryMetadata) -> list[Verdict]:
    return [row.verdict for row in metadata.rows.values()]


def damage_log(partition: CopiedPartition, number: int) -> bytes:
    path = partition.object_path(partition.rows[number], "log")
    content = path.read_bytes()
    middle = len(content) // 2  # neither in the first batch nor in the last
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    return content


def test_real_segments_pass(metadata: MemoryMetadata, partition: CopiedPartition) -> None:
    report = verify(metadata, partition)
    assert (report.segments, report.failed, report.warnings) == (len(partition.rows), (), ())
    assert set(verdicts(metadata)) == {Verdict.PASSED}
    assert report.bytes_read > 0
    assert not metadata.results


def test_a_damaged_segment_fails_is_named_and_the_others_pass(
    metadata: MemoryMetadata, partition: CopiedPartition
) -> None:
    damage_log(partition, 2)
    report = verify(metadata, partition)
    (finding,) = report.failed
    assert (finding.topic, finding.partition, finding.rule, finding.level) == ("payments.v1-eu", 0, "Q102", "object")
    assert finding.segment_id == str(id_of(partition, 2).id)
    assert finding.start_offset == partition.rows[2].metadata.start_offset
    assert verdicts(metadata).count(Verdict.FAILED) == 1
    failed = metadata.rows[id_of(partition, 2)]
    assert failed.verdict is Verdict.FAILED
    assert failed.verdict_detail == f"Q102: {finding.message}"
    assert failed.metadata.is_finished


def test_a_second_call_skips_what_passed_and_names_the_failed_again(
    metadata: MemoryMetadata, partition: CopiedPartition
) -> None:
    damage_log(partition, 2)
    first, second = verify(metadata, partition), verify(metadata, partition)
    assert second.segments == 1
    assert second.failed == first.failed


def test_a_repaired_object_passes_and_its_old_finding_is_withdrawn(
    metadata: MemoryMetadata, partition: CopiedPartition
) -> None:
    content = damage_log(partition, 2)
    verify(metadata, partition)
    partition.object_path(partition.rows[2], "log").write_bytes(content)
    verify(metadata, partition)
    assert set(verdicts(metadata)) == {Verdict.PASSED}
    assert [(r.rule, r.passed) for r in metadata.quality_results(id_of(partition, 2))] == [("Q102", True)]


def test_an_expired_verdict_is_taken_again(metadata: MemoryMetadata, partition: CopiedPartition) -> None:
    verify(metadata, partition)
    metadata.record_verdict(id_of(partition, 1), Verdict.EXPIRED)
    assert verify(metadata, partition).segments == 1
    assert set(verdicts(metadata)) == {Verdict.PASSED}


def test_a_run_verifies_its_own_segments_and_those_that_have_no_verdict(partition: CopiedPartition) -> None:
    passed, expired, mine, damaged = partition.rows[:4]
    metadata = MemoryMetadata([dataclasses.replace(passed, verdict=Verdict.PASSED)])
    metadata.put(dataclasses.replace(expired, verdict=Verdict.EXPIRED))
    metadata.put(dataclasses.replace(mine, verdict=Verdict.PASSED), run_id="run-1")
    metadata.put(damaged)
    damage_log(partition, 3)
    assert verify(metadata, partition, run_id="run-1").segments == 2
    assert verdicts(metadata) == [Verdict.PASSED, Verdict.EXPIRED, Verdict.PASSED, Verdict.FAILED]
    assert verify(metadata, partition, run_id="unknown").segments == 0


def test_the_predecessor_of_a_runs_first_segment_is_an_older_one(partition: CopiedPartition) -> None:
    metadata = MemoryMetadata(partition.rows[:1])
    metadata.put(partition.rows[2], run_id="run-1")
    (finding,) = verify(metadata, partition, run_id="run-1").failed
    assert (finding.rule, finding.level) == ("Q301", "partition")
    assert "missing_offsets = 142" in finding.message


def test_a_segment_behind_a_recorded_hole_passes(partition: CopiedPartition) -> None:
    metadata = MemoryMetadata([partition.rows[0], partition.rows[2]])
    gone = partition.rows[1].metadata
    metadata.skipped = [SkippedOffsets(OffsetRange(gone.start_offset, gone.end_offset), "lost", "me", 0)]
    assert verify(metadata, partition).failed == ()


def test_nothing_follows_what_is_about_to_expire(partition: CopiedPartition) -> None:
    """Of what lies below the log start a new copy of a failed segment goes a run later than its neighbours."""
    metadata = MemoryMetadata([partition.rows[0], partition.rows[2]])
    metadata.state = PartitionRetentionState(log_start_offset=partition.rows[0].metadata.end_offset)
    assert [finding.rule for finding in verify(metadata, partition).failed] == ["Q301"]
    metadata.state = PartitionRetentionState(log_start_offset=partition.rows[2].metadata.start_offset)
    assert verify(metadata, partition).failed == ()


def test_nothing_follows_what_began_to_expire_meanwhile(partition: CopiedPartition) -> None:
    """The log start is raised before anything goes, so it is read after the predecessor."""

    class ExpiresMeanwhile(MemoryMetadata):
        def finished_before(self, row):
            self.state = PartitionRetentionState(log_start_offset=partition.rows[2].metadata.start_offset)
            return super().finished_before(row)

    assert verify(ExpiresMeanwhile([partition.rows[0], partition.rows[2]]), partition).failed == ()


def test_segments_that_are_not_finished_are_left_alone(metadata: MemoryMetadata, partition: CopiedPartition) -> None:
    row = partition.rows[-1]
    started = dataclasses.replace(row.metadata, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    metadata.put(dataclasses.replace(row, metadata=started))
    assert verify(metadata, partition).segments == len(partition.rows) - 1
    assert metadata.rows[id_of(partition, -1)].verdict is Verdict.NONE


def test_a_warning_is_reported_and_does_not_fail(metadata: MemoryMetadata, partition: CopiedPartition) -> None:
    twice = dataclasses.replace(partition.rows[1].metadata, end_offset=partition.rows[1].metadata.end_offset + 5)
    metadata.put(dataclasses.replace(partition.rows[1], metadata=twice))
    report = verify(metadata, partition)
    assert [finding.rule for finding in report.warnings] == ["Q302"]
    assert report.warnings[0].start_offset == partition.rows[2].metadata.start_offset
    assert metadata.rows[id_of(partition, 2)].verdict is Verdict.PASSED


def test_a_segment_whose_deletion_began_meanwhile_gets_no_verdict(
    metadata: MemoryMetadata, partition: CopiedPartition
) -> None:
    class DeletesMeanwhile(PlainEvaluator):
        def evaluate(self, measures):
            row = metadata.rows[id_of(partition, 2)]
            deleting = dataclasses.replace(row.metadata, state=RemoteLogSegmentState.DELETE_SEGMENT_STARTED)
            metadata.put(dataclasses.replace(row, metadata=deleting))
            return super().evaluate(measures)

    partition.object_path(partition.rows[2], "log").unlink()
    report = verify(metadata, partition, evaluator=DeletesMeanwhile())
    assert report.failed == ()
    assert report.segments == len(partition.rows) - 1
    assert metadata.rows[id_of(partition, 2)].verdict is Verdict.NONE


def test_verdicts_of_complete_groups_stay_when_a_later_group_cannot_be_evaluated(
    metadata: MemoryMetadata, partition: CopiedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUP_SEGMENTS", 3)

    class FailsLater(PlainEvaluator):
        calls = 0

        def evaluate(self, measures):
            self.calls += 1
            if self.calls == 2:
                raise RuleEvaluationError("rule Q101 could not be applied")
            return super().evaluate(measures)

    with pytest.raises(RuleEvaluationError):
        verify(metadata, partition, evaluator=FailsLater())
    assert verdicts(metadata)[:4] == [Verdict.PASSED] * 3 + [Verdict.NONE]
    assert verify(metadata, partition).segments == len(partition.rows) - 3
    assert set(verdicts(metadata)) == {Verdict.PASSED}


def test_what_is_read_whole_is_recorded_a_gigabyte_at_a_time(
    metadata: MemoryMetadata, partition: CopiedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUP_BYTES", 2 * max(row.metadata.segment_size_bytes for row in partition.rows))
    sizes: list[int] = []

    class Counting(PlainEvaluator):
        def evaluate(self, measures):
            sizes.append(sum(measure.segment_size_bytes for measure in measures))
            return super().evaluate(measures)

    verify(metadata, partition, evaluator=Counting(), depth=Depth.DEEP)
    assert len(sizes) > 1
    assert max(sizes) <= module.GROUP_BYTES
    assert sum(sizes) == sum(row.metadata.segment_size_bytes for row in partition.rows)
    assert all(row.deep_passed_at_ms == row.verdict_at_ms for row in metadata.rows.values())


def test_a_store_that_does_not_answer_gives_no_verdict(
    metadata: MemoryMetadata, partition: CopiedPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object, **__: object) -> bytes:
        raise RemoteStorageUnavailableError("503 slow down")

    monkeypatch.setattr(partition.storage, "open_log_segment", unavailable)
    with pytest.raises(RemoteStorageUnavailableError):
        verify(metadata, partition)
    assert set(verdicts(metadata)) == {Verdict.NONE}


@pytest.mark.parametrize("left", ["nothing", "a directory", "a marker"])
def test_a_store_that_is_not_ours_fails_nothing(
    metadata: MemoryMetadata, partition: CopiedPartition, left: str
) -> None:
    """The disk is not mounted; or there is another one."""
    ours = StoreMarker("cluster", "store", 1)
    guarded = partition.storage.guarded(always(ours), ManualClock())
    partition.storage.create_marker(ours)
    mounted = partition.root.rename(partition.root.with_name("elsewhere"))
    if left != "nothing":
        partition.root.mkdir()
    opened_now = SegmentStorage(FileObjectStore(partition.root), AivenLayout())
    if left == "a marker":
        opened_now.create_marker(StoreMarker("cluster", "another", 1))
    foreign = opened_now.guarded(always(ours), ManualClock())
    with pytest.raises(ForeignStoreError, match=MARKER_KEY if left != "a marker" else "belongs to"):
        verify(metadata, partition, require_ours=foreign.check_marker)
    with pytest.raises(ForeignStoreError, match="is its disk mounted"):
        verify(metadata, partition, require_ours=guarded.check_marker)
    assert set(verdicts(metadata)) == {Verdict.NONE}
    if left != "nothing":
        (partition.root / MARKER_KEY).unlink(missing_ok=True)
        partition.root.rmdir()
    mounted.rename(partition.root)
    partition.object_path(partition.rows[2], "log").unlink()
    report = verify(metadata, partition, require_ours=guarded.check_marker)
    assert {one.segment_id for one in report.failed} == {str(id_of(partition, 2).id)}


# What a verification costs, as a person is told before it starts: bytes, requests, and time at the quota in force.

TOTAL = Scope(QuotaKind.FETCH, QuotaLevel.TOTAL)
EACH_TOPIC = Scope(QuotaKind.FETCH, QuotaLevel.TOPIC)
ORDERS = Scope(QuotaKind.FETCH, QuotaLevel.TOPIC, "orders")
EACH_BROKER = Scope(QuotaKind.FETCH, QuotaLevel.BROKER)
OF_COPIES = Scope(QuotaKind.COPY, QuotaLevel.TOTAL)

ON_ONE = segment_of(partition_of("orders"), 1, 0, 9, size_bytes=10_000_000)
ON_TWO = dataclasses.replace(segment_of(partition_of("audit"), 2, 0, 9, size_bytes=30_000_000), broker_id=2)
ONE, TWO = bytes_to_read(ON_ONE, Depth.DEEP), bytes_to_read(ON_TWO, Depth.DEEP)


@pytest.mark.parametrize(
    ("log_bytes", "depth", "read_bytes"),
    [
        # 20 bytes of indexes for every 4 KiB of a log; 17 KiB of the rest and of the log's beginning and end.
        (0, Depth.SHALLOW, 17_408),
        (4_095, Depth.SHALLOW, 17_408),
        (4_096, Depth.SHALLOW, 17_428),
        (1_048_576, Depth.SHALLOW, 22_528),
        # The whole log, its indexes, and 1 KiB of the rest.
        (0, Depth.DEEP, 1_024),
        (4_096, Depth.DEEP, 5_140),
        (1_048_576, Depth.DEEP, 1_054_720),
    ],
)
def test_what_is_read_of_a_segment(log_bytes: int, depth: Depth, read_bytes: int) -> None:
    assert bytes_to_read(dataclasses.replace(ON_ONE, segment_size_bytes=log_bytes), depth) == read_bytes


def test_segments_add_up() -> None:
    cost = CostOfReading()
    assert cost.total(QuotasInForce(1, {})) == ReadCost(read_bytes=0, requests=0, seconds=None)
    for depth in (Depth.SHALLOW, Depth.DEEP, Depth.DEEP):
        cost.add(dataclasses.replace(ON_ONE, segment_size_bytes=4_096), depth)
    seconds: Any = pytest.approx(27.708)
    total = cost.total(QuotasInForce(1, {TOTAL: 1_000}))
    assert total == ReadCost(read_bytes=17_428 + 5_140 + 5_140, requests=8 + 6 + 6, seconds=seconds)


@pytest.mark.parametrize(
    ("quotas", "seconds"),
    [
        ({}, None),
        ({OF_COPIES: 1}, None),
        ({TOTAL: UNLIMITED}, None),
        ({TOTAL: 1_000_000}, (ONE + TWO) / 1_000_000),
        # Two brokers read side by side: the one with more bytes takes longer.
        ({EACH_BROKER: 1_000_000}, TWO / 1_000_000),
        ({EACH_TOPIC: 1_000_000, ORDERS: 100_000}, ONE / 100_000),
        ({EACH_TOPIC: 1_000_000, ORDERS: UNLIMITED}, TWO / 1_000_000),
        ({TOTAL: 10_000_000, ORDERS: 1_000_000}, ONE / 1_000_000),
    ],
)
def test_the_slowest_scope_decides(quotas: dict[Scope, int], seconds: float | None) -> None:
    cost = CostOfReading()
    for segment in (ON_ONE, ON_TWO):
        cost.add(segment, Depth.DEEP)
    total = cost.total(QuotasInForce(1, quotas))
    assert (total.read_bytes, total.requests) == (ONE + TWO, 12)
    assert total.seconds == (None if seconds is None else pytest.approx(seconds))


# Verdicts as gauges: each of them, those that no segment has too.


def test_a_verdict_that_no_segment_has_goes_back_to_nothing() -> None:
    recorder = RecordedMetrics()

    def shown(verdict: str) -> list[float | None]:
        names = ("tiering_verdict_segments", "tiering_verdict_bytes", "tiering_verdict_age_seconds")
        return [recorder.get_sample_value(name, {"verdict": verdict}) for name in names]

    none = VerdictTotal(Verdict.NONE, 2, 20, None)
    publish_verdicts(recorder, [none, VerdictTotal(Verdict.EXPIRED, 3, 30, 91_500)])
    assert shown("none") == [2, 20, 0]
    assert shown("expired") == [3, 30, 91.5]
    publish_verdicts(recorder, [none, VerdictTotal(Verdict.EXPIRED, 0, 0, None)])
    assert shown("expired") == [0, 0, 0]
