"""A plan that reads a part of a log decides what it would decide about all of it, over random logs.

The oracle is the same decision over every row, which is compared with a slow one in `test_retention_decisions`.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from sqlalchemy import Engine, insert

from include.tiering.configs.config_store import TopicRetention
from include.tiering.database.schema import divergences, partitions, segment_epochs, segments, topics
from include.tiering.expiration import plan as planning
from include.tiering.expiration.plan import ExpirationPlan, ExpirationPlanner
from include.tiering.expiration.rules import decide_deletions, is_one_lineage
from include.tiering.model.histories import Lineage
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.model.retention import RestOfLog, RetentionInput
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition, Uuid, Verdict
from include.tiering.runs.store import SqlWorkStore
from include.tiering.segments.selected_segments import EpochExtent, OldestSegments
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.segments.sql_rows import count_in, encode_leader_epochs, epoch_values_of, values_of
from include.tiering.segments.sql_selected import SqlSelectedSegments
from include.tiering.segments.sql_topics import SqlTopicRegistry
from tests.doubles.databases import empty
from tests.doubles.epoch_worlds import MOST_OFFSET
from tests.doubles.segments import CLUSTER_ID
from tests.doubles.slow_expiration import PARTITION
from tests.property.test_retention_decisions import NOW_MS, inputs


def extents_of(found: Collection[RemoteLogSegmentMetadata]) -> list[EpochExtent]:
    """The exact extents of the FINISHED segments."""
    parts = [
        (epoch, start, segment.end_offset_of_epoch(epoch) or 0)
        for segment in found
        for epoch, start in segment.segment_leader_epochs
    ]
    epochs = sorted({epoch for epoch, start, end in parts if end >= start})
    return [
        EpochExtent(
            epoch,
            min(start for each, start, _ in parts if each == epoch),
            max(end for each, start, end in parts if each == epoch and end >= start),
        )
        for epoch in epochs
    ]


@st.composite
def long_logs(draw: st.DrawFn) -> RetentionInput:
    """Inputs of which usually only the beginning expires."""
    given_ = draw(inputs())
    return replace(
        given_,
        log_start_offset=draw(st.sampled_from([0, 0, given_.log_start_offset])),
        log_end_offset=None,
        local_only_bytes=draw(st.none() | st.integers(0, 5)),
        retention_ms=draw(st.none() | st.integers(NOW_MS - MOST_OFFSET, NOW_MS)),
        retention_bytes=draw(st.none() | st.integers(5, 50)),
    )


@st.composite
def long_logs_with_published(draw: st.DrawFn) -> RetentionInput:
    whole = draw(long_logs())
    ids = [segment.remote_log_segment_id for segment in whole.segments if segment.is_finished]
    return replace(whole, published=frozenset(draw(st.lists(st.sampled_from(ids), max_size=2))))


def part_of(whole: RetentionInput, after_offset: int) -> RetentionInput | None:
    """The same with a part of the segments and the sums of the others; None if all have to be read."""
    finished = [segment for segment in whole.segments if segment.is_finished]
    rest = [each for each in finished if each.start_offset > after_offset]
    if not rest or not whole.lineage.entries:
        return None
    size_bytes = 0
    all_bytes = sum(segment.segment_size_bytes for segment in finished) + (whole.local_only_bytes or 0)
    if whole.retention_bytes is not None and all_bytes > whole.retention_bytes:
        is_plain = not whole.left & {segment.remote_log_segment_id for segment in finished}
        if not is_plain or not is_one_lineage(whole.lineage, extents_of(finished)):
            return None
        size_bytes = sum(segment.segment_size_bytes for segment in rest)
    totals = RestOfLog(
        after_offset,
        min(epoch for segment in rest for epoch, _ in segment.segment_leader_epochs),
        size_bytes,
        sum(segment.max_timestamp_ms < 0 for segment in rest),
        max(segment.max_timestamp_ms for segment in rest),
    )
    return replace(whole, segments=tuple(each for each in whole.segments if each not in rest), rest=totals)


@given(long_logs_with_published())
def test_what_a_part_concludes_is_what_the_whole_does(whole: RetentionInput) -> None:
    expected = decide_deletions(whole)
    assert expected.is_conclusive
    concluded = 0
    for after_offset in range(-1, MOST_OFFSET + 1):
        part = part_of(whole, after_offset)
        if part is not None and (outcome := decide_deletions(part)).is_conclusive:
            concluded += 1
            assert outcome == expected
    event(f"concludes: {concluded > 0}, deletes: {bool(expected.decisions)}")


@given(inputs())
def test_segments_of_one_lineage_are_within_it_from_any_log_start_that_they_reach(given_: RetentionInput) -> None:
    finished = [segment for segment in given_.segments if segment.is_finished]
    if not is_one_lineage(given_.lineage, extents_of(finished)):
        return
    event(f"several epochs: {len(given_.lineage) > 1}")
    for log_start_offset in range(MOST_OFFSET + 15):
        lineage = Lineage.of(given_.lineage, log_start_offset=log_start_offset)
        assert all(lineage.holds(each) for each in finished if each.end_offset >= log_start_offset)


@pytest.mark.parametrize("missing", ["topic", "lineage"])
def test_a_part_is_refused_where_every_segment_matters(missing: str) -> None:
    rest = RestOfLog(0, 0, 0)
    some = RetentionInput(PARTITION, (), LeaderEpochs(), 0, NOW_MS, rest=rest)
    some = replace(some, topic_deletion_due=True) if missing == "topic" else some
    with pytest.raises(ValueError, match="every segment matters"):
        decide_deletions(some)


class ReadsEverything(SqlSelectedSegments):
    """The oracle: whatever is asked for, all segments are read."""

    def oldest_segments(self, partition: TopicIdPartition, _finished: int | None, **more: object) -> OldestSegments:
        return super().oldest_segments(partition, None, **more)  # type: ignore[arg-type]


def store(engine: Engine, given_: RetentionInput, brokers: Collection[RemoteLogSegmentMetadata], history: int) -> None:
    """Rows as if they had been recorded. From `history` on, if there is one, another history is followed."""
    empty(engine)
    key = {"cluster_id": CLUSTER_ID, "topic_id": str(PARTITION.topic_id)}
    with engine.begin() as connection:
        connection.execute(insert(topics).values(**key, name=PARTITION.topic, owner=str(TopicOwner.PLATFORM)))
        key |= {"partition": PARTITION.partition}
        connection.execute(
            insert(partitions).values(
                **key, log_start_offset=given_.log_start_offset, leader_epochs=encode_leader_epochs(given_.lineage)
            )
        )
        for segment in given_.segments:
            superseded_at_ms = given_.superseded_at_ms.get(segment.remote_log_segment_id)
            values = values_of(CLUSTER_ID, segment) | {
                "verdict": str(Verdict.NONE),
                "verdict_detail": "",
                "fencing_token": 1,
                "started_at_ms": 1,
                "delete_started_at_ms": superseded_at_ms,
                "superseded_by": None if superseded_at_ms is None else str(PARTITION.topic_id),
                "origin": str(SegmentOrigin.BROKER if segment in brokers else SegmentOrigin.PLATFORM),
                "history": int(segment.start_offset >= history),
            }
            segment_key = connection.execute(insert(segments).values(**values)).inserted_primary_key
            assert segment_key is not None
            connection.execute(insert(segment_epochs), epoch_values_of(CLUSTER_ID, segment_key[0], segment))
            count_in(connection, CLUSTER_ID, segment)
        if history <= MOST_OFFSET:
            connection.execute(
                insert(divergences).values(
                    **key,
                    number=1,
                    first_offset=history,
                    last_offset=history + 5,
                    archive_epochs="0",
                    source_epochs="1",
                    seen_by="plan",
                    seen_at_ms=1,
                    followed_from=history,
                    reason="agreed",
                    author="me",
                    decided_at_ms=1,
                )
            )


def plans(
    engine: Engine, given_: RetentionInput, held: Callable[[TopicIdPartition], Collection[Uuid]], first_read: int
) -> Iterator[ExpirationPlan]:
    """The plan of the product, that of the oracle."""
    retention = TopicRetention(given_.retention_ms, given_.retention_bytes)
    for selected in (SqlSelectedSegments, ReadsEverything):
        metadata = SqlRemoteLogMetadata(engine, CLUSTER_ID)
        metadata.selected = selected(engine, CLUSTER_ID)
        planner = ExpirationPlanner(
            metadata,
            SqlTopicRegistry(engine, CLUSTER_ID),
            SqlWorkStore(engine, CLUSTER_ID),
            {PARTITION.topic: retention},
            given_.abandoned_copy_expiry_ms,
            superseded_hold_ms=given_.superseded_hold_ms,
            held=held,
        )
        with patch.object(planning, "_FIRST_READ", first_read), patch.object(planning, "_MORE_EACH_TIME", 2):
            yield planner.plan("run", [PARTITION], None, now_ms=given_.now_ms)


@given(long_logs(), st.data())
def test_a_plan_from_counters_and_indexes_is_that_from_every_row(
    engine: Engine, given_: RetentionInput, data: st.DataObject
) -> None:
    finished = [segment for segment in given_.segments if segment.is_finished]
    brokers = data.draw(st.lists(st.sampled_from(finished), max_size=2) if data.draw(st.booleans()) else st.just([]))
    history = data.draw(st.sampled_from([99, 99]) | st.integers(0, MOST_OFFSET), "the other history begins at")
    named = data.draw(st.lists(st.sampled_from(finished), max_size=1) if data.draw(st.booleans()) else st.just([]))
    store(engine, given_, brokers, history)
    ids = [segment.remote_log_segment_id.id for segment in named]
    plan, expected = plans(engine, given_, lambda _: ids, data.draw(st.integers(1, 4)))
    event(f"expires: {bool(plan.expirations)}")
    assert plan == expected
