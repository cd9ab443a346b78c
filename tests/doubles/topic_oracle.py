"""What the brokers of a cluster would make of a metadata topic: plain rules about one partition, record by record."""

from collections.abc import Iterable, Mapping
from itertools import accumulate

from include.tiering.formats.remote_log_metadata import decode
from include.tiering.formats.remote_log_metadata_records import (
    SegmentRecord,
    SegmentUpdateRecord,
    metadata_of,
    update_of,
)
from include.tiering.kafka.metadata_topic.contract import MetadataTopic, MetadataTopicRecord, metadata_partition_of
from include.tiering.model.broker_cache import BrokerCache, Effect
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition, Uuid


def records_about(topic: MetadataTopic, partition: TopicIdPartition) -> list[MetadataTopicRecord]:
    """Everything of the partition where brokers look for it, in order."""
    chosen = metadata_partition_of(partition, topic.partition_count())
    begin, end = topic.offsets(chosen)
    found = []
    for record in topic.read(chosen, begin, end_offset=end):
        said = decode(record.value)
        assert isinstance(said, SegmentRecord | SegmentUpdateRecord)
        entry = said.segment_id.partition
        if (entry.topic_id, entry.partition) == (partition.topic_id, partition.partition):
            found.append(record)
    return found


def require_valid_prefix(records: Iterable[MetadataTopicRecord], *, log_start_offset: int) -> list[tuple[int, int]]:
    """Raises AssertionError unless, after every single record, a broker could be switched on: live segments ascend from
    the log start without a gap above it, ends rise, no range has two ids, nothing is FINISHED before it began, no
    record is one that brokers drop. Returns the ranges that are FINISHED in the end.
    """
    cache = BrokerCache()
    began: dict[tuple[int, int], Uuid] = {}
    live: dict[Uuid, RemoteLogSegmentMetadata] = {}
    seen: set[bytes] = set()
    for record in records:
        assert record.value not in seen, f"the record at {record.offset} is there twice"
        seen.add(record.value)
        said = decode(record.value)
        if isinstance(said, SegmentRecord):
            metadata = metadata_of(said)
            id_ = metadata.remote_log_segment_id.id
            assert cache.add(metadata) is Effect.APPLIED
            assert id_ not in live, f"{id_} began twice"
            taken = began.setdefault((metadata.start_offset, metadata.end_offset), id_)
            assert taken == id_, f"a second id for {metadata.start_offset}..{metadata.end_offset}"
            end = max((one.end_offset for one in live.values()), default=None)
            if end is None:
                assert metadata.start_offset <= log_start_offset, "a broker would raise its log start"
            else:
                assert metadata.start_offset <= max(end + 1, log_start_offset), "a gap"
                assert metadata.end_offset > end, "ends must rise"
            assert _unfinished(cache, live) == [], "two are under way"
            live[id_] = metadata
        else:
            assert isinstance(said, SegmentUpdateRecord)
            assert cache.update(update_of(said)) is Effect.APPLIED
            if said.state >= RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                live.pop(said.segment_id.id, None)
        ranges = sorted((one.start_offset, one.end_offset) for one in live.values())
        ends = accumulate((end for _, end in ranges), max)
        for end, (start, _) in zip(ends, ranges[1:], strict=False):
            assert start <= max(end + 1, log_start_offset), f"a gap behind {end}"
    return sorted(
        (one.start_offset, one.end_offset)
        for one in cache.list_segments()
        if one.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED
    )


def _unfinished(cache: BrokerCache, live: Mapping[Uuid, object]) -> list[Uuid]:
    return [
        one.remote_log_segment_id.id
        for one in cache.list_segments()
        if one.remote_log_segment_id.id in live and one.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED
    ]
