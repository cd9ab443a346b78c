"""What a plan says of failed segments: a new copy of exactly their offsets and epochs, or that they are lost."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from include.tiering.copying.plan import CopyPlan, HeldBack, HeldBackPartition
from include.tiering.copying.plan_replacements import (
    Replacements,
    before_divergence,
    hole_before,
    plan_replacements,
    record_losses,
    replacements_of,
)
from include.tiering.kafka.log_dirs.contract import (
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    ScanReport,
)
from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import Verdict
from include.tiering.segments.contract import PartitionRetentionState, SegmentRow
from include.tiering.segments.failed_copies import FailedCopy
from tests.doubles.partial import Partial
from tests.doubles.segments import DELETE_STARTED, FINISHED, partition_of, segment_of, uuid, whole_replica

PARTITION = partition_of("orders", 3)
EPOCHS = LeaderEpochs.of([(0, 0), (2, 150)])


def replica(*offsets: tuple[int, int], log_start: int = 0, broker: int = 1, **changes: Any) -> Replica:
    """Rolled, eligible segments of 1,000 bytes and the active one behind them; epoch 2 begins at offset 150."""
    rolled = [
        LogSegment(base, end, 1_000, 0, EPOCHS.range(base, end + 1), active=False, reason=None) for base, end in offsets
    ]
    end = offsets[-1][1] + 1
    active = LogSegment(end, end + 9, 10, 0, EPOCHS.range(end, end + 10), active=True, reason=IneligibleReason.ACTIVE)
    found = whole_replica(
        ReplicaId(PARTITION, broker, "dir"),
        (*rolled, active),
        end + 10,
        leader_epochs=EPOCHS,
        log_start_offset=log_start,
        leader_epoch=2,
    )
    return replace(found, **changes)


def failed(
    start: int = 100, end: int = 199, epochs: Mapping[int, int] | None = None, *, number: int = 7, **rest: Any
) -> FailedCopy:
    epochs = dict(EPOCHS.range(start, end + 1)) if epochs is None else epochs
    return FailedCopy(segment_of(PARTITION, number, start, end, epochs, state=FINISHED), "Q102: other bytes", **rest)


def decide(source: Replica, *copies: FailedCopy, max_attempts: int = 1, **rest: Any) -> Replacements:
    return plan_replacements(source, copies, max_attempts=max_attempts, **rest)


THREE = ((0, 99), (100, 199), (200, 299))


def test_the_same_offsets_are_copied_anew_in_their_order_wherever_they_are():
    found = decide(replica(*THREE), failed(0, 99, number=1), failed(200, 299, number=2))
    planned = [(one.base_offset, one.end_offset, one.size_bytes, one.supersedes) for one in found.segments]
    assert planned == [(0, 99, 1_000, uuid(1_000_001)), (200, 299, 1_000, uuid(1_000_002))]
    assert found.held_back is None


def test_epochs_without_a_record_make_no_difference():
    assert decide(replica(*THREE), failed(epochs={0: 100, 1: 150, 2: 150})).segments


@pytest.mark.parametrize(
    ("source", "copy", "why"),
    [
        (replica((200, 299), log_start=200), failed(), "the source's log starts at 200"),
        (replica((0, 99), (200, 299)), failed(), "the source has no segment of them"),
        (replica((0, 149), (150, 299)), failed(), "the source has other segments: 0..149, 150..299"),
        (replica((0, 99), (100, 249)), failed(), "the source has other segments: 100..249"),
        (replica((0, 99)), failed(100, 109), "the source has them in its active segment"),
        (replica(*THREE), failed(epochs={0: 100}), "the source has other leader epochs"),
        (replica(*THREE), failed(epochs={0: 100, 2: 160}), "the source has other leader epochs"),
    ],
)
def test_what_the_source_has_not_as_it_was_is_lost(source: Replica, copy: FailedCopy, why: str):
    found = decide(source, copy)
    assert found.segments == ()
    held = found.held_back
    assert (held.reason, held.next_offset) == (HeldBack.LOST, copy.offsets.first)
    (loss,) = held.lost
    assert (loss.segment_id, loss.offsets, loss.why, loss.in_source) == (copy.segment_id, copy.offsets, why, False)
    assert held.detail == f"offsets {copy.offsets} (segment {copy.segment_id.id}): {why}; see ./tiering skip"


def with_reason(source: Replica, base: int, reason: IneligibleReason) -> Replica:
    segments = tuple(replace(s, reason=reason) if s.base_offset == base else s for s in source.segments)
    return replace(source, segments=segments)


@pytest.mark.parametrize("reason", IneligibleReason)
def test_what_is_not_eligible_is_lost_only_if_waiting_cannot_help(reason: IneligibleReason):
    held = decide(with_reason(replica(*THREE), 100, reason), failed()).held_back
    lost = {
        IneligibleReason.CORRUPT,
        IneligibleReason.COMPACTED_SEGMENT,
        IneligibleReason.OLD_MAGIC,
        IneligibleReason.NO_LEADER_EPOCH,
        IneligibleReason.NO_PRODUCER_SNAPSHOT,
        IneligibleReason.BELOW_LOG_START,
    }
    assert held.reason is (HeldBack.LOST if reason in lost else HeldBack.STOPPED)
    assert str(reason) in held.detail
    assert bool(held.lost) is (reason in lost)


def without_epochs(source: Replica) -> Replica:
    segments = tuple(replace(segment, leader_epochs=LeaderEpochs()) for segment in source.segments)
    return replace(source, segments=segments, leader_epochs=LeaderEpochs())


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (without_epochs(replica(*THREE)), "leader epochs cannot be read"),
        (replica((0, 99), found_to=150), "is read up to offset 150 so far"),
        (replica((0, 99), segments=(), found_to=0), "is read up to offset 0 so far"),
    ],
)
def test_what_the_source_has_is_lost_only_if_it_is_known(source: Replica, why: str):
    found = decide(source, failed())
    assert found.segments == ()
    assert found.held_back is not None
    assert (found.held_back.reason, found.held_back.lost, why in found.held_back.detail) == (HeldBack.STOPPED, (), True)
    assert decide(source, failed(given_up=True)).held_back is None
    for known in (replace(source, log_start_offset=101), replace(source, found_to=200, leader_epochs=EPOCHS)):
        lost = decide(known, failed()).held_back
        assert lost is not None
        assert lost.reason is HeldBack.LOST


def test_a_damaged_source_is_said_to_be_one():
    held = decide(with_reason(replica(*THREE), 100, IneligibleReason.CORRUPT), failed()).held_back
    assert held.lost[0].why == "the source itself has a segment that cannot be copied: corrupt"


def test_a_replica_that_has_the_segment_as_it_was_is_named():
    others = [
        replica(*THREE, broker=2, chosen=False),
        replica((0, 149), (150, 299), broker=3, chosen=False),
        replica(*THREE, broker=4, chosen=False, log_start=200),
        replica(*THREE, broker=5, chosen=False),
    ]
    why = decide(replica((0, 149), (150, 299)), failed(), others=others).held_back.lost[0].why
    assert why.endswith("150..299; unchanged on broker 2 and broker 5: let one of them lead")


@pytest.mark.parametrize(
    ("superseded", "max_attempts", "planned"), [(0, 1, True), (1, 1, False), (1, 2, True), (0, 0, False)]
)
def test_what_failed_again_waits_for_a_person(superseded: int, max_attempts: int, planned: bool):
    found = decide(replica(*THREE), failed(superseded=superseded), max_attempts=max_attempts)
    assert bool(found.segments) is planned
    if not planned:
        (loss,) = found.held_back.lost
        assert (found.held_back.reason, loss.in_source) == (HeldBack.FAILED_AGAIN, True)
        tried = "copied again once, and it failed again" if superseded else "nothing is to be copied again"
        assert loss.why == f"{tried}: Q102: other bytes; the source still has them"


def test_a_loss_among_them_is_told_first_and_the_others_are_copied_all_the_same():
    copies = failed(0, 99, number=1), failed(100, 199, {9: 100}, number=2), failed(200, 299, number=3, superseded=1)
    found = decide(replica(*THREE), *copies)
    assert [one.base_offset for one in found.segments] == [0]
    assert (found.held_back.reason, [loss.in_source for loss in found.held_back.lost]) == (HeldBack.LOST, [False, True])


def test_many_are_counted():
    many = [failed(10 * n, 10 * n + 9, {0: 10 * n}, number=n) for n in range(9)]
    held = decide(replica((200, 299), log_start=200), *many).held_back
    assert "; and 6 more; see ./tiering skip" in held.detail
    assert len(held.lost) == 9


def test_what_was_given_up_stops_nothing_and_is_copied_anew_where_it_can_be():
    assert decide(replica((200, 299), log_start=200), failed(given_up=True)) == Replacements()
    assert (
        decide(with_reason(replica(*THREE), 100, IneligibleReason.NOT_FLUSHED), failed(given_up=True)) == Replacements()
    )
    assert len(decide(replica(*THREE), failed(given_up=True)).segments) == 1


@pytest.mark.parametrize("rest", [{}, {"broken_rules": ("Q301",)}, {"superseded": 1}, {"given_up": True}])
def test_what_a_decision_left_stops_nothing_and_no_source_has_it(rest: Mapping[str, Any]):
    """Of the same offsets the source has records of the history that is followed."""
    for source in (replica(*THREE), replica((0, 149), (150, 299)), replica((200, 299), log_start=200)):
        assert decide(source, failed(epochs={9: 100}, was_left=True, **rest)) == Replacements()
    found = decide(replica(*THREE), failed(0, 99, number=1), failed(epochs={9: 100}, was_left=True))
    assert ([one.base_offset for one in found.segments], found.held_back) == ([0], None)


def test_of_what_an_undecided_divergence_is_about_nothing_is_lost():
    copies = [failed(0, 99, number=1), failed(100, 199, number=2), failed(200, 299, number=3)]
    divergence = HeldBackPartition(
        PARTITION, 150, HeldBack.DIVERGENCE, "offsets 150..299 are remote under other leader epochs"
    )
    assert before_divergence(copies, divergence) == copies[:1]
    assert before_divergence(copies, replace(divergence, next_offset=200)) == copies[:2]
    assert before_divergence(copies, None) == copies


def test_what_is_about_to_expire_is_not_copied_again():
    held = decide(replica(*THREE), failed(), log_start_offset=200).held_back
    assert held.reason is HeldBack.STOPPED
    assert held.detail == "offsets 100..199: below the archive's log start, 200: they expire"
    assert decide(replica(*THREE), failed(), log_start_offset=199).segments
    assert decide(replica(*THREE), failed(given_up=True), log_start_offset=200).held_back is None


class TestNeighbours:
    """What fails by what lies beside it would fail again."""

    beside = failed(200, 299, number=3, broken_rules=("Q301", "Q401"))
    rows = (failed(0, 99, number=1).metadata, failed(150, 199, number=2).metadata, beside.metadata)

    def test_it_is_not_copied_anew(self):
        found = decide(replica(*THREE), self.beside)
        assert (found.segments, found.held_back.reason) == ((), HeldBack.STOPPED)
        assert found.held_back.detail == "offsets 200..299: a new copy would break the same rule: Q102: other bytes"

    def test_unless_it_breaks_a_rule_by_itself_as_well(self):
        both = replace(self.beside, broken_rules=("Q102", "Q301"))
        assert len(decide(replica(*THREE), both).segments) == 1
        assert len(decide(replica(*THREE), replace(self.beside, broken_rules=())).segments) == 1

    def test_what_is_missing_before_it_is_a_hole(self):
        hole = hole_before([self.beside], (self.rows[0], self.rows[2]), [])
        assert hole == (100, 199)
        held = decide(replica(*THREE), self.beside, hole=hole).held_back
        assert (held.reason, held.hole, held.next_offset) == (HeldBack.HOLE, (100, 199), 100)

    def test_what_somebody_decided_about_is_none(self):
        decided = [SkippedOffsets(OffsetRange(100, 120), "lost", "me", 0)]
        assert hole_before([self.beside], (self.rows[0], self.rows[2]), decided) == (121, 199)
        decided.append(SkippedOffsets(OffsetRange(121, 199), "lost", "me", 0))
        assert hole_before([self.beside], (self.rows[0], self.rows[2]), decided) is None

    def test_only_finished_segments_and_those_that_fail_count(self):
        assert hole_before([self.beside], self.rows, []) is None
        being_deleted = replace(self.rows[1], state=DELETE_STARTED)
        assert hole_before([self.beside], (self.rows[0], being_deleted, self.rows[2]), []) == (100, 199)
        assert hole_before([failed(150, 199, number=2)], self.rows, []) is None
        assert hole_before([replace(self.beside, given_up=True)], (self.rows[0], self.rows[2]), []) is None


class Histories:
    """Metadata of a partition with a hole at 150..199 of the first history; the second one is followed from `followed`
    on, and differs from `differs` on."""

    def __init__(self, followed: int, differs: int, whole: tuple[int, int], log_start: int = 0) -> None:
        seen = SeenDivergence(OffsetRange(differs, 299), (0,), (6,), SeenBy.PLAN)
        self._divergences = [Divergence(1, seen, 0, Followed(followed, "why", "me", 0))]
        old = [failed(0, 149, number=1).metadata, failed(200, 299, number=3).metadata]
        first = max(whole[0], log_start)
        epochs = {0: first, 6: differs} if differs > first else {6: first}
        new = segment_of(PARTITION, 9, *whole, epochs, state=FINISHED)
        self._rows = [*(SegmentRow(one, Verdict.PASSED, None) for one in old)]
        self._rows.append(SegmentRow(new, Verdict.PASSED, None, history=1))

    def list_segments(self, _: Any) -> Sequence[SegmentRow]:
        return self._rows

    def skipped_offsets(self, _: Any) -> Sequence[SkippedOffsets]:
        return []

    def divergences(self, _: Any) -> Sequence[Divergence]:
        return self._divergences

    def retention_state(self, _: Any) -> PartitionRetentionState:
        return PartitionRetentionState(0, EPOCHS)


@pytest.mark.parametrize(
    ("followed", "differs", "whole", "hole"),
    [
        (150, 150, (150, 349), None),
        (140, 140, (140, 349), None),
        (160, 160, (160, 349), (150, 159)),
        (160, 160, (155, 349), (150, 154)),
        (160, 160, (150, 349), None),
        (200, 200, (200, 349), (150, 199)),
        (180, 160, (150, 349), (160, 179)),
        (250, 120, (150, 349), (150, 199)),
    ],
)
@pytest.mark.parametrize("was_left", [False, True])
def test_a_hole_in_a_history_is_one_of_the_partition_as_far_as_nothing_else_answers(
    followed: int, differs: int, whole: tuple[int, int], hole: tuple[int, int] | None, was_left: bool
):
    """What a later history holds besides counts below what differs alone: behind that it is another record."""
    beside = failed(200, 299, number=3, broken_rules=("Q301",), was_left=was_left)
    metadata: Any = Histories(followed, differs, whole)
    source = replica(*THREE)
    found = replacements_of(source, ScanReport("cluster", (source,), ()), [beside], metadata, 1).held_back
    assert (None if found is None else found.hole) == (hole if hole or was_left else None)
    assert (found is None) is (hole is None and was_left)


def test_a_segment_copied_whole_answers_from_the_log_start_on_that_its_source_had():
    beside = failed(200, 299, number=3, broken_rules=("Q301",))
    metadata: Any = Histories(160, 160, (100, 349), log_start=155)
    source = replica(*THREE)
    found = replacements_of(source, ScanReport("cluster", (source,), ()), [beside], metadata, 1).held_back
    assert found is not None
    assert found.hole == (150, 154)


class Noted(Partial):
    """Stands for `FailedCopies`."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def note_losses(self, partition: Any, losses: Mapping[Any, str]) -> None:
        self.calls.append((partition, dict(losses)))


