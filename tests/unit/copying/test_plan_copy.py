"""Planning decides from values alone: what, in which order, and what waits with which reason."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from include.tiering.copying.next_segments import uncopied
from include.tiering.copying.plan import HeldBack, LeftBecause
from include.tiering.copying.plan_copy import leading_eligible, placed_batches, plan_copy, urgency
from include.tiering.copying.run_scope import RunScope
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.log_dirs.contract import (
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanReport,
)
from include.tiering.model.histories import Divergence, OffsetRange, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import TopicOwner
from include.tiering.model.segments import RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid, Verdict
from include.tiering.runs.contract import ANYWHERE, Placement, PlannedPartition
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from include.tiering.segments.failed_copies import FailedCopy
from tests.doubles.partial import Partial
from tests.doubles.segments import FINISHED, segment_of, whole_replica

NOW_MS = 1_700_000_000_000
EPOCHS = LeaderEpochs.of([(0, 0)])


def segment(
    base: int, end: int, *, size: int = 100, reason: IneligibleReason | None = None, age_ms: int = 0
) -> LogSegment:
    return LogSegment(base, end, size, NOW_MS - age_ms, EPOCHS, reason is IneligibleReason.ACTIVE, reason)


def replica(topic: str, *segments: LogSegment, log_start: int = 0, chosen: bool = True) -> Replica:
    partition = TopicIdPartition(Uuid(topic.encode().ljust(16, b"\1")), 0, topic)
    end = segments[-1].end_offset + 1 if segments else 0
    return whole_replica(
        ReplicaId(partition, 1, "dir"),
        segments,
        end,
        leader_epochs=EPOCHS,
        log_start_offset=log_start,
        leader_epoch=0,
        chosen=chosen,
    )


class Known(Partial):
    """Stands for the stores and the cluster metadata: what was copied, what stopped, which retention holds."""

    def __init__(
        self,
        *,
        copied: int | None = None,
        stopped: str | None = None,
        retention_ms: str | None = None,
        owner: TopicOwner = TopicOwner.PLATFORM,
        by_epoch: Mapping[int, int] | None = None,
        complete: bool = True,
        skipped: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._complete = complete
        self._skipped = [SkippedOffsets(OffsetRange(*offsets), "lost", "me", 0) for offsets in skipped]
        self.asked_for_decisions = 0
        self.abandoned: Sequence[SegmentRow] = ()
        self._by_epoch = by_epoch
        self._copied, self._stopped, self._retention_ms, self._owner = copied, stopped, retention_ms, owner

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self._complete

    def owner(self, topic_id: Uuid) -> TopicOwner:
        return self._owner

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        return self._copied

    def skipped_offsets(self, partition: TopicIdPartition) -> Sequence[SkippedOffsets]:
        self.asked_for_decisions += 1
        return self._skipped

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        return self._copied if self._by_epoch is None else self._by_epoch.get(leader_epoch)

    def is_continued(self, partition: TopicIdPartition, leader_epoch: int, highest_copied: int) -> bool:
        return self.highest_offset_for_epoch(partition, leader_epoch) == highest_copied

    def divergences(self, partition: TopicIdPartition) -> Sequence[Divergence]:
        return ()

    def retention_state(self, partition: TopicIdPartition) -> PartitionRetentionState:
        return PartitionRetentionState()

    @property
    def selected(self) -> "Known":
        return self

    def segments_under_way(self, partition: TopicIdPartition) -> Sequence[SegmentRow]:
        return [row for row in self.list_segments(partition) if not row.metadata.is_finished]

    def list_segments(self, partition: TopicIdPartition) -> Sequence[SegmentRow]:
        """One segment per epoch."""
        rows, start = [], 0
        for epoch, end in (self._by_epoch or {}).items():
            start = max([start, *(one.offsets.last + 1 for one in self._skipped if one.offsets.first == start)])
            found = segment_of(partition, epoch, start, end, {epoch: start}, state=FINISHED)
            rows.append(SegmentRow(found, Verdict.PASSED, None))
            start = end + 1
        return [*self.abandoned, *rows]

    def stopped_reason(self, partition: TopicIdPartition) -> str | None:
        return self._stopped

    def topic(self, topic_id: Uuid) -> TopicMetadata:
        configs = {} if self._retention_ms is None else {"retention.ms": self._retention_ms}
        return TopicMetadata("t", topic_id, configs)


def plan(*replicas: Replica, known: Known | None = None, limit_bytes: int | None = None, **more: Any):
    known = known or Known()
    report = ScanReport("cluster", replicas, ())
    return plan_copy(
        "run",
        report,
        scope=RunScope(),
        metadata=known,
        registry=known,
        cluster_metadata=known,
        now_ms=NOW_MS,
        limit_bytes=limit_bytes,
        **more,
    )


def bases(a_plan) -> list[list[int]]:
    return [[planned.base_offset for planned in partition.segments] for partition in a_plan.partitions]


ACTIVE = segment(300, 310, reason=IneligibleReason.ACTIVE)


def test_takes_all_eligible_segments_in_order_and_never_the_active_one():
    assert bases(plan(replica("a", segment(0, 99), segment(100, 299), ACTIVE))) == [[0, 100]]


def test_goes_on_behind_what_was_copied():
    source = replica("a", segment(0, 99), segment(100, 299), ACTIVE)
    assert bases(plan(source, known=Known(copied=99))) == [[100]]
    assert bases(plan(source, known=Known(copied=299))) == []


def test_takes_the_whole_segment_that_contains_the_next_offset():
    assert bases(plan(replica("a", segment(0, 99), segment(100, 299), ACTIVE), known=Known(copied=150))) == [[100]]


def test_starts_with_the_segment_that_contains_the_log_start():
    assert bases(plan(replica("a", segment(0, 99), segment(100, 299), ACTIVE, log_start=120))) == [[100]]


def test_stops_before_the_first_segment_that_is_not_eligible():
    source = replica("a", segment(0, 99), segment(100, 199, reason=IneligibleReason.CORRUPT), segment(200, 299), ACTIVE)
    made = plan(source)
    assert bases(made) == [[0]]
    assert [(held.reason, held.next_offset, held.detail) for held in made.held_back] == [
        (HeldBack.DAMAGED, 100, "corrupt")
    ]


def test_a_first_segment_that_is_not_eligible_is_named():
    made = plan(replica("a", segment(0, 99, reason=IneligibleReason.ABOVE_LAST_STABLE_OFFSET), ACTIVE))
    assert not made.partitions
    assert [(held.reason, held.next_offset) for held in made.held_back] == [(HeldBack.NOT_ELIGIBLE, 0)]
    assert "last stable offset" in made.held_back[0].detail


def test_a_gap_behind_what_was_copied_is_never_jumped():
    made = plan(replica("a", segment(200, 299), ACTIVE, log_start=200), known=Known(copied=149))
    assert not made.partitions
    assert made.held_back[0].reason is HeldBack.HOLE
    assert made.held_back[0].hole == (150, 199)
    assert "150..199" in made.held_back[0].detail


BEHIND_A_HOLE = replica("a", segment(200, 249), segment(250, 299), ACTIVE, log_start=200)


@pytest.mark.parametrize("skipped", [[(150, 199)], [(150, 169), (170, 199)], [(100, 220)]])
def test_behind_a_hole_by_decision_the_copy_goes_on(skipped):
    made = plan(BEHIND_A_HOLE, known=Known(copied=149, skipped=skipped))
    assert (bases(made), made.held_back) == ([[200, 250]], ())


def test_a_hole_that_grew_names_what_was_not_decided():
    (held,) = plan(BEHIND_A_HOLE, known=Known(copied=149, skipped=[(150, 179)])).held_back
    assert (held.reason, held.next_offset, held.hole) == (HeldBack.HOLE, 180, (180, 199))
    assert "180..199" in held.detail


def abandoned_row(start: int, end: int, number: int = 1) -> SegmentRow:
    partition = BEHIND_A_HOLE.topic_id_partition
    return SegmentRow(
        RemoteLogSegmentMetadata(
            RemoteLogSegmentId(partition, Uuid(bytes([number]) * 16)), start, end, NOW_MS, 1, NOW_MS, 100, EPOCHS
        ),
        Verdict.NONE,
        log_crc32c=None,
    )


@pytest.mark.parametrize(
    ("abandoned", "planned"),
    [
        ([(150, 199)], [[150]]),
        ([(150, 169), (170, 199)], [[150, 170]]),
        ([(140, 169)], [[140]]),
        ([(160, 199)], []),
        ([(150, 200)], [[150]]),
        ([(200, 249)], []),
    ],
)
def test_what_the_source_has_no_longer_and_a_copy_has_is_planned_to_be_finished(abandoned, planned):
    known = Known(copied=149)
    known.abandoned = [abandoned_row(start, end, number) for number, (start, end) in enumerate(abandoned)]
    made = plan(BEHIND_A_HOLE, known=known, is_whole=lambda _: True)
    assert bases(made) == planned
    assert [one.reason for one in made.held_back] == ([] if planned else [HeldBack.HOLE])
    assert [one.reason for one in plan(BEHIND_A_HOLE, known=known).held_back] == [HeldBack.HOLE]


def test_a_whole_abandoned_copy_frees_its_own_offsets_only():
    """Two segments are lost; a copy of one of them is there. The other one still waits for a person."""
    source = replica("a", segment(300, 399), log_start=300)
    partition = source.topic_id_partition
    failed = [
        FailedCopy(segment_of(partition, 40 + start, start, start + 99, {0: 0}, state=FINISHED), "Q102")
        for start in (100, 200)
    ]
    known = Known(copied=299)
    known.abandoned = [abandoned_row(100, 199)]
    made = plan(source, known=known, failed={partition: failed}, is_whole=lambda _: True)
    assert bases(made) == [[100]]
    (held,) = made.held_back
    assert (held.reason, [loss.offsets for loss in held.lost]) == (HeldBack.LOST, [(200, 299)])
    known.abandoned = [abandoned_row(100, 199), abandoned_row(200, 299, 2)]
    made = plan(source, known=known, failed={partition: failed}, is_whole=lambda _: True)
    assert (bases(made), made.held_back) == ([[100, 200, 300]], ())


def test_a_hole_before_the_active_segment_does_not_wait_until_that_has_rolled():
    """All that had rolled is gone. A topic that rolls once a week would keep it to itself for a week."""
    (held,) = plan(replica("a", ACTIVE, log_start=300), known=Known(copied=149)).held_back
    assert (held.reason, held.hole) == (HeldBack.HOLE, (150, 299))
    for known in (Known(copied=299), Known(copied=149, skipped=[(150, 299)]), Known(copied=305), Known()):
        made = plan(replica("a", ACTIVE, log_start=300), known=known)
        assert (made.partitions, made.held_back) == ((), ())


@pytest.mark.parametrize("reason", [IneligibleReason.COMPACTED, IneligibleReason.BROKER_TIERED])
def test_an_active_segment_that_is_never_copied_shows_no_hole(reason):
    never = replace(ACTIVE, reason=reason)
    assert plan(replica("a", never, log_start=300), known=Known(copied=149)).held_back == ()


def test_what_the_source_has_after_all_is_copied_decision_or_not():
    """Another replica leads now, whose log begins earlier."""
    source = replica("a", segment(130, 179), segment(180, 299), ACTIVE, log_start=130)
    assert bases(plan(source, known=Known(copied=149, skipped=[(150, 199)]))) == [[130, 180]]


def test_decisions_are_asked_for_only_where_there_is_a_gap():
    known = Known(copied=99)
    plan(replica("a", segment(0, 99), segment(100, 299), ACTIVE), known=known)
    assert known.asked_for_decisions == 0


def test_records_that_an_unclean_election_replaced_are_not_jumped():
    """KAFKA-15241. 0..149 were copied under epoch 0; the new leader has epoch 1 from 50 on, its segment at 100 ends
    later."""
    segments = segment(0, 49), segment(50, 99), segment(100, 299), ACTIVE
    source = replace(replica("a", *segments), leader_epochs=LeaderEpochs.of([(0, 0), (1, 50)]))
    made = plan(source, known=Known(copied=149, by_epoch={0: 149}))
    assert not made.partitions
    assert [(held.reason, held.next_offset) for held in made.held_back] == [(HeldBack.DIVERGENCE, 50)]
    assert "offsets 50..149 are remote" in made.held_back[0].detail
    assert made.held_back[0].follow_from == 50


@pytest.mark.parametrize("active_offset", [90, 50])
def test_a_divergence_is_named_before_there_is_anything_to_copy(active_offset):
    """0..149 were copied under epoch 0, the new leader has epoch 1 from 50 on and is not as far yet."""
    active = segment(active_offset, 120, reason=IneligibleReason.ACTIVE)
    source = replace(replica("a", segment(0, 49), active), leader_epochs=LeaderEpochs.of([(0, 0), (1, 50)]))
    made = plan(source, known=Known(copied=149, by_epoch={0: 149}))
    assert not made.partitions
    assert [(held.reason, held.next_offset) for held in made.held_back] == [(HeldBack.DIVERGENCE, 50)]


def test_a_history_without_anything_remote_is_a_divergence_from_its_start():
    source = replace(replica("a", segment(100, 299), ACTIVE), leader_epochs=LeaderEpochs.of([(5, 60)]))
    assert plan(source, known=Known(copied=149, by_epoch={0: 149})).held_back[0].next_offset == 60


@pytest.mark.parametrize("divergence", [100, 120])
def test_a_segment_that_holds_the_divergence_is_not_copied_over_what_it_replaced(divergence):
    """Copied whole it would cover all that differs: but then two records would answer for one offset."""
    source = replace(
        replica("a", segment(0, 99), segment(100, 299), ACTIVE),
        leader_epochs=LeaderEpochs.of([(0, 0), (1, divergence)]),
    )
    made = plan(source, known=Known(copied=149, by_epoch={0: 149}))
    assert (bases(made), made.held_back[0].next_offset, made.held_back[0].follow_from) == ([], divergence, divergence)


def test_where_nothing_is_remote_any_more_nothing_diverges():
    """0..149 were copied under epoch 0, and have expired."""
    source = replace(
        replica("a", segment(0, 99), segment(100, 299), ACTIVE), leader_epochs=LeaderEpochs.of([(0, 0), (1, 50)])
    )
    known = Known(copied=149, by_epoch={0: 149})
    known.list_segments = lambda _partition: []  # type: ignore[method-assign, assignment]
    assert bases(plan(source, known=known)) == [[100]]


def test_a_source_that_is_behind_is_waited_for_and_no_other_history():
    """An old leader's log: it never heard of epoch 3."""
    source = replace(replica("a", segment(0, 99), segment(100, 299), ACTIVE), leader_epochs=LeaderEpochs.of([(0, 0)]))
    (held,) = plan(source, known=Known(copied=149, by_epoch={0: 99, 3: 149})).held_back
    assert (held.reason, held.next_offset, held.follow_from) == (HeldBack.DIVERGENCE, 100, None)
    assert held.divergence is not None
    assert held.divergence.is_behind
    assert "the source is behind what was copied" in held.detail


