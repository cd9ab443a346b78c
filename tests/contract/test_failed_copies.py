"""What every implementation knows of failed segments, and records about them."""

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.schema import events
from include.tiering.errors import StateConflictError, UnknownSegmentError
from include.tiering.model.histories import OffsetRange, SeenBy, SeenDivergence, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Verdict
from include.tiering.segments.contract import QualityResult, RemoteLogMetadata, Verification
from include.tiering.segments.failed_copies import MEMORY_MS, FailedCopies, by_partition
from include.tiering.segments.sql_failed_copies import SqlFailedCopies
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.databases import AdjustableNow
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    fence_of,
    finish,
    own,
    partition_of,
    segment_of,
    update_of,
)

WHY, ME = "no copy of it anywhere", "me@host"


@pytest.fixture
def copies(engine: Engine, now: AdjustableNow) -> FailedCopies:
    return SqlFailedCopies(engine, CLUSTER_ID, now_ms=now)


@pytest.fixture
def partition(engine: Engine) -> TopicIdPartition:
    """Of a topic that the platform owns."""
    partition = partition_of("orders", 3)
    own(engine, partition)
    return partition


@pytest.fixture
def segments(
    metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence
) -> tuple[RemoteLogSegmentMetadata, ...]:
    """0..99, 100..199, 200..299; the first two failed."""
    segments = tuple(segment_of(partition, number, 100 * number, 100 * number + 99) for number in range(3))
    for segment in segments:
        finish(metadata, segment, fence)
    for segment in segments[:2]:
        metadata.record_verdict(segment.remote_log_segment_id, Verdict.FAILED, detail="Q102: other bytes")
    return segments


def happened(engine: Engine, kind: str) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        query = select(events.c.detail, events.c.author).where(events.c.kind == kind).order_by(events.c.event_id)
        return [tuple(row) for row in connection.execute(query)]


def test_what_failed_and_is_finished_by_offset(copies, metadata, fence, segments):
    found = copies.all()
    assert [(one.offsets, one.verdict_detail, one.superseded, one.given_up) for one in found] == [
        ((0, 99), "Q102: other bytes", 0, False),
        ((100, 199), "Q102: other bytes", 0, False),
    ]
    assert [one.segment_id for one in found] == [one.remote_log_segment_id for one in segments[:2]]
    assert {one: len(of) for one, of in by_partition(found).items()} == {fence.topic_id_partition: 2}
    metadata.record_verdict(segments[0].remote_log_segment_id, Verdict.PASSED)
    metadata.update_segment(update_of(segments[1], DELETE_STARTED), expected=FINISHED, fence=fence)
    assert list(copies.all()) == []


def test_earlier_failures_of_the_same_offsets_are_counted_for_a_week_tombstones_too(
    copies, metadata, now, fence, segments
):
    old = segments[0]
    for number in (10, 11):
        again = segment_of(fence.topic_id_partition, number, 0, 99)
        metadata.add_segment(again, fence=fence)
        old_id = old.remote_log_segment_id
        metadata.update_segment(update_of(again, FINISHED), expected=STARTED, fence=fence, supersedes=old_id)
        metadata.update_segment(update_of(old, DELETE_FINISHED), expected=DELETE_STARTED, fence=fence)
        metadata.record_verdict(again.remote_log_segment_id, Verdict.FAILED)
        old = again
        now.advance(1_000)
    assert [(one.segment_id, one.superseded) for one in copies.all()] == [
        (old.remote_log_segment_id, 2),
        (segments[1].remote_log_segment_id, 0),
    ]
    now.advance(MEMORY_MS - 2_000)
    assert copies.all()[0].superseded == 1
    now.advance(1_000)
    assert copies.all()[0].superseded == 0


