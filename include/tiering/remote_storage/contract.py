"""KIP-405's RemoteStorageManager, as this platform needs it, and the check for absent objects of a segment.

Every copy attempt has a new segment id, so a copy never overwrites: a key that exists already is an error. Deletes
tolerate absence. Only the layout builds and parses keys. All bytes sent are charged to the limiter first.

Objects of a segment may be absent, or not there yet: while a mirror or a restore of the store is under way, some
objects of a segment are missing, or an object has 0 bytes because its content is still to come. The two cases cannot be
told apart, and neither counts as damage, as nothing shows that the object ever had wrong content. An object with wrong
bytes is damage.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from include.tiering.quotas.contract import ByteLimiter

ProgressCallback = Callable[[int], None]
"""Called with the bytes of each block as it is sent; with a negative number where a retry sends bytes again, so that
the sum is the progress."""


class ObjectKind(StrEnum):
    """What one object of a segment holds, in all layouts."""

    LOG = "log"
    INDEXES = "indexes"
    MANIFEST = "rsm-manifest"
    OFFSET_INDEX = "index"
    TIME_INDEX = "timeindex"
    TRANSACTION_INDEX = "txnindex"
    PRODUCER_SNAPSHOT = "snapshot"
    LEADER_EPOCH = "leader_epoch_checkpoint"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object, as it was sent or as the store reports it. The CRC-32C covers the whole object.

    Attributes:
        confirmed: it was sent, and the store's response named the checksum that the store computed, which is this one.
        is_transformed: it was sent, and is a log that was compressed or encrypted on its way, from bytes that were
            proved to be those of the check pass.
    """

    kind: ObjectKind
    key: str
    size_bytes: int
    crc32c: int
    confirmed: bool = field(default=False, compare=False)
    is_transformed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class KeptObject:
    """One object that the store has. `crc32c` covers all of it; None if the store keeps no checksum."""

    kind: ObjectKind
    key: str
    size_bytes: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class TransformedSizes:
    """Sizes of a compressed or encrypted log, from its manifest: of the object, and of the log before that."""

    stored_bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentObject:
    """One object whose key names a segment. Any program may have written it."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    kind: ObjectKind
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """One object that could not be deleted; all others of the request were deleted."""

    segment_id: RemoteLogSegmentId
    key: str
    message: str
    retriable: bool


class SegmentReader(Protocol):
    """Objects of one segment, for callers that read most of them.

    Nothing is read before a method needs it; every object except the log is read once, whole. All bytes are charged
    before they are read.
    """

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from the store so far."""
        ...

    def objects(self) -> tuple[KeptObject, ...]:
        """Return what `RemoteStorage.stat_log_segment` returns, but read no object for it."""
        ...

    def read_crc32c(self, key: str) -> int | None:
        """Return the CRC-32C of an object other than the log, as it was read; None if it was not read."""
        ...

    def index(self, index_type: IndexType) -> bytes:
        """Return one index as `RemoteStorage.fetch_index` does."""
        ...

    def transformed_sizes(self) -> TransformedSizes | None:
        """Return the sizes from the manifest; None if the log object is the segment file itself."""
        ...

    def whole(self, kind: ObjectKind) -> bytes:
        """Return an object other than the log as it must be stored, put together from the parts that are read."""
        ...

    def manifest(self) -> bytes | None:
        """Return the manifest as `RemoteStorage.fetch_manifest` does."""
        ...

    def log(self, start_position: int, end_position: int) -> Iterator[bytes]:
        """Read as `RemoteStorage.fetch_log_segment` does, again on each call. Errors come with the first block."""
        ...