def remembered(source: Replica, *copies: FailedCopy, chosen: bool = True) -> list[Any]:
    held = decide(source, *copies).held_back
    plan = CopyPlan("run", (), (held,) if isinstance(held, HeldBackPartition) else (), ())
    noted = Noted()
    record_losses(ScanReport("cluster", (replace(source, chosen=chosen),), ()), plan, {PARTITION: copies}, noted)
    return noted.calls


def test_what_is_lost_is_remembered_once_and_forgotten_when_it_is_not():
    gone, why = replica((200, 299), log_start=200), "the source's log starts at 200"
    assert remembered(gone, failed()) == [(PARTITION, {failed().segment_id: why})]
    assert remembered(gone, failed(lost_because=why)) == []
    assert remembered(replica(*THREE), failed(lost_because=why)) == [(PARTITION, {})]
    assert remembered(replica(*THREE), failed()) == []


def test_what_failed_again_is_not_lost_and_what_was_given_up_needs_no_note():
    assert remembered(replica(*THREE), failed(superseded=1)) == []
    assert remembered(replica((200, 299), log_start=200), failed(given_up=True)) == []


def test_of_a_partition_that_was_not_seen_what_was_known_stays():
    assert remembered(replica(*THREE), failed(lost_because="why"), chosen=False) == []
