"""What was read of the metadata topic, in SQL: what a broker's cache says, what the counters say, once."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, select, update

from include.tiering.audit.record import ActiveGuards, AuditRecord, AuditSource, Guard
from include.tiering.audit.store import SqlAuditStore
from include.tiering.database import transactions
from include.tiering.database.schema import events, metadata_positions
from include.tiering.database.store_identity import StoreIdentities
from include.tiering.database.transactions import reading, writing
from include.tiering.errors import MetadataTopicReplacedError, StateConflictError
from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import segment_record, update_record
from include.tiering.kafka.metadata_topic.contract import OffsetBounds, metadata_partition_of
from include.tiering.metadata_sync.ingest import Ingester
from include.tiering.metadata_sync.publication_contract import Intent
from include.tiering.metadata_sync.sql_ingestion import SqlMetadataIngestion
from include.tiering.metadata_sync.sql_publication import SqlPublicationStore
from include.tiering.model.broker_cache import Reference
from include.tiering.model.ownership import SegmentOrigin, TopicOwner
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Verdict,
)
from include.tiering.model.sizes import partition_states
from include.tiering.segments import sql_metadata_topic
from include.tiering.segments.contract import QualityResult, RemoteLogMetadata, Verification
from include.tiering.segments.ingestion_contract import (
    IngestPage,
    MetadataEvent,
    MetadataTopicIdentity,
    PartitionRemoval,
    RecordOutcome,
    UnusableRecord,
)
from include.tiering.segments.sql_partition_state import not_ready_reason
from include.tiering.segments.sql_topics import SqlTopicRegistry
from include.tiering.sizes.store import SqlRemoteLogSizes
from tests.doubles.databases import AdjustableNow
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.segments import (
    CLUSTER_ID,
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    STARTED,
    fence_of,
    finish,
    partition_of,
    segment_of,
    update_of,
    uuid,
)
from tests.doubles.tiered_topic import last_states, replayed_caches, tiered_topic

TOPIC = MetadataTopicIdentity(uuid(7), 1)
TWO_PARTITIONS = MetadataTopicIdentity(uuid(7), 2)
PARTITION = partition_of("orders")
A = segment_of(PARTITION, 1, 0, 99, {0: 0, 1: 60})
B = segment_of(PARTITION, 2, 100, 199, {1: 100, 2: 150})


@pytest.fixture
def ingestion(engine: Engine, now: AdjustableNow) -> SqlMetadataIngestion:
    return SqlMetadataIngestion(engine, CLUSTER_ID, now_ms=now)


@pytest.fixture
def registry(engine: Engine) -> SqlTopicRegistry:
    return SqlTopicRegistry(engine, CLUSTER_ID)


def state_of(metadata: RemoteLogMetadata, told: RemoteLogSegmentMetadata) -> RemoteLogSegmentState:
    row = metadata.segment(told.remote_log_segment_id)
    assert row is not None
    return row.metadata.state


def feed(ingestion: SqlMetadataIngestion, *told: MetadataEvent, at_most: int = 100) -> list[str]:
    """As many records, appended to what metadata partition 0 holds, in pages; returns the findings."""
    begin = ingestion.positions()[0].next_offset if ingestion.positions() else 0
    end = begin + len(told)
    ingestion.record_bounds(TOPIC, {0: OffsetBounds(0, end)})
    findings: list[str] = []
    for first in range(0, len(told), at_most):
        page = tuple(enumerate(told[first : first + at_most], begin + first))
        findings += ingestion.apply(IngestPage(0, page[0][0], page[-1][0] + 1, page)).findings
    return findings


def told_events(engine: Engine) -> list[tuple[str, str]]:
    with engine.connect() as connection:
        rows = connection.execute(select(events.c.kind, events.c.detail).order_by(events.c.event_id))
        return [(row.kind, row.detail) for row in rows]


def counted(engine: Engine, partition: TopicIdPartition) -> object:
    return next(iter(SqlRemoteLogSizes(engine, CLUSTER_ID).partition_states(partition)), None)


def not_ready(engine: Engine) -> str | None:
    with reading(engine) as connection:
        return not_ready_reason(connection, CLUSTER_ID, PARTITION)


def test_a_real_brokers_topic_gives_what_its_cache_has(
    engine: Engine, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata, now: AdjustableNow
):
    now.now_ms = 1_900_000_000_000
    topic = tiered_topic()
    report = Ingester(topic, ingestion, page_records=7).run()
    assert (report.records, report.lag_records, report.findings) == (164, 0, ())
    caches, states = replayed_caches(topic), last_states()
    found: dict[RemoteLogSegmentId, RemoteLogSegmentState] = {}
    for partition, cache in caches.items():
        assert ingestion.broker_view(partition).cache == cache.state()
        rows = metadata.list_segments(partition)
        assert {row.metadata.remote_log_segment_id: row.metadata for row in rows} == {
            one.remote_log_segment_id: one for one in cache.list_segments()
        }
        assert all(row.origin is SegmentOrigin.BROKER and row.broker_state is row.metadata.state for row in rows)
        assert (counted(engine, partition) or partition_states(partition, ())) == partition_states(
            partition, cache.list_segments()
        )
        found |= {row.metadata.remote_log_segment_id: row.metadata.state for row in rows}
    assert found == {one: state for one, state in states.items() if state is not DELETE_FINISHED}
    for segment_id, state in states.items():
        row = metadata.segment(segment_id)
        assert row is not None
        assert row.metadata.state is state


def test_topics_that_brokers_tier_become_theirs(ingestion: SqlMetadataIngestion, registry: SqlTopicRegistry):
    topic = tiered_topic()
    report = Ingester(topic, ingestion).run()
    owners = {partition.topic: registry.owner(partition.topic_id) for partition in replayed_caches(topic)}
    assert owners == {
        "tier-a": TopicOwner.BROKER,
        "tier.tx": TopicOwner.BROKER,
        "tier_exp": TopicOwner.BROKER,
        "tier-cut": TopicOwner.BROKER,
        "tier-del": TopicOwner.NONE,
    }, "of a deleted topic nothing is left to own"
    assert len(report.changes) == 4
    assert Ingester(topic, ingestion).run().changes == ()


@pytest.mark.parametrize("page_records", [1, 1_000])
def test_pages_make_no_difference(
    engine: Engine, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata, page_records: int
):
    topic = tiered_topic()
    Ingester(topic, ingestion, page_records=page_records).run()
    for segment_id, state in last_states().items():
        row = metadata.segment(segment_id)
        assert row is not None
        assert row.metadata.state is state
        assert row.finished_at_ms is not None or segment_id.id == ABANDONED
    highest = {str(one): metadata.highest_copied_offset(one) for one in replayed_caches(topic)}
    assert highest["tier_exp-0"] is not None


ABANDONED = next(one.id for one, state in last_states().items() if state is STARTED)


def test_one_copy_of_the_set_was_abandoned():
    assert str(ABANDONED) == "PP7Fk_5STs-4YO_oVVh5Yg"


def test_a_page_is_applied_once(ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata):
    ingestion.record_bounds(TOPIC, {0: OffsetBounds(0, 1)})
    page = IngestPage(0, 0, 1, ((0, A),))
    ingestion.apply(page)
    with pytest.raises(StateConflictError, match="up to 1, not 0"):
        ingestion.apply(page)
    assert len(metadata.list_segments(PARTITION)) == 1
    assert ingestion.outcomes() == {0: {RecordOutcome.APPLIED: 1}}


def test_a_partition_that_nobody_looked_at_takes_nothing(ingestion: SqlMetadataIngestion):
    with pytest.raises(StateConflictError, match="was never read"):
        ingestion.apply(IngestPage(0, 0, 1, ((0, A),)))


def test_what_is_dropped_is_counted_and_what_is_odd_is_said(engine: Engine, ingestion: SqlMetadataIngestion):
    findings = feed(
        ingestion,
        update_of(A, FINISHED),
        A,
        update_of(A, DELETE_FINISHED),
        UnusableRecord("not a topic name"),
        update_of(A, FINISHED),
    )
    assert ingestion.outcomes() == {
        0: {
            RecordOutcome.APPLIED: 2,
            RecordOutcome.ILLEGAL_TRANSITION: 1,
            RecordOutcome.UNKNOWN_SEGMENT: 1,
            RecordOutcome.UNUSABLE: 1,
        }
    }
    assert len(findings) == 2
    assert "offset 2: illegal-transition" in findings[0]
    assert findings[1] == "offset 3: unusable: not a topic name"
    assert [kind for kind, _ in told_events(engine)].count("ingest") == 2


def test_a_deleted_segment_disappears_and_leaves_a_tombstone(
    engine: Engine, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata
):
    feed(ingestion, A, update_of(A, FINISHED), B, update_of(B, FINISHED))
    feed(ingestion, update_of(A, DELETE_STARTED), update_of(A, DELETE_FINISHED))
    assert [row.metadata.remote_log_segment_id for row in metadata.list_segments(PARTITION)] == [
        B.remote_log_segment_id
    ]
    gone = metadata.segment(A.remote_log_segment_id)
    assert gone is not None
    assert gone.metadata.state is DELETE_FINISHED
    assert metadata.partition_sizes(PARTITION)[0].size_bytes == B.segment_size_bytes


def test_times_are_the_brokers_and_never_in_the_future(
    engine: Engine, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata, now: AdjustableNow
):
    now.now_ms = 1_600_000_150_000  # after the copy began, before its end as the broker's clock has it
    feed(ingestion, A, update_of(A, FINISHED))
    row = metadata.segment(A.remote_log_segment_id)
    assert row is not None
    assert row.finished_at_ms == now.now_ms


def test_the_leak_and_the_superset_are_in_the_view(ingestion: SqlMetadataIngestion):
    a, b, again = (segment_of(PARTITION, n, *offsets) for n, offsets in enumerate([(0, 100), (101, 200), (0, 100)], 10))
    for segment in (a, b, again):
        feed(ingestion, segment, update_of(segment, FINISHED), at_most=1)
    view = ingestion.broker_view(PARTITION).cache
    listed = {segment_id for _, segment_id in view.references}
    assert listed == {b.remote_log_segment_id, again.remote_log_segment_id}
    assert len(view.segments) == 3


def test_a_removed_partition_is_forgotten_whole(ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata):
    feed(ingestion, A, update_of(A, FINISHED), B)
    feed(ingestion, PartitionRemoval(PARTITION), B)
    assert [row.metadata for row in metadata.list_segments(PARTITION)] == [B]
    view = ingestion.broker_view(PARTITION).cache
    assert (set(view.segments), view.highest) == ({B.remote_log_segment_id}, {})


@pytest.mark.parametrize("at_most", [1, 2, 100])
def test_a_segment_that_begins_again_with_other_offsets_is_another(
    engine: Engine, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata, at_most: int
):
    longer = segment_of(PARTITION, 1, 0, 149, {0: 0, 2: 70}, size_bytes=5_000)
    feed(ingestion, A, longer, update_of(longer, FINISHED), at_most=at_most)
    view = ingestion.broker_view(PARTITION).cache
    assert view.references == {(epoch, longer.remote_log_segment_id): Reference.REFERENCED for epoch in (0, 2)}
    assert view.highest == {0: 69, 2: 149}
    assert [row.metadata.end_offset for row in metadata.list_segments(PARTITION)] == [149]
    assert metadata.remote_log_size(PARTITION, 1) == 0
    assert metadata.remote_log_size(PARTITION, 2) == 5_000
    assert counted(engine, PARTITION) == partition_states(
        PARTITION, [row.metadata for row in metadata.list_segments(PARTITION)]
    )


def test_a_recreated_topic_is_another_partition(ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata):
    again = partition_of("orders", topic_number=99)
    other = segment_of(again, 1, 0, 9)
    feed(ingestion, A, update_of(other, FINISHED), other, update_of(other, FINISHED))
    assert {(one.topic, one.topic_id) for one in metadata.partitions()} == {
        ("orders", PARTITION.topic_id),
        ("orders", again.topic_id),
    }
    assert ingestion.outcomes()[0][RecordOutcome.UNKNOWN_SEGMENT] == 1


def switch_on(registry: SqlTopicRegistry) -> None:
    """Brokers own the topic that was being handed over."""
    registry.set_owner(PARTITION.topic_id, "orders", TopicOwner.BROKER, expected=TopicOwner.HANDING_OVER, author="test")


def publish_as_a_handover(
    engine: Engine, registry: SqlTopicRegistry, states: Iterable[RemoteLogSegmentState], *, unsent: bool = False
) -> None:
    """Hand the platform's topic over, with a journal that has one record of segment A for each state.

    If `unsent`, the last record is pending: it was stored, and may or may not have been sent.
    """
    journals = SqlPublicationStore(engine, CLUSTER_ID)
    registry.set_owner(
        PARTITION.topic_id, "orders", TopicOwner.HANDING_OVER, expected=TopicOwner.PLATFORM, author="test"
    )
    lease = journals.claim(PARTITION, run_id="run", batch_id="one", lease_ms=60_000)
    assert lease is not None
    journals.begin(lease.fence, metadata_partition=0, partition_count=1, next_offset=0)
    id_, states = A.remote_log_segment_id.id, tuple(states)
    for number, state in enumerate(states):
        value = encode(segment_record(A) if state is STARTED else update_record(update_of(A, state)))
        journals.intend(lease.fence, number, Intent(id_, state, A.start_offset, A.end_offset, value))
        if not (unsent and number == len(states) - 1):
            journals.advance(lease.fence, number + 1, found=number)


def of_a_broker(update: RemoteLogSegmentMetadataUpdate) -> RemoteLogSegmentMetadataUpdate:
    return replace(update, broker_id=1 + update.broker_id)


class TestOurOwn:
    """Segments that the platform copied and published come back."""

    @pytest.fixture
    def ours(self, engine: Engine, metadata: RemoteLogMetadata, registry: SqlTopicRegistry) -> RemoteLogSegmentMetadata:
        registry.set_owner(PARTITION.topic_id, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test")
        return finish(metadata, A, fence_of(engine, PARTITION))

    def test_they_agree_and_stay_ours(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: RemoteLogSegmentMetadata,
        registry: SqlTopicRegistry,
    ):
        before, sizes = metadata.segment(A.remote_log_segment_id), counted(engine, PARTITION)
        assert feed(ingestion, A, update_of(A, FINISHED)) == []
        after = metadata.segment(A.remote_log_segment_id)
        assert before is not None
        assert after is not None
        assert (before.metadata, before.broker_state) == (after.metadata, None)
        assert (after.origin, after.broker_state) == (SegmentOrigin.PLATFORM, FINISHED)
        assert counted(engine, PARTITION) == sizes
        assert ingestion.take_over(author="test") == []
        assert registry.owner(PARTITION.topic_id) is TopicOwner.PLATFORM

    def test_other_values_are_a_finding_and_change_nothing(
        self, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata, ours: RemoteLogSegmentMetadata
    ):
        other = segment_of(PARTITION, 1, 0, 98, {0: 0, 1: 60}, size_bytes=999)
        (finding,) = feed(ingestion, other)
        assert "0..99, 1000 bytes" in finding
        assert "0..98, 999 bytes" in finding
        row = metadata.segment(A.remote_log_segment_id)
        assert row is not None
        assert row.metadata == ours

    def test_one_that_is_not_finished_here_is_a_finding(
        self, engine: Engine, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata, ours: object
    ):
        metadata.add_segment(B, fence=fence_of(engine, PARTITION))
        (finding,) = feed(ingestion, B, update_of(B, FINISHED))
        assert "COPY_SEGMENT_STARTED here and COPY_SEGMENT_FINISHED on brokers" in finding

    def test_many_deletions_follow_in_pages_and_the_next_reading_goes_on_after_a_crash(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: object,
        registry: SqlTopicRegistry,
        monkeypatch: pytest.MonkeyPatch,
    ):
        finish(metadata, B, fence_of(engine, PARTITION))
        for one in (A, B):
            feed(
                ingestion,
                one,
                update_of(one, FINISHED),
                update_of(one, DELETE_STARTED),
                update_of(one, DELETE_FINISHED),
            )
        for owner, before in (
            (TopicOwner.HANDING_OVER, TopicOwner.PLATFORM),
            (TopicOwner.BROKER, TopicOwner.HANDING_OVER),
        ):
            registry.set_owner(PARTITION.topic_id, "orders", owner, expected=before, author="test")
        monkeypatch.setattr(sql_metadata_topic, "FOLLOWED_AT_ONCE", 1)
        told = sql_metadata_topic.record_ingestion
        pages = 0

        def crash_in_the_second(*arguments: Any) -> None:
            nonlocal pages
            pages += 1
            if pages > 1:
                raise ZeroDivisionError
            told(*arguments)

        monkeypatch.setattr(sql_metadata_topic, "record_ingestion", crash_in_the_second)
        with pytest.raises(ZeroDivisionError):
            ingestion.take_over(author="test")
        monkeypatch.setattr(sql_metadata_topic, "record_ingestion", told)
        assert [state_of(metadata, one) for one in (A, B)] == [DELETE_FINISHED, FINISHED]
        assert [size.size_bytes for size in metadata.partition_sizes(PARTITION)] != []
        assert ingestion.take_over(author="test") == ["orders-0: brokers delete 1 of our segments"]
        assert [state_of(metadata, one) for one in (A, B)] == [DELETE_FINISHED, DELETE_FINISHED]
        assert metadata.partition_sizes(PARTITION) == []
        assert ingestion.take_over(author="test") == []

    def test_a_deletion_by_a_broker_is_ours_once_the_topic_is_the_brokers(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: object,
        registry: SqlTopicRegistry,
    ):
        feed(ingestion, A, update_of(A, FINISHED), update_of(A, DELETE_STARTED), update_of(A, DELETE_FINISHED))
        ingestion.take_over(author="test")
        row = metadata.segment(A.remote_log_segment_id)
        assert row is not None
        assert row.metadata.state is FINISHED, "the platform's topic: nobody else deletes"
        for owner, before in (
            (TopicOwner.HANDING_OVER, TopicOwner.PLATFORM),
            (TopicOwner.BROKER, TopicOwner.HANDING_OVER),
        ):
            registry.set_owner(PARTITION.topic_id, "orders", owner, expected=before, author="test")
        assert ingestion.take_over(author="test") == ["orders-0: brokers delete 1 of our segments"]
        row = metadata.segment(A.remote_log_segment_id)
        assert row is not None
        assert row.metadata.state is DELETE_FINISHED
        assert metadata.list_segments(PARTITION) == []
        assert metadata.partition_sizes(PARTITION) == []
        assert ingestion.take_over(author="test") == []

    def test_a_deletion_that_the_platform_published_itself_is_not_followed(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: RemoteLogSegmentMetadata,
        registry: SqlTopicRegistry,
    ):
        publish_as_a_handover(engine, registry, RemoteLogSegmentState)
        feed(ingestion, A, update_of(A, FINISHED), update_of(A, DELETE_STARTED), update_of(A, DELETE_FINISHED))
        switch_on(registry)
        assert ingestion.take_over(author="test") == []
        row = metadata.segment(A.remote_log_segment_id)
        assert row is not None
        assert row.metadata.state is FINISHED, "its objects stay in the archive"

    def test_a_deletion_that_the_platform_began_and_brokers_finished_is_followed(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: RemoteLogSegmentMetadata,
        registry: SqlTopicRegistry,
    ):
        publish_as_a_handover(engine, registry, (STARTED, FINISHED, DELETE_STARTED))
        feed(ingestion, A, update_of(A, FINISHED), update_of(A, DELETE_STARTED))
        switch_on(registry)
        assert ingestion.take_over(author="test") == [], "no broker deleted anything yet"
        feed(ingestion, update_of(A, DELETE_FINISHED))
        assert ingestion.take_over(author="test") == ["orders-0: brokers delete 1 of our segments"]
        assert metadata.list_segments(PARTITION) == [], "the broker deleted its objects"

    def test_a_deletion_of_ours_that_was_never_sent_hides_no_deletion_by_brokers(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: RemoteLogSegmentMetadata,
        registry: SqlTopicRegistry,
    ):
        """The publisher was killed before it sent the record; remote storage was switched on by hand after that."""
        publish_as_a_handover(engine, registry, RemoteLogSegmentState, unsent=True)
        feed(ingestion, A, update_of(A, FINISHED), update_of(A, DELETE_STARTED))
        switch_on(registry)
        assert ingestion.take_over(author="test") == [], "no broker deleted anything yet"
        feed(ingestion, of_a_broker(update_of(A, DELETE_FINISHED)))
        assert ingestion.take_over(author="test") == ["orders-0: brokers delete 1 of our segments"]
        assert metadata.list_segments(PARTITION) == [], "the broker deleted its objects"

    @pytest.mark.parametrize("at_most", [1, 2])
    def test_a_deletion_of_ours_that_arrives_after_the_brokers_one_hides_nothing(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: RemoteLogSegmentMetadata,
        registry: SqlTopicRegistry,
        at_most: int,
    ):
        publish_as_a_handover(engine, registry, RemoteLogSegmentState, unsent=True)
        feed(ingestion, A, update_of(A, FINISHED), update_of(A, DELETE_STARTED))
        switch_on(registry)
        deleted = update_of(A, DELETE_FINISHED)
        feed(ingestion, of_a_broker(deleted), deleted, at_most=at_most)
        assert ingestion.take_over(author="test") == ["orders-0: brokers delete 1 of our segments"]

    def test_a_deletion_of_ours_that_arrived_before_it_was_read_back_is_not_followed(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: RemoteLogSegmentMetadata,
        registry: SqlTopicRegistry,
    ):
        publish_as_a_handover(engine, registry, RemoteLogSegmentState, unsent=True)
        feed(ingestion, A, update_of(A, FINISHED), update_of(A, DELETE_STARTED), update_of(A, DELETE_FINISHED))
        switch_on(registry)
        assert ingestion.take_over(author="test") == []
        (row,) = metadata.list_segments(PARTITION)
        assert row.metadata.state is FINISHED, "its objects stay in the archive"
        journal = SqlPublicationStore(engine, CLUSTER_ID).journal(PARTITION)
        assert journal is not None
        assert journal.pending is None
        assert journal.records[-1].offset == 3

    def test_what_brokers_know_is_held_although_the_journal_lacks_it(
        self, engine: Engine, ingestion: SqlMetadataIngestion, ours: RemoteLogSegmentMetadata
    ):
        """The database was restored from a backup of before the publication."""
        journals, id_ = SqlPublicationStore(engine, CLUSTER_ID), A.remote_log_segment_id.id
        assert journals.held_segments(PARTITION) == frozenset()
        feed(ingestion, A)
        assert journals.held_segments(PARTITION) == {id_}
        feed(ingestion, update_of(A, FINISHED), B)
        assert journals.held_segments(PARTITION) == {id_}, "a segment of a broker is not the platform's to hold"
        feed(ingestion, update_of(A, DELETE_STARTED))
        assert journals.held_segments(PARTITION) == {id_}
        feed(ingestion, update_of(A, DELETE_FINISHED))
        assert journals.held_segments(PARTITION) == frozenset()

    def test_a_published_deletion_releases_a_segment_before_it_is_ingested(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        ours: RemoteLogSegmentMetadata,
        registry: SqlTopicRegistry,
    ):
        feed(ingestion, A, update_of(A, FINISHED))
        publish_as_a_handover(engine, registry, RemoteLogSegmentState)
        assert SqlPublicationStore(engine, CLUSTER_ID).held_segments(PARTITION) == frozenset()

    def test_two_runs_at_once_count_a_deletion_once(
        self,
        engine: Engine,
        ingestion: SqlMetadataIngestion,
        metadata: RemoteLogMetadata,
        ours: object,
        registry: SqlTopicRegistry,
        monkeypatch: pytest.MonkeyPatch,
    ):
        """The other run commits between the first one's reading and its lock. SQLite has one writer at a time."""
        finish(metadata, B, fence_of(engine, PARTITION))
        feed(ingestion, A, update_of(A, FINISHED), update_of(A, DELETE_STARTED), update_of(A, DELETE_FINISHED))
        for owner, before in (
            (TopicOwner.HANDING_OVER, TopicOwner.PLATFORM),
            (TopicOwner.BROKER, TopicOwner.HANDING_OVER),
        ):
            registry.set_owner(PARTITION.topic_id, "orders", owner, expected=before, author="test")
        others: list[Sequence[str]] = []
        lock = transactions.lock_partition

        def overtaken(connection: Connection, cluster_id: str, partition: TopicIdPartition) -> None:
            if not others and connection.dialect.name == "postgresql":
                others.append(())
                others.append(ingestion.take_over(author="other"))
            lock(connection, cluster_id, partition)

        monkeypatch.setattr(sql_metadata_topic, "lock_partition", overtaken)
        said = [*ingestion.take_over(author="test"), *(one for other in others for one in other)]
        assert said == ["orders-0: brokers delete 1 of our segments"]
        assert ingestion.take_over(author="test") == []
        (size,) = metadata.partition_sizes(PARTITION)
        assert (size.segments, size.size_bytes) == (1, B.segment_size_bytes)
        assert [detail for _, detail in told_events(engine)].count("brokers delete 1 of our segments") == 1

    def test_a_brokers_segment_in_our_topic_gives_it_to_the_broker_with_an_event(
        self, engine: Engine, ingestion: SqlMetadataIngestion, ours: object, registry: SqlTopicRegistry
    ):
        feed(ingestion, B)
        assert registry.owner(PARTITION.topic_id) is TopicOwner.PLATFORM
        (change,) = ingestion.take_over(author="test")
        assert "platform -> broker" in change
        assert registry.owner(PARTITION.topic_id) is TopicOwner.BROKER
        assert told_events(engine)[-1][0] == "owner"


