"""What every implementation of `RemoteLogMetadata` remembers of divergences, and what a decision about one changes."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.schema import events
from include.tiering.errors import HistoryChangedError, StateConflictError
from include.tiering.model.histories import Divergence, Followed, OffsetRange, SeenBy, SeenDivergence
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import TopicIdPartition, Verdict
from include.tiering.segments.contract import RemoteLogMetadata
from tests.doubles.databases import SHARED, AdjustableNow
from tests.doubles.segments import (
    DELETE_STARTED,
    FINISHED,
    STARTED,
    delete,
    finish,
    own,
    partition_of,
    segment_of,
    update_of,
)

WHY, ME = "consumers read the new leader", "me@host"
NEW_EPOCHS = LeaderEpochs.of([(0, 0), (6, 150)])
SEEN = SeenDivergence(OffsetRange(150, 299), (0, 4), (6,), SeenBy.PLAN)


@pytest.fixture
def partition(engine: Engine) -> TopicIdPartition:
    """Of a topic that the platform owns."""
    partition = partition_of("orders", 3)
    own(engine, partition)
    return partition


@pytest.fixture
def copied(metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence) -> TopicIdPartition:
    """0..299, from 200 on under epoch 4."""
    finish(metadata, segment_of(partition, 1, 0, 99), fence)
    finish(metadata, segment_of(partition, 2, 100, 199), fence)
    finish(metadata, segment_of(partition, 3, 200, 299, {4: 200}), fence)
    return partition


def record(
    metadata: RemoteLogMetadata, partition: TopicIdPartition, seen: SeenDivergence = SEEN, history: int = 0
) -> Divergence:
    found = metadata.record_divergence(partition, seen, history=history)
    assert found is not None
    return found


def follow(
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    from_offset: int,
    number: int = 1,
    source_epochs: LeaderEpochs = NEW_EPOCHS,
) -> Divergence:
    return metadata.follow_source(partition, number, from_offset, source_epochs=source_epochs, reason=WHY, author=ME)


def said(engine: Engine) -> list[tuple[str, str]]:
    query = select(events).where(events.c.kind == "divergence").order_by(events.c.event_id)
    with engine.connect() as connection:
        return [(row.author, row.detail) for row in connection.execute(query)]


def test_nothing_diverges_at_first(metadata, copied):
    assert list(metadata.divergences(copied)) == []


def test_what_was_seen_is_kept_once_with_time_and_event(metadata, engine, copied, now: AdjustableNow):
    first = record(metadata, copied)
    assert first == Divergence(1, SEEN, now.now_ms)
    assert first.is_open
    now.advance(5_000)
    assert record(metadata, copied) == first
    assert list(metadata.divergences(copied)) == [first]
    assert said(engine) == [("plan", str(SEEN))]


def test_what_shows_later_is_added_and_the_first_sight_stays(metadata, engine, copied, now: AdjustableNow):
    first = record(metadata, copied)
    now.advance(5_000)
    deeper = SeenDivergence(OffsetRange(120, 299), (0, 4), (6, 7), SeenBy.COPY)
    wider = record(metadata, copied, deeper)
    expected = SeenDivergence(OffsetRange(120, 299), (0, 4), (6, 7), SeenBy.PLAN)
    assert wider == Divergence(1, expected, first.seen_at_ms)
    assert [author for author, _ in said(engine)] == ["plan", "copy"]
    shallower = SeenDivergence(OffsetRange(200, 250), (4,), (6,), SeenBy.COPY)
    assert record(metadata, copied, shallower) == wider


def test_that_the_store_has_the_later_history_counts_from_where_it_differs(metadata, copied):
    record(metadata, copied)
    behind = SeenDivergence(OffsetRange(160, 299), (0, 4), (6,), SeenBy.STORE)
    assert record(metadata, copied, behind).seen == SEEN
    whole = SeenDivergence(OffsetRange(150, 299), (0, 4), (6,), SeenBy.STORE)
    assert record(metadata, copied, whole).seen == whole
    assert record(metadata, copied).seen == whole
    deeper = SeenDivergence(OffsetRange(120, 299), (0, 4), (6,), SeenBy.PLAN)
    assert record(metadata, copied, deeper).seen == deeper


def test_while_it_is_open_nothing_finishes_for_the_first_time(metadata, copied, fence):
    late = segment_of(copied, 4, 300, 399, {6: 300})
    metadata.add_segment(late, fence=fence)
    record(metadata, copied)
    with pytest.raises(
        StateConflictError, match=r"150\.\.299 are remote under other .* no decision about it is recorded"
    ):
        metadata.update_segment(update_of(late, FINISHED), expected=STARTED, fence=fence)


def test_a_source_continues_what_is_remote_up_to_its_end_while_nothing_is_undecided(metadata, copied):
    assert metadata.is_continued(copied, 4, 299)
    assert not metadata.is_continued(copied, 4, 298)
    assert not metadata.is_continued(copied, 0, 299)
    assert not metadata.is_continued(partition_of("orders", 9), 4, 299)
    record(metadata, copied)
    assert not metadata.is_continued(copied, 4, 299)
    follow(metadata, copied, 300)
    assert metadata.is_continued(copied, 4, 299)


def test_a_failed_segment_may_be_replaced_all_the_same(metadata, copied, fence):
    (old,) = [row.metadata for row in metadata.list_segments(copied) if row.metadata.start_offset == 0]
    metadata.record_verdict(old.remote_log_segment_id, Verdict.FAILED)
    record(metadata, copied)
    new = segment_of(copied, 9, 0, 99)
    metadata.add_segment(new, fence=fence)
    metadata.update_segment(
        update_of(new, FINISHED), expected=STARTED, fence=fence, supersedes=old.remote_log_segment_id
    )
    assert metadata.list_segments(copied)[0].metadata.is_finished


def test_by_decision_copies_go_on_from_there_under_another_history(metadata, engine, copied, fence, now):
    record(metadata, copied)
    now.advance(60_000)
    decided = follow(metadata, copied, 150)
    assert decided.followed == Followed(150, WHY, ME, now.now_ms)
    assert not decided.is_open
    assert follow(metadata, copied, 150) == decided, "the same call again"
    assert [author for author, _ in said(engine)] == ["plan", ME]
    assert f"from offset 150 on the source is followed: {WHY}" in said(engine)[1][1]
    assert metadata.highest_copied_offset(copied) == 149
    finish(metadata, segment_of(copied, 4, 130, 219, {0: 130, 6: 150}), fence)
    assert metadata.highest_copied_offset(copied) == 219
    histories = {row.metadata.start_offset: row.history for row in metadata.list_segments(copied)}
    assert histories == {0: 0, 100: 0, 130: 1, 200: 0}
    assert all(row.metadata.is_finished for row in metadata.list_segments(copied)), "a decision deletes nothing"


def test_what_was_archived_answers_by_its_epoch_for_ever(metadata, copied, fence):
    record(metadata, copied)
    follow(metadata, copied, 150)
    finish(metadata, segment_of(copied, 4, 150, 350, {6: 150}), fence)
    old, new = metadata.segment_for_offset(copied, 4, 250), metadata.segment_for_offset(copied, 6, 250)
    assert (old.start_offset, new.start_offset) == (200, 150)
    assert metadata.highest_offset_for_epoch(copied, 4) == 299


def test_a_copy_that_began_before_the_decision_does_not_finish(metadata, copied, fence):
    before = segment_of(copied, 4, 300, 399, {4: 300})
    metadata.add_segment(before, fence=fence)
    record(metadata, copied)
    follow(metadata, copied, 150)
    with pytest.raises(StateConflictError, match="after this copy began, a person decided to follow another history"):
        metadata.update_segment(update_of(before, FINISHED), expected=STARTED, fence=fence)


def test_a_replacement_is_of_the_history_of_what_it_replaces(metadata, copied, fence):
    (old,) = [row.metadata for row in metadata.list_segments(copied) if row.metadata.start_offset == 0]
    record(metadata, copied)
    follow(metadata, copied, 150)
    metadata.record_verdict(old.remote_log_segment_id, Verdict.FAILED)
    new = segment_of(copied, 9, 0, 99)
    metadata.add_segment(new, fence=fence)
    metadata.update_segment(
        update_of(new, FINISHED), expected=STARTED, fence=fence, supersedes=old.remote_log_segment_id
    )
    assert metadata.segment(new.remote_log_segment_id).history == 0


def test_a_replacement_that_finishes_behind_a_decision_moves_neither_the_end_nor_the_history(metadata, copied, fence):
    """What it replaces was left: behind its end offsets of the source would be missing, and nobody would know."""
    (old,) = [row.metadata for row in metadata.list_segments(copied) if row.metadata.start_offset == 200]
    metadata.record_verdict(old.remote_log_segment_id, Verdict.FAILED)
    new = segment_of(copied, 9, 200, 299, dict(old.segment_leader_epochs.entries))
    metadata.add_segment(new, fence=fence)
    record(metadata, copied)
    follow(metadata, copied, 150)
    known = metadata.retention_state(copied)
    metadata.update_segment(
        update_of(new, FINISHED), expected=STARTED, fence=fence, supersedes=old.remote_log_segment_id
    )
    assert metadata.highest_copied_offset(copied) == 149
    assert metadata.retention_state(copied) == known
    assert metadata.segment_for_offset(copied, 4, 250).remote_log_segment_id == new.remote_log_segment_id


def test_all_of_the_source_may_be_followed(metadata, copied, fence):
    record(metadata, copied, SeenDivergence(OffsetRange(0, 299), (0, 4), (6,), SeenBy.PLAN))
    follow(metadata, copied, 0)
    assert metadata.highest_copied_offset(copied) == -1
    finish(metadata, segment_of(copied, 4, 0, 50, {6: 0}), fence)
    assert metadata.highest_copied_offset(copied) == 50


def test_what_the_source_lost_behind_the_archive_is_skipped_with_the_decision(metadata, copied):
    record(metadata, copied)
    follow(metadata, copied, 400)
    (skipped,) = metadata.skipped_offsets(copied)
    assert (skipped.offsets, skipped.reason, skipped.author) == ((300, 399), WHY, ME)
    assert metadata.highest_copied_offset(copied) == 299


def test_right_behind_the_archive_nothing_is_skipped(metadata, copied):
    record(metadata, copied)
    follow(metadata, copied, 300)
    assert (list(metadata.skipped_offsets(copied)), metadata.highest_copied_offset(copied)) == ([], 299)


def test_another_decision_about_the_same_is_refused(metadata, copied):
    record(metadata, copied)
    follow(metadata, copied, 150)
    for number, offset in ((1, 200), (2, 150), (0, 150)):
        with pytest.raises(StateConflictError, match="there is no divergence"):
            follow(metadata, copied, offset, number)


def test_what_was_seen_before_a_decision_is_not_recorded_after_it(metadata, copied):
    record(metadata, copied)
    follow(metadata, copied, 150)
    assert metadata.record_divergence(copied, SEEN, history=0) is None
    assert len(metadata.divergences(copied)) == 1


def test_after_a_decision_a_history_may_diverge_again(metadata, copied, fence):
    record(metadata, copied)
    follow(metadata, copied, 150)
    finish(metadata, segment_of(copied, 4, 150, 250, {6: 150}), fence)
    again = SeenDivergence(OffsetRange(180, 250), (6,), (8,), SeenBy.COPY)
    assert record(metadata, copied, again, history=1).number == 2
    follow(metadata, copied, 180, 2)
    finish(metadata, segment_of(copied, 5, 180, 190, {8: 180}), fence)
    assert {row.history for row in metadata.list_segments(copied)} == {0, 1, 2}
    assert metadata.highest_copied_offset(copied) == 190


def test_the_part_of_a_left_segment_that_answers_still_may_diverge_again(metadata, copied):
    """The decision replaced the history of the second half of 100..199; then a source lacks the first half, too."""
    record(metadata, copied)
    follow(metadata, copied, 150)
    again = record(metadata, copied, SeenDivergence(OffsetRange(120, 149), (0,), (7,), SeenBy.PLAN), history=1)
    assert (again.number, again.is_open, again.copied_from) == (2, True, None)
    decided = follow(metadata, copied, 120, number=2)
    assert not decided.is_open
    assert metadata.highest_copied_offset(copied) == 119


def test_what_two_decisions_left_diverges_from_nothing(metadata, copied):
    """Of 0..99 nothing answers above 49, whatever the newest decision says."""
    record(metadata, copied, SeenDivergence(OffsetRange(50, 299), (0, 4), (6,), SeenBy.PLAN))
    follow(metadata, copied, 50)
    record(metadata, copied, SeenDivergence(OffsetRange(40, 49), (0,), (7,), SeenBy.PLAN), history=1)
    follow(metadata, copied, 300, number=2)
    late = SeenDivergence(OffsetRange(60, 90), (6,), (8,), SeenBy.PLAN)
    assert metadata.record_divergence(copied, late, history=2) is None
    assert [one.is_open for one in metadata.divergences(copied)] == [False] * 3


def test_what_was_copied_before_anybody_noticed_begins_the_new_history(metadata, copied, fence):
    """The log start had passed: nobody could see that it is another history, until a verification did."""
    finish(metadata, segment_of(copied, 4, 270, 399, {6: 270}), fence)
    finish(metadata, segment_of(copied, 5, 400, 499, {6: 400}), fence)
    found = record(metadata, copied, SeenDivergence(OffsetRange(270, 299), (4,), (6,), SeenBy.VERIFICATION))
    assert (found.is_open, found.copied_from) == (True, 270)
    with pytest.raises(StateConflictError, match="is copied from offset 270 on, not 150"):
        follow(metadata, copied, 150)
    follow(metadata, copied, 270)
    histories = {row.metadata.start_offset: row.history for row in metadata.list_segments(copied)}
    assert histories == {0: 0, 100: 0, 200: 0, 270: 1, 400: 1}
    assert metadata.highest_copied_offset(copied) == 499
    finish(metadata, segment_of(copied, 6, 500, 599, {6: 500}), fence)


def test_what_is_not_remote_any_more_diverges_from_nothing(metadata, copied, fence):
    found = record(metadata, copied)
    rows = metadata.list_segments(copied)
    delete(metadata, rows[1].metadata, fence)
    assert metadata.divergences(copied)[0].is_open
    metadata.update_segment(update_of(rows[2].metadata, DELETE_STARTED), expected=FINISHED, fence=fence)
    (now_found,) = metadata.divergences(copied)
    assert (now_found.seen, now_found.is_open, now_found.followed) == (found.seen, False, None)
    finish(metadata, segment_of(copied, 4, 300, 399, {6: 300}), fence)
    with pytest.raises(StateConflictError, match="there is no divergence 1 to decide about"):
        follow(metadata, copied, 150)
    later = SeenDivergence(OffsetRange(350, 399), (6,), (7,), SeenBy.PLAN)
    assert record(metadata, copied, later).number == 2


def test_what_lies_below_our_log_start_diverges_from_nothing(metadata, copied):
    record(metadata, copied)
    metadata.raise_log_start(copied, 299, reason="asked for", author="me")
    assert metadata.divergences(copied)[0].is_open
    metadata.raise_log_start(copied, 300, reason="asked for", author="me")
    assert not metadata.divergences(copied)[0].is_open


def test_what_was_decided_by_a_history_that_was_left_raises_no_log_start(metadata, copied, fence):
    """An expired segment of the left history lies where the followed one has, or will have, records of its own."""
    record(metadata, copied)
    assert metadata.raise_log_start(copied, 100, reason="expired", author="run", fence=fence, history=0) == 100
    follow(metadata, copied, 150)
    for offset in (200, 100):
        with pytest.raises(HistoryChangedError, match="a person decided to follow another history") as caught:
            metadata.raise_log_start(copied, offset, reason="expired", author="run", fence=fence, history=0)
        assert caught.value.retriable
    assert metadata.retention_state(copied).log_start_offset == 100
    assert metadata.raise_log_start(copied, 150, reason="expired", author="run", fence=fence, history=1) == 150
    assert metadata.raise_log_start(copied, 160, reason="asked for", author="me") == 160


@pytest.mark.parametrize("owner", [TopicOwner.NONE, TopicOwner.HANDING_OVER, TopicOwner.BROKER])
def test_another_owner_has_its_own_histories(metadata, engine, copied, owner):
    record(metadata, copied)
    own(engine, copied, owner, TopicOwner.PLATFORM)
    with pytest.raises(StateConflictError, match=f"its owner is {owner}"):
        follow(metadata, copied, 150)
    wider = SeenDivergence(OffsetRange(0, 299), (0,), (6,), SeenBy.PLAN)
    recorded = metadata.record_divergence(copied, wider, history=0)
    # Nobody owns a topic of a rebuilt archive before the next copy run: what a verification sees is kept.
    assert (recorded is None) is (owner is not TopicOwner.NONE)


def test_partitions_do_not_share_divergences(metadata, copied):
    record(metadata, copied)
    assert list(metadata.divergences(partition_of("orders", 4))) == []


@pytest.mark.parametrize("database_kind", SHARED, indirect=True)
def test_of_several_at_once_one_decides_and_all_hear_the_same(metadata, engine, copied):
    record(metadata, copied)
    begin = Barrier(4)

    def decide(offset: int) -> Divergence | StateConflictError:
        begin.wait()
        try:
            return follow(metadata, copied, offset)
        except StateConflictError as error:
            return error

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(decide, (150, 150, 120, 120)))
    (decided,) = metadata.divergences(copied)
    assert [answer for answer in answers if isinstance(answer, Divergence)] == [decided, decided]
    assert len(said(engine)) == 2


@pytest.mark.parametrize("database_kind", SHARED, indirect=True)
def test_a_copy_and_whoever_sees_a_divergence_do_not_miss_each_other(metadata, copied, fence):
    """Either the copy finished before, or it is refused: none slips in behind."""
    segment = segment_of(copied, 4, 300, 399, {6: 300})
    metadata.add_segment(segment, fence=fence)
    begin = Barrier(2)

    def copy() -> bool:
        begin.wait()
        try:
            metadata.update_segment(update_of(segment, FINISHED), expected=STARTED, fence=fence)
        except StateConflictError:
            return False
        return True

    def see() -> Divergence:
        begin.wait()
        return record(metadata, copied)

    with ThreadPoolExecutor(2) as threads:
        finished, found = threads.submit(copy), threads.submit(see)
        assert found.result().copied_from == (300 if finished.result() else None)


def epochs_of(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> dict[int, int]:
    return dict(metadata.retention_state(partition).leader_epochs)


def test_a_decision_makes_the_sources_leader_epochs_those_of_the_partition(metadata, copied, fence):
    newer, older = NEW_EPOCHS, LeaderEpochs.of([(0, 0), (4, 200), (10, 250)])
    record(metadata, copied)
    metadata.merge_leader_epochs(copied, newer, 0)
    follow(metadata, copied, 150)
    finish(metadata, segment_of(copied, 4, 100, 299, {0: 100, 6: 150}), fence)
    metadata.merge_leader_epochs(copied, older, 0)
    assert epochs_of(metadata, copied) == {0: 0, 6: 150, 10: 250}
    record(metadata, copied, SeenDivergence(OffsetRange(150, 299), (6,), (0, 4, 10), SeenBy.PLAN), history=1)
    follow(metadata, copied, 150, number=2, source_epochs=older)
    assert epochs_of(metadata, copied) == dict(older)
    assert metadata.merge_leader_epochs(copied, newer, 0) == ()
    assert epochs_of(metadata, copied) == dict(older), "an old leader's directory was read once more"


def test_what_was_left_and_ends_at_the_same_offset_continues_nothing(metadata, copied, fence):
    """The first history's epoch 4 reaches 299, and so does what has replaced it."""
    record(metadata, copied)
    follow(metadata, copied, 150)
    finish(metadata, segment_of(copied, 4, 100, 299, {0: 100, 6: 150}), fence)
    assert metadata.is_continued(copied, 6, 299)
    assert not metadata.is_continued(copied, 4, 299)
