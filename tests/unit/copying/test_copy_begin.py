"""How a copy begins, and what it checks."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.tiering.configs.config_store import TopicRetention
from include.tiering.copying.copy_checks import require_no_divergence, require_planned, require_stored
from include.tiering.copying.plan import CopyPlan, HeldBack
from include.tiering.copying.plan_copy import plan_copy
from include.tiering.copying.run_scope import RunScope
from include.tiering.errors import RemoteChecksumError, SourceChangedError
from include.tiering.expiration.rules import decide_deletions
from include.tiering.kafka.log_dirs.contract import (
    BoundsQuality,
    CheckedSegment,
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanReport,
    SourceFingerprint,
)
from include.tiering.model.histories import Divergence, OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.retention import RetentionInput
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid, Verdict
from include.tiering.remote_storage.contract import ObjectKind, StoredObject
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from include.tiering.sizes.compare import compare_tiers
from tests.doubles.partial import Partial
from tests.doubles.segments import FINISHED, partition_of, segment_of, uuid, whole_replica
from tests.doubles.stored_log import some_segment

# What a first copy leaves out: exactly what expiration would delete at once, and never what it would keep.

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
PARTITION = partition_of("orders")


class Metadata(Partial):
    """Nothing was ever copied, unless `highest` is given; stands for owners and cluster metadata, too."""

    def __init__(
        self,
        *,
        highest: int | None = None,
        state: PartitionRetentionState | None = None,
        abandoned: Sequence[SegmentRow] = (),
    ) -> None:
        self.highest, self.state, self.abandoned = highest, state or PartitionRetentionState(), abandoned

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

    @property
    def selected(self):
        return SimpleNamespace(segments_under_way=lambda partition: self.abandoned)

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
        scope=RunScope(),
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


@pytest.mark.parametrize(("begun", "expected"), [(0, [0, 10, 20, 30, 40]), (10, [10, 20, 30, 40]), (20, [20, 30, 40])])
def test_from_an_abandoned_copy_on_nothing_is_left_out(begun: int, expected: list[int]) -> None:
    abandoned = SegmentRow(segment_of(PARTITION, 1, begun, begun + 9), Verdict.NONE, None)
    assert bases(plan(OLD_TO_NEW, Metadata(abandoned=[abandoned]), retention_ms=3 * HOUR_MS)) == expected


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


# A segment may be copied if it is the planned one, joins what is copied, or a hole that somebody recorded, and lies
# behind nothing that the source has replaced. Its copy counts if the store has what was sent, and that is what was
# read.

REPLICA_ID = ReplicaId(TopicIdPartition(Uuid(b"1" * 16), 3, "orders"), 1, "dir")
SEGMENT = LogSegment(200, 299, 1_000, 0, LeaderEpochs.of([(0, 0)]), active=False, reason=None)
PLANNED = PlannedSegment(200, 299, 1_000)


def joins(highest: int | None, *holes: tuple[int, int]) -> None:
    decisions = [SkippedOffsets(OffsetRange(*hole), "lost", "me", 0) for hole in holes]
    require_planned(REPLICA_ID, SEGMENT, PLANNED, highest, lambda: decisions)


def no_decisions() -> Sequence[SkippedOffsets]:
    raise AssertionError("asked although there is no gap")


@pytest.mark.parametrize("highest", [None, 199, 250])
def test_where_there_is_no_gap_nobody_asks_for_decisions(highest: int | None) -> None:
    require_planned(REPLICA_ID, SEGMENT, PLANNED, highest, no_decisions)


@pytest.mark.parametrize(
    ("holes", "missing"),
    [([], r"100\.\.199"), ([(100, 149)], r"150\.\.199"), ([(150, 199)], r"100\.\.149"), ([(300, 400)], r"100\.\.199")],
)
def test_a_gap_that_no_decision_covers_is_refused_by_its_offsets(holes: list[tuple[int, int]], missing: str) -> None:
    with pytest.raises(SourceChangedError, match=rf"orders-3@1, segment 200: offsets {missing} would be left out"):
        joins(99, *holes)


@pytest.mark.parametrize("holes", [[(100, 199)], [(100, 149), (150, 199)], [(0, 500)]])
def test_a_gap_by_decision_is_none(holes: list[tuple[int, int]]) -> None:
    joins(99, *holes)


class Remote(Partial):
    """0..199 were copied, under these epochs up to these offsets; nobody decided anything."""

    def __init__(self, **ends: int) -> None:
        self.recorded: list[tuple[OffsetRange, SeenBy, int]] = []
        self._ends = {int(epoch.removeprefix("epoch_")): end for epoch, end in ends.items()}

    def highest_offset_for_epoch(self, _partition: TopicIdPartition, epoch: int) -> int | None:
        return self._ends.get(epoch)

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        continues = self.highest_offset_for_epoch(partition, leader_epoch) == highest_copied
        return continues and not self.divergences(partition)

    def divergences(self, _partition: TopicIdPartition) -> Sequence[Divergence]:
        return ()

    def retention_state(self, _partition: TopicIdPartition) -> PartitionRetentionState:
        return PartitionRetentionState()

    def list_segments(self, partition: TopicIdPartition) -> Sequence[SegmentRow]:
        return [
            SegmentRow(segment_of(partition, epoch, 0, end, {epoch: 0}, state=FINISHED), Verdict.PASSED, None)
            for epoch, end in self._ends.items()
        ]

    def record_divergence(self, _partition: TopicIdPartition, seen: SeenDivergence, *, history: int) -> None:
        self.recorded.append((seen.offsets, seen.seen_by, history))

    def skipped_offsets(self, _partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        return ()


def follows(epochs: list[tuple[int, int]], highest: int | None, remote: Remote) -> None:
    history = LeaderEpochs.of(epochs)
    fingerprint = SourceFingerprint(1, "dir", REPLICA_ID.topic_id_partition.topic_id, None, history, ())
    opened = SimpleNamespace(segment=SEGMENT, fingerprint=fingerprint)
    require_no_divergence(REPLICA_ID, opened, highest, remote)


def test_behind_replaced_records_nothing_is_copied_whatever_the_plan_says() -> None:
    """The plan is older than an unclean election, and the new leader's segment looks as the planned one did."""
    remote = Remote(epoch_0=199)
    with pytest.raises(SourceChangedError, match=r"segment 200: offsets 120\.\.199 are remote under other leader epo"):
        follows([(0, 0), (2, 120)], 199, remote)
    assert remote.recorded == [((120, 199), SeenBy.COPY, 0)]