class TestPositions:
    """What is lost is said, and nothing goes on behind it."""

    @pytest.fixture
    def topic(self) -> MemoryMetadataTopic:
        topic = MemoryMetadataTopic(1, id=TOPIC.topic_id)
        for segment in (A, B):
            topic.append(0, encode(segment_record(segment)))
            topic.append(0, encode(update_record(update_of(segment, FINISHED))))
        return topic

    def test_another_topic_stops_everything(
        self, engine: Engine, ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic, metadata: RemoteLogMetadata
    ):
        Ingester(topic, ingestion).run()
        topic.id = uuid(8)
        for _ in range(2):
            with pytest.raises(MetadataTopicReplacedError, match="--from-beginning"):
                Ingester(topic, ingestion).run()
        assert ingestion.positions()[0].is_lost
        assert [detail for kind, detail in told_events(engine) if kind == "ingest" and "stopped" in detail][1:] == []
        assert not_ready(engine) is not None
        assert len(metadata.list_segments(PARTITION)) == 2

    def test_a_removed_beginning_stops_its_partition(self, ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic):
        Ingester(topic, ingestion).run()
        topic.append(0, encode(update_record(update_of(A, DELETE_STARTED))))
        topic.append(0, encode(update_record(update_of(A, DELETE_FINISHED))))
        topic.forget_before(0, 5)
        report = Ingester(topic, ingestion).run()
        assert report.stopped[0].stopped is not None
        assert "offsets 4..4 were not read" in report.stopped[0].stopped
        with pytest.raises(StateConflictError, match="is stopped"):
            ingestion.apply(IngestPage(0, 4, 6))

    def test_a_shorter_topic_stops_its_partition(self, ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic):
        Ingester(topic, ingestion).run()
        (position,) = ingestion.record_bounds(TOPIC, {0: OffsetBounds(0, 3)})
        assert position.is_lost
        assert "ends at 3" in (position.stopped or "")
        (position,) = ingestion.record_bounds(TOPIC, {0: OffsetBounds(0, 4)})
        assert position.stopped is None, "a leader that had not caught up is one again"

    def test_reading_again_keeps_what_is_told_and_removes_what_is_not(
        self, engine: Engine, ingestion: SqlMetadataIngestion, topic: MemoryMetadataTopic, metadata: RemoteLogMetadata
    ):
        Ingester(topic, ingestion).run()
        key = {row.metadata.remote_log_segment_id: row for row in metadata.list_segments(PARTITION)}
        topic.forget_before(0, 2)
        ingester = Ingester(topic, ingestion)
        ingester.read_again()
        assert "is read again" in (not_ready(engine) or "")
        report = ingester.run()
        assert [row.metadata.remote_log_segment_id for row in metadata.list_segments(PARTITION)] == [
            B.remote_log_segment_id
        ]
        assert metadata.segment(A.remote_log_segment_id) is None
        assert report.findings == (
            "orders-0: 1 segments of brokers are in no record any more, and were removed from the metadata",
        )
        assert not_ready(engine) is None
        assert len(key) == 2
        assert counted(engine, PARTITION) == partition_states(
            PARTITION, [row.metadata for row in metadata.list_segments(PARTITION)]
        )

    def test_reading_again_changes_nothing_where_all_is_there(
        self, engine: Engine, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata
    ):
        topic = tiered_topic()
        ingester = Ingester(topic, ingestion, page_records=11)
        ingester.run()
        views = {one: ingestion.broker_view(one) for one in replayed_caches(topic)}
        rows = {one: metadata.list_segments(one) for one in views}
        sizes = SqlRemoteLogSizes(engine, CLUSTER_ID).partition_states()
        ingester.read_again()
        assert ingester.run().findings == ()
        assert {one: ingestion.broker_view(one) for one in views} == views
        assert {one: metadata.list_segments(one) for one in views} == rows
        assert SqlRemoteLogSizes(engine, CLUSTER_ID).partition_states() == sizes
        assert sum(sum(counts.values()) for counts in ingestion.outcomes().values()) == 164

    def test_an_empty_topic_is_complete_at_once(self, ingestion: SqlMetadataIngestion):
        empty = MemoryMetadataTopic(2)
        ingester = Ingester(empty, ingestion)
        ingester.read_again()
        assert all(position.is_complete for position in ingestion.positions())
        assert ingester.run().records == 0

    def test_who_waits(self, engine: Engine, ingestion: SqlMetadataIngestion, registry: SqlTopicRegistry):
        assert not_ready(engine) is None, "nothing was ever read"
        number = metadata_partition_of(PARTITION, 3)
        identity = MetadataTopicIdentity(uuid(7), 3)
        ingestion.record_bounds(identity, {number: OffsetBounds(0, 5)})
        assert not_ready(engine) is None, "nobody's topic waits for nothing"
        registry.set_owner(PARTITION.topic_id, "orders", TopicOwner.BROKER, expected=TopicOwner.NONE, author="test")
        assert "5 records" in (not_ready(engine) or "")
        ingestion.apply(IngestPage(number, 0, 5))
        assert not_ready(engine) is None


