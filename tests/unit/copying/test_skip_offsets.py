"""What may be skipped: only what the plan of this moment calls a hole and the source proves to be gone."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from include.tiering.copying.decisions import Skip, plan_skip, present_skip, skip_offsets, skip_question
from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.errors import CorruptFileError, SettingError, StateConflictError
from include.tiering.kafka.log_dirs.contract import (
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanReport,
)
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition, Uuid
from include.tiering.segments.failed_copies import Loss
from include.tiering.segments.stored_copies import ForgottenCopy
from tests.doubles.partial import Partial
from tests.doubles.segments import whole_replica

ORDERS = TopicIdPartition(Uuid(b"1" * 16), 0, "orders")
OLD_ORDERS = TopicIdPartition(Uuid(b"2" * 16), 0, "orders")
EPOCHS = LeaderEpochs.of([(0, 0)])
HOLE = OffsetRange(100, 199)
EARLIER = SkippedOffsets(OffsetRange(10, 19), "lost", "me@host", 5)
GONE = HeldBackPartition(ORDERS, 100, HeldBack.HOLE, "offsets 100..199 are no longer in the source", HOLE)
LOST = HeldBackPartition(
    ORDERS,
    0,
    HeldBack.LOST,
    "offsets 0..9 ...",
    lost=tuple(
        Loss(RemoteLogSegmentId(ORDERS, Uuid(bytes([number]) * 16)), OffsetRange(*offsets), "gone")
        for number, offsets in ((7, (0, 9)), (8, (50, 59)))
    ),
)
DIVERGENCE = HeldBackPartition(ORDERS, 50, HeldBack.DIVERGENCE, "why")


def replica(*bases: int, partition: TopicIdPartition = ORDERS, broker: int = 1, chosen: bool = True) -> Replica:
    """Segments of a hundred offsets each; its log starts with the first."""
    segments = tuple(LogSegment(base, base + 99, 1_000, 0, EPOCHS, active=False, reason=None) for base in bases)
    end = bases[-1] + 100
    return whole_replica(
        ReplicaId(partition, broker, "dir"),
        segments if chosen else tuple(replace(s, reason=IneligibleReason.NOT_LEADER) for s in segments),
        end,
        leader_epochs=EPOCHS,
        log_start_offset=bases[0],
        leader_epoch=0,
        chosen=chosen,
    )


def planned(
    *replicas: Replica,
    held_back: HeldBackPartition | None = GONE,
    topic_id: str | None = None,
    stored: Sequence[ForgottenCopy] = (),
) -> Skip:
    plan = CopyPlan("skip", (), () if held_back is None else (held_back,), ())
    report = ScanReport("cluster", replicas, ())
    return plan_skip(report, plan, Recorded(EARLIER), "orders", 0, topic_id, lambda _: stored)


class Recorded(Partial):
    """Stands for metadata of one partition."""

    highest = 99

    def __init__(self, *decisions: SkippedOffsets) -> None:
        self.decisions = [(ORDERS, decision) for decision in decisions]

    def partitions(self) -> list[TopicIdPartition]:
        return [ORDERS]

    def skipped_offsets(self, partition: TopicIdPartition) -> list[SkippedOffsets]:
        return [decision for of, decision in self.decisions if of == partition]

    def highest_copied_offset(self, partition: TopicIdPartition) -> int | None:
        return self.highest

    def skip_offsets(
        self, partition: TopicIdPartition, offsets: OffsetRange, *, reason: str, author: str, may_be_first: bool = False
    ) -> SkippedOffsets:
        decision = SkippedOffsets(offsets, reason, author, 7)
        self.decisions.append((partition, decision))
        return decision

    def give_up(self, segment_id: RemoteLogSegmentId, *, reason: str, author: str) -> list[SkippedOffsets]:
        loss = next(loss for loss in LOST.lost if loss.segment_id == segment_id)
        decision = SkippedOffsets(loss.offsets, reason, author, 7)
        self.decisions.append((ORDERS, decision))
        return [decision]


def record(planned: Skip, metadata: Recorded, reason: str) -> Skip:
    return skip_offsets(planned, metadata=metadata, failed_copies=metadata, reason=reason, author="me@host")


def test_the_hole_of_the_plan_is_what_may_be_skipped() -> None:
    assert planned(replica(200, 300)) == Skip(ORDERS, HOLE, GONE, decisions=(EARLIER,))


def test_of_a_deleted_topic_whose_name_another_one_has_the_decisions_are_shown() -> None:
    again = replica(0, partition=OLD_ORDERS)
    assert planned(again, topic_id=str(ORDERS.topic_id)) == Skip(ORDERS, None, decisions=(EARLIER,), is_shown=False)
    with pytest.raises(SettingError, match="choose one with --topic-id"):
        planned(again, topic_id=str(Uuid(b"3" * 16)))


@pytest.mark.parametrize("held_back", [None, DIVERGENCE, replace(GONE, topic_id_partition=OLD_ORDERS)])
def test_whatever_else_the_plan_says_is_no_hole(held_back: HeldBackPartition | None) -> None:
    found = planned(replica(200), held_back=held_back)
    assert (found.hole, found.waits) == (None, DIVERGENCE if held_back is DIVERGENCE else None)
    assert found.decisions == (EARLIER,)


def test_what_lies_above_the_log_start_is_missing_and_not_gone() -> None:
    damaged = replace(replica(200), log_start_offset=150)
    with pytest.raises(CorruptFileError, match=r"100\.\.199 are missing, not deleted: its log starts at 150"):
        planned(damaged)


def stored(first: int, last: int | None) -> ForgottenCopy:
    return ForgottenCopy(Uuid(b"9" * 16), first, last, "" if last is not None else "access denied")


def test_what_the_store_still_has_is_not_skipped() -> None:
    """A restored database does not know it; once it is skipped, it can no longer be adopted."""
    for copy in (stored(100, 149), stored(50, 120), stored(100, None)):
        with pytest.raises(StateConflictError, match=r"nothing is skipped: the store .*adopt"):
            planned(replica(200), stored=[stored(150, 199), copy])
    with pytest.raises(StateConflictError, match=r"complete copy of offsets 100\.\.149"):
        planned(replica(200), held_back=replace(GONE, reason=HeldBack.COMPACTED), stored=[stored(100, 149)])


@pytest.mark.parametrize("last", [180, None])
def test_a_hole_ends_before_what_the_store_still_has(last: int | None) -> None:
    found = planned(replica(200), stored=[stored(170, last), stored(190, 199), stored(0, 99), stored(20, None)])
    assert (found.hole, found.stored) == (OffsetRange(100, 169), stored(170, last))
    assert "what follows from 170 on: ./tiering adopt" in skip_question(found)
    assert "imports what the store has from 170 on" in present_skip(found, None).summary


def test_copies_beside_the_hole_leave_it_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(replica(200), stored=[stored(0, 99), stored(200, 299)]).hole == HOLE
    monkeypatch.setattr(Recorded, "highest", 299)
    # No copy goes back between copied segments, so nothing is adopted there either.
    assert planned(replica(0, 100, 200), stored=[stored(100, 199)]).hole == HOLE


def test_what_is_missing_between_copied_segments_needs_no_proof_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorded, "highest", 299)
    found = planned(replica(0, 100, 200))
    assert (found.hole, found.is_within) == (HOLE, True)


def test_replicas_that_still_have_some_of_it_are_named() -> None:
    others = [
        replica(0, 100, 200, broker=2, chosen=False),
        replica(200, broker=3, chosen=False),
        replica(100, 200, broker=4, chosen=False),
        replica(100, broker=5, partition=OLD_ORDERS, chosen=False),
        replace(replica(0, 100, 200, broker=6, chosen=False), log_start_offset=200),
    ]
    assert planned(replica(200), *others).elsewhere == (2, 4)


def test_without_the_replica_that_a_copy_reads_nothing_is_proved() -> None:
    with pytest.raises(SettingError, match="orders-0: the replica that a copy reads is in no log directory and at no"):
        planned(replica(200, chosen=False))


def test_of_several_topics_of_the_name_one_must_be_chosen() -> None:
    both = replica(200), replica(200, partition=OLD_ORDERS)
    with pytest.raises(SettingError, match=f"{ORDERS.topic_id}, {OLD_ORDERS.topic_id}: choose one with --topic-id"):
        planned(*both)
    assert planned(*both, topic_id=str(ORDERS.topic_id)).topic_id_partition.topic_id == ORDERS.topic_id


def test_the_decision_is_recorded_with_its_reason() -> None:
    metadata = Recorded()
    done = record(planned(replica(200)), metadata, " agreed ")
    decision = SkippedOffsets(HOLE, "agreed", "me@host", 7)
    assert metadata.decisions == [(ORDERS, decision)]
    assert (done.hole, done.waits, done.decisions) == (HOLE, None, (EARLIER, decision))


def test_without_a_hole_nothing_is_recorded() -> None:
    metadata, nothing = Recorded(), planned(replica(200), held_back=None)
    assert record(nothing, metadata, "agreed") is nothing
    assert metadata.decisions == []


def test_a_reason_says_something() -> None:
    metadata = Recorded()
    with pytest.raises(SettingError, match="--reason is empty"):
        record(planned(replica(200)), metadata, " ")
    assert metadata.decisions == []


def test_failed_segments_that_no_copy_replaces_come_before_the_hole() -> None:
    found = planned(replica(0, 100), held_back=LOST)
    assert (found.hole, found.lost, found.ranges, found.offsets) == (None, LOST.lost, ((0, 9), (50, 59)), 20)
    metadata = Recorded()
    done = record(found, metadata, "agreed")
    assert [decision.offsets for _, decision in metadata.decisions] == [(0, 9), (50, 59)]
    assert (done.waits, [one.offsets for one in done.decisions]) == (None, [(10, 19), (0, 9), (50, 59)])
