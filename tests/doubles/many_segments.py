"""Many segments: known, planned in large batches, and damaged."""

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

import cramjam
import google_crc32c
import numpy as np
import zstandard

from include.tiering.formats import checkpoints, indexes
from include.tiering.formats.primitive_types import write_varint, write_varlong
from include.tiering.formats.record_batch import HEADER_SIZE, Codec, parse_header
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata
from include.tiering.remote_storage.object_store import BytesSource
from include.tiering.units import KIB, MIB
from tests.doubles.broker_data import DataSet, expected
from tests.doubles.damages.batches import batches_of, moved, value_of, with_value
from tests.doubles.record_batches import with_crc
from tests.doubles.stored_log import rolled_segments, some_uuid

# As many whole segments as a test needs: a broker's, again and again at later offsets and leader epochs. Base
# offsets and leader epochs of batches are not under their CRCs, and the offset and time index count from the
# segment's start: what moves is what speaks of absolute offsets.

PARTITIONS: Final = (
    "payments.v1-eu-0",
    "orders-0",
    "orders-1",
    "audit_log-0",
    "audit_log-1",
    "sensor-old-0",
    "trimmed-0",
    "replicated-1",
    "retained-0",
)
"""All partitions of the bundled `public` set that are not compacted, but those of the largest records and of the
fewest segments."""

Segment = tuple[RemoteLogSegmentMetadata, LogSegmentData]


