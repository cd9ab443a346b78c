"""KIP-405's RemoteStorageManager, as this platform needs it, and which objects of a segment are absent.

Every copy attempt has a new segment id, so a copy never overwrites: a key that exists already is an error. Deletes
tolerate absence. A key is built and parsed in the layout alone. All bytes sent are charged to the limiter first.

Objects of a segment may be absent, or not there yet: a mirror or a restore of the store that is under way shows some
objects of a segment and not others, or an object of 0 bytes where its bytes are still to come. Both look alike, and
neither is damage: nothing says that the object was ever other than it should be. An object with wrong bytes is damage.
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
"""Gets the bytes of each block as it is sent; negative where a retry sends some again, so the sum is the progress."""


class ObjectKind(StrEnum):
    """What one object of a segment holds, whatever the layout."""

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
    """One object: what was sent, or what the store says it has. CRC-32C covers the whole object.

    `confirmed`: it was sent, and the store's answer already said that it has it with this checksum, which it computed.
    `is_transformed`: it was sent, and is a log that was compressed or encrypted on its way, from bytes that were proved
    to be those of the check pass.
    """

    kind: ObjectKind
    key: str
    size_bytes: int
    crc32c: int
    confirmed: bool = field(default=False, compare=False)
    is_transformed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class KeptObject:
    """One object that the store has. `crc32c` covers all of it; None if the store keeps none."""

    kind: ObjectKind
    key: str
    size_bytes: int
    crc32c: int | None


@dataclass(frozen=True, slots=True)
class TransformedSizes:
    """Of a compressed or encrypted log, by its manifest: `stored_bytes` of the object, `log_bytes` as the broker wrote
    it.
    """

    stored_bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class SegmentObject:
    """One object that a key names as a segment's. Anybody may have written it."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    kind: ObjectKind
    size_bytes: int


@dataclass(frozen=True, slots=True)
class DeleteFailure:
    """One object that could not be deleted; everything else of the request was."""

    segment_id: RemoteLogSegmentId
    key: str
    message: str
    retriable: bool