def test_the_critical_rules_that_a_segment_breaks_now(copies, metadata, segments):
    first, second, third = (one.remote_log_segment_id for one in segments)
    for segment_id, level, *rules in (
        (first, "critical", "Q103"),
        (first, "warning", "Q302"),
        (first, "critical", "Q301", "Q102"),
        (third, "critical", "Q102"),
    ):
        broken = tuple(QualityResult(segment_id, rule, level, passed=False) for rule in rules)
        unevaluated = frozenset({"Q302"})
        metadata.record_verification(Verification(segment_id, broken, unevaluated, before=metadata.segment(segment_id)))
    metadata.record_verdict(third, Verdict.PASSED)
    assert [(one.segment_id, one.broken_rules) for one in copies.all()] == [(first, ("Q102", "Q301")), (second, ())]
    assert {key: [each.rule for each in found] for key, found in copies.broken([first, second]).items()} == {
        first: ["Q102", "Q301", "Q302"]
    }
    assert copies.broken([]) == {}


@pytest.mark.parametrize(
    ("from_offset", "left"), [(100, [False, True]), (150, [False, True]), (199, [False, True]), (200, [False, False])]
)
def test_what_a_decision_left_is_said_to_be_and_stops_nothing(copies, metadata, fence, segments, from_offset, left):
    partition = fence.topic_id_partition
    metadata.record_verdict(segments[0].remote_log_segment_id, Verdict.PASSED)
    assert metadata.stopped_reason(partition) is not None
    seen = SeenDivergence(OffsetRange(from_offset, 299), (0,), (6,), SeenBy.PLAN)
    metadata.record_divergence(partition, seen, history=0)
    assert [one.was_left for one in copies.all()] == [False], "nobody decided yet"
    metadata.follow_source(partition, 1, from_offset, source_epochs=LeaderEpochs(), reason=WHY, author=ME)
    assert (metadata.stopped_reason(partition) is None) is left[1]
    metadata.record_verdict(segments[0].remote_log_segment_id, Verdict.FAILED, detail="Q102: other bytes")
    assert [one.was_left for one in copies.all()] == left
    assert "(0..99)" in metadata.stopped_reason(partition)


def test_about_what_a_decision_left_nothing_is_decided(copies, metadata, engine, fence, segments):
    partition, second = fence.topic_id_partition, segments[1].remote_log_segment_id
    copies.note_losses(partition, {second: "gone"})
    metadata.record_divergence(partition, SeenDivergence(OffsetRange(150, 299), (0,), (6,), SeenBy.PLAN), history=0)
    metadata.follow_source(partition, 1, 150, source_epochs=LeaderEpochs(), reason=WHY, author=ME)
    with pytest.raises(StateConflictError, match="is of a history that a decision replaced: it stops no partition"):
        copies.give_up(second, reason=WHY, author=ME)
    assert list(metadata.skipped_offsets(partition)) == []
    again = segment_of(partition, 30, 100, 219, {0: 100, 6: 150})
    metadata.record_verdict(segments[0].remote_log_segment_id, Verdict.PASSED)
    finish(metadata, again, fence)
    metadata.record_verdict(again.remote_log_segment_id, Verdict.FAILED)
    assert [(one.segment_id, one.was_left) for one in copies.all()] == [
        (second, True),
        (again.remote_log_segment_id, False),
    ]
    assert "(100..219)" in metadata.stopped_reason(partition)


def test_how_many_of_each_partition_break_a_rule(copies, metadata, engine, fence, segments):
    partition = fence.topic_id_partition
    elsewhere = segment_of(partition_of("payments", 0), 7, 0, 99)
    finish(metadata, elsewhere, fence_of(engine, elsewhere.topic_id_partition))
    for segment, *rules in ((segments[0], "Q101", "Q106"), (segments[1], "Q102"), (elsewhere, "Q106")):
        segment_id = segment.remote_log_segment_id
        broken = tuple(QualityResult(segment_id, rule, "critical", passed=False) for rule in rules)
        metadata.record_verification(Verification(segment_id, broken, before=metadata.segment(segment_id)))
    assert copies.failed_by("Q106") == {partition: 1, elsewhere.topic_id_partition: 1}
    assert copies.failed_by("Q103") == {}
    first = segments[0].remote_log_segment_id
    metadata.record_verification(
        Verification(elsewhere.remote_log_segment_id, before=metadata.segment(elsewhere.remote_log_segment_id))
    )
    assert copies.failed_by("Q106") == {partition: 1}
    copies.give_up(first, reason=WHY, author=ME)
    assert copies.failed_by("Q106") == {}


