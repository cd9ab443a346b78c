"""`RemoteStorage` over an `ObjectStore` and a `SegmentLayout`, with or without a check of the marker.

Order of a copy in the aiven layout, and what a crash leaves (keys are unique to the attempt, so no object is ever
overwritten):

    after writing      left behind                          who cleans up
    part of `.log`     at most an open upload, no object    `delete_log_segments` of this attempt
    `.log`             one object, no manifest              the same
    `.indexes`         two objects, no manifest             the same
    the manifest       all objects; the attempt is still    the same, unless a later run finishes the attempt
                       STARTED in the metadata

A delete works in the opposite order: first open uploads, then the manifest, the other objects, the record bytes last (a
bucket may remove the objects of one request in any order). A crash leaves a part of the objects; the metadata still
say DELETE_SEGMENT_STARTED, so the delete is repeated.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from include.tiering.clock import Clock
from include.tiering.errors import (
    ObjectKeyError,
    RemoteObjectExistsError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteStorageUnavailableError,
    TieringError,
)
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.ownership import AcceptedMarkers, StoreMarker, StorePlace
from include.tiering.model.segments import IndexType, LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.contract import NO_LIMIT, ByteLimiter
from include.tiering.remote_storage.contract import (
    NOT_READ,
    DeleteFailure,
    ObjectKind,
    ProgressCallback,
    ReadingCosts,
    SegmentObject,
    StoredObject,
)
from include.tiering.remote_storage.layouts.contract import SegmentLayout
from include.tiering.remote_storage.object_cache import ObjectCache
from include.tiering.remote_storage.object_store import BytesSource, ObjectStat, ObjectStore, crc32c_of
from include.tiering.remote_storage.parallel_reads import read_ranges
from include.tiering.remote_storage.segment_reader import (
    StoredLogParts,
    StoredSegmentReader,
    check_positions,
    no_such_index,
    read_small,
)
from include.tiering.remote_storage.store_ownership import (
    MARKER_KEY,
    MAX_MARKER_BYTES,
    marker_from_bytes,
    marker_to_bytes,
)
from include.tiering.telemetry import get_logger
from include.tiering.units import MIB

COPY_TRUST_SECONDS: Final = 1.0
_log: Final = get_logger(__name__)
_MOST_LOGS: Final = 2
_SURPLUS_BYTES: Final = 64 * MIB
"""No object of a segment (compressed, encrypted, an index) has more bytes than twice the segment's log plus this."""


_PROBE: Final = b"written by a check that this store can be written; safe to delete\n"
_MOST_TRIES: Final = 8


