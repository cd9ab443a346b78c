"""The layout of Aiven's tiered storage plugin, plain form: what a stock broker with that plugin reads.

    <topic>-<topicId>/<partition>/<start offset, 20 digits>-<segmentId>.<suffix>

    suffix          content
    log             the segment file, byte for byte
    indexes         offset, time index, producer snapshot, leader epochs, transaction index (if any), one after another
    rsm-manifest    where each index is, and the metadata: written last, it marks the segment as complete

Ids are 22 characters and may hold `-`, topics too, so a key is read from the right. The store's prefix takes the place
of the plugin's `key.prefix` (which is glued on as it is: end it in a slash there).
"""

import re
from typing import Final

from include.tiering.errors import FormatError, RemoteChecksumError, RemoteStorageError
from include.tiering.formats.manifest import SegmentManifest, build_manifest, index_positions, parse_manifest
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_data import IndexType, LogSegmentData
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.remote_storage.bodies import BytesSource, crc32c_of
from include.tiering.remote_storage.contract import ObjectKind
from include.tiering.remote_storage.layouts.contract import PlannedObject, ReadObject, SegmentKey
from include.tiering.remote_storage.layouts.key_names import (
    PARTITION_PATTERN,
    SEGMENT_PATTERN,
    TOPIC_ID_PATTERN,
    TOPIC_PATTERN,
    segment_key,
)
from include.tiering.units import MIB

_KINDS: Final = (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST)
_KEY: Final = re.compile(
    rf"{TOPIC_PATTERN}-{TOPIC_ID_PATTERN}/{PARTITION_PATTERN}/{SEGMENT_PATTERN}"
    r"\.(?P<kind>log|indexes|rsm-manifest)\Z"
)


class AivenLayout:
    """`chunk_size_bytes` goes into manifests: how much a broker asks for at once. `with_txn_index_empty`
    adds the member that brokers of the 4.x line write; no reader asks for it."""

    name: Final = "aiven"
    required_kinds: Final = frozenset(_KINDS)
    staging_prefix: Final = ""

    def __init__(self, *, chunk_size_bytes: int = 4 * MIB, with_txn_index_empty: bool = False) -> None:
        self._chunk_size_bytes = chunk_size_bytes
        self._with_txn_index_empty = with_txn_index_empty

    def keys(self, metadata: RemoteLogSegmentMetadata) -> tuple[tuple[ObjectKind, str], ...]:
        return tuple((kind, _key(metadata, kind)) for kind in _KINDS)

    def keys_of(
        self, topic: str, topic_id: str, partition: int, start_offset: int, segment_id: str
    ) -> tuple[tuple[ObjectKind, str], ...]:
        name = f"{topic}-{topic_id}/{partition}/{start_offset:020d}-{segment_id}"
        return tuple((kind, f"{name}.{kind.value}") for kind in _KINDS)

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        return f"{partition.topic}-{partition.topic_id}/{partition.partition}/"

    def parse_key(self, key: str) -> SegmentKey:
        return segment_key(_KEY, key, self.name)

    def objects(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> tuple[PlannedObject, ...]:
        if data.log.size_bytes != metadata.segment_size_bytes:
            raise RemoteChecksumError(
                f"{metadata.remote_log_segment_id}: the log has {data.log.size_bytes} bytes,"
                f" the metadata says {metadata.segment_size_bytes}"
            )
        parts = {index_type: data.index(index_type) for index_type in IndexType}
        positions = index_positions({each: None if part is None else len(part) for each, part in parts.items()})
        manifest = build_manifest(
            metadata,
            positions,
            chunk_size_bytes=self._chunk_size_bytes,
            with_txn_index_empty=self._with_txn_index_empty,
        )
        return (
            PlannedObject(
                ObjectKind.LOG, _key(metadata, ObjectKind.LOG), data.log, data.log_crc32c, data.log_running_crc32c
            ),
            _in_memory(metadata, ObjectKind.INDEXES, b"".join(part or b"" for part in parts.values())),
            _in_memory(metadata, ObjectKind.MANIFEST, manifest),
        )

    def log_key(self, metadata: RemoteLogSegmentMetadata, read: ReadObject) -> str:
        self._plain_manifest(metadata, read)
        return _key(metadata, ObjectKind.LOG)

    def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType, read: ReadObject) -> bytes | None:
        found = self._plain_manifest(metadata, read).indexes[index_type]
        if found is None or not found.size_bytes:
            return None if found is None else b""
        return read(_key(metadata, ObjectKind.INDEXES), found.position, found.position + found.size_bytes - 1)

    def manifest_key(self, metadata: RemoteLogSegmentMetadata) -> str | None:
        return _key(metadata, ObjectKind.MANIFEST)

    def _plain_manifest(self, metadata: RemoteLogSegmentMetadata, read: ReadObject) -> SegmentManifest:
        key = _key(metadata, ObjectKind.MANIFEST)
        try:
            manifest = parse_manifest(read(key, 0, None))
        except FormatError as error:
            raise RemoteStorageError(f"{key}: {error}") from error
        if manifest.unreadable_reason is not None:
            raise RemoteStorageError(
                f"{key}: the segment is {manifest.unreadable_reason}; only plain segments are read here"
            )
        return manifest


def _key(metadata: RemoteLogSegmentMetadata, kind: ObjectKind) -> str:
    partition = metadata.topic_id_partition
    return (
        f"{partition.topic}-{partition.topic_id}/{partition.partition}/"
        f"{metadata.start_offset:020d}-{metadata.remote_log_segment_id.id}.{kind.value}"
    )


def _in_memory(metadata: RemoteLogSegmentMetadata, kind: ObjectKind, content: bytes) -> PlannedObject:
    return PlannedObject(kind, _key(metadata, kind), BytesSource(content), crc32c_of(content))
