"""The layout of LocalTieredStorage, the storage that Kafka's own tests use: one directory that all brokers see.

    kafka-tiered-storage/<topic>-<partition>-<topicId>/<start offset, 20 digits>-<segmentId>.<suffix>

    suffix                     content
    log                        the segment file, byte for byte
    index, timeindex           the offset index and the time index, trimmed
    txnindex                   the transaction index; absent if the broker wrote none
    leader_epoch_checkpoint    the history of leader epochs up to the end of the segment, as text
    snapshot                   the producer snapshot at end offset + 1

No object marks a segment as complete, only the metadata do. So copies in a store of this layout cannot be adopted, nor
can metadata be rebuilt from it. `log` is written first. A broker that walks through `kafka-tiered-storage` stops at any
other file name in it, so the platform's own files are outside of it, and files being written are in `STAGING_PREFIX`,
on the same file system.

Source: `LocalTieredStorage` and `RemoteLogSegmentFileset` of Kafka 3.9 to 4.3.
"""

import re
from typing import Final

from include.tiering.errors import RemoteChecksumError, RemoteResourceNotFoundError
from include.tiering.model.segments import IndexType, LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.remote_storage.contract import ObjectKind, TransformedSizes
from include.tiering.remote_storage.layouts.contract import (
    PARTITION_PATTERN,
    SEGMENT_PATTERN,
    TOPIC_ID_PATTERN,
    TOPIC_PATTERN,
    PlannedObject,
    ReadObject,
    SegmentKey,
    StoredRange,
    segment_key,
)
from include.tiering.remote_storage.object_store import BytesSource, crc32c_of

ROOT: Final = "kafka-tiered-storage"
STAGING_PREFIX: Final = "_tiering-staging/"
_INDEXES: Final = {
    IndexType.OFFSET: ObjectKind.OFFSET_INDEX,
    IndexType.TIMESTAMP: ObjectKind.TIME_INDEX,
    IndexType.TRANSACTION: ObjectKind.TRANSACTION_INDEX,
    IndexType.LEADER_EPOCH: ObjectKind.LEADER_EPOCH,
    IndexType.PRODUCER_SNAPSHOT: ObjectKind.PRODUCER_SNAPSHOT,
}
_KINDS: Final = (ObjectKind.LOG, *_INDEXES.values())
_KEY: Final = re.compile(
    rf"{ROOT}/{TOPIC_PATTERN}-{PARTITION_PATTERN}-{TOPIC_ID_PATTERN}/{SEGMENT_PATTERN}"
    rf"\.(?P<kind>{'|'.join(kind.value for kind in _KINDS)})\Z"
)


class LocalTieredStorageLayout:
    """Layout for stores in directories only, because brokers open these files themselves."""

    name: Final = "local_tiered_storage"
    required_kinds: Final = frozenset(_KINDS) - {ObjectKind.TRANSACTION_INDEX}
    most_objects: Final = len(_KINDS)
    log_chunk_bytes: Final = 1
    staging_prefix: Final = STAGING_PREFIX

    def keys(self, metadata: RemoteLogSegmentMetadata) -> tuple[tuple[ObjectKind, str], ...]:
        return tuple((kind, _key(metadata, kind)) for kind in _KINDS)

    def keys_of(
        self, topic: str, topic_id: str, partition: int, start_offset: int, segment_id: str
    ) -> tuple[tuple[ObjectKind, str], ...]:
        name = f"{ROOT}/{topic}-{partition}-{topic_id}/{start_offset:020d}-{segment_id}"
        return tuple((kind, f"{name}.{kind.value}") for kind in _KINDS)

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        return f"{ROOT}/{partition.topic}-{partition.partition}-{partition.topic_id}/"

    def parse_key(self, key: str) -> SegmentKey:
        return segment_key(_KEY, key, self.name)

    def objects(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> tuple[PlannedObject, ...]:
        if data.log.size_bytes != metadata.segment_size_bytes:
            raise RemoteChecksumError(
                f"{metadata.remote_log_segment_id}: the log has {data.log.size_bytes} bytes,"
                f" the metadata says {metadata.segment_size_bytes}"
            )
        log_key = _key(metadata, ObjectKind.LOG)
        planned = [PlannedObject(ObjectKind.LOG, log_key, data.log, data.log_crc32c, data.log_running_crc32c)]
        for index_type, kind in _INDEXES.items():
            content = data.index(index_type)
            if content is not None:
                planned.append(PlannedObject(kind, _key(metadata, kind), BytesSource(content), crc32c_of(content)))
        return tuple(planned)

    def check(self) -> None:
        """Do nothing: this layout encrypts nothing, so it has no key pairs."""

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Do nothing: this layout has no custom metadata."""

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        return None

    def log(self, metadata: RemoteLogSegmentMetadata, first: int, last: int, read: ReadObject) -> StoredRange:
        return StoredRange(_key(metadata, ObjectKind.LOG), first, last)

    def transformed_sizes(self, metadata: RemoteLogSegmentMetadata, read: ReadObject) -> TransformedSizes | None:
        return None

    def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType, read: ReadObject) -> bytes | None:
        try:
            return read(_key(metadata, _INDEXES[index_type]), 0, None)
        except RemoteResourceNotFoundError:
            if index_type is IndexType.TRANSACTION:
                return None
            raise

    def whole(self, metadata: RemoteLogSegmentMetadata, kind: ObjectKind, read: ReadObject) -> bytes:
        return read(_key(metadata, kind), 0, None)

    def manifest_key(self, metadata: RemoteLogSegmentMetadata) -> str | None:
        return None


def _key(metadata: RemoteLogSegmentMetadata, kind: ObjectKind) -> str:
    partition = metadata.topic_id_partition
    return (
        f"{ROOT}/{partition.topic}-{partition.partition}-{partition.topic_id}/"
        f"{metadata.start_offset:020d}-{metadata.remote_log_segment_id.id}.{kind.value}"
    )
