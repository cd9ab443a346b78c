"""Lookups, and ingested metadata, equal what Kafka answers."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.metadata_sync.sql_ingestion import SqlMetadataIngestion
from include.tiering.model.broker_cache import BrokerCache, BrokerCacheState
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.model.sizes import partition_states
from include.tiering.segments.ingestion_contract import IngestPage, MetadataTopicIdentity, RecordOutcome
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.sizes.store import SqlRemoteLogSizes
from tests.doubles.databases import empty, memory_engine
from tests.doubles.present import present
from tests.doubles.record_batches import Records, record_sequences
from tests.doubles.segments import CLUSTER_ID, fence_of, finish, partition_of, segment_of, uuid

# In one lineage, lookups answer as Kafka's own metadata cache does.

PARTITION = partition_of("orders", 0)


@dataclass
class EpochState:
    """What the broker keeps for one leader epoch, as observed with its real classes."""

    offset_to_segment: dict[int, RemoteLogSegmentMetadata] = field(default_factory=dict)
    highest: int | None = None

    def finished(self, start: int, end: int, segment: RemoteLogSegmentMetadata) -> None:
        while self.offset_to_segment and max(self.offset_to_segment) >= start and present(self.highest) <= end:
            del self.offset_to_segment[max(self.offset_to_segment)]
        self.offset_to_segment[start] = segment
        self.highest = end if self.highest is None else max(self.highest, end)

    def lookup(self, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        floor = max((start for start in self.offset_to_segment if start <= offset), default=None)
        if floor is None:
            return None
        segment = self.offset_to_segment[floor]
        return segment if offset <= present(segment.end_offset_of_epoch(epoch)) else None


@st.composite
def lineages(draw: st.DrawFn) -> list[RemoteLogSegmentMetadata]:
    """Segments cut from one history: ends ascend, starts lie anywhere up to the next offset."""
    starts = sorted(draw(st.sets(st.integers(1, 59), max_size=4)))
    history = LeaderEpochs.of(enumerate([0, *starts]))
    ends = sorted(draw(st.sets(st.integers(0, 60), min_size=1, max_size=6)))
    segments = []
    for number, end in enumerate(ends):
        start = draw(st.integers(0, end))
        segments.append(segment_of(PARTITION, number, start, end, dict(history.range(start, end + 1))))
    return segments


@settings(max_examples=30)
@given(lineages())
def test_every_lookup(segments: list[RemoteLogSegmentMetadata]):
    empty(memory_engine())
    metadata = SqlRemoteLogMetadata(memory_engine(), CLUSTER_ID)
    fence = fence_of(memory_engine(), PARTITION)
    kafka = {epoch: EpochState() for epoch in range(6)}
    for segment in segments:
        finished = finish(metadata, segment, fence)
        for epoch, start in segment.segment_leader_epochs:
            kafka[epoch].finished(start, present(segment.end_offset_of_epoch(epoch)), finished)
    for epoch, state in kafka.items():
        assert metadata.highest_offset_for_epoch(PARTITION, epoch) == state.highest
        for offset in range(0, 62, 3):
            assert metadata.segment_for_offset(PARTITION, epoch, offset) == state.lookup(epoch, offset)


# Rows after an ingest against a broker's cache, whatever the records, the pages and the restarts.

TOPIC = MetadataTopicIdentity(uuid(7), 1)
PARTITIONS = (partition_of("orders", 0), partition_of("orders", 1), partition_of("orders", 0, topic_number=99))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=record_sequences(PARTITIONS, most=40), page_records=st.integers(1, 12), again=st.booleans())
def test_rows_say_what_the_cache_says(engine: Engine, records: Records, page_records: int, again: bool) -> None:
    empty(engine)
    ingestion = SqlMetadataIngestion(engine, CLUSTER_ID)
    bounds = {0: OffsetBounds(0, len(records))}
    ingestion.record_bounds(TOPIC, bounds)
    feed(ingestion, records, page_records)
    if again:
        ingestion.read_again(TOPIC, bounds, author="test")
        feed(ingestion, records, page_records + 1)
    caches, applied = replayed(records)
    metadata, sizes = SqlRemoteLogMetadata(engine, CLUSTER_ID), SqlRemoteLogSizes(engine, CLUSTER_ID)
    for partition, cache in caches.items():
        assert ingestion.broker_view(partition).cache == cache.state()
        found = [row.metadata for row in metadata.list_segments(partition)]
        assert {one.remote_log_segment_id: one for one in found} == dict(cache.state().segments)
        counted = next((one.states for one in sizes.partition_states(partition)), ())
        assert counted == partition_states(partition, cache.list_segments()).states
    assert ingestion.outcomes().get(0, {}).get(RecordOutcome.APPLIED, 0) == applied


def feed(ingestion: SqlMetadataIngestion, records: Records, page_records: int) -> None:
    for first in range(0, len(records), page_records):
        page = tuple(enumerate(records[first : first + page_records], first))
        ingestion.apply(IngestPage(0, first, page[-1][0] + 1, page))


def replayed(records: Records) -> tuple[dict[TopicIdPartition, BrokerCache], int]:
    caches = {partition: BrokerCache(BrokerCacheState()) for partition in PARTITIONS}
    applied = 0
    for record in records:
        cache = caches[record.remote_log_segment_id.topic_id_partition]
        effect = cache.add(record) if isinstance(record, RemoteLogSegmentMetadata) else cache.update(record)
        applied += effect == "applied"
    return caches, applied
