"""The contract of KIP-405's RemoteStorageManager as this platform uses it.

Every copy attempt has a new segment id, so a copy never overwrites an object: a key that exists already is an error. To
delete an absent object is no error. Only the layout builds and parses keys of segments. A copy charges every byte to
the limiter before it is sent.

While a mirror or a restore of the store is under way, an object of a segment may be missing, or may have 0 bytes,
because its content has not arrived yet. Such an object cannot be told from one that was lost, so both count as absent:
a missing object, and one with 0 bytes unless its kind may be empty. An object with wrong bytes is damaged.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from include.tiering.errors import (
    ObjectKeyError,
    RemoteChecksumError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    StoredChunkError,
    UnknownVersionError,
)
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import (
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from include.tiering.quotas.contract import NO_LIMIT, ByteLimiter

_ABOUT_BYTES: Final = (ObjectKeyError, RemoteChecksumError, RemoteResourceNotFoundError, StoredChunkError)


def is_unread(error: Exception) -> bool:
    """Return whether a read failed with an error that says nothing about the stored bytes: they may be right.

    For example, access is denied, the object's storage class or its disabled KMS key forbids reading, there are no
    credentials, this process has too many open files, or another release has written the manifest.
    """
    if isinstance(error, RemoteStorageError):
        return not isinstance(error, _ABOUT_BYTES)
    return isinstance(error, UnknownVersionError)


ProgressCallback = Callable[[int], None]
"""Called with the number of bytes of each block that is sent. When a retry begins again at an earlier byte, the number
may be negative, so that the sum of all numbers is the progress."""


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


NOT_READ: Final = -1
"""The value of `StoredObject.crc32c` if the object was not read. No checksum equals it."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object, as it was sent or as the store reports it. The CRC-32C covers the whole object.

    `crc32c` is `NOT_READ` if the store keeps no checksum and the object is too large to belong to the segment. Such an
    object is not read: it may have terabytes, and its length alone shows that it is wrong.

    Attributes:
        confirmed: True if the object was sent, and the store's response named a checksum that the store computed and
            that equals `crc32c`.
        is_transformed: True if the object was sent, and is a log that was compressed or encrypted while it was sent.
            The segment file, read once more for this, had the checksum that the check before the copy had found.
    """

    kind: ObjectKind
    key: str
    size_bytes: int
    crc32c: int
    confirmed: bool = field(default=False, compare=False)
    is_transformed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class KeptObject:
    """One object that the store has. `crc32c` covers all of it; None if the store keeps no checksum of all of it."""

    kind: ObjectKind
    key: str
    size_bytes: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class TransformedSizes:
    """Sizes of a compressed or encrypted log, from its manifest.

    `stored_bytes` is the size of the log object, `log_bytes` that of the log before compression and encryption.
    """

    stored_bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class ReadingCosts:
    """What the reads of one segment depend on, for an estimate before they are sent.

    Attributes:
        objects: the number of objects that a segment has at most, the log included.
        keeps_checksums: whether the store keeps the checksum of what this platform writes. Otherwise
            `stat_log_segment` reads every object.
        log_chunk_bytes: a compressed or encrypted log can be read only in chunks of this many bytes of the original
            log; 1 if the log is stored as it is.
    """

    objects: int = 3
    keeps_checksums: bool = True
    log_chunk_bytes: int = 1


@dataclass(frozen=True, slots=True)
class SegmentObject:
    """One object whose key names a segment. Any program may have written it."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    kind: ObjectKind
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """One object that perhaps was not deleted, or whose open upload perhaps was not removed.

    Objects of the request for which there is no `DeleteFailure` were deleted or were absent.
    """

    segment_id: RemoteLogSegmentId
    key: str
    message: str
    retriable: bool