def test_what_is_superseded_breaks_nothing_any_more(copies, metadata, fence, segments):
    first = segments[0].remote_log_segment_id
    broken = (QualityResult(first, "Q106", "critical", passed=False),)
    metadata.record_verification(Verification(first, broken, before=metadata.segment(first)))
    assert copies.failed_by("Q106") == {fence.topic_id_partition: 1}
    again = segment_of(fence.topic_id_partition, 10, 0, 99)
    metadata.add_segment(again, fence=fence)
    metadata.update_segment(update_of(again, FINISHED), expected=STARTED, fence=fence, supersedes=first)
    assert copies.failed_by("Q106") == {}


class TestLosses:
    def test_are_remembered_and_told_by_the_stop_until_nothing_says_so(
        self, copies, metadata, engine, partition, segments
    ):
        first, second = (one.remote_log_segment_id for one in segments[:2])
        copies.note_losses(partition, {first: "its log starts at 500"})
        copies.note_losses(partition, {first: "its log starts at 500"})
        copies.note_losses(partition, {first: "its log starts at 600"})
        assert [one.lost_because for one in copies.all()] == ["its log starts at 600", None]
        assert metadata.stopped_reason(partition).endswith("; lost: its log starts at 600")
        assert happened(engine, "lost-offsets") == [("0..99: its log starts at 500", "copy plan")]
        copies.note_losses(partition, {second: "other boundaries"})
        assert [one.lost_because for one in copies.all()] == [None, "other boundaries"]
        assert "lost" not in metadata.stopped_reason(partition)

    def test_are_no_matter_of_segments_that_did_not_fail(self, copies, metadata, partition, segments):
        copies.note_losses(partition, {segments[2].remote_log_segment_id: "no"})
        copies.note_losses(partition_of("unknown"), {})
        assert [one.lost_because for one in copies.all()] == [None, None]

    def test_end_with_a_verdict_that_says_passed(self, copies, metadata, partition, segments):
        first = segments[0].remote_log_segment_id
        copies.note_losses(partition, {first: "gone"})
        metadata.record_verdict(first, Verdict.PASSED)
        metadata.record_verdict(first, Verdict.FAILED)
        assert copies.all()[0].lost_because is None


