"""The digest of what was copied: bytes of the store, believed once their checksum is that of the source.

A batch of which more would come out than is opened at once is left out, and named: what consumers get of the others is
compared without it. Its bytes are those of the source, as the checksum over all of them says.
"""

from include.tiering.errors import BatchTooLargeError, RemoteChecksumError, UnknownSegmentError
from include.tiering.formats.codecs import Decompressor
from include.tiering.formats.log_batches import BatchStream
from include.tiering.formats.record_batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader
from include.tiering.formats.records import records_of
from include.tiering.handover.ports import StoredDigest
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segment_data import RecordDigest
from include.tiering.quotas.contract import ByteLimiter
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.units import MIB
from include.tiering.verification.segment_contents import LogPart

_BLOCK_BYTES = 32 * MIB
"""The largest batch that is opened."""


def stored_digest(
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
    limiter: ByteLimiter,
    partition: TopicIdPartition,
    start_offset: int,
    end_offset: int,
) -> StoredDigest:
    """Records with offsets from `start_offset` to `end_offset` (inclusive), which one copied segment holds.

    Raises:
        UnknownSegmentError: no FINISHED segment of ours holds them all.
        RemoteChecksumError: its bytes are not those of the source.
        RemoteStorageError, FormatError
    """
    row = _holding(metadata, partition, start_offset, end_offset)
    log = LogPart(storage.fetch_log_segment(row.metadata, limiter=limiter), 0, row.metadata.segment_size_bytes)
    digest, decompressor = RecordDigest(), Decompressor()
    not_opened: list[OffsetRange] = []
    stream = BatchStream(log, _BLOCK_BYTES)
    for position, fields in stream:
        header = BatchHeader._make(fields)
        if header.is_control or header.last_offset < start_offset or header.base_offset > end_offset:
            continue
        payload_bytes = LOG_OVERHEAD + header.batch_length - HEADER_SIZE
        payload = stream.records(position)[:payload_bytes]
        try:
            if len(payload) < payload_bytes:
                raise BatchTooLargeError(f"a batch of {header.size_bytes} bytes", position)
            for record in records_of(header, payload, decompressor):
                if start_offset <= record.offset <= end_offset:
                    digest.add(record)
        except BatchTooLargeError:
            # Raised before its first record was added.
            not_opened.append(OffsetRange(max(header.base_offset, start_offset), min(header.last_offset, end_offset)))
    if row.log_crc32c is not None and log.crc32c != row.log_crc32c:
        raise RemoteChecksumError(
            f"{row.metadata.remote_log_segment_id}: the store's log has CRC-32C {log.crc32c:08x},"
            f" the source's had {row.log_crc32c:08x}"
        )
    return StoredDigest(digest.result(), tuple(not_opened))


def _holding(metadata: RemoteLogMetadata, partition: TopicIdPartition, start: int, end: int) -> SegmentRow:
    for row in metadata.list_segments(partition):
        found = row.metadata
        is_ours = row.origin is SegmentOrigin.PLATFORM and found.is_finished
        if is_ours and found.start_offset <= start and end <= found.end_offset:
            return row
    raise UnknownSegmentError(f"{partition}: no segment of ours holds offsets {start}..{end}")
