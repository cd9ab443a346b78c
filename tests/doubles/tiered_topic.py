"""Records of metadata topics, and what brokers make of them."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from include.tiering.formats.primitive_types import write_uvarint, write_varint
from include.tiering.formats.record_batch import ControlType
from include.tiering.formats.remote_log_metadata import decode
from include.tiering.formats.remote_log_metadata_records import (
    SegmentRecord,
    SegmentUpdateRecord,
    metadata_of,
    update_of,
)
from include.tiering.kafka.metadata_topic.contract import MetadataTopic, MetadataTopicRecord, metadata_partition_of
from include.tiering.metadata_sync.metadata_events import event_of
from include.tiering.model.broker_cache import BrokerCache, Effect
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tests.doubles.broker_data import expected
from tests.doubles.memory_metadata_topic import MemoryMetadataTopic
from tests.doubles.record_batches import CONTROL, record_batch

# The metadata topic that a real broker wrote, record by record as it was on the wire, without a broker.

METADATA_PARTITIONS = 3


def tiered_topic() -> MemoryMetadataTopic:
    """All 164 records of the set `kafka-tiered`, at their offsets."""
    topic = MemoryMetadataTopic(METADATA_PARTITIONS)
    for record in tiered_records():
        offset = topic.append(record["metadata_partition"], bytes.fromhex(record["value_hex"]))
        assert offset == record["offset"]
    return topic


def tiered_records() -> list[dict[str, Any]]:
    """As Kafka's own classes decoded them, by metadata partition and offset."""
    records: list[dict[str, Any]] = expected("tiered")["remote_log_metadata"]
    return sorted(records, key=lambda record: (record["metadata_partition"], record["offset"]))


def last_states() -> Mapping[RemoteLogSegmentId, RemoteLogSegmentState]:
    """The state of the last record about each segment, as Kafka's own classes decoded it."""
    return {
        RemoteLogSegmentId(
            TopicIdPartition(Uuid.parse(record["topic_id"]), record["partition"], record["topic"]),
            Uuid.parse(record["segment_id"]),
        ): RemoteLogSegmentState[record["state"]]
        for record in tiered_records()
    }


def replayed_caches(topic: MemoryMetadataTopic) -> Mapping[TopicIdPartition, BrokerCache]:
    """What a broker knows that read the topic from its beginning."""
    caches: dict[TopicIdPartition, BrokerCache] = {}
    for number in range(topic.partition_count()):
        begin, end = topic.offsets(number)
        for record in topic.read(number, begin, end_offset=end):
            event = event_of(record.value)
            if isinstance(event, RemoteLogSegmentMetadata):
                caches.setdefault(event.topic_id_partition, BrokerCache()).add(event)
            elif isinstance(event, RemoteLogSegmentMetadataUpdate):
                partition = event.remote_log_segment_id.topic_id_partition
                caches.setdefault(partition, BrokerCache()).update(event)
    return caches


# Records of the cluster metadata log as a controller writes them, in batches and snapshots.

NO_TAGS = b"\0"
_CONTROL_KEY = struct.Struct(">hh")


def frame(api_key: int, version: int, body: bytes) -> bytes:
    return write_uvarint(1) + write_uvarint(api_key) + write_uvarint(version) + body


def topic_record(topic: str, topic_id: Uuid) -> bytes:
    return frame(2, 0, string(topic) + topic_id.value + NO_TAGS)


def partition_record(
    topic_id: Uuid,
    partition: int = 0,
    *,
    replicas: Sequence[int] = (1,),
    isr: Sequence[int] | None = None,
    leader: int = 1,
    leader_epoch: int = 0,
    directories: Sequence[Uuid] | None = None,
) -> bytes:
    """Version 1 with `directories`, else version 0."""
    body = struct.pack(">i", partition) + topic_id.value
    body += int32s(replicas) + int32s(replicas if isr is None else isr) + int32s([]) + int32s([])
    body += struct.pack(">iii", leader, leader_epoch, 0)
    if directories is not None:
        body += uuids(directories)
    return frame(3, 0 if directories is None else 1, body + NO_TAGS)


def config_record(topic: str, key: str, value: str | None, *, resource_type: int = 2) -> bytes:
    encoded = b"\0" if value is None else string(value)
    return frame(4, 0, struct.pack(">b", resource_type) + string(topic) + string(key) + encoded + NO_TAGS)


def partition_change(
    topic_id: Uuid,
    partition: int = 0,
    *,
    isr: Sequence[int] | None = None,
    leader: int | None = None,
    replicas: Sequence[int] | None = None,
    directories: Sequence[Uuid] | None = None,
) -> bytes:
    tags = {
        0: None if isr is None else int32s(isr),
        1: None if leader is None else struct.pack(">i", leader),
        2: None if replicas is None else int32s(replicas),
        8: None if directories is None else uuids(directories),
    }
    present = [(tag, value) for tag, value in tags.items() if value is not None]
    body = struct.pack(">i", partition) + topic_id.value + write_uvarint(len(present))
    for tag, value in present:
        body += write_uvarint(tag) + write_uvarint(len(value)) + value
    return frame(5, 0, body)


def remove_topic(topic_id: Uuid) -> bytes:
    return frame(9, 0, topic_id.value + NO_TAGS)


def metadata_batch(base_offset: int, values: Sequence[bytes]) -> bytes:
    """One batch with one record per value."""
    records = b"".join(_record(delta, None, value) for delta, value in enumerate(values))
    return record_batch(base_offset, count=len(values), records=records)


def control_batch(base_offset: int, control: ControlType) -> bytes:
    records = _record(0, _CONTROL_KEY.pack(0, control), b"\0\0")
    return record_batch(base_offset, attributes=CONTROL, records=records)


def snapshot(values: Sequence[bytes], *, complete: bool = True) -> bytes:
    """A `.checkpoint`: header, records, and the footer if it is complete."""
    batches = control_batch(0, ControlType.SNAPSHOT_HEADER) + metadata_batch(1, values)
    return batches + (control_batch(1 + len(values), ControlType.SNAPSHOT_FOOTER) if complete else b"")


def string(text: str) -> bytes:
    return write_uvarint(len(text.encode()) + 1) + text.encode()


def int32s(values: Sequence[int]) -> bytes:
    return write_uvarint(len(values) + 1) + struct.pack(f">{len(values)}i", *values)


def uuids(values: Sequence[Uuid]) -> bytes:
    return write_uvarint(len(values) + 1) + b"".join(value.value for value in values)


def _record(delta: int, key: bytes | None, value: bytes) -> bytes:
    body = b"\0" + write_varint(0) + write_varint(delta)
    body += b"".join(_nullable(part) for part in (key, value)) + write_varint(0)
    return write_varint(len(body)) + body


def _nullable(part: bytes | None) -> bytes:
    return write_varint(-1) if part is None else write_varint(len(part)) + part


# What the brokers of a cluster would make of a metadata topic: plain rules about one partition, record by record.


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