class TestGivingUp:
    def test_lets_the_partition_go_on_and_keeps_the_segment(
        self, copies, metadata, engine, now, partition, fence, segments
    ):
        (decision,) = copies.give_up(segments[0].remote_log_segment_id, reason=WHY, author=ME)
        assert decision == SkippedOffsets(OffsetRange(0, 99), WHY, ME, now.now_ms)
        assert str(segments[1].remote_log_segment_id.id) in metadata.stopped_reason(partition)
        copies.give_up(segments[1].remote_log_segment_id, reason=WHY, author=ME)
        assert metadata.stopped_reason(partition) is None
        assert [one.given_up for one in copies.all()] == [True, True]
        assert [one.offsets for one in metadata.skipped_offsets(partition)] == [(0, 99), (100, 199)]
        finish(metadata, segment_of(partition, 7, 300, 399), fence)
        assert [row.metadata.is_finished for row in metadata.list_segments(partition)] == [True] * 4
        ids = [one.remote_log_segment_id.id for one in segments[:2]]
        assert happened(engine, "given-up-segment") == [
            (f"0..99: {ids[0]}: {WHY}", ME),
            (f"100..199: {ids[1]}: {WHY}", ME),
        ]

    def test_is_decided_once(self, copies, metadata, engine, now, partition, segments):
        first = segments[0].remote_log_segment_id
        copies.give_up(first, reason=WHY, author=ME)
        now.advance(5)
        assert list(copies.give_up(first, reason="other", author="other")) == []
        assert [one.author for one in metadata.skipped_offsets(partition)] == [ME]
        assert len(happened(engine, "given-up-segment")) == 1

    def test_records_only_what_no_decision_covers(self, copies, metadata, partition, fence, segments):
        longer = segment_of(partition, 8, 50, 349)
        copies.give_up(segments[1].remote_log_segment_id, reason=WHY, author=ME)
        metadata.record_verdict(segments[0].remote_log_segment_id, Verdict.PASSED)
        finish(metadata, longer, fence)
        for segment in (longer, segments[0]):
            metadata.record_verdict(segment.remote_log_segment_id, Verdict.FAILED)
            copies.give_up(segment.remote_log_segment_id, reason=WHY, author=ME)
        assert [one.offsets for one in metadata.skipped_offsets(partition)] == [
            (0, 49),
            (50, 99),
            (100, 199),
            (200, 349),
        ]
        assert metadata.stopped_reason(partition) is None

    def test_holds_for_this_segment_and_only_until_it_passes(self, copies, metadata, partition, fence, segments):
        first = segments[0].remote_log_segment_id
        for one in segments[:2]:
            copies.give_up(one.remote_log_segment_id, reason=WHY, author=ME)
        again = segment_of(partition, 9, 0, 99)
        metadata.add_segment(again, fence=fence)
        metadata.update_segment(update_of(again, FINISHED), expected=STARTED, fence=fence, supersedes=first)
        metadata.record_verdict(again.remote_log_segment_id, Verdict.FAILED)
        assert str(again.remote_log_segment_id.id) in metadata.stopped_reason(partition)
        assert [one.offsets for one in copies.give_up(again.remote_log_segment_id, reason=WHY, author=ME)] == []
        assert metadata.stopped_reason(partition) is None
        second = segments[1].remote_log_segment_id
        metadata.record_verdict(second, Verdict.PASSED)
        metadata.record_verdict(second, Verdict.FAILED)
        assert str(second.id) in metadata.stopped_reason(partition)

    @pytest.mark.parametrize("verdict", [Verdict.NONE, Verdict.PASSED, Verdict.EXPIRED])
    def test_is_refused_for_what_has_not_failed(self, copies, metadata, partition, segments, verdict):
        third = segments[2].remote_log_segment_id
        metadata.record_verdict(third, verdict)
        with pytest.raises(StateConflictError, match=f"COPY_SEGMENT_FINISHED and {verdict}"):
            copies.give_up(third, reason=WHY, author=ME)
        assert list(metadata.skipped_offsets(partition)) == []

    def test_is_refused_for_what_is_deleted_and_for_the_unknown(self, copies, metadata, partition, fence, segments):
        metadata.update_segment(update_of(segments[0], DELETE_STARTED), expected=FINISHED, fence=fence)
        with pytest.raises(StateConflictError, match="DELETE_SEGMENT_STARTED and failed"):
            copies.give_up(segments[0].remote_log_segment_id, reason=WHY, author=ME)
        with pytest.raises(UnknownSegmentError):
            copies.give_up(segment_of(partition, 99, 0, 9).remote_log_segment_id, reason=WHY, author=ME)

    @pytest.mark.parametrize("owner", [TopicOwner.NONE, TopicOwner.HANDING_OVER, TopicOwner.BROKER])
    def test_is_the_platforms_to_decide(self, copies, engine, partition, segments, owner):
        SqlTopicRegistry(engine, CLUSTER_ID).set_owner(
            partition.topic_id, partition.topic, owner, expected=TopicOwner.PLATFORM, author="test"
        )
        with pytest.raises(StateConflictError, match=f"its owner is {owner}"):
            copies.give_up(segments[0].remote_log_segment_id, reason=WHY, author=ME)
