"""A divergence of histories is a fact of the archive: what was seen once holds the partition back until a person
decides, whatever the source's log start does later."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from include.tiering.copying.decisions import FollowSource, follow_source, plan_follow
from include.tiering.copying.plan import HeldBack
from include.tiering.errors import SettingError, StateConflictError
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, ReplicaId
from include.tiering.model.histories import SeenBy
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.runs.contract import PlannedPartition, PlannedSegment
from include.tiering.segments.contract import SegmentRow
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.verification.suites import PARTITION_RULES
from include.tiering.verification.verify_partitions import verify_partitions
from tests.doubles.deployment import World
from tests.doubles.plain_evaluator import PlainEvaluator
from tests.doubles.segments import delete

DIVERGES_AT, LAST_COPIED = 35, 69
NEW_BASES = (0, 10, 20, 30, 40, 52, 65, 78, 91)
"""Where the new leader's log rolled; its last segment is active."""


@pytest.fixture
def orders(world: World) -> ReplicaId:
    """Offsets 0..69 are remote under epochs 0 and 4."""
    orders = world.source.add("orders", segments=7)
    follow(world, orders, [(0, 0), (4, 50)], tuple(range(0, 70, 10)), 70)
    world.plan()
    world.batch()
    assert len(world.offsets(orders)) == 7
    return orders


def follow(
    world: World, orders: ReplicaId, epochs: list[tuple[int, int]], bases: tuple[int, ...], end: int, start: int = 0
) -> None:
    """The source's log: `end` is exclusive, `start` its log start; what lies wholly below is gone."""
    history = LeaderEpochs.of(epochs).truncated_from_start(start)
    segments = []
    for base, following in zip(bases, (*bases[1:], end), strict=True):
        active = following == end and end > LAST_COPIED + 1
        reason = IneligibleReason.ACTIVE if active else None
        part = history.range(base, following)
        if following > start:
            segments.append(LogSegment(base, following - 1, 500, 1_600_000_000_000 + base, part, active, reason))
    world.source.change(
        orders,
        segments=tuple(segments),
        leader_epochs=history,
        log_start_offset=start,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        recovery_point=end,
    )


def elect_unclean(world: World, orders: ReplicaId, start: int = 0) -> None:
    """The new leader had 0..34, and has written since."""
    follow(world, orders, [(0, 0), (6, DIVERGES_AT)], NEW_BASES, 100, start)


def held(world: World) -> list[tuple[HeldBack, int]]:
    return [(one.reason, one.next_offset) for one in world.planned("again").held_back]


@pytest.mark.parametrize("log_start", [0, 20, 35, 41, 56, 69, 70, 71, 78, 95])
def test_a_divergence_that_was_seen_stays_whatever_the_log_start_does(
    world: World, orders: ReplicaId, log_start: int
) -> None:
    elect_unclean(world, orders)
    assert held(world) == [(HeldBack.DIVERGENCE, DIVERGES_AT)]
    elect_unclean(world, orders, log_start)
    assert held(world) == [(HeldBack.DIVERGENCE, DIVERGES_AT)]
    world.plan("later")
    world.batch("later", "later/0")
    assert max(end for _, end in world.offsets(orders)) == LAST_COPIED


def decide(world: World, orders: ReplicaId, from_offset: int) -> FollowSource:
    plan, report = world.planned("decide"), world.source.scan()
    planned = plan_follow(report, plan, "orders", 0, from_offset, None)
    return follow_source(planned, metadata=world.metadata, reason="consumers read it", author="me")


def copy_on(world: World, run_id: str = "on") -> None:
    world.plan(run_id)
    assert world.batch(run_id, f"{run_id}/0").failed == ()


def findings(world: World) -> list[tuple[str, int]]:
    report = verify_partitions(world.metadata, PlainEvaluator(PARTITION_RULES), world.metadata.partitions())
    assert report.failed == ()
    return [(finding.rule, finding.start_offset) for finding in report.warnings]


