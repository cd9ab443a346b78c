"""Rows after an ingest against a broker's cache, whatever the records, the pages and the restarts."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from include.tiering.kafka.metadata_topic.contract import OffsetBounds
from include.tiering.metadata_sync.sql_ingestion import SqlMetadataIngestion
from include.tiering.model.broker_cache import BrokerCache, BrokerCacheState
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.model.sizes import partition_states
from include.tiering.segments.ingestion_contract import IngestPage, MetadataTopicIdentity, RecordOutcome
from include.tiering.segments.sql import SqlRemoteLogMetadata
from include.tiering.sizes.store import SqlRemoteLogSizes
from tests.doubles.databases import empty
from tests.doubles.record_batches import Records, record_sequences
from tests.doubles.segments import CLUSTER_ID, partition_of, uuid

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