class RemoteStorage(Protocol):
    """Objects of remote log segments in one store."""

    @property
    def required_kinds(self) -> frozenset[ObjectKind]:
        """Objects that every complete segment has."""
        ...

    def copy_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        data: LogSegmentData,
        *,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
    ) -> tuple[StoredObject, ...]:
        """Write all objects of this attempt, the record bytes first and the manifest (if any) last.

        Each object is durable when its write returns. On an error the open multipart upload or temporary file is
        removed; complete objects stay until `delete_log_segments`.

        Returns:
            The objects that were sent.

        Raises:
            RemoteObjectExistsError: a key exists already (another attempt with this id: a bug or a zombie process).
            RemoteChecksumError: the store refused the checksum.
            RemoteStorageFullError, RemoteStorageUnavailableError, RemoteStorageError
            SourceChangedError: the layout reads the log to transform it, and it differs from what the check pass read.
            SendingStoppedError, LeaseLostError: from the limiter.
        """
        ...

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Check that brokers would accept a copy. Call it before anything of an attempt is written or recorded.

        Raises:
            CustomMetadataTooLargeError: brokers would refuse its `custom_metadata`.
        """
        ...

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        """Return the custom metadata that the brokers' RSM of this layout would return for such a copy.

        It belongs into the COPY_SEGMENT_FINISHED record.

        Args:
            metadata: of the copy.
            stored_bytes: size of all objects of the copy.

        Returns:
            The encoded custom metadata; None if that RSM returns none.
        """
        ...

    def stat_log_segment(self, metadata: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        """Return what the store has for this attempt, with the checksum that the store (not the sender) computed.

        Missing objects are absent from the result.
        """
        ...

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int = 0,
        end_position: int | None = None,
        *,
        limiter: ByteLimiter,
    ) -> Iterator[bytes]:
        """Read record bytes from `start_position` to `end_position` (both inclusive; None = the end), in blocks.

        Raises:
            ValueError: not 0 <= start <= end < segment size.
            RemoteResourceNotFoundError: no such object.
            SegmentKeyError, StoredChunkError: it cannot be decrypted or decompressed.
        """
        ...

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one index.

        Raises:
            RemoteResourceNotFoundError: no such object, or the segment has no transaction index.
        """
        ...

    def fetch_manifest(self, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        """Return the manifest object as it is stored; None if this layout writes none.

        Raises:
            RemoteResourceNotFoundError: the layout writes a manifest, and it is absent.
        """
        ...

    def open_log_segment(self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter) -> SegmentReader:
        """Open one segment, to read much of it with few requests. The reader is not thread-safe."""
        ...

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        """Remove every object, open upload and temporary file of these attempts. Absent objects are no error.

        Objects are deleted by the hundred in a request. Open uploads are not listed for an attempt that is given as
        FINISHED, as it has none.
        """
        ...

    def list_objects(self) -> Iterator[tuple[str, int]]:
        """List (key, size) of every object under the prefix, the marker included; keys are relative to the prefix."""
        ...

    def list_segment_objects(self, partition: TopicIdPartition | None = None) -> Iterator[SegmentObject]:
        """List every object under the prefix whose key a segment of this layout could have.

        Args:
            partition: only keys of its segments, which contain the topic's id and name; None: all partitions.
        """
        ...

    def check_marker(self) -> None:
        """Read the store's marker now, and check that it is the expected one. A storage without expectation passes.

        Raises:
            ForeignStoreError: there is no marker, or another one.
        """
        ...

    def read_marker(self) -> StoreMarker | None:
        """Read the store's marker; None if there is none."""
        ...

    def create_marker(self, marker: StoreMarker) -> StoreMarker:
        """Create the marker if there is none; return the one that the store has then, perhaps another database's."""
        ...

    def replace_marker(
        self, expected: StoreMarker, marker: StoreMarker, *, conditional: bool = True
    ) -> StoreMarker | None:
        """Replace the marker `expected` by `marker`. Any other marker stays as it is.

        Args:
            expected: the marker that may be replaced.
            marker: the new marker.
            conditional: let the store compare the marker as it replaces it. Of two concurrent calls that replace the
                same marker one succeeds, and both return its marker. False is for a store without conditional writes:
                then each of them may return its own marker, and only a later `read_marker` returns the final one.

        Returns:
            The marker that the store has afterwards; None if there is none.
        """
        ...

    def replaces_conditionally(self) -> bool:
        """Test with a small object, which is written and removed, whether this store supports conditional replacement.

        Some S3 servers ignore the condition.
        """
        ...

    def clock_ms(self) -> int | None:
        """Return the store's own clock now, in UTC milliseconds; None if the store does not show it."""
        ...

    def check_writable(self) -> None:
        """Check that objects can be written and removed here, that there is space, and that key files can be used.

        Raises:
            SettingError: a key of new segments cannot be used.
            RemoteStorageError: the store cannot be written; the message says why.
        """
        ...


_MAY_BE_EMPTY: Final = frozenset({ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TRANSACTION_INDEX})
"""Indexes that are objects of their own and may have 0 bytes: those of a small segment have no entry."""


def absent_kinds(
    stored: Iterable[StoredObject | KeptObject], required: Collection[ObjectKind]
) -> tuple[ObjectKind, ...]:
    """Return the required objects of a segment that are missing, or have 0 bytes although they cannot; sorted."""
    there = {
        stored_object.kind
        for stored_object in stored
        if stored_object.size_bytes or stored_object.kind in _MAY_BE_EMPTY
    }
    return tuple(sorted(set(required) - there))