def test_a_new_epoch_behind_what_was_copied_is_no_divergence():
    source = replace(
        replica("a", segment(0, 99), segment(100, 299), ACTIVE), leader_epochs=LeaderEpochs.of([(0, 0), (1, 100)])
    )
    assert bases(plan(source, known=Known(copied=99, by_epoch={0: 99}))) == [[100]]


HISTORY_WITH_A_HOLE: dict[str, Any] = {"copied": 299, "by_epoch": {0: 99, 1: 299}, "skipped": [(100, 199)]}
"""0..99 were copied under epoch 0 and 200..299 under epoch 1; what is between was lost."""


def unclean(*segments: LogSegment, since: int) -> Replica:
    """Epoch 1 never was: the new leader, of epoch 2, took over at `since`."""
    source = replica("a", *segments, segment(350, 360, reason=IneligibleReason.ACTIVE))
    return replace(source, leader_epochs=LeaderEpochs.of([(0, 0), (2, since)]))


def test_a_divergence_behind_a_hole_begins_where_the_hole_ends():
    (held,) = plan(unclean(segment(250, 349), since=150), known=Known(**HISTORY_WITH_A_HOLE)).held_back
    assert (held.reason, held.next_offset) == (HeldBack.DIVERGENCE, 200)
    assert "offsets 200..299 are remote" in held.detail
    assert held.follow_from == 100, "what the source has of the hole after all is copied"


