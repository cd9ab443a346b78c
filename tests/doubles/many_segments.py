"""As many whole segments as a test needs: a broker's, again and again at later offsets and leader epochs.

Base offsets and leader epochs of batches are not under their CRCs, and the offset and time index count from the
segment's start: what moves is what speaks of absolute offsets.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import google_crc32c
import numpy as np

from include.tiering.formats import checkpoints, indexes
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.segments import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata
from include.tiering.remote_storage.object_store import BytesSource
from tests.doubles.damages.batches import moved
from tests.doubles.storage_segments import some_uuid
from tests.doubles.stored_log import rolled_segments

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