@pytest.mark.parametrize(
    ("log_start", "follow_from", "begins_with", "skipped"),
    [
        (0, 35, 30, []),
        (35, 35, 30, []),
        (41, 41, 40, []),
        (69, 69, 65, []),
        (70, 70, 65, []),
        (71, 71, 65, [(70, 70)]),
        (85, 85, 78, [(70, 84)]),
    ],
)
def test_by_decision_the_archive_goes_on_with_the_source(
    world: World,
    orders: ReplicaId,
    log_start: int,
    follow_from: int,
    begins_with: int,
    skipped: list[tuple[int, int]],
) -> None:
    """Seen before the log start passed, decided after it."""
    before = world.offsets(orders)
    elect_unclean(world, orders)
    world.plan("seen")
    elect_unclean(world, orders, log_start)
    for other in (follow_from - 1, follow_from + 1):
        with pytest.raises(StateConflictError, match=f"from offset {follow_from} on, not from {other}"):
            decide(world, orders, other)
    decided = decide(world, orders, follow_from).decided
    assert decided is not None
    assert decided.followed is not None
    assert (decided.seen.offsets, decided.followed.from_offset) == ((DIVERGES_AT, LAST_COPIED), follow_from)
    assert [one.offsets for one in world.metadata.skipped_offsets(orders.topic_id_partition)] == skipped
    copy_on(world)
    rows = world.metadata.list_segments(orders.topic_id_partition)
    old = [(row.metadata.start_offset, row.metadata.end_offset) for row in rows if row.history == 0]
    new = [(row.metadata.start_offset, row.metadata.end_offset) for row in rows if row.history == 1]
    bases = [base for base in NEW_BASES[:-1] if base >= begins_with]
    assert (sorted(old), [base for base, _ in sorted(new)]) == (before, bases)
    assert findings(world) == []
    assert held(world) == []


def test_a_decision_names_what_stays_and_what_is_lost(world: World, orders: ReplicaId) -> None:
    elect_unclean(world, orders)
    world.plan("seen")
    elect_unclean(world, orders, 56)
    decided = decide(world, orders, 56)
    assert (decided.kept, decided.missing) == ((56, 69), (35, 55))
    with pytest.raises(StateConflictError, match="no divergence of histories waits for a decision"):
        decide(world, orders, 56)


def test_a_reason_is_asked_for(world: World, orders: ReplicaId) -> None:
    elect_unclean(world, orders)
    plan = world.planned("decide")
    planned = plan_follow(world.source.scan(), plan, "orders", 0, DIVERGES_AT, None)
    with pytest.raises(SettingError, match="--reason is empty"):
        follow_source(planned, metadata=world.metadata, reason=" ", author="me")
    assert held(world) == [(HeldBack.DIVERGENCE, DIVERGES_AT)]


def test_who_decides_by_what_was_shown_before_another_decision_is_refused(world: World, orders: ReplicaId) -> None:
    elect_unclean(world, orders)
    planned = plan_follow(world.source.scan(), world.planned("decide"), "orders", 0, DIVERGES_AT, None)
    decide(world, orders, DIVERGES_AT)
    with pytest.raises(StateConflictError, match="the divergence that was shown has changed"):
        follow_source(planned, metadata=world.metadata, reason="me too", author="you")


def test_a_batch_with_an_older_plan_records_what_it_meets(world: World, orders: ReplicaId) -> None:
    """The plan was made before the election: nobody else has seen it yet."""
    follow(world, orders, [(0, 0), (4, 50)], (*range(0, 80, 10), 90), 95)
    world.plan("before")
    elect_at_the_same_offsets(world, orders)
    (failed,) = world.batch("before", "before/0").failed
    assert "offsets 35..69 are remote under other leader epochs" in str(failed.item.message)
    (found,) = world.metadata.divergences(orders.topic_id_partition)
    assert (found.seen.seen_by, found.is_open) == (SeenBy.COPY, True)