def test_a_divergence_before_a_hole_is_named_without_the_hole():
    known = Known(copied=99, by_epoch={0: 99}, skipped=[(100, 199)])
    (held,) = plan(unclean(segment(200, 349), since=50), known=known).held_back
    assert (held.reason, held.next_offset) == (HeldBack.DIVERGENCE, 50)
    assert "offsets 50..99 are remote" in held.detail


def test_a_new_epoch_within_a_hole_is_no_divergence():
    known = Known(copied=99, by_epoch={0: 99}, skipped=[(100, 199)])
    assert bases(plan(unclean(segment(200, 349), since=120), known=known)) == [[200]]


def test_a_history_that_begins_behind_a_hole_is_no_divergence():
    source = replace(BEHIND_A_HOLE, leader_epochs=LeaderEpochs.of([(3, 200)]))
    assert bases(plan(source, known=Known(copied=99, by_epoch={0: 99}, skipped=[(100, 199)]))) == [[200, 250]]


def test_nothing_is_copied_before_its_metadata_is_complete():
    """KAFKA-15181, KAFKA-16105: right after an assignment, segments seem to be missing."""
    made = plan(replica("a", segment(0, 99), ACTIVE), known=Known(complete=False))
    assert (made.partitions, [one.reason for one in made.held_back]) == ((), [HeldBack.NOT_READY])


