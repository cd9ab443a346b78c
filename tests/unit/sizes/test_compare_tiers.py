"""What waits and what is in both places, from a scan and from rows alone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ScanReport
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import TopicIdPartition, Uuid
from include.tiering.model.sizes import PartitionLag
from include.tiering.segments.contract import PartitionRetentionState
from include.tiering.sizes.compare import DuplicateBytes, compare_tiers
from tests.doubles.partial import Partial
from tests.doubles.sample_values import ORDERS_0, SCAN_ERROR, replica

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


@pytest.mark.parametrize("reason", [IneligibleReason.COMPACTED, IneligibleReason.PAST_RETENTION])
def test_what_is_never_copied_does_not_wait(reason: IneligibleReason) -> None:
    local = with_log(segment(0, reason=reason), segment(100))
    assert compared(local, Rows(None)).copy_lags[0].segments == 1


@pytest.mark.parametrize("timestamp_ms", [-1, NOW_MS + 1])
def test_an_unknown_or_future_timestamp_is_no_age(timestamp_ms: int) -> None:
    local = with_log(segment(0, timestamp_ms=timestamp_ms))
    assert compared(local, Rows(None)).copy_lags == (PartitionLag(ORDERS_0, 1_000, 1, 0.0),)


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
