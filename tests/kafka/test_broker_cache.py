"""A broker's cache as values against Kafka's own, in the releases of the lab: the same records, the same answers."""

import random
from typing import Any

import pytest

from include.tiering.formats.remote_log_metadata import encode
from include.tiering.formats.remote_log_metadata_records import segment_record, update_record
from include.tiering.model.broker_cache import BrokerCache
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from tests.doubles.kafka_lab.artifacts import VERSIONS
from tests.doubles.kafka_lab.kafka_cache import KnownPartition, told
from tests.doubles.kafka_lab.requests import require_kafka
from tests.doubles.record_batches import MOST_OFFSET, random_records
from tests.doubles.segments import partition_of

PARTITIONS = (partition_of("orders", 0), partition_of("orders", 1))
SEQUENCES = 3_000


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    require_kafka(request.param)
    return request.param


def test_the_same_records_give_the_same_answers(version: str) -> None:
    source = random.Random(version)
    sequences = [random_records(source, PARTITIONS) for _ in range(SEQUENCES)]
    values = [[_value(record) for record in records] for records in sequences]
    answers = told(values, lookups=MOST_OFFSET + 1, version=version)
    for records, known in zip(sequences, answers, strict=True):
        caches: dict[TopicIdPartition, BrokerCache] = {}
        for record in records:
            cache = caches.setdefault(record.remote_log_segment_id.topic_id_partition, BrokerCache())
            _ = cache.add(record) if isinstance(record, RemoteLogSegmentMetadata) else cache.update(record)
        assert {(str(one.topic_id), one.partition) for one in caches} == set(known)
        for partition, cache in caches.items():
            _assert_equal(cache, known[str(partition.topic_id), partition.partition])


def _assert_equal(cache: BrokerCache, known: KnownPartition) -> None:
    assert {str(one.remote_log_segment_id.id): one.state.name for one in cache.list_segments()} == known.states
    for epoch, listed in known.listed.items():
        ours = cache.list_segments(epoch)
        assert sorted(str(one.remote_log_segment_id.id) for one in ours) == sorted(listed)
        starts = {str(one.remote_log_segment_id.id): one.start_offset for one in ours}
        assert [one.start_offset for one in ours] == [starts[one] for one in listed]
        assert cache.highest_offset_for_epoch(epoch) == known.highest[epoch]
        for offset in range(MOST_OFFSET + 1):
            found = cache.segment_for_offset(epoch, offset)
            assert (found and str(found.remote_log_segment_id.id)) == known.found.get((epoch, offset))


def _value(record: Any) -> bytes:
    if isinstance(record, RemoteLogSegmentMetadata):
        return encode(segment_record(record))
    return encode(update_record(record))