def test_a_stopped_partition_waits_with_its_reason():
    made = plan(replica("a", segment(0, 99), ACTIVE), known=Known(stopped="segment X failed Q101"))
    assert (made.held_back[0].reason, made.held_back[0].detail) == (HeldBack.STOPPED, "segment X failed Q101")


@pytest.mark.parametrize("owner", [TopicOwner.HANDING_OVER, TopicOwner.BROKER])
def test_a_topic_of_another_owner_is_left_alone(owner):
    made = plan(replica("a", segment(0, 99), ACTIVE), known=Known(owner=owner))
    assert not made.partitions
    assert made.held_back[0].reason is HeldBack.NOT_OURS


def test_only_the_chosen_replica_counts():
    assert bases(plan(replica("a", segment(0, 99), ACTIVE, chosen=False))) == []


def test_the_partition_nearest_to_its_retention_comes_first():
    young = replica("young", segment(0, 99, age_ms=10), ACTIVE)
    old = replica("old", segment(0, 99, age_ms=99_000), ACTIVE)
    made = plan(young, old)
    assert [p.replica_id.topic_id_partition.topic for p in made.partitions] == ["old", "young"]


@pytest.mark.parametrize(
    ("retention_ms", "age_ms", "expected"),
    [
        ("1000", 500, 0.5),
        ("1000", 2000, 2.0),
        ("-1", 604_800_000, 1.0),
        (None, 60_480_000, 0.1),
        ("1000", -5, 0.0),
        ("²", 604_800_000, 1.0),
        ("9" * 5000, 604_800_000, 1.0),
    ],
)
def test_urgency_is_the_used_share_of_the_retention(retention_ms, age_ms, expected):
    oldest = segment(0, 99, age_ms=age_ms)
    used = urgency(replica("a", oldest), oldest, Known(retention_ms=retention_ms), NOW_MS)
    assert used == pytest.approx(expected)