def many_segments(least: int) -> Iterator[list[Segment]]:
    """Partitions with `least` segments or more together, each without a gap in the order of its offsets."""
    partitions = [rolled_segments(name) for name in PARTITIONS]
    generations = -(-least // sum(map(len, partitions)))
    for segments in partitions:
        yield list(_repeated(segments, generations))


def _repeated(segments: list[Segment], times: int) -> Iterator[Segment]:
    offsets = segments[-1][0].end_offset + 1 - segments[0][0].start_offset
    epochs = segments[-1][0].segment_leader_epochs.entries[-1].epoch + 1
    for generation in range(times):
        for metadata, data in segments:
            yield _moved(metadata, data, generation * offsets, generation * epochs)


def _moved(metadata: RemoteLogSegmentMetadata, data: LogSegmentData, offsets: int, epochs: int) -> Segment:
    log = bytearray(data.log.size_bytes)
    data.log.read_into(0, memoryview(log))
    content = moved(bytes(log), offsets, epochs)
    history = checkpoints.parse_leader_epochs(data.leader_epoch)
    partition = metadata.topic_id_partition
    segment_id = RemoteLogSegmentId(partition, some_uuid(f"{partition}:{metadata.start_offset + offsets}"))
    return replace(
        metadata,
        remote_log_segment_id=segment_id,
        start_offset=metadata.start_offset + offsets,
        end_offset=metadata.end_offset + offsets,
        segment_leader_epochs=_later(metadata.segment_leader_epochs, offsets, epochs),
    ), replace(
        data,
        log=BytesSource(content),
        log_crc32c=google_crc32c.value(content),
        leader_epoch=checkpoints.serialize_leader_epochs(_later(history, offsets, epochs)),
        producer_snapshot=_later_producers(data.producer_snapshot, offsets),
        transaction_index=_later_aborts(data.transaction_index, offsets),
    )


def _later(epochs: LeaderEpochs, by_offsets: int, by_epochs: int) -> LeaderEpochs:
    return LeaderEpochs.of([(entry.epoch + by_epochs, entry.start_offset + by_offsets) for entry in epochs])


def _later_producers(content: bytes, by: int) -> bytes:
    return indexes.serialize_producer_snapshot(
        replace(
            one,
            last_offset=one.last_offset + by if one.last_offset >= 0 else one.last_offset,
            current_txn_first_offset=one.current_txn_first_offset + (by if one.has_open_transaction else 0),
        )
        for one in indexes.parse_producer_snapshot(content)
    )


def _later_aborts(content: bytes | None, by: int) -> bytes | None:
    if content is None:
        return None
    entries = indexes.parse_transaction_index(content).entries.copy()
    for field in ("first_offset", "last_offset", "last_stable_offset"):
        entries[field] += np.int64(by)
    return entries.tobytes()


# Which segments of a stopped cluster's log dirs may be copied, from what Kafka's own tools and its admin API said.

PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class KnownSegment:
    """Offsets are inclusive."""

    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class KnownPartition:
    """`local_bytes` are those of all other segments of the leader's replica."""

    eligible: Sequence[KnownSegment]
    local_bytes: int


def known_partitions(data_set: DataSet) -> Mapping[PartitionName, KnownPartition]:
    """Partitions of which something may be copied."""
    facts = expected(data_set)["facts"]["topics"]
    replicas: dict[str, dict[str, Any]] = {}
    for broker in expected(data_set)["snapshots"]["stopped"].values():
        for directory, replica in broker["partitions"].items():
            # Whoever knows the latest leader epoch led last.
            if replica["leader_epochs"] >= replicas.get(directory, {"leader_epochs": []})["leader_epochs"]:
                replicas[directory] = replica
    found = {}
    for directory, replica in replicas.items():
        topic, _, partition = directory.rpartition("-")
        offsets = facts[topic]["partitions"][partition]["offsets"]
        if topic.startswith("__") or "compact" in facts[topic]["configs"]["cleanup.policy"]:
            continue
        eligible = tuple(_eligible(replica["segments"], offsets))
        every_byte = sum(segment["valid_bytes"] for segment in replica["segments"])
        known = KnownPartition(eligible, every_byte - sum(segment.size_bytes for segment in eligible))
        if known.eligible:
            found[topic, int(partition)] = known
    return found


def _eligible(segments: Sequence[Mapping[str, Any]], offsets: Mapping[str, Any]) -> Iterator[KnownSegment]:
    """Rolled, not wholly below the log start, wholly below the last stable offset (and so the high watermark)."""
    for segment in segments:
        if segment["active"] or segment["end_offset"] < offsets["earliest"]["offset"]:
            continue
        if segment["end_offset"] < offsets["latest_read_committed"]["offset"]:
            yield KnownSegment(
                segment["base_offset"], segment["end_offset"], segment["valid_bytes"], segment["max_timestamp"]
            )


# Batches that are small on disk and large once opened, as any producer may send them: right lengths, right CRC-32C.

_STEP_BYTES = MIB
_SNAPPY_BLOCK_BYTES = 32 * KIB


def records_with_zeros(size_bytes: int, deltas: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """Records with these offset and timestamp deltas, in pieces; the value of the first is `size_bytes` zeros."""
    for number, (offset_delta, timestamp_delta) in enumerate(deltas):
        value_bytes = 0 if number else size_bytes
        head = b"\0" + write_varlong(timestamp_delta) + write_varint(offset_delta) + write_varint(-1)
        head += write_varint(value_bytes)
        yield write_varint(len(head) + value_bytes + 1) + head
        for at in range(0, value_bytes, _STEP_BYTES):
            yield bytes(min(_STEP_BYTES, value_bytes - at))
        yield write_varint(0)


def compressed(codec: Codec, pieces: Iterable[bytes]) -> bytes:
    """As clients write them: one gzip member, snappy-java's blocks, one LZ4 frame, one Zstandard frame."""
    if codec is Codec.GZIP:
        member = zlib.compressobj(9, wbits=16 + zlib.MAX_WBITS)
        return b"".join(map(member.compress, pieces)) + member.flush()
    if codec is Codec.ZSTD:
        frame = zstandard.ZstdCompressor(level=3).compressobj()
        return b"".join(map(frame.compress, pieces)) + frame.flush()
    if codec is Codec.LZ4:
        return bytes(cramjam.lz4.compress(b"".join(pieces)))
    if codec is Codec.SNAPPY:
        return b"".join(chain([b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)], _snappy_blocks(b"".join(pieces))))
    return b"".join(pieces)


def _snappy_blocks(plain: bytes) -> Iterator[bytes]:
    for at in range(0, len(plain), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(plain[at : at + _SNAPPY_BLOCK_BYTES]))
        yield struct.pack(">i", len(block)) + block


def with_zeros(batch: bytes, size_bytes: int, codec: Codec = Codec.ZSTD) -> bytes:
    """The batch with the same offsets, timestamps, epoch and producer, and other records: all that its header tells of
    are there, the first of them with `size_bytes` zeros."""
    header = parse_header(batch)
    last = header.record_count - 1
    times = [0] * last + [header.max_timestamp - header.base_timestamp]
    offsets = [*range(last), header.last_offset_delta]
    return with_records(batch, codec, records_with_zeros(size_bytes, zip(offsets, times, strict=True)))


def with_records(batch: bytes, codec: Codec, pieces: Iterable[bytes]) -> bytes:
    """The batch's header with other records behind it."""
    changed = batch[:HEADER_SIZE] + compressed(codec, pieces)
    changed = with_value(changed, "attributes", value_of(batch, "attributes") & ~7 | codec)
    return with_crc(with_value(changed, "batch length", len(changed) - 12))


def replace_last_batch(log: Path, size_bytes: int, codec: Codec = Codec.ZSTD) -> int:
    """In a segment's file; returns the first offset of the batch."""
    *rest, last = batches_of(log.read_bytes())
    log.write_bytes(b"".join(rest) + with_zeros(last, size_bytes, codec))
    return parse_header(last).base_offset