class SegmentStorage:
    """A `RemoteStorage` without a check of the marker.

    `random_bytes` returns the random part of the names of objects that `check_writable` and `replaces_conditionally`
    write and remove. `cache` keeps manifests and indexes of segments; None: each is read from the store.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: SegmentLayout,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
        cache: ObjectCache | None = None,
    ) -> None:
        self._store = store
        self._layout = layout
        self._random_bytes = random_bytes
        self._cache = cache

    def cached(self, cache: ObjectCache) -> "SegmentStorage":
        """Return the same storage for readers of records, which need not notice damage after an object was cached."""
        return SegmentStorage(self._store, self._layout, random_bytes=self._random_bytes, cache=cache)

    def guarded(
        self, accepted: Callable[[], AcceptedMarkers], clock: Clock, place: StorePlace | None = None
    ) -> "GuardedStorage":
        """Return the same storage with a check of the marker before changes; see `GuardedStorage`."""
        return GuardedStorage(self._store, self._layout, accepted, clock, place, random_bytes=self._random_bytes)

    @property
    def required_kinds(self) -> frozenset[ObjectKind]:
        return self._layout.required_kinds

    @property
    def reading_costs(self) -> ReadingCosts:
        return ReadingCosts(self._layout.most_objects, self._store.keeps_checksums, self._layout.log_chunk_bytes)

    @property
    def slow_downs(self) -> int:
        return self._store.slow_downs

    def copy_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        data: LogSegmentData,
        *,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
    ) -> tuple[StoredObject, ...]:
        sent = []
        for planned in self._layout.objects(metadata, data):
            self._before_object()
            confirmed = self._store.put(
                planned.key,
                planned.body,
                planned.crc32c,
                limiter=limiter,
                on_sent=on_sent,
                running_crc32c=planned.running_crc32c,
            )
            size_bytes, is_transformed = planned.body.size_bytes, planned.is_transformed
            sent.append(StoredObject(planned.kind, planned.key, size_bytes, planned.crc32c, confirmed, is_transformed))
        return tuple(sent)

    def _before_object(self) -> None:
        """Do nothing. Called before each object of a segment is written."""

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        self._layout.require_copyable(metadata)

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        return self._layout.custom_metadata(metadata, stored_bytes)

    def stat_log_segment(self, metadata: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        found = []
        most_bytes = _MOST_LOGS * metadata.segment_size_bytes + _SURPLUS_BYTES
        for kind, key in self._layout.keys(metadata):
            stat = self._store.stat(key, most_bytes=most_bytes)
            if stat is None:
                continue
            is_read = stat.crc32c is not None or stat.size_bytes <= most_bytes
            crc32c = self._stored_crc32c(key, stat) if is_read else NOT_READ
            found.append(StoredObject(kind, key, stat.size_bytes, crc32c))
        return tuple(found)

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int = 0,
        end_position: int | None = None,
        *,
        limiter: ByteLimiter,
        ranges: int = 1,
    ) -> Iterator[bytes]:
        last = metadata.segment_size_bytes - 1 if end_position is None else end_position
        check_positions(metadata, start_position, last)
        found = self._layout.log(metadata, start_position, last, partial(self._read_part, limiter))
        return found.restored(
            read_ranges(self._store.read, found.key, found.first, found.last, limiter=limiter, at_once=ranges)
        )

    def fetch_index(
        self, metadata: RemoteLogSegmentMetadata, index_type: IndexType, *, limiter: ByteLimiter = NO_LIMIT
    ) -> bytes:
        index = self._layout.index(metadata, index_type, partial(self._read_part, limiter))
        if index is None:
            raise no_such_index(metadata, index_type)
        return index

    def fetch_manifest(self, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        key = self._layout.manifest_key(metadata)
        return None if key is None else self._read_whole(key)

    def open_log_segment(
        self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter, ranges: int = 1
    ) -> StoredSegmentReader:
        return StoredSegmentReader(self._store, self._layout, metadata, limiter, ranges, self._cache)

    def open_log_parts(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int
    ) -> StoredLogParts:
        return StoredLogParts(self._store, self._layout, metadata, start_position, end_position, self._cache)

    def forget(self, metadata: RemoteLogSegmentMetadata) -> bool:
        return self._cache is not None and self._cache.forget([key for _, key in self._layout.keys(metadata)])

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        owners = {key: segment for segment in segments for _, key in reversed(self._layout.keys(segment))}
        failures = list(self._abort_uploads({key: owner for key, owner in owners.items() if not owner.is_finished}))
        if self._store.leaves_uploads:
            failures += self._abort_left_uploads({key: owner for key, owner in owners.items() if owner.is_finished})
        for failure in self._store.delete(tuple(owners)):
            segment_id = owners[failure.key].remote_log_segment_id
            failures.append(DeleteFailure(segment_id, failure.key, failure.message, failure.retriable))
        return tuple(failures)

    def list_objects(self) -> Iterator[tuple[str, int]]:
        return ((found.key, found.size_bytes) for found in self._store.list_objects())

    def list_segment_objects(self, partition: TopicIdPartition | None = None) -> Iterator[SegmentObject]:
        prefix = "" if partition is None else self._layout.partition_prefix(partition)
        for listed in self._store.list_objects(prefix):
            if (found := self.segment_object(listed.key, listed.size_bytes)) is not None:
                yield found

    def segment_object(self, key: str, size_bytes: int) -> SegmentObject | None:
        try:
            parsed = self._layout.parse_key(key)
        except ObjectKeyError:
            return None
        return SegmentObject(parsed.segment_id, parsed.start_offset, parsed.kind, size_bytes)

    def check_marker(self) -> None:
        return None

    def read_marker(self) -> StoreMarker | None:
        try:
            return marker_from_bytes(self._read_whole(MARKER_KEY))
        except RemoteResourceNotFoundError:
            return None

    def create_marker(self, marker: StoreMarker) -> StoreMarker:
        try:
            self._put_small(MARKER_KEY, marker_to_bytes(marker))
        except RemoteObjectExistsError:
            found = self.read_marker()
            if found is None:
                raise
            return found
        return marker

    def replace_marker(
        self, expected: StoreMarker, marker: StoreMarker, *, conditional: bool = True
    ) -> StoreMarker | None:
        for _ in range(_MOST_TRIES):
            stored = self._store.read_version(MARKER_KEY, MAX_MARKER_BYTES)
            found = None if stored is None else marker_from_bytes(stored[0])
            if stored is None or found != expected:
                return found
            version = stored[1] if conditional else None
            if self._store.replace(MARKER_KEY, marker_to_bytes(marker), version=version):
                return marker
        raise RemoteStorageUnavailableError(
            f"{self._store.describe()}: {MARKER_KEY} was changed concurrently in each of {_MOST_TRIES} attempts"
        )

    def replaces_conditionally(self) -> bool:
        return self._store.replaces_conditionally(self._probe_key())

    def clock_ms(self) -> int | None:
        return self._store.clock_ms(MARKER_KEY)

    def check_writable(self) -> None:
        self._layout.check()
        self._store.check_capacity()
        key = self._probe_key()
        self._put_small(key, _PROBE)
        try:
            stat = self._store.stat(key)
            intact = stat is not None and self._stored_crc32c(key, stat) == crc32c_of(_PROBE)
        finally:
            failures = self._store.delete([key])
        if not intact:
            raise RemoteStorageError(f"{self._store.describe()}: {key} was written, and cannot be read back unchanged")
        if failures:
            raise RemoteStorageError(f"{self._store.describe()}: objects cannot be deleted: {failures[0].message}")

    def _probe_key(self) -> str:
        return f"_tiering-probe-{self._random_bytes(8).hex()}"

    def _put_small(self, key: str, content: bytes) -> None:
        self._store.put(key, BytesSource(content), crc32c_of(content), limiter=NO_LIMIT, on_sent=lambda _: None)

    def _read_part(self, limiter: ByteLimiter, key: str, first: int, last: int | None) -> bytes:
        """Read a part of an object that never changes, from the cache if it has it."""
        fetch = partial(read_small, self._store, key, first, last, limiter=limiter)
        return fetch() if self._cache is None else self._cache.read(key, first, last, fetch)

    def _read_whole(self, key: str) -> bytes:
        return read_small(self._store, key, limiter=NO_LIMIT)

    def _stored_crc32c(self, key: str, stat: ObjectStat) -> int:
        """Return the checksum that the store computed; compute it from the object's bytes if it is unknown."""
        if stat.crc32c is not None:
            return stat.crc32c
        crc32c = 0
        for block in self._store.read(key, limiter=NO_LIMIT):
            crc32c = extend_crc32c(crc32c, block)
        return crc32c

    def _abort_left_uploads(self, owners: dict[str, RemoteLogSegmentMetadata]) -> list[DeleteFailure]:
        """Abort uploads of finished segments. If the store refuses to list uploads, that prevents no deletion."""
        try:
            return list(self._abort_uploads(owners))
        except RemoteStorageError as error:
            if error.retriable:
                raise
            _log.warning("open uploads of finished segments were not looked for: %s", error)
            return []

    def _abort_uploads(self, owners: dict[str, RemoteLogSegmentMetadata]) -> Iterator[DeleteFailure]:
        """Abort the open uploads of these keys, with one listing for each directory of keys."""
        for directory in sorted({key.rpartition("/")[0] for key in owners}):
            for upload in self._store.list_open_uploads(f"{directory}/"):
                if upload.key not in owners:
                    continue
                try:
                    self._store.abort_upload(upload)
                except RemoteStorageError as error:
                    segment_id = owners[upload.key].remote_log_segment_id
                    yield DeleteFailure(segment_id, upload.key, str(error), error.retriable)