class LogParts(Protocol):
    """A range of one log in parts that follow each other. Thread-safe, so that they can be read at the same time."""

    def __len__(self) -> int:
        """Return how many parts there are."""
        ...

    def read(self, number: int, *, limiter: ByteLimiter) -> Iterator[bytes]:
        """Read the stored bytes of one part (numbers begin with 0) with one request, or with none if the part is empty.

        The first call also reads the manifest, if there is one. Raises as `RemoteStorage.fetch_log_segment` does.
        """
        ...

    def restored(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield what the broker wrote in the range, from the stored bytes of all parts in order."""
        ...


class SegmentReader(Protocol):
    """Objects of one segment, for callers that read most of them.

    Nothing is read before a method needs it. An object other than the log is read whole, at most once (again only
    after a retriable error). All bytes are charged before they are read.
    """

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from the store so far."""
        ...

    def objects(self) -> tuple[KeptObject, ...]:
        """Return the objects that the store has for this segment; no byte of an object is read for it."""
        ...

    def read_crc32c(self, key: str) -> int | None:
        """Return the CRC-32C of an object other than the log, of the bytes that were read; None if it was not read."""
        ...

    def index(self, index_type: IndexType) -> bytes:
        """Return one index as `RemoteStorage.fetch_index` does."""
        ...

    def transformed_sizes(self) -> TransformedSizes | None:
        """Return the sizes from the manifest; None if the log object is the segment file itself."""
        ...

    def whole(self, kind: ObjectKind) -> bytes:
        """Return the stored bytes of an object other than the log.

        The `indexes` object is put together from the indexes that the manifest names; every other object is read whole.
        """
        ...

    def manifest(self) -> bytes | None:
        """Return the manifest as `RemoteStorage.fetch_manifest` does."""
        ...

    def log(self, start_position: int, end_position: int) -> Iterator[bytes]:
        """Read the log as `RemoteStorage.fetch_log_segment` does; each call reads it again.

        No error, not even ValueError, is raised before the first block is requested.
        """
        ...


class RemoteStorage(Protocol):
    """Objects of remote log segments in one store."""

    @property
    def required_kinds(self) -> frozenset[ObjectKind]:
        """Kinds of the objects that every complete segment has."""
        ...

    @property
    def reading_costs(self) -> ReadingCosts:
        """What it costs to read a segment that is written with the present settings."""
        ...

    @property
    def slow_downs(self) -> int:
        """How often the store has asked this process so far to send fewer requests; never decreases."""
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

        Each object is durable when its write returns. On an error the store is requested to remove the open multipart
        upload or temporary file. If that fails, it stays until `delete_log_segments` removes it. Complete objects stay
        until then in any case.

        Returns:
            The objects that were sent.

        Raises:
            RemoteObjectExistsError: a key exists already (another attempt with this id: a bug or a zombie process).
            RemoteChecksumError: the bytes or their number differ from what `data` and `metadata` say.
            RemoteStorageFullError: the store has no space.
            RemoteStorageUnavailableError: the store cannot be reached now.
            ForeignStoreError: the marker was checked and is not expected, or the store's directory was replaced.
            RemoteStorageError: the store refused a request for another reason.
            SettingError: the encryption key pair cannot be used, or the log has more chunks than readers accept.
            SourceChangedError: the log, read to be transformed, differs from what the check pass read.
            SourceError: `data` could not be read.
            SendingStoppedError, LeaseLostError: raised by the limiter.
        """
        ...

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Check that brokers would accept the size of a copy's custom metadata.

        Callers do this before anything of the attempt is written or recorded.

        Raises:
            CustomMetadataTooLargeError: brokers would refuse the custom metadata.
        """
        ...

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        """Return the custom metadata that a broker's RSM which writes this layout would return for such a copy.

        The result belongs into the COPY_SEGMENT_FINISHED record.

        Args:
            metadata: metadata of the copy.
            stored_bytes: total size of all objects of the copy.

        Returns:
            The encoded custom metadata; None if that RSM returns none.
        """
        ...

    def stat_log_segment(self, metadata: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        """Return the objects that the store has for this attempt; missing objects are absent from the result.

        Each checksum was computed by the store, or is computed from the bytes that are read back; it is never the one
        that the sender computed.
        """
        ...

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int = 0,
        end_position: int | None = None,
        *,
        limiter: ByteLimiter,
        ranges: int = 1,
    ) -> Iterator[bytes]:
        """Read record bytes from `start_position` to `end_position` (both inclusive; to the end if None), in blocks.

        Up to `ranges` ranges are read at the same time (see `parallel_reads`). The bytes come in order. If a read
        fails, all bytes before the failed read are returned first, then the error is raised.

        Raises:
            ValueError: not 0 <= start <= end < segment size.
            RemoteResourceNotFoundError: the log or the manifest is absent, or the log ends too early.
            RemoteStorageError: the manifest cannot be used.
            SettingError, StoredChunkError: the stored log cannot be decrypted or decompressed.
        """
        ...

    def fetch_index(
        self, metadata: RemoteLogSegmentMetadata, index_type: IndexType, *, limiter: ByteLimiter = NO_LIMIT
    ) -> bytes:
        """Return one index. All that is read from the store for it is charged to `limiter`.

        Raises:
            NoSuchIndexError: the segment has no transaction index.
            RemoteResourceNotFoundError: the object or the manifest is absent, or the object is too short.
            RemoteStorageError, SettingError, StoredChunkError: as `fetch_log_segment`.
        """
        ...

    def fetch_manifest(self, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        """Return the manifest object as it is stored; None if this layout writes none.

        Raises:
            RemoteResourceNotFoundError: the layout writes a manifest, and it is absent.
        """
        ...

    def open_log_segment(
        self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter, ranges: int = 1
    ) -> SegmentReader:
        """Open one segment, to read much of it with few requests. The reader is not thread-safe.

        Up to `ranges` ranges of its log are read at the same time, as by `fetch_log_segment`.
        """
        ...

    def open_log_parts(self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int) -> LogParts:
        """Open a range of a log (both positions inclusive), to read it part by part, each part with its own request.

        The number of parts is that of the range's bytes divided by `RANGE_BYTES`, rounded up. If a compressed log has
        fewer bytes in the store, the last parts are empty. To open a range, nothing is read.

        Raises:
            ValueError: the positions are not inside the segment.
        """
        ...

    def forget(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Remove the segment's indexes and manifest from this host's cache, because what is cached cannot be right.

        Return whether any of them was cached: then a new read, from the store, may succeed. Only a storage for readers
        of records has a cache.
        """
        ...

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        """Remove every object, open upload and temporary file of these attempts. Absent objects are no error.

        A bucket deletes up to 999 objects in one request. Only a bucket can have an open upload of an attempt in the
        state COPY_SEGMENT_FINISHED; if it refuses to list uploads, the objects of such an attempt are deleted all the
        same.
        """
        ...

    def list_objects(self) -> Iterator[tuple[str, int]]:
        """List (key, size in bytes) of every object under the prefix, the marker included.

        Keys are relative to the prefix.
        """
        ...

    def list_segment_objects(self, partition: TopicIdPartition | None = None) -> Iterator[SegmentObject]:
        """List every object under the prefix whose key a segment of this layout could have.

        Args:
            partition: list only objects of this partition's segments; their keys contain the topic's name and id.
                None: objects of all partitions.
        """
        ...

    def segment_object(self, key: str, size_bytes: int) -> SegmentObject | None:
        """Return what a listed object is; None if no segment of this layout could have its key. Nothing is read.

        Args:
            key: relative to the prefix, as in `list_objects`.
            size_bytes: the object's length.
        """
        ...

    def check_marker(self) -> None:
        """Read the store's marker now, and check that it is one of the expected markers.

        A storage that was opened without expected markers reads nothing.

        Raises:
            ForeignStoreError: there is no marker or an unexpected one, or the place in the settings is not the recorded
                one.
        """
        ...

    def read_marker(self) -> StoreMarker | None:
        """Read the store's marker; None if there is none."""
        ...

    def create_marker(self, marker: StoreMarker) -> StoreMarker:
        """Create the marker if there is none; return the marker that the store has then.

        If there was a marker already, the result may be another database's.
        """
        ...

    def replace_marker(
        self, expected: StoreMarker, marker: StoreMarker, *, conditional: bool = True
    ) -> StoreMarker | None:
        """Replace the marker `expected` by `marker`. Any other marker that is found stays as it is.

        Args:
            expected: the marker that may be replaced.
            marker: the new marker.
            conditional: let the store compare the marker as it replaces it. If two calls replace the same marker
                concurrently, only one of them writes, and both return what it wrote. False is for a store without
                conditional writes: then both may write, each returns its own marker, and only a later `read_marker`
                returns the one that remains.

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
        """Return the time of the store's own clock now, in UTC milliseconds.

        None if the store does not show its clock, or has no marker.
        """
        ...

    def check_writable(self) -> None:
        """Check that an object can be written unchanged and removed.

        Free space is checked too, if the store shows it; the key pair, if new segments are encrypted.

        Raises:
            SettingError: the encryption key pair for new segments cannot be used.
            RemoteStorageError: a check of the store failed; the message says why.
        """
        ...