def test_a_decision_while_a_batch_begins_leaves_no_gap(
    world: World, orders: ReplicaId, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch has read where the archive ends, and goes on there; then somebody decides that it ends earlier."""
    follow(world, orders, [(0, 0), (4, 50)], (*range(0, 80, 10), 90), 95)
    world.plan("before")
    elect_at_the_same_offsets(world, orders)
    world.planned("seen")
    is_continued = SqlRemoteLogMetadata.is_continued

    def decided_first(metadata: SqlRemoteLogMetadata, *asked: Any) -> bool:
        monkeypatch.undo()
        decide(world, orders, DIVERGES_AT)
        return is_continued(metadata, *asked)

    monkeypatch.setattr(SqlRemoteLogMetadata, "is_continued", decided_first)
    (failed,) = world.batch("before", "before/0").failed
    assert (failed.item.segment.base_offset, failed.retriable) == (70, True)
    assert "goes up to offset 34 by decision, not up to 69 any more" in str(failed.item.message)
    copy_on(world)
    rows = world.metadata.list_segments(orders.topic_id_partition)
    followed = sorted(row.metadata.start_offset for row in rows if row.history == 1 and row.metadata.is_finished)
    assert followed == [30, 40, 50, 60, 70]
    assert findings(world) == []


def test_a_source_that_continues_what_is_followed_costs_no_list_of_segments(
    world: World, orders: ReplicaId, monkeypatch: pytest.MonkeyPatch
) -> None:
    elect_unclean(world, orders)
    decide(world, orders, DIVERGES_AT)
    copy_on(world)
    listed: list[object] = []
    list_segments = SqlRemoteLogMetadata.list_segments

    def spied(metadata: SqlRemoteLogMetadata, *asked: Any) -> Sequence[SegmentRow]:
        listed.append(asked)
        return list_segments(metadata, *asked)

    monkeypatch.setattr(SqlRemoteLogMetadata, "list_segments", spied)
    assert held(world) == []
    assert listed == []


def elect_at_the_same_offsets(world: World, orders: ReplicaId) -> None:
    """The new leader had 0..34, and its log rolls where the old one's did."""
    history = LeaderEpochs.of([(0, 0), (6, DIVERGES_AT)])
    same = [replace(one, leader_epochs=history.range(one.base_offset, one.end_offset + 1)) for one in segments(world)]
    world.source.change(orders, leader_epochs=history, segments=tuple(same))


def segments(world: World) -> tuple[LogSegment, ...]:
    (replica,) = world.source.scan().replicas
    return replica.segments


def test_a_source_that_has_the_archived_records_again_is_followed_behind_them(world: World, orders: ReplicaId) -> None:
    """The old leader came back: what was recorded stays to be decided, and the decision loses nothing."""
    elect_unclean(world, orders)
    world.plan("seen")
    follow(world, orders, [(0, 0), (4, 50), (8, 70)], (*range(0, 80, 10), 90), 99)
    assert held(world) == [(HeldBack.DIVERGENCE, DIVERGES_AT)]
    decided = decide(world, orders, 70)
    assert (decided.kept, decided.missing) == (None, (35, 69))
    copy_on(world)
    assert max(end for _, end in world.offsets(orders)) == 89
    assert findings(world) == []


def test_what_is_not_remote_any_more_diverges_from_nothing(world: World, orders: ReplicaId) -> None:
    elect_unclean(world, orders)
    assert held(world) == [(HeldBack.DIVERGENCE, DIVERGES_AT)]
    delete_from(world, orders, 30)
    assert held(world) == []
    copy_on(world)
    assert world.offsets(orders)[3:] == [(65, 77), (78, 90)]


def test_a_source_that_begins_after_the_archive_under_an_earlier_epoch_is_another_history(
    world: World, orders: ReplicaId
) -> None:
    """Epochs never fall in a history: offsets 50..69 are remote under epoch 4, and the source has 72 under epoch 2."""
    follow(world, orders, [(0, 0), (2, 60), (7, 85)], (65, 80, 91), 100, 72)
    assert held(world) == [(HeldBack.DIVERGENCE, 50)]
    decide(world, orders, 72)
    copy_on(world)
    assert max(end for _, end in world.offsets(orders)) == 90
    assert findings(world) == []


def test_a_source_that_begins_after_the_archive_under_its_last_epoch_continues_it(
    world: World, orders: ReplicaId
) -> None:
    follow(world, orders, [(0, 0), (4, 50), (7, 85)], (65, 80, 91), 100, 72)
    assert HeldBack.DIVERGENCE not in {reason for reason, _ in held(world)}


def delete_from(world: World, orders: ReplicaId, offset: int) -> None:
    """Truncated by somebody's decision: log start raised, segments gone."""
    partition = orders.topic_id_partition
    world.work.save_plan("delete", [PlannedPartition(orders, 0.0, (PlannedSegment(0, 9, 1),))])
    lease = world.work.claim("delete", "delete/0", lease_ms=600_000)
    assert lease is not None
    world.metadata.raise_log_start(partition, LAST_COPIED + 1, reason="asked for", author="me")
    for row in world.metadata.list_segments(partition):
        if row.metadata.start_offset >= offset:
            delete(world.metadata, row.metadata, lease.fence)
    world.work.release(lease)


def test_what_nobody_noticed_is_found_by_a_verification(world: World, orders: ReplicaId) -> None:
    """The log start had passed the archive's end before any run saw the election; the epochs tell it all the same."""
    elect_unclean(world, orders, 70)
    copy_on(world)
    partition = orders.topic_id_partition
    world.metadata.merge_leader_epochs(partition, LeaderEpochs.of([(0, 0), (6, DIVERGES_AT)]), 0)
    rules = findings(world)
    assert [start for rule, start in rules if rule == "Q407"] == [30, 40, 50, 60]
    (found,) = world.metadata.divergences(partition)
    assert (found.seen.offsets, found.seen.seen_by) == ((DIVERGES_AT, LAST_COPIED), SeenBy.VERIFICATION)
    assert (found.is_open, found.copied_from) == (True, 65)
    assert held(world) == [(HeldBack.DIVERGENCE, DIVERGES_AT)]
    decide(world, orders, 65)
    assert findings(world) == []
    assert held(world) == []