class SharedCheck:
    """A check for any number of threads. One run of it serves all calls that were made before the run began.

    At most one run is under way. Calls that are made meanwhile wait for its end and share the next run, because a run
    that had begun before a call may have read what was there before. An error of a run is raised in all of its calls.
    What is no Exception, as a signal raises it, is raised in its own thread alone: the other calls of the run return
    False, and are made again.
    """

    def __init__(self) -> None:
        self._joining = threading.Lock()
        self._running = threading.Lock()
        self._next: Future[bool] | None = None

    def __call__(self, check: Callable[[], None]) -> bool:
        """Run the check, or share a run of another thread. All calls give the same check.

        It is not kept, because its owner keeps this object: its files would be open until a garbage collection.
        """
        with self._joining:
            joined = self._next
            if joined is None:
                mine: Future[bool] = Future()
                self._next = mine
        if joined is not None:
            return joined.result()
        try:
            with self._running:
                self._close(mine)
                check()
        except BaseException as error:
            # A signal may have ended the wait for the run before this one: then this one can still be joined.
            self._close(mine)
            if isinstance(error, Exception):
                mine.set_exception(error)
            else:
                mine.set_result(False)
            raise
        mine.set_result(True)
        return True

    def _close(self, run: Future[bool]) -> None:
        with self._joining:
            if self._next is run:
                self._next = None


