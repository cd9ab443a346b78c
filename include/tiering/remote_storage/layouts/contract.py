"""Contract of a layout: which objects a segment has, under which keys, in which form, and where its indexes are.

The patterns that the keys of all layouts share, and the parser of a matching key, are here too.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from include.tiering.errors import ObjectKeyError, printable
from include.tiering.model.segments import (
    ByteSource,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
)
from include.tiering.remote_storage.contract import ObjectKind, TransformedSizes

ReadObject = Callable[[str, int, int | None], bytes]
"""(key, first byte, last byte inclusive or None for the end) -> bytes.

Raises RemoteResourceNotFoundError if the object is absent or lacks some of these bytes."""


@dataclass(frozen=True, slots=True)
class StoredRange:
    """Where a range of a log is stored.

    Attributes:
        key: of the log object.
        first: the first byte of the object that is needed (inclusive).
        last: the last byte (inclusive).
        restored: makes of these bytes, in blocks of any size, what the broker wrote in the range. Raises
            StoredChunkError for bytes that differ from what the manifest says.
    """

    key: str
    first: int
    last: int
    restored: Callable[[Iterator[bytes]], Iterator[bytes]] = iter


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """One object to be written.

    Attributes:
        running_crc32c: as in `LogSegmentData`, but of the log object as it is stored; empty for all other objects.
        is_transformed: as in `StoredObject`.
    """

    kind: ObjectKind
    key: str
    body: ByteSource
    crc32c: int
    running_crc32c: tuple[int, ...] = ()
    is_transformed: bool = False


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """The parts of a key: the segment, its start offset, and the kind of the object."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    kind: ObjectKind


class SegmentLayout(Protocol):
    """Objects of a remote log segment. Keys are relative to the store's prefix and pass `checked_key`."""

    @property
    def name(self) -> str:
        """The value of `remote_storage.layout`."""
        ...

    @property
    def required_kinds(self) -> frozenset[ObjectKind]:
        """Kinds of the objects that every complete segment has."""
        ...

    @property
    def most_objects(self) -> int:
        """How many objects a segment may have."""
        ...

    @property
    def log_chunk_bytes(self) -> int:
        """See `ReadingCosts.log_chunk_bytes`."""
        ...

    @property
    def staging_prefix(self) -> str:
        """Prefix of the keys of unfinished files in a file store, ending in a slash; empty: next to the objects."""
        ...

    def keys(self, metadata: RemoteLogSegmentMetadata) -> tuple[tuple[ObjectKind, str], ...]:
        """Return the keys of all objects that a segment with this id may have, in the order of writing."""
        ...

    def keys_of(
        self, topic: str, topic_id: str, partition: int, start_offset: int, segment_id: str
    ) -> tuple[tuple[ObjectKind, str], ...]:
        """Return what `keys` returns, from unchecked text; ids are written as Kafka prints them."""
        ...

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        """Return the prefix, ending in a slash, of all keys of this partition's segments and no other's."""
        ...

    def parse_key(self, key: str) -> SegmentKey:
        """Parse a key that `keys` built.

        Raises:
            ObjectKeyError: not a key that `keys` could have built.
        """
        ...

    def objects(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> tuple[PlannedObject, ...]:
        """Plan all objects of a segment in the order of writing: record bytes first, the manifest (if any) last.

        Raises:
            RemoteChecksumError: metadata and data disagree about the segment's size.
            SourceChangedError: the log, read to be transformed, differs from what the check pass read.
            SettingError: the encryption key pair cannot be used, or the log has more chunks than readers accept.
        """
        ...

    def check(self) -> None:
        """Check the key pair for new segments, if they are encrypted.

        Raises:
            SettingError: a key cannot be used, or the private key, if it is here, does not match.
        """
        ...

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Raise CustomMetadataTooLargeError if brokers would refuse what `custom_metadata` will return."""
        ...

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        """Return what this layout's RSM returns to the broker for objects that have `stored_bytes` in all."""
        ...

    def log(self, metadata: RemoteLogSegmentMetadata, first: int, last: int, read: ReadObject) -> StoredRange:
        """Return where record bytes `first` to `last` (both inclusive, inside the segment) are stored.

        Raises:
            RemoteStorageError: the manifest cannot be used.
            RemoteResourceNotFoundError: the manifest is absent.
            SettingError: the key pair that the segment is encrypted for is not available.
            StoredChunkError: there are too many chunks, or a chunk is too large to be read.
        """
        ...

    def transformed_sizes(self, metadata: RemoteLogSegmentMetadata, read: ReadObject) -> TransformedSizes | None:
        """Return the sizes in the manifest; None if the log object is the segment file. Raises as `log` does."""
        ...

    def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType, read: ReadObject) -> bytes | None:
        """Return one index; None if the segment has no such index. Raises as `log` does."""
        ...

    def whole(self, metadata: RemoteLogSegmentMetadata, kind: ObjectKind, read: ReadObject) -> bytes:
        """Return the stored bytes of an object other than the log. Raises as `log` does.

        Aiven's `indexes` object is put together from the indexes that the manifest names; other objects are read whole.
        """
        ...

    def manifest_key(self, metadata: RemoteLogSegmentMetadata) -> str | None:
        """Return the key of the manifest; None if this layout writes none."""
        ...


TOPIC_PATTERN = r"(?P<topic>[a-zA-Z0-9._-]{1,249})"
TOPIC_ID_PATTERN = r"(?P<topic_id>[A-Za-z0-9_-]{22})"
PARTITION_PATTERN = r"(?P<partition>0|[1-9][0-9]{0,9})"
SEGMENT_PATTERN = r"(?P<start_offset>[0-9]{20})-(?P<segment_id>[A-Za-z0-9_-]{22})"


def segment_key(pattern: re.Pattern[str], key: str, layout: str) -> SegmentKey:
    """Parse `key` by `pattern`, which has the groups of the patterns above and `kind`.

    Raises:
        ObjectKeyError: the key does not match, or has an impossible name, number or id.
    """
    matched = pattern.match(key)
    if matched is None:
        raise ObjectKeyError(f"{printable(key)!r} is not a key of the {layout} layout")
    try:
        partition = TopicIdPartition(Uuid.parse(matched["topic_id"]), int(matched["partition"]), topic=matched["topic"])
        segment_id = RemoteLogSegmentId(partition, Uuid.parse(matched["segment_id"]))
    except ValueError as error:
        raise ObjectKeyError(f"{key!r} is not a key of the {layout} layout: {error}") from error
    start_offset = int(matched["start_offset"])
    if start_offset >= 2**63:
        raise ObjectKeyError(f"{key!r} is not a key of the {layout} layout: the offset exceeds 2^63-1")
    return SegmentKey(segment_id, start_offset, ObjectKind(matched["kind"]))
