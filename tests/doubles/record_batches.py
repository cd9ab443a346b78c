"""Record batches."""

import random
import struct
from typing import Final

import google_crc32c
from hypothesis import strategies as st

from include.tiering.formats.primitive_types import write_varint, write_varlong
from include.tiering.formats.record_batch import ControlType
from include.tiering.model.segments import RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate, TopicIdPartition
from tests.doubles.segments import DELETE_FINISHED, DELETE_STARTED, FINISHED, partition_of, segment_of, update_of

# Record batches made field by field, with the CRC that they should have.

NO_PRODUCER = -1
TRANSACTIONAL = 0x10
CONTROL = 0x20


def record_batch(
    base_offset: int,
    *,
    count: int = 1,
    leader_epoch: int = 0,
    attributes: int = 0,
    timestamp_ms: int = 1_700_000_000_000,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = NO_PRODUCER,
    base_sequence: int = NO_PRODUCER,
    records: bytes | None = None,
    value_bytes: int = 20,
    magic: int = 2,
) -> bytes:
    """`count` records of `value_bytes` each, or the given `records` blob; the last has the largest timestamp."""
    if records is None:
        records = b"".join(record(delta, bytes(value_bytes)) for delta in range(count))
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms + count - 1,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    covered += records
    head = struct.pack(">iBI", leader_epoch, magic, google_crc32c.value(covered))
    return struct.pack(">qi", base_offset, len(head) + len(covered)) + head + covered


def record(delta: int, value: bytes, key: bytes | None = None) -> bytes:
    """One record, `delta` above the batch's base offset and as many ms above its base timestamp; no headers."""
    body = b"\0" + write_varlong(delta) + write_varint(delta)
    body += write_varint(-1) if key is None else write_varint(len(key)) + key
    body += write_varint(len(value)) + value + write_varint(0)
    return write_varint(len(body)) + body


def data_batch(base_offset: int, producer_id: int, *, count: int = 1, leader_epoch: int = 0) -> bytes:
    """Records inside a transaction of `producer_id`."""
    return record_batch(
        base_offset,
        count=count,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL,
        producer_id=producer_id,
        producer_epoch=1,
        base_sequence=0,
    )


def marker(base_offset: int, producer_id: int, control: ControlType, *, leader_epoch: int = 0) -> bytes:
    """The control batch that ends a transaction."""
    key = struct.pack(">hh", 0, control)
    return record_batch(
        base_offset,
        leader_epoch=leader_epoch,
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=1,
        records=record(0, struct.pack(">hi", 0, 9), key),
    )


def with_crc(batch: bytes) -> bytes:
    """The batch with its CRC made right again, after a test has changed covered bytes."""
    return batch[:17] + struct.pack(">I", google_crc32c.value(batch[21:])) + batch[21:]


def old_batch(offset: int, magic: int) -> bytes:
    """One entry of magic 0 or 1, without key, value empty. Its CRC is left at zero."""
    timestamp = struct.pack(">q", 1_500_000_000_000) if magic else b""
    body = struct.pack(">IBb", 0, magic, 0) + timestamp + struct.pack(">ii", -1, 0)
    return struct.pack(">qi", offset, len(body)) + body


# Records as brokers write them to the metadata topic, in any order: sound ones, late ones, foreign ones.

Records = list[RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate]
MOST_OFFSET: Final = 15
_CHANGES: Final = (FINISHED, FINISHED, FINISHED, DELETE_STARTED, DELETE_FINISHED)


@st.composite
def record_sequences(
    draw: st.DrawFn, partitions: tuple[TopicIdPartition, ...] = (partition_of("orders"),), most: int = 30
) -> Records:
    """Up to seven segments that overlap as they like, over up to three of four leader epochs; no poison. A segment that
    begins twice has the same offsets and epochs."""
    segments = [_segment(draw, draw(st.sampled_from(partitions)), number) for number in range(draw(st.integers(1, 7)))]
    records: Records = []
    for _ in range(draw(st.integers(0, most))):
        segment = draw(st.sampled_from(segments))
        change = draw(st.sampled_from((None, *_CHANGES)))
        custom = draw(st.sampled_from((None, b"custom")))
        records.append(segment if change is None else update_of(segment, change, custom_metadata=custom))
    return records


def _segment(draw: st.DrawFn, partition: TopicIdPartition, number: int) -> RemoteLogSegmentMetadata:
    start, end = sorted((draw(st.integers(0, MOST_OFFSET)), draw(st.integers(0, MOST_OFFSET))))
    epochs = sorted(draw(st.sets(st.integers(0, 3), min_size=1, max_size=3)))
    later = sorted(draw(st.integers(start, end)) for _ in epochs[1:])
    epoch_starts = dict(zip(epochs, [start, *later], strict=True))
    return segment_of(partition, number, start, end, epoch_starts, size_bytes=draw(st.integers(0, 5_000)))


def random_records(source: random.Random, partitions: tuple[TopicIdPartition, ...], most: int = 30) -> Records:
    """The same by a plain generator: thousands of sequences in a second."""
    segments = []
    for number in range(source.randint(1, 7)):
        start, end = sorted(source.choices(range(MOST_OFFSET + 1), k=2))
        epochs = sorted(source.sample(range(4), source.randint(1, 3)))
        later = sorted(source.choices(range(start, end + 1), k=len(epochs) - 1))
        epoch_starts = dict(zip(epochs, [start, *later], strict=True))
        segments.append(segment_of(source.choice(partitions), number, start, end, epoch_starts))
    records: Records = []
    for _ in range(source.randint(0, most)):
        segment, change = source.choice(segments), source.choice((None, *_CHANGES))
        records.append(segment if change is None else update_of(segment, change))
    return records