def test_a_byte_limit_takes_whole_segments_and_always_the_first():
    source = replica("a", segment(0, 99), segment(100, 199), segment(200, 299), ACTIVE)
    assert bases(plan(source, limit_bytes=250)) == [[0, 100]]
    assert bases(plan(source, limit_bytes=1)) == [[0]]


def test_partitions_beyond_the_byte_limit_are_named():
    made = plan(replica("a", segment(0, 99, age_ms=9), ACTIVE), replica("b", segment(0, 99), ACTIVE), limit_bytes=100)
    assert bases(made) == [[0]]
    assert [(h.topic_id_partition.topic, h.reason) for h in made.held_back] == [("b", HeldBack.BYTE_LIMIT)]


def test_uncopied_and_leading_eligible_are_what_they_say():
    segments = [segment(0, 99), segment(100, 199), replace(ACTIVE, base_offset=200)]
    assert [s.base_offset for s in uncopied(segments, None, 0)] == [0, 100]
    assert leading_eligible([segments[0], replace(segments[1], reason=IneligibleReason.CORRUPT)]) == [segments[0]]


RACK_A, RACK_B = Placement("rack-a"), Placement("rack-b", "local_disk")


def placed(counts: dict[Placement, int]) -> list[PlannedPartition]:
    replica_id = replica("t").replica_id
    return [PlannedPartition(replica_id, 1.0, (), placement) for placement, n in counts.items() for _ in range(n)]