class SegmentReader(Protocol):
    """One segment's objects, for who reads most of them. Nothing is read before it is asked for; every object beside
    the log is read once, whole. All bytes are charged before they are read.
    """

    @property
    def bytes_read(self) -> int:
        """What came from the store so far."""
        ...

    def objects(self) -> tuple[KeptObject, ...]:
        """As `RemoteStorage.stat_log_segment`, but nothing is read for it."""
        ...

    def read_crc32c(self, key: str) -> int | None:
        """CRC-32C of all of an object beside the log, as it was read; None if it was not read."""
        ...

    def index(self, index_type: IndexType) -> bytes:
        """As `RemoteStorage.fetch_index`."""
        ...

    def transformed_sizes(self) -> TransformedSizes | None:
        """None if the log object is the segment file itself."""
        ...

    def whole(self, kind: ObjectKind) -> bytes:
        """An object beside the log as it must be stored, put together from the parts of it that are read."""
        ...

    def manifest(self) -> bytes | None:
        """As `RemoteStorage.fetch_manifest`."""
        ...

    def log(self, start_position: int, end_position: int) -> Iterator[bytes]:
        """As `RemoteStorage.fetch_log_segment`, each time anew. Errors come with the first block."""
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

        Each object is durable when its write returns. Returns what was sent. On an error the open multipart upload
        or temporary file is removed, complete objects stay for `delete_log_segments`.

        Raises:
            RemoteObjectExistsError: a key is already there (another attempt with this id: a bug or a zombie).
            RemoteChecksumError: the store refused the checksum.
            RemoteStorageFullError, RemoteStorageUnavailableError, RemoteStorageError
            SourceChangedError: the log is not what the check pass saw, where it is read more than once.
            SendingStoppedError, LeaseLostError: from the limiter.
        """
        ...

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        """To be asked before anything of an attempt is written or recorded.

        Raises:
            CustomMetadataTooLargeError: brokers would not take its `custom_metadata`.
        """
        ...

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        """What the brokers' RSM of this layout would give them for a copy whose objects have `stored_bytes` in all:
        it belongs into the record that says FINISHED. None if it gives nothing.
        """
        ...

    def stat_log_segment(self, metadata: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        """What the store has for this attempt, with the checksum that the store (not the sender) computed.

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
        """Record bytes from `start_position` to `end_position` (both inclusive; None = the end), in blocks.

        Raises:
            ValueError: not 0 <= start <= end < segment size.
            RemoteResourceNotFoundError: no such object.
            SegmentKeyError, StoredChunkError: it is encrypted or compressed, and cannot be undone.
        """
        ...

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """One index.

        Raises:
            RemoteResourceNotFoundError: no such object, or the segment has no transaction index.
        """
        ...

    def fetch_manifest(self, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        """The manifest object as it is stored; None if this layout writes none.

        Raises:
            RemoteResourceNotFoundError: the layout writes one, and it is not there.
        """
        ...

    def open_log_segment(self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter) -> SegmentReader:
        """For reading much of one segment with few requests. Not for several threads at once."""
        ...

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        """Remove every object, open upload and temporary file of these attempts. Absent ones are fine.

        Requests grow with the number of objects by the hundred, not one by one. An attempt that is given as FINISHED
        has no open upload, so none is looked for.
        """
        ...

    def list_objects(self) -> Iterator[tuple[str, int]]:
        """(key, size) of every object under the prefix, the marker included; keys are relative to the prefix."""
        ...

    def list_segment_objects(self, partition: TopicIdPartition | None = None) -> Iterator[SegmentObject]:
        """Every object under the prefix whose key a segment of this layout could have; others are left out.

        With a partition those that keys of its segments name: of the topic's id and of its name, which is part of them.
        """
        ...

    def check_marker(self) -> None:
        """Prove that this is the store whose marker is expected, by a read of its marker now. A storage that expects
        none has nothing to prove.

        Raises:
            ForeignStoreError: there is no marker, or another one.
        """
        ...

    def read_marker(self) -> StoreMarker | None: ...

    def create_marker(self, marker: StoreMarker) -> StoreMarker:
        """Create it if absent; returns the one that is there afterwards (perhaps somebody else's)."""
        ...

    def replace_marker(
        self, expected: StoreMarker, marker: StoreMarker, *, conditional: bool = True
    ) -> StoreMarker | None:
        """Put `marker` in the place of `expected`; returns the one that is there afterwards, None if there is none.

        Anything but `expected` stays as it is: of two that replace the same one at once, one wins, and both answers
        name it. Not `conditional`: for a store that cannot do that. Then both may be answered with their own, and only
        a later `read_marker` names the one that stayed.
        """
        ...

    def replaces_conditionally(self) -> bool:
        """Find out, by a small object that is written and removed, whether this store replaces an object only if it is
        the one that is expected. Some S3 servers take no notice of that condition.
        """
        ...

    def clock_ms(self) -> int | None:
        """What the store's own clock says now, in UTC milliseconds; None if it cannot be told."""
        ...

    def check_writable(self) -> None:
        """Prove that objects can be written and removed here, that there is space, and that keys can be used.

        Raises:
            SettingError: a key of new segments cannot be used.
            RemoteStorageError: what stands in the way.
        """
        ...


_MAY_BE_EMPTY: Final = frozenset({ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TRANSACTION_INDEX})
"""Indexes that are objects of their own: a small segment has no entry in them."""


def absent_kinds(
    stored: Iterable[StoredObject | KeptObject], required: Collection[ObjectKind]
) -> tuple[ObjectKind, ...]:
    """Which of the required objects of a segment are not in the store, or have 0 bytes where they cannot; in order."""
    there = {
        stored_object.kind
        for stored_object in stored
        if stored_object.size_bytes or stored_object.kind in _MAY_BE_EMPTY
    }
    return tuple(sorted(set(required) - there))