def test_records_that_a_divergence_within_the_segment_replaced_are_not_copied_over() -> None:
    remote = Remote(epoch_0=250)
    with pytest.raises(SourceChangedError, match=r"offsets 220\.\.250 are remote under other leader epochs"):
        follows([(0, 0), (2, 220)], 250, remote)


def test_while_a_divergence_waits_for_a_decision_nothing_is_copied() -> None:
    """Whatever the source shows: it may have forgotten what differs."""
    remote = Remote(epoch_0=199)
    seen = SeenDivergence(OffsetRange(120, 199), (0,), (2,), SeenBy.PLAN)
    remote.divergences = lambda _partition: [Divergence(1, seen, 5)]  # type: ignore[method-assign]
    with pytest.raises(SourceChangedError, match=r"offsets 120\.\.199 .* no decision about it is recorded"):
        follows([(2, 200)], 199, remote)


@pytest.mark.parametrize(("epochs", "highest"), [([(0, 0)], 199), ([(0, 0), (2, 200)], 199), ([(2, 200)], None)])
def test_where_the_histories_agree_there_is_no_divergence(epochs: list[tuple[int, int]], highest: int | None) -> None:
    follows(epochs, highest, Remote(epoch_0=199))


_, DATA = some_segment(1_000)
CHECKED = CheckedSegment(
    DATA, first_offset=200, last_offset=299, max_timestamp_ms=0, batch_count=1, aborted_transactions=0
)
LOG = StoredObject(ObjectKind.LOG, "orders/200.log", 1_000, DATA.log_crc32c)
INDEXES = StoredObject(ObjectKind.INDEXES, "orders/200.indexes", 90, 0x1234)
SENT = (INDEXES, LOG)


def test_a_store_that_has_what_was_sent_and_read_is_believed() -> None:
    require_stored(SENT, SENT, CHECKED)
    require_stored(SENT, (*SENT, StoredObject(ObjectKind.MANIFEST, "orders/200.manifest", 5, 6)), CHECKED)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ((INDEXES,), "orders/200.log: the store does not have it"),
        ((LOG,), "orders/200.indexes: the store does not have it"),
        ((INDEXES, replace(LOG, size_bytes=999)), "orders/200.log: the store has 999 bytes with CRC-32C"),
        (
            (replace(INDEXES, crc32c=0x1235), LOG),
            "the store has 90 bytes with CRC-32C 00001235, but 90 bytes with 00001",
        ),
    ],
    ids=["no log", "no indexes", "cut log", "changed indexes"],
)
def test_what_the_store_lost_or_changed_is_refused(stored: tuple[StoredObject, ...], said: str) -> None:
    with pytest.raises(RemoteChecksumError, match=said):
        require_stored(SENT, stored, CHECKED)


@pytest.mark.parametrize(
    "log",
    [replace(LOG, crc32c=DATA.log_crc32c ^ 1), replace(LOG, size_bytes=999)],
    ids=["other bytes", "fewer bytes"],
)
def test_a_log_that_was_sent_and_stored_but_is_not_what_the_check_pass_read_is_refused(log: StoredObject) -> None:
    """The source changed between the check pass and the upload: what was sent and what is stored agree and are wrong.
    Recorded as a finished copy it would let the broker's own be deleted."""
    with pytest.raises(
        RemoteChecksumError, match=r"the stored log is not the 1000 bytes with CRC-32C .* of the source"
    ):
        require_stored((INDEXES, log), (INDEXES, log), CHECKED)


@pytest.mark.parametrize("logs", [(), (LOG, replace(LOG, key="orders/201.log"))], ids=["none", "two"])
def test_a_copy_has_one_log(logs: tuple[StoredObject, ...]) -> None:
    with pytest.raises(RemoteChecksumError, match="the stored log is not"):
        require_stored((INDEXES,), (INDEXES, *logs), CHECKED)


def test_a_transformed_log_is_compared_with_what_was_sent_alone() -> None:
    """Compressed or encrypted it has another length and checksum; its source was compared on its way."""
    log = replace(LOG, size_bytes=500, crc32c=7, is_transformed=True)
    require_stored((INDEXES, log), (INDEXES, replace(log, is_transformed=False)), CHECKED)
    with pytest.raises(RemoteChecksumError, match="the store has 499 bytes"):
        require_stored((INDEXES, log), (INDEXES, replace(log, size_bytes=499)), CHECKED)
