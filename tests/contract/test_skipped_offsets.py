"""What every implementation of `RemoteLogMetadata` records of offsets that an archive goes on without."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine, select

from include.tiering.database.schema import events
from include.tiering.errors import StateConflictError
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.ownership import Fence, TopicOwner
from include.tiering.model.segments import TopicIdPartition
from include.tiering.segments.contract import RemoteLogMetadata
from tests.doubles.databases import SHARED
from tests.doubles.segments import FINISHED as SEGMENT_FINISHED
from tests.doubles.segments import STARTED, delete, finish, own, partition_of, segment_of, update_of

WHY, ME = "retention was quicker", "me@host"
HOLE = OffsetRange(100, 199)


@pytest.fixture
def partition(engine: Engine) -> TopicIdPartition:
    """Of a topic that the platform owns."""
    partition = partition_of("orders", 3)
    own(engine, partition)
    return partition


@pytest.fixture
def copied(metadata: RemoteLogMetadata, partition: TopicIdPartition, fence: Fence) -> TopicIdPartition:
    """Up to offset 99."""
    finish(metadata, segment_of(partition, 1, 0, 99), fence)
    return partition


def skip(metadata: RemoteLogMetadata, partition: TopicIdPartition, first: int, last: int) -> SkippedOffsets:
    return metadata.skip_offsets(partition, OffsetRange(first, last), reason=WHY, author=ME)


def recorded(engine: Engine) -> list[tuple[str, str, str]]:
    with engine.connect() as connection:
        query = select(events.c.subject, events.c.detail, events.c.author).where(events.c.kind == "skipped-offsets")
        return [tuple(row) for row in connection.execute(query.order_by(events.c.event_id))]


def test_without_a_decision_nothing_is_skipped(metadata, copied):
    assert list(metadata.skipped_offsets(copied)) == []


def test_a_decision_is_kept_with_its_author_its_time_and_an_event(metadata, engine, now, copied):
    decision = skip(metadata, copied, 100, 199)
    assert decision == SkippedOffsets(HOLE, WHY, ME, now.now_ms)
    assert list(metadata.skipped_offsets(copied)) == [decision]
    assert recorded(engine) == [(f"orders-3 ({copied.topic_id})", f"100..199: {WHY}", ME)]
    assert metadata.highest_copied_offset(copied) == 99


def test_what_lies_before_a_first_copy_is_skipped_only_where_it_is_asked_for(metadata, engine, partition, fence):
    with pytest.raises(StateConflictError, match="nothing of it was ever copied"):
        skip(metadata, partition, 20, 39)
    first = metadata.skip_offsets(partition, OffsetRange(20, 39), reason=WHY, author=ME, may_be_first=True)
    again = metadata.skip_offsets(partition, OffsetRange(20, 39), reason=WHY, author=ME, may_be_first=True)
    assert list(metadata.skipped_offsets(partition)) == [first] == [again]
    assert metadata.highest_copied_offset(partition) is None
    finish(metadata, segment_of(partition, 1, 40, 99), fence)
    with pytest.raises(StateConflictError, match="not the next ones"):
        metadata.skip_offsets(partition, OffsetRange(120, 139), reason=WHY, author=ME, may_be_first=True)


def test_before_a_first_copy_the_topic_may_have_no_owner_but_no_other_one(metadata, engine):
    """Of a topic that only ever had compacted segments no plan records an owner."""
    partition = partition_of("compacted", 0)
    with pytest.raises(StateConflictError, match="its owner is none"):
        skip(metadata, partition, 0, 39)
    decision = metadata.skip_offsets(partition, OffsetRange(0, 39), reason=WHY, author=ME, may_be_first=True)
    assert list(metadata.skipped_offsets(partition)) == [decision]
    own(engine, partition, TopicOwner.BROKER)
    with pytest.raises(StateConflictError, match="its owner is broker"):
        metadata.skip_offsets(partition, OffsetRange(40, 79), reason=WHY, author=ME, may_be_first=True)


def test_a_repeated_call_finds_the_decision_even_after_the_copy_went_on(metadata, engine, now, copied, fence):
    first = skip(metadata, copied, 100, 199)
    now.advance(5)
    assert skip(metadata, copied, 100, 199) == first
    finish(metadata, segment_of(copied, 2, 200, 299), fence)
    assert skip(metadata, copied, 100, 199) == first
    assert len(recorded(engine)) == 1


@pytest.mark.parametrize("offsets", [(101, 199), (99, 199), (200, 299)])
def test_only_the_next_offsets_may_be_skipped(metadata, engine, copied, offsets):
    with pytest.raises(StateConflictError, match="not the next ones: offsets up to 99 are copied"):
        skip(metadata, copied, *offsets)
    assert list(metadata.skipped_offsets(copied)) == recorded(engine) == []


@pytest.fixture
def holed(metadata: RemoteLogMetadata, copied: TopicIdPartition, fence: Fence) -> TopicIdPartition:
    """0..99 and 200..299 are copied: a row between them is gone."""
    between = segment_of(copied, 2, 100, 199)
    for segment in (between, segment_of(copied, 3, 200, 299)):
        finish(metadata, segment, fence)
    delete(metadata, between, fence)
    return copied


def test_a_hole_between_copied_segments_is_skipped_too(metadata, engine, holed):
    decision = skip(metadata, holed, 100, 199)
    assert skip(metadata, holed, 100, 199) == decision
    assert list(metadata.skipped_offsets(holed)) == [decision]
    assert len(recorded(engine)) == 1
    assert metadata.highest_copied_offset(holed) == 299


@pytest.mark.parametrize("offsets", [(0, 50), (99, 199), (100, 200), (0, 299), (250, 260)])
def test_what_is_copied_is_no_hole(metadata, holed, offsets):
    with pytest.raises(StateConflictError, match=r"are not missing: .* are copied"):
        skip(metadata, holed, *offsets)


def test_decisions_about_a_hole_between_do_not_overlap(metadata, holed):
    skip(metadata, holed, 120, 130)
    for offsets in ((100, 199), (120, 125), (125, 140), (110, 120)):
        with pytest.raises(StateConflictError, match="are skipped already"):
            skip(metadata, holed, *offsets)
    assert skip(metadata, holed, 131, 199).offsets == (131, 199)


def test_a_copy_that_went_on_meanwhile_is_noticed(metadata, copied, fence):
    finish(metadata, segment_of(copied, 2, 100, 149), fence)
    with pytest.raises(StateConflictError, match="offsets up to 149 are copied"):
        skip(metadata, copied, 100, 199)


def test_a_hole_may_grow_by_further_decisions(metadata, copied):
    decisions = [skip(metadata, copied, 100, 199), skip(metadata, copied, 200, 249)]
    assert list(metadata.skipped_offsets(copied)) == decisions
    with pytest.raises(StateConflictError, match=r"100\.\.199, 200\.\.249 are skipped"):
        skip(metadata, copied, 200, 299)


def test_the_next_hole_begins_behind_what_was_copied_inside_the_last_one(metadata, copied, fence):
    skip(metadata, copied, 100, 199)
    finish(metadata, segment_of(copied, 2, 150, 179), fence)
    with pytest.raises(StateConflictError):
        skip(metadata, copied, 180, 249)
    assert skip(metadata, copied, 200, 249).offsets == (200, 249)


def test_copies_go_on_behind_the_hole_and_inside_it(metadata, copied, fence):
    skip(metadata, copied, 100, 199)
    finish(metadata, segment_of(copied, 2, 120, 130), fence)
    finish(metadata, segment_of(copied, 3, 200, 299), fence)
    assert metadata.highest_copied_offset(copied) == 299


def test_a_copy_that_is_under_way_keeps_its_lease_and_finishes(metadata, copied, fence):
    """The broker deleted the files that it holds open: its offsets are there in the end, decision or not."""
    segment = segment_of(copied, 2, 100, 199)
    metadata.add_segment(segment, fence=fence)
    skip(metadata, copied, 100, 199)
    metadata.update_segment(update_of(segment, SEGMENT_FINISHED), expected=STARTED, fence=fence)
    assert metadata.highest_copied_offset(copied) == 199


def test_a_partition_of_which_nothing_was_copied_has_no_hole(metadata, partition):
    with pytest.raises(StateConflictError, match="nothing of it was ever copied"):
        skip(metadata, partition, 0, 99)


@pytest.mark.parametrize("owner", [TopicOwner.NONE, TopicOwner.HANDING_OVER, TopicOwner.BROKER])
def test_another_owner_decides_for_itself(metadata, engine, copied, owner):
    own(engine, copied, owner, TopicOwner.PLATFORM)
    with pytest.raises(StateConflictError, match=f"its owner is {owner}"):
        skip(metadata, copied, 100, 199)


def test_a_topic_that_nobody_knows_has_no_owner(metadata):
    with pytest.raises(StateConflictError, match="its owner is none"):
        skip(metadata, partition_of("unknown", 0), 100, 199)


@pytest.mark.parametrize("database_kind", SHARED, indirect=True)
def test_of_several_at_once_one_decides_and_all_hear_the_same(metadata, engine, copied):
    begin = Barrier(4)

    def decide(last: int) -> SkippedOffsets | StateConflictError:
        begin.wait()
        try:
            return skip(metadata, copied, 100, last)
        except StateConflictError as error:
            return error

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(decide, (199, 199, 249, 249)))
    (decision,) = metadata.skipped_offsets(copied)
    assert [answer for answer in answers if isinstance(answer, SkippedOffsets)] == [decision, decision]
    assert len(recorded(engine)) == 1


def test_partitions_do_not_share_decisions(metadata, copied):
    skip(metadata, copied, 100, 199)
    assert list(metadata.skipped_offsets(partition_of("orders", 4))) == []


def test_no_hole_is_no_decision(metadata, copied):
    with pytest.raises(ValueError, match="are not a range"):
        skip(metadata, copied, 100, 99)
