"""What a layout decides: which objects a segment has, under which keys, in which form, and where its indexes are.

What the keys of all layouts have in common is here too: names of segments in text, and what a matching pattern says.
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
"""(key, first byte, last byte inclusive or None for the end) -> bytes; RemoteResourceNotFoundError if absent."""


StreamObject = Callable[[str, int, int], Iterator[bytes]]
"""(key, first byte, last byte inclusive) -> blocks of any size; errors as `ReadObject`, with the first block."""


@dataclass(frozen=True, slots=True)
class PlannedObject:
    """One object to be written. `running_crc32c` as in `LogSegmentData`, for the record bytes only. `is_transformed`
    as in `StoredObject`.
    """

    kind: ObjectKind
    key: str
    body: ByteSource
    crc32c: int
    running_crc32c: tuple[int, ...] = ()
    is_transformed: bool = False


@dataclass(frozen=True, slots=True)
class SegmentKey:
    """What a key says: whose object it is and which one."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    kind: ObjectKind


class SegmentLayout(Protocol):
    """Objects of a remote log segment. Keys are relative to the store's prefix and legal in every store."""

    @property
    def name(self) -> str: ...

    @property
    def required_kinds(self) -> frozenset[ObjectKind]:
        """Objects that every complete segment has."""
        ...

    @property
    def staging_prefix(self) -> str:
        """Where in a directory a file is kept while it is written: empty for beside its name, else ends in a slash."""
        ...

    def keys(self, metadata: RemoteLogSegmentMetadata) -> tuple[tuple[ObjectKind, str], ...]:
        """Every key that this attempt may have, in the order of writing."""
        ...

    def keys_of(
        self, topic: str, topic_id: str, partition: int, start_offset: int, segment_id: str
    ) -> tuple[tuple[ObjectKind, str], ...]:
        """As `keys`, from what names the attempt; ids as Kafka prints them. Nothing is checked."""
        ...

    def partition_prefix(self, partition: TopicIdPartition) -> str:
        """What every key of this partition's segments begins with, and no other's. Ends in a slash."""
        ...

    def parse_key(self, key: str) -> SegmentKey:
        """The inverse of `keys`.

        Raises:
            ObjectKeyError: not a key that `keys` could have built.
        """
        ...

    def objects(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> tuple[PlannedObject, ...]:
        """All objects of a segment in the order of writing: record bytes first, the commit mark (if any) last.

        Raises:
            RemoteChecksumError: metadata and data disagree about the segment's size.
            SourceChangedError: the log is not what the check pass saw, where it is read for this.
            SettingError: a key that is needed cannot be used.
        """
        ...

    def check(self) -> None:
        """Raises SettingError: segments cannot be written in this form, or what is written not be read."""
        ...

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Raises CustomMetadataTooLargeError if brokers would not take what `custom_metadata` will give."""
        ...

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        """What this layout's RSM gives the broker for a segment whose objects have `stored_bytes` in all."""
        ...

    def log(
        self,
        metadata: RemoteLogSegmentMetadata,
        first: int,
        last: int,
        *,
        read: ReadObject,
        stream: StreamObject,
    ) -> Iterator[bytes]:
        """Record bytes `first` to `last` (both inclusive, inside the segment) as the broker wrote them.

        Raises:
            RemoteStorageError: the manifest cannot be used.
            RemoteResourceNotFoundError: the segment is not complete.
            SegmentKeyError: its key is not at hand.
            StoredChunkError: what is stored is not what the manifest says.
        """
        ...

    def transformed_sizes(self, metadata: RemoteLogSegmentMetadata, read: ReadObject) -> TransformedSizes | None:
        """None if the log object is the segment file itself. Raises as `log` does."""
        ...

    def index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType, read: ReadObject) -> bytes | None:
        """One index; None if the segment has no such index. Raises as `log` does."""
        ...

    def whole(self, metadata: RemoteLogSegmentMetadata, kind: ObjectKind, read: ReadObject) -> bytes:
        """An object beside the log as it must be stored, put together from what is read of it. Raises as `log` does."""
        ...

    def manifest_key(self, metadata: RemoteLogSegmentMetadata) -> str | None:
        """Key of the manifest; None if this layout writes none."""
        ...


TOPIC_PATTERN = r"(?P<topic>[a-zA-Z0-9._-]{1,249})"
TOPIC_ID_PATTERN = r"(?P<topic_id>[A-Za-z0-9_-]{22})"
PARTITION_PATTERN = r"(?P<partition>0|[1-9][0-9]{0,9})"
SEGMENT_PATTERN = r"(?P<start_offset>[0-9]{20})-(?P<segment_id>[A-Za-z0-9_-]{22})"


def segment_key(pattern: re.Pattern[str], key: str, layout: str) -> SegmentKey:
    """What `key` says; `pattern` has the groups of the patterns above and `kind`.

    Raises:
        ObjectKeyError: it does not match, or names an impossible topic, partition or offset.
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