class GuardedStorage(SegmentStorage):
    """A `SegmentStorage` that changes segments only while the store's marker is one that `accepted` returns.

    Reads are not checked. Calls that create or replace the marker itself are not checked either, because each of them
    depends on the marker that it finds; nor is `replaces_conditionally`. An object of a segment is written without a
    new check if the last check, of any thread, accepted the marker less than `COPY_TRUST_SECONDS` before.

    Args:
        accepted: returns the markers that the database accepts now.
        place: the place of the keys according to the settings; None: places are not compared.
    """

    def __init__(
        self,
        store: ObjectStore,
        layout: SegmentLayout,
        accepted: Callable[[], AcceptedMarkers],
        clock: Clock,
        place: StorePlace | None = None,
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        super().__init__(store, layout, random_bytes=random_bytes)
        self._accepted = accepted
        self._clock = clock
        self._place = place
        self._trusted_until = clock.monotonic()
        self._refused_at = float("-inf")
        self._shared_check = SharedCheck()

    def check_marker(self) -> None:
        """Raise ForeignStoreError if there is no marker or another one, or the settings do not name the recorded place.

        Marker and database are read after this call began. Calls of several threads share these reads (`SharedCheck`).
        If marker and database disagree, both are read again until they agree or the database returns the same markers
        twice in succession, because a worker that plans may raise the generation between the two reads.
        """
        while not self._shared_check(self._check_marker):
            _log.debug("another thread was ended while it checked the marker: checked again")

    def _check_marker(self) -> None:
        began = self._clock.monotonic()
        found, accepted, before = self.read_marker(), self._accepted(), None
        while not accepted.accepts(found) and accepted != before:
            before = accepted
            found, accepted = self.read_marker(), self._accepted()
        try:
            accepted.require(found, self._place)
        except TieringError:
            self._trusted_until = self._refused_at = self._clock.monotonic()
            raise
        if began > self._refused_at:  # another thread may have seen another marker since this one was read
            self._trusted_until = began + COPY_TRUST_SECONDS

    def _before_object(self) -> None:
        if self._clock.monotonic() >= self._trusted_until:
            self.check_marker()

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        self.check_marker()
        return super().delete_log_segments(segments)

    def check_writable(self) -> None:
        self.check_marker()
        super().check_writable()