def test_a_partition_is_placed_where_its_log_dir_is() -> None:
    elsewhere = replace(replica("b", segment(0, 9)), replica_id=ReplicaId(replica("b").topic_id_partition, 2, "dir"))
    known = Known()
    report = ScanReport("cluster", (replica("a", segment(0, 9)), elsewhere), ())
    placements = {(2, "dir"): RACK_A, (1, "another dir"): RACK_B}
    for limit_bytes in (None, 1_000):
        a_plan = plan_copy(
            "run",
            report,
            scope=RunScope(),
            metadata=known,
            registry=known,
            cluster_metadata=known,
            now_ms=NOW_MS,
            limit_bytes=limit_bytes,
            placements=placements,
        )
        assert {p.replica_id.broker_id: p.placement for p in a_plan.partitions} == {1: ANYWHERE, 2: RACK_A}


@pytest.mark.parametrize(
    ("counts", "max_batches", "expected"),
    [
        ({}, 4, []),
        ({ANYWHERE: 3}, 4, [ANYWHERE] * 3),
        ({ANYWHERE: 5}, 4, [ANYWHERE] * 4),
        ({RACK_A: 4, ANYWHERE: 1, RACK_B: 2}, 16, [RACK_A, ANYWHERE, RACK_B, RACK_A, RACK_B, RACK_A, RACK_A]),
        ({RACK_A: 4, ANYWHERE: 4, RACK_B: 4}, 4, [RACK_A, ANYWHERE, RACK_B, RACK_A]),
        ({RACK_A: 4, ANYWHERE: 4, RACK_B: 4}, 1, [RACK_A, ANYWHERE, RACK_B]),
    ],
)
def test_placements_take_turns_for_batches(
    counts: dict[Placement, int], max_batches: int, expected: list[Placement]
) -> None:
    assert placed_batches(placed(counts), max_batches) == expected


def test_what_passes_without_a_person_and_what_does_not():
    assert {reason.code: reason.retriable for reason in HeldBack} == {
        "not-ready": True,
        "no-leader-replica": False,
        "stopped": False,
        "lost": False,
        "failed-again": False,
        "store-in-doubt": False,
        "copy-in-doubt": False,
        "hole": False,
        "log-divergence": False,
        "byte-limit": True,
        "not-eligible": True,
        "damaged": False,
        "compacted": False,
        "not-ours": True,
        "past-retention": True,
    }
    assert {reason.code: reason.retriable for reason in LeftBecause} == {
        "failed": False,
        "throttled": True,
        "copied": True,
        "held": True,
        "paused": True,
        "ended": True,
        "unknown": False,
    }


def test_metadata_that_are_not_complete_need_nobody_and_a_stop_does():
    source = replica("a", segment(0, 99), ACTIVE)
    (waits,) = plan(source, known=Known(complete=False)).held_back
    assert (waits.reason, waits.needs_a_person) == (HeldBack.NOT_READY, False)
    (stopped,) = plan(source, known=Known(stopped="it failed")).held_back
    assert (stopped.reason, stopped.needs_a_person) == (HeldBack.STOPPED, True)


def test_a_source_whose_newest_epoch_is_the_archives_newest_is_behind_as_well():
    """Epoch 5 is remote from 0 on, and begins at 200 in this log: nothing says that this is a later history."""
    source = replace(
        replica("a", segment(50, 99), segment(100, 299), ACTIVE, log_start=50),
        leader_epochs=LeaderEpochs.of([(3, 50), (5, 200)]),
    )
    (held,) = plan(source, known=Known(copied=149, by_epoch={5: 149})).held_back
    assert (held.reason, held.follow_from) == (HeldBack.DIVERGENCE, None)
    assert held.divergence is not None
    assert held.divergence.is_behind
    later = replace(source, leader_epochs=LeaderEpochs.of([(3, 50), (6, 200)]))
    (held,) = plan(later, known=Known(copied=149, by_epoch={5: 149})).held_back
    assert held.divergence is not None
    assert not held.divergence.is_behind
