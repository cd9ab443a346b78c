"""Sizes: recomputed, and compared between the tiers and with what is stored."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from include.tiering.errors import RemoteStorageUnavailableError
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ReplicaId, ScanReport
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.model.sizes import EpochSize, PartitionLag, PartitionStates, StateSize, partition_states
from include.tiering.quotas.contract import UnlimitedBytes
from include.tiering.remote_storage.file.store import FileObjectStore
from include.tiering.remote_storage.layouts.aiven import AivenLayout
from include.tiering.remote_storage.layouts.aiven_form import AivenForm
from include.tiering.remote_storage.location import open_storage
from include.tiering.remote_storage.segment_storage import SegmentStorage
from include.tiering.runs.cluster_log_dirs import KnownLogDir
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from include.tiering.segments.stored_copies import Suspicion, explains_length, manifest_suspicion
from include.tiering.sizes.compare import (
    SETTLE_ATTEMPTS,
    DuplicateBytes,
    SizeComparison,
    SizeDifference,
    compare_sizes,
    compare_tiers,
    describe_log_dirs,
    settle_stored,
)
from include.tiering.verification.suites import SIZE_RULES, STORED_RULES, explain_size
from tests.doubles.memory_stores import MemoryMetadata
from tests.doubles.partial import Partial
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.sample_values import ORDERS_0, ORDERS_1, REPLICA_0, ROLLED, SCAN_ERROR, partition_size, replica
from tests.doubles.storage_decorators import StorageDecorator
from tests.doubles.stored_log import some_metadata, some_segment

# Sizes recomputed, described and measured.

# Differences are believed only when the counters stood still; partitions that never rest are left for later.

FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
EVALUATOR = PlainEvaluator(SIZE_RULES)


def row(seed: str, size_bytes: int, partition: int = 0, state: RemoteLogSegmentState = FINISHED) -> SegmentRow:
    metadata = some_metadata(size_bytes, seed=seed, partition=partition)
    return SegmentRow(replace(metadata, state=state), Verdict.NONE, 0)


def recounted(metadata: MemoryMetadata) -> list[PartitionStates]:
    return list(metadata.partition_states())


def compare(found: Sequence[PartitionStates], metadata: MemoryMetadata) -> SizeComparison:
    return compare_sizes(found, metadata, EVALUATOR)


def rules(difference: SizeDifference) -> list[str]:
    return [broken.rule.rule_id for broken in difference.broken]


class WrongCounters(MemoryMetadata):
    """Counters are what a test puts into `counters`."""

    counters: Sequence[PartitionStates] = ()

    def partition_states(self, partition: TopicIdPartition | None = None) -> Sequence[PartitionStates]:
        return [each for each in self.counters if partition in (None, each.topic_id_partition)]


def test_equal_sizes_are_no_finding() -> None:
    metadata = MemoryMetadata([row("a", 10), row("b", 20, state=STARTED), row("c", 5, partition=1)])
    comparison = compare(recounted(metadata), metadata)
    assert (comparison.partitions, comparison.differences, comparison.unsettled) == (2, (), ())


@pytest.mark.parametrize("state", [STARTED, FINISHED, RemoteLogSegmentState.DELETE_SEGMENT_STARTED])
def test_a_wrong_counter_is_a_difference_with_both_numbers(state: RemoteLogSegmentState) -> None:
    metadata = WrongCounters([row("a", 10, state=state)])
    (size,) = recounted(MemoryMetadata(metadata.rows.values()))
    wrong = replace(size.of(state), size_bytes=11)
    metadata.counters = [replace(size, states=(wrong,))]
    (difference,) = compare([size], metadata).differences
    assert (difference.counters, difference.recounted) == (wrong, size.of(state))
    assert rules(difference) == ["S101"]
    assert explain_size(difference.broken[0].rule, difference.broken[0].measure).endswith(
        "Found: counted_bytes = 11, recounted_bytes = 10"
    )


def test_a_wrong_counter_of_one_epoch_is_a_difference() -> None:
    metadata = WrongCounters([row("a", 10)])
    (size,) = recounted(MemoryMetadata(metadata.rows.values()))
    finished = size.of(FINISHED)
    (epoch, *_) = finished.leader_epochs
    metadata.counters = [
        replace(size, states=(replace(finished, leader_epochs=(EpochSize(epoch.leader_epoch, 10, 2),)),))
    ]
    (difference,) = compare([size], metadata).differences
    assert "S103" in rules(difference)


def test_a_counter_without_segments_is_a_difference() -> None:
    metadata = WrongCounters()
    partition = some_metadata(10).topic_id_partition
    metadata.counters = [partition_states(partition, [row("a", 10).metadata])]
    (difference,) = compare([], metadata).differences
    assert (difference.counters.segments, difference.recounted) == (1, StateSize(FINISHED, 0, 0, ()))


def test_segments_without_a_counter_are_a_difference() -> None:
    metadata = WrongCounters([row("a", 10)])
    (difference,) = compare(recounted(MemoryMetadata(metadata.rows.values())), metadata).differences
    assert (difference.counters.size_bytes, difference.recounted.size_bytes) == (0, 10)


def test_segments_that_finished_after_the_count_are_no_difference() -> None:
    metadata = MemoryMetadata([row("a", 10)])
    before = recounted(metadata)
    metadata.put(row("b", 20))
    metadata.put(row("c", 30, partition=1))
    comparison = compare(before, metadata)
    assert (comparison.differences, comparison.unsettled) == ((), ())


class Restless(MemoryMetadata):
    """A segment finishes at each of the first `changes` looks at the segments."""

    changes = 0

    def list_segments(self, partition: TopicIdPartition, leader_epoch: int | None = None) -> Sequence[SegmentRow]:
        found = super().list_segments(partition, leader_epoch)
        if self.changes:
            self.changes -= 1
            self.put(row(f"late {self.changes}", 1))
        return found


def test_a_partition_that_rests_in_time_is_settled() -> None:
    metadata = Restless([row("a", 10)])
    metadata.changes = SETTLE_ATTEMPTS - 1
    assert compare([], metadata).unsettled == ()


def test_a_partition_that_changes_at_every_look_is_neither_right_nor_wrong() -> None:
    metadata = Restless([row("a", 10)])
    metadata.changes = SETTLE_ATTEMPTS
    comparison = compare([], metadata)
    assert comparison.differences == ()
    assert comparison.unsettled == (some_metadata(1, partition=0).topic_id_partition,)


# Replicas under the directory that holds them.


def test_each_replica_is_shown_in_its_directory_with_what_is_remote() -> None:
    behind = replace(replica(ROLLED, ROLLED), high_watermark=250, log_end_offset=200)
    moving = replace(
        replica(replace(ROLLED, reason=IneligibleReason.BEING_MOVED)), replica_id=ReplicaId(ORDERS_1, 1, "dir-b")
    )
    dirs = [KnownLogDir(1, "/a", "dir-a"), KnownLogDir(1, "/b", "dir-b"), KnownLogDir(2, "/a2", "dir-a")]
    first, second, third = describe_log_dirs(ScanReport("c", (behind, moving), ()), dirs, [partition_size()])
    assert REPLICA_0.directory_id == first.log_dir.directory_id
    (shown,) = first.replicas
    assert (shown.topic_id_partition, shown.size_bytes, shown.offset_lag) == (ORDERS_0, 8192, 50)
    assert (shown.is_future, shown.remote) == (False, partition_size())
    (shown,) = second.replicas
    assert (shown.is_future, shown.offset_lag, shown.remote) == (True, 0, None)
    assert third.replicas == ()


# Sizes compared: of the tiers, and of what is stored.

# Suspicions about stored segments are believed only if row and store say so when they are asked again.


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def storage(root: Path) -> SegmentStorage:
    return SegmentStorage(FileObjectStore(root), AivenLayout())


@pytest.fixture
def stored(storage: SegmentStorage) -> RemoteLogSegmentMetadata:
    """One copied segment."""
    metadata, data = some_segment(2_000)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    return replace(metadata, state=FINISHED)


def rows(*segments: RemoteLogSegmentMetadata) -> MemoryMetadata:
    return MemoryMetadata(SegmentRow(segment, Verdict.PASSED, 0) for segment in segments)


def settled(segment: RemoteLogSegmentMetadata, suspicion: Suspicion, metadata, storage) -> list[tuple[str, str]]:
    """(rule, kind) of what is believed."""
    found = settle_stored([(segment.remote_log_segment_id, suspicion)], metadata, storage, PlainEvaluator(STORED_RULES))
    return [
        (broken.rule.rule_id, kind.value)
        for difference in found
        for broken, (_, kind) in zip(difference.broken, difference.segments, strict=True)
    ]


def only(root: Path, suffix: str) -> Path:
    (path,) = root.rglob(f"*.{suffix}")
    return path


@pytest.mark.parametrize("suspicion", list(Suspicion))
def test_a_segment_that_is_there_as_its_row_says_is_no_finding(stored, storage, suspicion) -> None:
    assert settled(stored, suspicion, rows(stored), storage) == []


@pytest.mark.parametrize("suffix", ["log", "indexes", "rsm-manifest"])
def test_a_missing_object_is_a_finding(root, stored, storage, suffix) -> None:
    only(root, suffix).unlink()
    assert settled(stored, Suspicion.MISSING, rows(stored), storage) == [("S201", "missing")]


def test_an_object_without_a_row_is_a_finding(stored, storage) -> None:
    assert settled(stored, Suspicion.UNKNOWN, rows(), storage) == [("S202", "unknown")]


def test_another_length_is_a_finding(root, stored, storage) -> None:
    with only(root, "log").open("ab") as log:
        log.write(b"more")
    assert settled(stored, Suspicion.OTHER_SIZE, rows(stored), storage) == [("S203", "other_size")]


def test_a_compressed_log_has_the_length_that_its_manifest_says(root) -> None:
    storage = SegmentStorage(FileObjectStore(root), AivenLayout(AivenForm(500, compresses=True)))
    metadata, data = some_segment(2_000)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    row = replace(metadata, state=FINISHED)
    assert only(root, "log").stat().st_size != 2_000
    assert settled(row, Suspicion.OTHER_SIZE, rows(row), storage) == []
    with only(root, "log").open("ab") as log:
        log.write(b"more")
    assert settled(row, Suspicion.OTHER_SIZE, rows(row), storage) == [("S203", "other_size")]


@pytest.mark.parametrize("manifest", [None, b"{"])
def test_without_a_manifest_another_length_is_not_explained(manifest: bytes | None) -> None:
    assert not explains_length(manifest, 100, 90)


def test_a_layout_without_manifests_has_its_objects_counted(root) -> None:
    storage = open_storage(root.as_uri(), layout="local_tiered_storage")
    metadata, data = some_segment(2_000)
    storage.copy_log_segment(metadata, data, limiter=UnlimitedBytes(), on_sent=lambda _: None)
    row = replace(metadata, state=FINISHED)
    for suspicion in Suspicion:
        assert settled(row, suspicion, rows(row), storage) == []
    only(root, "snapshot").unlink()
    assert settled(row, Suspicion.MISSING, rows(row), storage) == [("S201", "missing")]


def test_a_manifest_of_other_epochs_is_a_finding(stored, storage) -> None:
    epochs = LeaderEpochs.of([(7, stored.start_offset)])
    row = replace(stored, segment_leader_epochs=epochs)
    assert settled(row, Suspicion.OTHER_EPOCHS, rows(row), storage) == [("S204", "other_epochs")]


def test_a_manifest_that_cannot_be_read_is_a_finding(root, stored, storage) -> None:
    only(root, "rsm-manifest").write_bytes(b"{")
    found = settled(stored, Suspicion.UNREADABLE, rows(stored), storage)
    assert found == [("S205", "unreadable")]
    assert manifest_suspicion(stored, b"\xff") is Suspicion.UNREADABLE


@pytest.mark.parametrize("state", [state for state in RemoteLogSegmentState if state is not FINISHED])
def test_a_segment_that_is_being_copied_or_deleted_is_no_finding(root, stored, storage, state) -> None:
    only(root, "log").unlink()
    row = replace(stored, state=state)
    assert settled(row, Suspicion.MISSING, rows(row), storage) == []


class Away(StorageDecorator):
    def before(self, operation: str, detail: str) -> None:
        raise RemoteStorageUnavailableError("503")


def test_a_store_that_does_not_answer_is_no_finding_but_an_error(stored, storage) -> None:
    with pytest.raises(RemoteStorageUnavailableError):
        settled(stored, Suspicion.MISSING, rows(stored), Away(storage))


def test_a_listing_names_the_objects_of_segments_and_nothing_else(root, stored, storage) -> None:
    (root / "somebody-elses.txt").write_bytes(b"x")
    found = list(storage.list_segment_objects())
    assert {each.segment_id for each in found} == {stored.remote_log_segment_id}
    assert {each.kind.value: each.size_bytes for each in found} == {
        suffix: only(root, suffix).stat().st_size for suffix in ("log", "indexes", "rsm-manifest")
    }


# What waits and what is in both places, from a scan and from rows alone.

NOW_MS = 1_700_000_100_000
EPOCHS = LeaderEpochs.of([(0, 0)])


class Rows(Partial):
    """Just what the task asks for."""

    def __init__(self, highest: int | None, log_start: int = 0, *skipped: SkippedOffsets) -> None:
        self._highest = highest
        self._log_start = log_start
        self._skipped = skipped

    def skipped_offsets(self, partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        return self._skipped

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        return self._highest

    def retention_state(self, partition: TopicIdPartition) -> PartitionRetentionState:
        return PartitionRetentionState(self._log_start)


class Owners(Partial):
    def __init__(self, owner: TopicOwner = TopicOwner.PLATFORM) -> None:
        self._owner = owner

    def owner(self, topic_id: Uuid) -> TopicOwner:
        return self._owner


def segment(
    base: int, *, reason: IneligibleReason | None = None, active: bool = False, timestamp_ms: int = NOW_MS - 50_000
) -> LogSegment:
    return LogSegment(base, base + 99, 1_000, timestamp_ms, EPOCHS, active, reason)


def compared(local: Replica, rows: Rows, owners: Owners | None = None):
    return compare_tiers(ScanReport("cluster-1", (local,), (SCAN_ERROR,)), rows, owners or Owners(), NOW_MS)


def with_log(*segments: LogSegment, **changes) -> Replica:
    return replace(replica(*segments), log_start_offset=0, **changes)


def test_rolled_segments_above_what_was_copied_wait_since_their_newest_record() -> None:
    local = with_log(segment(0), segment(100, timestamp_ms=NOW_MS - 90_500), segment(200), segment(300, active=True))
    found = compared(local, Rows(99))
    assert found.copy_lags == (PartitionLag(ORDERS_0, 2_000, 2, 90.5),)
    assert found.duplicates == (DuplicateBytes(ORDERS_0, 1_000),)
    assert found.errors == (SCAN_ERROR,)


def test_nothing_copied_yet_is_all_lag() -> None:
    found = compared(with_log(segment(0), segment(100)), Rows(None))
    assert (found.copy_lags[0].segments, found.duplicates[0].size_bytes) == (2, 0)


def test_no_lag_is_a_lag_of_nothing() -> None:
    assert compared(with_log(segment(0)), Rows(99)).copy_lags == (PartitionLag(ORDERS_0, 0, 0, 0.0),)


@pytest.mark.parametrize("reason", [IneligibleReason.ABOVE_LAST_STABLE_OFFSET, IneligibleReason.CORRUPT])
def test_what_a_copy_cannot_take_now_waits_all_the_same(reason: IneligibleReason) -> None:
    assert compared(with_log(segment(0, reason=reason)), Rows(None)).copy_lags[0].segments == 1


@pytest.mark.parametrize(
    "reason", [IneligibleReason.COMPACTED, IneligibleReason.PAST_RETENTION, IneligibleReason.COPY_DELAYED]
)
def test_what_is_never_copied_does_not_wait(reason: IneligibleReason) -> None:
    local = with_log(segment(0, reason=reason), segment(100))
    assert compared(local, Rows(None)).copy_lags[0].segments == 1


@pytest.mark.parametrize("timestamp_ms", [-1, NOW_MS + 1])
def test_an_unknown_or_future_timestamp_is_no_age(timestamp_ms: int) -> None:
    local = with_log(segment(0, timestamp_ms=timestamp_ms))
    assert compared(local, Rows(None)).copy_lags == (PartitionLag(ORDERS_0, 1_000, 1, 0.0),)


@pytest.mark.parametrize(
    ("highest", "found_to", "waits"),
    [(None, 0, 9_000), (499, 0, 4_000), (799, 0, 1_000), (999, 0, 0), (499, 600, 3_000)],
)
def test_what_is_not_read_yet_of_a_new_leader_waits_only_above_what_was_copied(
    highest: int | None, found_to: int, waits: int
) -> None:
    """Broker 2, which is read over the network, leads now; broker 1, whose directory was read, led before."""
    known = tuple(segment(base) for base in range(0, found_to, 100))
    local = with_log(*known, found_to=found_to, high_watermark=1_000, log_bytes=10_000, segment_bytes=1_000)
    (lag,) = compared(local, Rows(highest)).copy_lags
    of_known = sum(each.size_bytes for each in known if highest is None or each.end_offset > highest)
    assert (lag.size_bytes, lag.segments) == (of_known + waits, (of_known + waits) // 1_000)


def test_what_we_deleted_is_local_alone() -> None:
    local = with_log(segment(0), segment(100), segment(200))
    assert compared(local, Rows(299, log_start=150)).duplicates == (DuplicateBytes(ORDERS_0, 2_000),)


def test_what_was_skipped_by_decision_is_not_in_both_should_a_source_have_it_again() -> None:
    local = with_log(segment(0), segment(100), segment(200))
    hole = SkippedOffsets(OffsetRange(100, 199), "lost", "me", 0)
    assert compared(local, Rows(299, 0, hole)).duplicates == (DuplicateBytes(ORDERS_0, 2_000),)
    part = SkippedOffsets(OffsetRange(120, 199), "lost", "me", 0)
    assert compared(local, Rows(299, 0, part)).duplicates == (DuplicateBytes(ORDERS_0, 3_000),)


def test_replicas_that_are_not_read_and_topics_that_are_not_ours_do_not_count() -> None:
    assert compared(with_log(segment(0), chosen=False), Rows(None)).copy_lags == ()
    assert compared(with_log(segment(0)), Rows(None), Owners(TopicOwner.BROKER)).copy_lags == ()
