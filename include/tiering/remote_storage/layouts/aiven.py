"""The layout of Aiven's tiered storage plugin: what a stock broker with that plugin reads, and what it writes.

    <topic>-<topicId>/<partition>/<start offset, 20 digits>-<segmentId>.<suffix>

    suffix          content
    log             the segment file: byte for byte, or chunk by chunk compressed, encrypted, or both
    indexes         offset index, time index, producer snapshot, leader epochs, transaction index (if any), one after
                    another; in an encrypted segment each that is not empty is encrypted
    rsm-manifest    where each index and chunk is, and the metadata: written last, it marks the segment as complete

Ids have 22 characters and may contain `-`, as topic names may, so only the fixed length of ids separates the parts of a
key. The plugin prepends its setting `key.prefix` to keys unchanged. That setting must be the prefix in a bucket's URL
with a slash at its end (nothing for a directory), followed by `AivenForm.key_prefix`.
"""

import os
import re
from collections.abc import Callable
from typing import Final

from include.tiering.errors import (
    CustomMetadataTooLargeError,
    FormatError,
    ObjectKeyError,
    RemoteChecksumError,
    RemoteStorageError,
    SettingError,
    UnknownVersionError,
    printable,
)
from include.tiering.formats.aiven_chunks import IV_BYTES
from include.tiering.formats.aiven_manifest import (
    MAX_REMOTE_SIZE_BYTES,
    CustomMetadataField,
    SegmentManifest,
    build_manifest,
    encode_custom_metadata,
    index_positions,
    parse_manifest,
)
from include.tiering.model.segments import IndexType, LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.remote_storage.contract import ObjectKind, TransformedSizes
from include.tiering.remote_storage.layouts.aiven_form import AivenForm, Cipher, SegmentKeys, StoredForm, stored_log
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

PLAIN: Final = AivenForm()
_KINDS: Final = (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST)
_KEY: Final = re.compile(
    rf"{TOPIC_PATTERN}-{TOPIC_ID_PATTERN}/{PARTITION_PATTERN}/{SEGMENT_PATTERN}"
    r"\.(?P<kind>log|indexes|rsm-manifest)\Z"
)