class TestWhatABrokerBegan:
    """It is counted, and nobody here changes it, whoever owns the topic."""

    @pytest.fixture
    def theirs(self, ingestion: SqlMetadataIngestion, registry: SqlTopicRegistry) -> RemoteLogSegmentMetadata:
        """In a topic that is ours all the same."""
        feed(ingestion, A, update_of(A, FINISHED), B)
        registry.set_owner(PARTITION.topic_id, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test")
        return A.with_update(update_of(A, FINISHED))

    def test_no_deletion_advances(self, engine: Engine, metadata: RemoteLogMetadata, theirs: RemoteLogSegmentMetadata):
        advanced = metadata.advance_deletion(
            [theirs], DELETE_STARTED, event_timestamp_ms=1, fence=fence_of(engine, PARTITION)
        )
        assert advanced == []
        assert len(metadata.list_segments(PARTITION)) == 2

    def test_no_update_is_taken(self, engine: Engine, metadata: RemoteLogMetadata, theirs: object):
        fence = fence_of(engine, PARTITION)
        for segment, expected, change in ((A, FINISHED, DELETE_STARTED), (B, STARTED, FINISHED)):
            with pytest.raises(StateConflictError, match="begun by a broker"):
                metadata.update_segment(update_of(segment, change), expected=expected, fence=fence)

    def test_nothing_takes_its_place(self, engine: Engine, metadata: RemoteLogMetadata, theirs: object):
        fence = fence_of(engine, PARTITION)
        metadata.record_verdict(A.remote_log_segment_id, Verdict.FAILED)
        again = segment_of(PARTITION, 50, 0, 99, {0: 0, 1: 60})
        metadata.add_segment(again, fence=fence)
        with pytest.raises(StateConflictError, match="begun by a broker"):
            metadata.update_segment(
                update_of(again, FINISHED), expected=STARTED, fence=fence, supersedes=A.remote_log_segment_id
            )

    def test_the_gate_of_a_copy_does_not_wait_for_it(self, metadata: RemoteLogMetadata, theirs: object):
        assert metadata.unverified_segments() == []

    def test_what_was_found_of_it_is_forgotten_when_it_is_told_anew(
        self, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata, theirs: object
    ):
        segment_id = A.remote_log_segment_id
        metadata.record_verification(
            Verification(segment_id, (QualityResult(segment_id, "Q102", "critical", passed=False),))
        )
        feed(ingestion, update_of(A, DELETE_STARTED), update_of(A, DELETE_FINISHED))
        feed(ingestion, A, update_of(A, FINISHED))
        assert metadata.segment(segment_id).verdict is Verdict.NONE
        assert metadata.quality_results(segment_id) == []
        assert (
            metadata.record_verification(Verification(segment_id, before=metadata.segment(segment_id))).verdict
            is Verdict.PASSED
        )

    def test_its_tombstone_is_forgotten_whoever_owns_the_topic(
        self, ingestion: SqlMetadataIngestion, metadata: RemoteLogMetadata, now: AdjustableNow
    ):
        feed(ingestion, A, update_of(A, FINISHED), update_of(A, DELETE_STARTED), update_of(A, DELETE_FINISHED))
        ingestion.take_over(author="test")
        now.advance(1_000)
        assert metadata.forget_tombstones(500, at_most=10) == 1
        assert metadata.segment(A.remote_log_segment_id) is None


class TestTheGuardOfUnreadRecords:
    """A database that took the store over may lack journals: nothing expires before everything was read."""

    @pytest.fixture
    def audits(self, engine: Engine, now: AdjustableNow) -> SqlAuditStore:
        """Of a database that has just taken the store over."""
        identities = StoreIdentities(engine, CLUSTER_ID, now_ms=now)
        accepted = identities.create(uuid(8))
        identities.propose_over(replace(accepted.current, generation=9), uuid(9), None, author="test")
        return SqlAuditStore(engine, CLUSTER_ID, now_ms=now)

    @staticmethod
    def active(audits: SqlAuditStore) -> list[Guard]:
        return [active.guard for active in audits.active_guards()]

    def test_a_take_over_raises_it_and_a_whole_ingestion_clears_it(
        self, engine: Engine, ingestion: SqlMetadataIngestion, audits: SqlAuditStore
    ):
        assert self.active(audits) == [Guard.UNREAD_RECORDS]
        ingestion.take_over(author="test")
        assert self.active(audits) == [Guard.UNREAD_RECORDS], "nothing was ever read"
        ingestion.record_bounds(TOPIC, {0: OffsetBounds(0, 2)})
        ingestion.apply(IngestPage(0, 0, 1, ((0, A),)))
        ingestion.take_over(author="test")
        assert self.active(audits) == [Guard.UNREAD_RECORDS], "a record is left"
        ingestion.apply(IngestPage(0, 1, 2, ((1, update_of(A, FINISHED)),)))
        assert "unread-records is cleared" in ingestion.take_over(author="test")[-1]
        assert self.active(audits) == []
        assert told_events(engine)[-1][0] == "ingest"

    def test_what_was_read_before_the_take_over_does_not_count(
        self, engine: Engine, ingestion: SqlMetadataIngestion, audits: SqlAuditStore, now: AdjustableNow
    ):
        feed(ingestion, A)
        now.advance(1)
        identities = StoreIdentities(engine, CLUSTER_ID, now_ms=now)
        identities.propose_over(replace(identities.accepted().current, generation=19), uuid(10), None, author="test")
        ingestion.take_over(author="test")
        assert self.active(audits) == [Guard.UNREAD_RECORDS], "the other database may have published since"
        feed(ingestion, B)
        ingestion.take_over(author="test")
        assert self.active(audits) == []

    def test_a_stopped_partition_does_not_clear_it(self, ingestion: SqlMetadataIngestion, audits: SqlAuditStore):
        feed(ingestion, A)
        ingestion.record_bounds(TOPIC, {0: OffsetBounds(0, 2)})
        ingestion.stop(0, 1, "poison")
        ingestion.take_over(author="test")
        assert self.active(audits) == [Guard.UNREAD_RECORDS]

    def test_records_that_were_deleted_before_they_were_read_keep_it(
        self, ingestion: SqlMetadataIngestion, audits: SqlAuditStore
    ):
        """Retention took the earliest records: segments may have been published in them."""
        ingestion.record_bounds(TWO_PARTITIONS, {0: OffsetBounds(0, 0), 1: OffsetBounds(17, 18)})
        ingestion.apply(IngestPage(1, 17, 18, ((17, A),)))
        assert ingestion.take_over(author="test") == [
            "topic orders: owner none -> broker: a broker tiers it, by its metadata topic"
        ]
        assert self.active(audits) == [Guard.UNREAD_RECORDS]
        assert audits.active_guards()[0].unread.deleted == ("__remote_log_metadata-1 begins at offset 17",)
        objection = ActiveGuards(audits).objection()
        assert objection is not None
        assert all(word in objection for word in ("__remote_log_metadata-1", "offset 17", "--nothing-published"))
        ingestion.read_again(TWO_PARTITIONS, {0: OffsetBounds(0, 0), 1: OffsetBounds(18, 18)}, author="test")
        ingestion.take_over(author="test")
        assert self.active(audits) == [Guard.UNREAD_RECORDS]
        assert "offset 18" in audits.active_guards()[0].unread.deleted[0]
        audits.declare_nothing_published(author="ann")
        assert self.active(audits) == []

    def test_records_that_were_read_before_they_were_deleted_do_not_keep_it(
        self, ingestion: SqlMetadataIngestion, audits: SqlAuditStore
    ):
        feed(ingestion, A)
        ingestion.record_bounds(TOPIC, {0: OffsetBounds(1, 1)})
        ingestion.take_over(author="test")
        assert self.active(audits) == []

    def test_a_position_of_an_earlier_version_does_not_say_where_it_began(
        self, engine: Engine, ingestion: SqlMetadataIngestion, audits: SqlAuditStore
    ):
        feed(ingestion, A)
        with writing(engine) as connection:
            connection.execute(update(metadata_positions).values(first_offset=None))
        ingestion.take_over(author="test")
        assert self.active(audits) == [Guard.UNREAD_RECORDS]
        assert "./tiering ingest --from-beginning" in audits.active_guards()[0].unread.not_read[0]

    def test_it_names_the_partition_that_a_record_stops(self, ingestion: SqlMetadataIngestion, audits: SqlAuditStore):
        ingestion.record_bounds(TWO_PARTITIONS, {0: OffsetBounds(0, 0), 1: OffsetBounds(0, 9)})
        ingestion.apply(IngestPage(1, 0, 7, ((0, A),)))
        ingestion.stop(1, 7, "no record that Kafka's decoder accepts")
        ingestion.take_over(author="test")
        objection = ActiveGuards(audits).objection()
        assert objection is not None
        assert "__remote_log_metadata-1 is stopped at offset 7: no record that Kafka's decoder accepts" in objection
        assert "The brokers' metadata are not read" in objection

    def test_a_clock_that_was_ahead_at_the_take_over_is_named(
        self, engine: Engine, ingestion: SqlMetadataIngestion, audits: SqlAuditStore, now: AdjustableNow
    ):
        now.advance(3_600_000)
        identities = StoreIdentities(engine, CLUSTER_ID, now_ms=now)
        identities.propose_over(replace(identities.accepted().current, generation=19), uuid(10), None, author="test")
        now.advance(-3_600_000)
        feed(ingestion, A)
        ingestion.take_over(author="test")
        objection = ActiveGuards(audits).objection()
        assert objection is not None
        assert "in the future" in objection
        assert "./tiering ingest --from-beginning" in objection
        ingestion.read_again(TOPIC, {0: OffsetBounds(0, 1)}, author="test")
        ingestion.apply(IngestPage(0, 0, 1, ((0, A),)))
        ingestion.take_over(author="test")
        assert self.active(audits) == []

    def test_a_person_declares_about_deleted_records_although_segments_were_published(
        self, engine: Engine, ingestion: SqlMetadataIngestion, registry: SqlTopicRegistry, audits: SqlAuditStore
    ):
        """The journals of this database hold their segments; nobody but a person knows of other publications."""
        registry.set_owner(PARTITION.topic_id, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test")
        publish_as_a_handover(engine, registry, [STARTED], unsent=True)
        ingestion.record_bounds(TOPIC, {0: OffsetBounds(5, 6)})
        with pytest.raises(StateConflictError, match=r"1 records of __remote_log_metadata-0 are not read yet"):
            audits.declare_nothing_published(author="ann")
        ingestion.apply(IngestPage(0, 5, 6, ()))
        ingestion.take_over(author="test")
        assert self.active(audits) == [Guard.UNREAD_RECORDS]
        audits.declare_nothing_published(author="ann")
        assert self.active(audits) == []
        kind, detail = told_events(engine)[-1]
        assert kind == "store-taken-over"
        assert detail.endswith("that this database does not know of; __remote_log_metadata-0 begins at offset 5")

    def test_a_second_reading_raises_it_because_what_brokers_know_is_forgotten_meanwhile(
        self, ingestion: SqlMetadataIngestion, audits: SqlAuditStore
    ):
        feed(ingestion, A)
        ingestion.take_over(author="test")
        assert self.active(audits) == []
        ingestion.read_again(TOPIC, {0: OffsetBounds(0, 1)}, author="test")
        ingestion.take_over(author="test")
        assert self.active(audits) == [Guard.UNREAD_RECORDS]
        ingestion.apply(IngestPage(0, 0, 1, ((0, A),)))
        ingestion.take_over(author="test")
        assert self.active(audits) == []

    def test_a_database_with_records_of_published_segments_believes_no_person(
        self, engine: Engine, registry: SqlTopicRegistry, audits: SqlAuditStore
    ):
        now_ms = audits.now_ms()
        audits.record(AuditRecord("one", AuditSource.LISTING, now_ms, now_ms, 1, 1), [], covers=())
        registry.set_owner(PARTITION.topic_id, "orders", TopicOwner.PLATFORM, expected=TopicOwner.NONE, author="test")
        publish_as_a_handover(engine, registry, [STARTED], unsent=True)
        with pytest.raises(StateConflictError, match="this database has records of them"):
            audits.declare_nothing_published(author="ann")
        assert self.active(audits) == [Guard.UNREAD_RECORDS]

    def test_a_person_clears_it_and_no_audit_does(self, engine: Engine, audits: SqlAuditStore):
        now_ms = audits.now_ms()
        audits.record(AuditRecord("one", AuditSource.LISTING, now_ms, now_ms, 1, 1), [], covers=())
        assert self.active(audits) == [Guard.UNREAD_RECORDS]
        audits.declare_nothing_published(author="ann")
        assert self.active(audits) == []
        assert told_events(engine)[-1] == ("store-taken-over", "declared: no segment was published to brokers")
        before = told_events(engine)
        audits.declare_nothing_published(author="ann")
        assert told_events(engine) == before
