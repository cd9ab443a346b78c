"""What a first copy leaves out: exactly what expiration would delete at once, and never what it would keep."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.configs.config_store import TopicRetention
from include.tiering.copying.plan import CopyPlan, HeldBack
from include.tiering.copying.plan_copy import plan_copy
from include.tiering.expiration.rules import decide_deletions
from include.tiering.kafka.log_dirs.contract import (
    BoundsQuality,
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanReport,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.retention import RetentionInput
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata
from include.tiering.segments.contract import PartitionRetentionState
from include.tiering.sizes.compare import compare_tiers
from tests.doubles.partial import Partial
from tests.doubles.segments import FINISHED, partition_of, uuid, whole_replica

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PARTITION = partition_of("orders")


class Metadata(Partial):
    """Nothing was ever copied, unless `highest` is given; stands for owners and cluster metadata, too."""

    def __init__(self, *, highest: int | None = None, state: PartitionRetentionState | None = None) -> None:
        self.highest, self.state = highest, state or PartitionRetentionState()

    def is_ready(self, partition):
        return True

    def owner(self, topic_id):
        return TopicOwner.PLATFORM

    def highest_copied_offset(self, partition):
        return self.highest

    def highest_offset_for_epoch(self, partition, leader_epoch):
        return self.highest

    def is_continued(self, partition, leader_epoch, highest_copied):
        return self.highest == highest_copied

    def retention_state(self, partition):
        return self.state

    def list_segments(self, partition):
        return []

    def divergences(self, partition):
        return []

    def stopped_reason(self, partition):
        return None

    def topic(self, topic_id):
        return None


def segment(number: int, age_ms: int, *, size_bytes: int = 100, reason: IneligibleReason | None = None) -> LogSegment:
    """Ten offsets of epoch 0."""
    return LogSegment(
        10 * number,
        10 * number + 9,
        size_bytes,
        NOW_MS - age_ms,
        LeaderEpochs.of([(0, 10 * number)]),
        reason is IneligibleReason.ACTIVE,
        reason,
    )


def replica(*segments: LogSegment) -> Replica:
    end = segments[-1].end_offset + 1
    return whole_replica(
        ReplicaId(PARTITION, 1, "dir"),
        segments,
        end,
        leader_epochs=LeaderEpochs.of([(0, 0)]),
        log_start_offset=segments[0].base_offset,
        bounds=BoundsQuality.EXACT,
        leader_epoch=0,
    )


def plan(source: Replica, metadata: Metadata | None = None, **retention: int) -> CopyPlan:
    known = metadata or Metadata()
    return plan_copy(
        "run",
        ScanReport("cluster", (source,), ()),
        metadata=known,
        registry=known,
        cluster_metadata=known,
        now_ms=NOW_MS,
        retentions={"orders": TopicRetention(**retention)},
    )


def bases(a_plan: CopyPlan) -> list[int]:
    return [one.base_offset for partition in a_plan.partitions for one in partition.segments]


OLD_TO_NEW = replica(*(segment(n, (5 - n) * HOUR_MS) for n in range(5)), segment(5, 0, reason=IneligibleReason.ACTIVE))


def test_the_copy_begins_behind_what_is_past_retention_by_time() -> None:
    made = plan(OLD_TO_NEW, retention_ms=3 * HOUR_MS)
    assert bases(made) == [20, 30, 40]
    (held,) = made.held_back
    assert (held.reason, held.next_offset) == (HeldBack.PAST_RETENTION, 0)
    assert held.detail.startswith("offsets 0..19, 2 segments, 200 B; the last one by time: timestamp_ms ")


def test_by_size_as_much_as_is_eligible_stays_at_least() -> None:
    """The active segment does not count: its bytes could still be cut off."""
    assert bases(plan(OLD_TO_NEW, retention_bytes=300)) == [20, 30, 40]
    assert bases(plan(OLD_TO_NEW, retention_bytes=301)) == [10, 20, 30, 40]
    assert bases(plan(OLD_TO_NEW, retention_bytes=500)) == [0, 10, 20, 30, 40]


def test_without_a_retention_of_ours_nothing_is_left_out() -> None:
    assert bases(plan(OLD_TO_NEW)) == [0, 10, 20, 30, 40]


def test_exactly_at_the_limit_is_copied() -> None:
    assert bases(plan(OLD_TO_NEW, retention_ms=5 * HOUR_MS)) == [0, 10, 20, 30, 40]


def test_behind_something_that_was_copied_nothing_is_left_out() -> None:
    """KAFKA-19952. Else the offsets between would be missing for good, once retention is raised."""
    assert bases(plan(OLD_TO_NEW, Metadata(highest=9), retention_ms=1)) == [10, 20, 30, 40]


def test_an_old_segment_behind_a_young_one_is_copied() -> None:
    source = replica(segment(0, 9 * HOUR_MS), segment(1, 0), segment(2, 9 * HOUR_MS))
    assert bases(plan(source, retention_ms=HOUR_MS)) == [10, 20]


def test_a_timestamp_in_the_future_or_none_at_all_holds_the_beginning() -> None:
    source = replica(segment(0, -HOUR_MS), segment(1, 9 * HOUR_MS))
    assert bases(plan(source, retention_ms=HOUR_MS)) == [0, 10]
    undated = replica(replace(segment(0, 0), max_timestamp_ms=-1), segment(1, 9 * HOUR_MS))
    assert bases(plan(undated, retention_ms=HOUR_MS)) == [0, 10]


def test_if_all_of_it_is_past_retention_nothing_is_planned_and_it_is_named() -> None:
    made = plan(OLD_TO_NEW, retention_ms=HOUR_MS - 1)
    assert made.partitions == ()
    assert [held.reason for held in made.held_back] == [HeldBack.PAST_RETENTION]


def test_what_is_not_eligible_behind_it_is_named_as_well() -> None:
    source = replica(segment(0, 9 * HOUR_MS), segment(1, 0, reason=IneligibleReason.CORRUPT))
    made = plan(source, retention_ms=HOUR_MS)
    assert [(held.reason, held.next_offset) for held in made.held_back] == [
        (HeldBack.PAST_RETENTION, 0),
        (HeldBack.DAMAGED, 10),
    ]


def test_what_is_left_out_is_no_copy_lag() -> None:
    report, known = ScanReport("cluster", (OLD_TO_NEW,), ()), Metadata()
    retentions = {"orders": TopicRetention(retention_ms=3 * HOUR_MS)}
    (lag,) = compare_tiers(report, known, known, NOW_MS, retentions).copy_lags
    (all_of_it,) = compare_tiers(report, known, known, NOW_MS).copy_lags
    assert (all_of_it.segments - lag.segments, lag.size_bytes) == (2, 300)


RETENTIONS = st.builds(
    TopicRetention,
    retention_ms=st.none() | st.integers(0, 12).map(lambda hours: hours * HOUR_MS),
    retention_bytes=st.none() | st.integers(0, 1_000),
)


@st.composite
def sources(draw: st.DrawFn) -> Replica:
    """A log of one to twelve rolled segments under ascending epochs, with ages in any order."""
    starts = sorted(draw(st.sets(st.integers(1, 119), max_size=4)))
    epochs = LeaderEpochs.of([(0, 0), *((number, start) for number, start in enumerate(starts, start=1))])
    segments = [
        replace(
            segment(number, draw(st.integers(-2, 12)) * HOUR_MS, size_bytes=draw(st.integers(0, 200))),
            leader_epochs=epochs.range(10 * number, 10 * number + 10),
        )
        for number in range(draw(st.integers(1, 12)))
    ]
    return replace(replica(*segments), leader_epochs=epochs.range(-1, segments[-1].end_offset + 1))


def expired(source: Replica, copied: list[int], retention: TopicRetention) -> list[int]:
    """Base offsets of what is left once these segments are remote and expiration has run."""
    segments = [
        RemoteLogSegmentMetadata(
            RemoteLogSegmentId(PARTITION, uuid(one.base_offset)),
            one.base_offset,
            one.end_offset,
            one.max_timestamp_ms,
            1,
            NOW_MS,
            one.size_bytes,
            one.leader_epochs,
            FINISHED,
        )
        for one in source.segments
        if one.base_offset in copied
    ]
    outcome = decide_deletions(
        RetentionInput(
            PARTITION,
            tuple(segments),
            source.leader_epochs,
            0,
            NOW_MS,
            retention_ms=retention.retention_ms,
            retention_bytes=retention.retention_bytes,
        )
    )
    gone = {decision.segment.start_offset for decision in outcome.decisions}
    return [one.start_offset for one in segments if one.start_offset not in gone]


@given(source=sources(), retention=RETENTIONS)
def test_what_expiration_leaves_is_the_same_with_and_without_leaving_out(
    source: Replica, retention: TopicRetention
) -> None:
    everything = [one.base_offset for one in source.segments]
    limits: dict[str, Any] = {"retention_ms": retention.retention_ms, "retention_bytes": retention.retention_bytes}
    made = plan(source, **limits)
    copied = bases(made)
    assert copied == everything[len(everything) - len(copied) :], "only a beginning is left out"
    assert expired(source, copied, retention) == expired(source, everything, retention)
    assert not copied or expired(source, copied, retention), "the first that is copied is not deleted at once"


@pytest.mark.parametrize("size_bytes", [2**31, 2**40])
def test_a_size_that_no_segment_can_have_leaves_nothing_out(size_bytes: int) -> None:
    source = replica(segment(0, 9 * HOUR_MS), segment(1, 9 * HOUR_MS, size_bytes=size_bytes), segment(2, 9 * HOUR_MS))
    assert bases(plan(source, retention_ms=HOUR_MS)) == [10, 20]