class AivenLayout:
    """Writes segments in one form, and reads those of all forms. `keys` are needed for encrypted segments."""

    name: Final = "aiven"
    required_kinds: Final = frozenset(_KINDS)
    most_objects: Final = len(_KINDS)
    staging_prefix: Final = ""

    def __init__(
        self,
        form: AivenForm = PLAIN,
        keys: SegmentKeys | None = None,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        if form.encrypts and keys is None:
            raise SettingError("remote_storage.encryption_enabled needs remote_storage.encryption_key_pairs")
        self._form = form
        self._keys = keys
        self._random_bytes = random_bytes

    @property
    def log_chunk_bytes(self) -> int:
        return self._form.chunk_size_bytes if self._form.compresses or self._form.encrypts else 1

    def keys(self, metadata: RemoteLogSegmentMetadata) -> tuple[tuple[ObjectKind, str], ...]:
        return tuple((kind, self._key(metadata, kind)) for kind in _KINDS)

    def keys_of(
        self, topic: str, topic_id: str, partition: int, start_offset: int, segment_id: str
    ) -> tuple[tuple[ObjectKind, str], ...]:
        name = f"{self._form.key_prefix}{topic}-{topic_id}/{partition}/{start_offset:020d}-{segment_id}"
        return tuple((kind, f"{name}.{kind.value}") for kind in _KINDS)

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        return f"{self._form.key_prefix}{partition.topic}-{partition.topic_id}/{partition.partition}/"

    def parse_key(self, key: str) -> SegmentKey:
        if not key.startswith(self._form.key_prefix):
            raise ObjectKeyError(f"{printable(key)!r} does not begin with {self._form.key_prefix!r}")
        return segment_key(_KEY, key.removeprefix(self._form.key_prefix), self.name)

    def objects(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> tuple[PlannedObject, ...]:
        if data.log.size_bytes != metadata.segment_size_bytes:
            raise RemoteChecksumError(
                f"{metadata.remote_log_segment_id}: the log has {data.log.size_bytes} bytes,"
                f" the metadata says {metadata.segment_size_bytes}"
            )
        encryption, cipher = self._keys.new_segment() if self._keys and self._form.encrypts else (None, None)
        log = stored_log(str(metadata.remote_log_segment_id), data, self._form, cipher, self._random_bytes)
        parts = {index_type: self._sealed(data.index(index_type), cipher) for index_type in IndexType}
        manifest = build_manifest(
            metadata,
            index_positions({each: None if part is None else len(part) for each, part in parts.items()}),
            log.chunk_index,
            encryption=encryption,
            with_txn_index_empty=self._form.with_txn_index_empty,
        )
        indexes = b"".join(part or b"" for part in parts.values())
        return (
            PlannedObject(
                ObjectKind.LOG,
                self._key(metadata, ObjectKind.LOG),
                log.body,
                log.crc32c,
                log.running_crc32c,
                log.body is not data.log,
            ),
            self._in_memory(metadata, ObjectKind.INDEXES, indexes),
            self._in_memory(metadata, ObjectKind.MANIFEST, manifest),
        )

    def check(self) -> None:
        if self._keys is not None and self._form.encrypts:
            self._keys.check()

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        encoded = self.custom_metadata(metadata, MAX_REMOTE_SIZE_BYTES)
        if encoded is not None and len(encoded) > self._form.custom_metadata_max_bytes:
            raise CustomMetadataTooLargeError(
                f"{metadata.remote_log_segment_id}: its custom metadata may have {len(encoded)} bytes, brokers accept"
                f" {self._form.custom_metadata_max_bytes} (their remote.log.metadata.custom.metadata.max.bytes): raise"
                " that and remote_storage.custom_metadata_max_bytes, or take OBJECT_PREFIX or OBJECT_KEY out of"
                " remote_storage.custom_metadata_fields_include and of the brokers' plugin configuration"
            )

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        if not self._form.custom_metadata:
            return None
        values: dict[CustomMetadataField, int | str] = {
            CustomMetadataField.REMOTE_SIZE: stored_bytes,
            CustomMetadataField.OBJECT_PREFIX: self._form.brokers_prefix,
            CustomMetadataField.OBJECT_KEY: _stem(metadata),
        }
        return encode_custom_metadata({field: values[field] for field in self._form.custom_metadata})

    def log(self, metadata: RemoteLogSegmentMetadata, first: int, last: int, read: ReadObject) -> StoredRange:
        manifest, key = self._manifest(metadata, read), self._key(metadata, ObjectKind.LOG)
        if manifest.is_plain:
            return StoredRange(key, first, last)
        if last >= manifest.chunk_index.original_file_size_bytes:
            raise RemoteChecksumError(
                f"{metadata.remote_log_segment_id}: its manifest describes a log of"
                f" {manifest.chunk_index.original_file_size_bytes} bytes, byte {last} was requested"
            )
        return self._stored_form(metadata, manifest).log(key, first, last)

    def transformed_sizes(self, metadata: RemoteLogSegmentMetadata, read: ReadObject) -> TransformedSizes | None:
        manifest = self._manifest(metadata, read)
        chunks = manifest.chunk_index
        return (
            None if manifest.is_plain else TransformedSizes(chunks.stored_size_bytes, chunks.original_file_size_bytes)
        )

    def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType, read: ReadObject) -> bytes | None:
        form = self._stored_form(metadata, self._manifest(metadata, read))
        return form.index(self._key(metadata, ObjectKind.INDEXES), index_type, read)

    def whole(self, metadata: RemoteLogSegmentMetadata, kind: ObjectKind, read: ReadObject) -> bytes:
        key = self._key(metadata, kind)
        if kind is not ObjectKind.INDEXES:
            return read(key, 0, None)
        return self._stored_form(metadata, self._manifest(metadata, read)).indexes(key, read)

    def manifest_key(self, metadata: RemoteLogSegmentMetadata) -> str | None:
        return self._key(metadata, ObjectKind.MANIFEST)

    def _stored_form(self, metadata: RemoteLogSegmentMetadata, manifest: SegmentManifest) -> StoredForm:
        return StoredForm(str(metadata.remote_log_segment_id), manifest, self._keys)

    def _manifest(self, metadata: RemoteLogSegmentMetadata, read: ReadObject) -> SegmentManifest:
        key = self._key(metadata, ObjectKind.MANIFEST)
        try:
            return parse_manifest(read(key, 0, None))
        except UnknownVersionError as error:
            raise RemoteStorageError(f"{key} is of another release: {error}") from error
        except FormatError as error:
            raise RemoteChecksumError(f"{key}: {error}") from error

    def _sealed(self, content: bytes | None, cipher: Cipher | None) -> bytes | None:
        """Return an index as it is stored; an empty index is not encrypted."""
        return cipher.seal(content, self._random_bytes(IV_BYTES)) if cipher is not None and content else content

    def _in_memory(self, metadata: RemoteLogSegmentMetadata, kind: ObjectKind, content: bytes) -> PlannedObject:
        return PlannedObject(kind, self._key(metadata, kind), BytesSource(content), crc32c_of(content))

    def _key(self, metadata: RemoteLogSegmentMetadata, kind: ObjectKind) -> str:
        return f"{self._form.key_prefix}{_stem(metadata)}.{kind.value}"


def _stem(metadata: RemoteLogSegmentMetadata) -> str:
    """Return what all keys of a segment have in common, without the prefix."""
    partition = metadata.topic_id_partition
    return (
        f"{partition.topic}-{partition.topic_id}/{partition.partition}/"
        f"{metadata.start_offset:020d}-{metadata.remote_log_segment_id.id}"
    )
