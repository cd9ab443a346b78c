"""The marker object: which cluster and which database own a prefix, and the gate that asks it before any change.

A database that was restored from another place, or a URL that points at somebody else's bucket, must not be able to
write or delete there. The marker is created once, by a write that refuses to overwrite; from then on whoever brings
other ids is turned away. It changes in one way alone: a database that is rebuilt from the store puts its own in the
place of the one it found, with another store id and the next generation, and the old database is turned away for good.
It is read before every delete, and for copies at most a second ago: a prefix may change hands
while we run, and a copy can only add keys of its own.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import ForeignStoreError, FormatError
from include.tiering.formats import strict_json
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.segment_data import IndexType, LogSegmentData
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.quota.contract import ByteLimiter
from include.tiering.remote_storage.contract import (
    DeleteFailure,
    ObjectKind,
    ProgressCallback,
    RemoteStorage,
    SegmentObject,
    SegmentReader,
    StoredObject,
    StoreMarker,
)

MARKER_KEY: Final = "_tiering-store.json"
MAX_MARKER_BYTES: Final = 4096
COPY_TRUST_SECONDS: Final = 1.0


def marker_to_bytes(marker: StoreMarker) -> bytes:
    document = {
        "version": 1,
        "cluster_id": marker.cluster_id,
        "store_id": marker.store_id,
        "generation": marker.generation,
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def marker_from_bytes(content: bytes) -> StoreMarker:
    """Raises ForeignStoreError unless it is a marker that this version understands."""
    try:
        document = strict_json.parse_object(content, MAX_MARKER_BYTES)
        document.integer("version", 1, 1)
        return StoreMarker(
            document.text("cluster_id"), document.text("store_id"), document.integer("generation", 0, 2**63 - 1)
        )
    except FormatError as error:
        raise ForeignStoreError(f"{MARKER_KEY} is not a marker of this platform: {error}") from error


class GuardedStorage:
    """A `RemoteStorage` that changes nothing unless the store's marker is `expected`."""

    def __init__(self, storage: RemoteStorage, expected: StoreMarker, clock: Clock) -> None:
        self._storage = storage
        self._expected = expected
        self._clock = clock
        self._trusted_until = clock.monotonic()

    @property
    def required_kinds(self) -> frozenset[ObjectKind]:
        return self._storage.required_kinds

    def check_marker(self) -> None:
        """Raises ForeignStoreError if there is no marker or another one."""
        found = self._storage.read_marker()
        if found is None:
            raise ForeignStoreError(
                f"the store has no {MARKER_KEY}, expected {self._expected}: is its disk mounted and its URL right?"
                " Nothing is written or deleted"
            )
        if found != self._expected:
            raise ForeignStoreError(
                f"the store belongs to {found}, this database to {self._expected}: nothing is written or deleted"
            )
        self._trusted_until = self._clock.monotonic() + COPY_TRUST_SECONDS

    def copy_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        data: LogSegmentData,
        *,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
    ) -> tuple[StoredObject, ...]:
        if self._clock.monotonic() >= self._trusted_until:
            self.check_marker()
        return self._storage.copy_log_segment(metadata, data, limiter=limiter, on_sent=on_sent)

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._storage.require_copyable(metadata)

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        return self._storage.custom_metadata(metadata, stored_bytes)

    def stat_log_segment(self, metadata: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        return self._storage.stat_log_segment(metadata)

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int = 0,
        end_position: int | None = None,
        *,
        limiter: ByteLimiter,
    ) -> Iterator[bytes]:
        return self._storage.fetch_log_segment(metadata, start_position, end_position, limiter=limiter)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        return self._storage.fetch_index(metadata, index_type)

    def fetch_manifest(self, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        return self._storage.fetch_manifest(metadata)

    def open_log_segment(self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter) -> SegmentReader:
        return self._storage.open_log_segment(metadata, limiter=limiter)

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        self.check_marker()
        return self._storage.delete_log_segments(segments)

    def list_objects(self) -> Iterator[tuple[str, int]]:
        return self._storage.list_objects()

    def list_segment_objects(self, partition: TopicIdPartition | None = None) -> Iterator[SegmentObject]:
        return self._storage.list_segment_objects(partition)

    def read_marker(self) -> StoreMarker | None:
        return self._storage.read_marker()

    def create_marker(self, marker: StoreMarker) -> StoreMarker:
        return self._storage.create_marker(marker)

    def replace_marker(self, expected: StoreMarker, marker: StoreMarker) -> StoreMarker | None:
        return self._storage.replace_marker(expected, marker)

    def check_writable(self) -> None:
        self.check_marker()
        self._storage.check_writable()
