"""Decorators over a `RemoteStorage`: one remembers, one fails by plan, one is slow, one lies."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from include.tiering.clock import Clock
from include.tiering.errors import RemoteAccessDeniedError
from include.tiering.model.ownership import StoreMarker
from include.tiering.model.segments import IndexType, LogSegmentData, RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.contract import NO_LIMIT, ByteLimiter
from include.tiering.remote_storage.contract import (
    DeleteFailure,
    LogParts,
    ObjectKind,
    ProgressCallback,
    ReadingCosts,
    RemoteStorage,
    SegmentObject,
    SegmentReader,
    StoredObject,
)


class StorageDecorator:
    """Passes everything on. `before` is called with the operation's name first, `after` when it went well."""

    def __init__(self, inner: RemoteStorage) -> None:
        self.inner = inner

    @property
    def required_kinds(self) -> frozenset[ObjectKind]:
        return self.inner.required_kinds

    @property
    def reading_costs(self) -> ReadingCosts:
        return self.inner.reading_costs

    @property
    def slow_downs(self) -> int:
        return self.inner.slow_downs

    def before(self, operation: str, detail: str) -> None:
        return None

    def after(self, operation: str, detail: str) -> None:
        return None

    def copy_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        data: LogSegmentData,
        *,
        limiter: ByteLimiter,
        on_sent: ProgressCallback,
    ) -> tuple[StoredObject, ...]:
        detail = str(metadata.remote_log_segment_id)
        self.before("copy_log_segment", detail)
        sent = self.inner.copy_log_segment(metadata, data, limiter=limiter, on_sent=on_sent)
        self.after("copy_log_segment", detail)
        return sent

    def require_copyable(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.inner.require_copyable(metadata)

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata, stored_bytes: int) -> bytes | None:
        return self.inner.custom_metadata(metadata, stored_bytes)

    def stat_log_segment(self, metadata: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        detail = str(metadata.remote_log_segment_id)
        self.before("stat_log_segment", detail)
        found = self.inner.stat_log_segment(metadata)
        self.after("stat_log_segment", detail)
        return found

    def fetch_log_segment(
        self,
        metadata: RemoteLogSegmentMetadata,
        start_position: int = 0,
        end_position: int | None = None,
        *,
        limiter: ByteLimiter,
        ranges: int = 1,
    ) -> Iterator[bytes]:
        detail = str(metadata.remote_log_segment_id)
        self.before("fetch_log_segment", detail)
        yield from self.inner.fetch_log_segment(metadata, start_position, end_position, limiter=limiter, ranges=ranges)
        self.after("fetch_log_segment", detail)

    def fetch_index(
        self, metadata: RemoteLogSegmentMetadata, index_type: IndexType, *, limiter: ByteLimiter = NO_LIMIT
    ) -> bytes:
        detail = f"{metadata.remote_log_segment_id} {index_type}"
        self.before("fetch_index", detail)
        index = self.inner.fetch_index(metadata, index_type, limiter=limiter)
        self.after("fetch_index", detail)
        return index

    def fetch_manifest(self, metadata: RemoteLogSegmentMetadata) -> bytes | None:
        detail = str(metadata.remote_log_segment_id)
        self.before("fetch_manifest", detail)
        manifest = self.inner.fetch_manifest(metadata)
        self.after("fetch_manifest", detail)
        return manifest

    def open_log_segment(
        self, metadata: RemoteLogSegmentMetadata, *, limiter: ByteLimiter, ranges: int = 1
    ) -> SegmentReader:
        detail = str(metadata.remote_log_segment_id)
        self.before("open_log_segment", detail)
        reader = self.inner.open_log_segment(metadata, limiter=limiter, ranges=ranges)
        self.after("open_log_segment", detail)
        return reader

    def open_log_parts(self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int) -> LogParts:
        detail = str(metadata.remote_log_segment_id)
        self.before("open_log_parts", detail)
        parts = self.inner.open_log_parts(metadata, start_position, end_position)
        self.after("open_log_parts", detail)
        return parts

    def forget(self, metadata: RemoteLogSegmentMetadata) -> bool:
        return self.inner.forget(metadata)

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        detail = " ".join(str(segment.remote_log_segment_id) for segment in segments)
        self.before("delete_log_segments", detail)
        failures = self.inner.delete_log_segments(segments)
        self.after("delete_log_segments", detail)
        return failures

    def list_objects(self) -> Iterator[tuple[str, int]]:
        self.before("list_objects", "")
        yield from self.inner.list_objects()
        self.after("list_objects", "")

    def list_segment_objects(self, partition: TopicIdPartition | None = None) -> Iterator[SegmentObject]:
        self.before("list_segment_objects", "" if partition is None else str(partition))
        yield from self.inner.list_segment_objects(partition)

    def segment_object(self, key: str, size_bytes: int) -> SegmentObject | None:
        return self.inner.segment_object(key, size_bytes)

    def check_marker(self) -> None:
        self.before("check_marker", "")
        self.inner.check_marker()
        self.after("check_marker", "")

    def read_marker(self) -> StoreMarker | None:
        self.before("read_marker", "")
        marker = self.inner.read_marker()
        self.after("read_marker", "")
        return marker

    def create_marker(self, marker: StoreMarker) -> StoreMarker:
        self.before("create_marker", marker.store_id)
        created = self.inner.create_marker(marker)
        self.after("create_marker", marker.store_id)
        return created

    def replace_marker(
        self, expected: StoreMarker, marker: StoreMarker, *, conditional: bool = True
    ) -> StoreMarker | None:
        self.before("replace_marker", marker.store_id)
        replaced = self.inner.replace_marker(expected, marker, conditional=conditional)
        self.after("replace_marker", marker.store_id)
        return replaced

    def replaces_conditionally(self) -> bool:
        return self.inner.replaces_conditionally()

    def clock_ms(self) -> int | None:
        return self.inner.clock_ms()

    def check_writable(self) -> None:
        self.before("check_writable", "")
        self.inner.check_writable()
        self.after("check_writable", "")


class UnreadCopy(StorageDecorator):
    """Has every object, and does not give one: the right to read it is missing, or its storage class forbids it."""

    def __init__(self, inner: RemoteStorage, operation: str, segment: RemoteLogSegmentMetadata) -> None:
        super().__init__(inner)
        self._refused = (operation, str(segment.remote_log_segment_id))

    def before(self, operation: str, detail: str) -> None:
        if (operation, detail.split(" ")[0]) == self._refused:
            raise RemoteAccessDeniedError("the store answered InvalidObjectState (403)")


class RecordingStorage(StorageDecorator):
    """`calls` holds (operation, what it was about) in the order they were begun."""

    def __init__(self, inner: RemoteStorage) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []

    def before(self, operation: str, detail: str) -> None:
        self.calls.append((operation, detail))

    def operations(self) -> list[str]:
        return [operation for operation, _ in self.calls]


@dataclass(frozen=True)
class Fault:
    """The `nth` call (from 1) of `operation` raises `error`; `done` means it was carried out and the reply was lost."""

    operation: str
    nth: int
    error: BaseException
    done: bool = False


class FaultyStorage(StorageDecorator):
    """Fails by plan. `met` holds the faults that happened, so that a test can prove they did."""

    def __init__(self, inner: RemoteStorage, *faults: Fault) -> None:
        super().__init__(inner)
        self._faults = faults
        self._counts: Counter[str] = Counter()
        self.met: list[Fault] = []

    def before(self, operation: str, detail: str) -> None:
        self._counts[operation] += 1
        self._meet(operation, done=False)

    def after(self, operation: str, detail: str) -> None:
        self._meet(operation, done=True)

    def _meet(self, operation: str, *, done: bool) -> None:
        for fault in self._faults:
            if (fault.operation, fault.nth, fault.done) == (operation, self._counts[operation], done):
                self.met.append(fault)
                raise fault.error


class SlowStorage(StorageDecorator):
    """Every operation first takes `seconds` of the clock that it was given."""

    def __init__(self, inner: RemoteStorage, clock: Clock, seconds: float) -> None:
        super().__init__(inner)
        self._clock = clock
        self._seconds = seconds

    def before(self, operation: str, detail: str) -> None:
        self._clock.sleep(self._seconds)


@dataclass
class Lies:
    """What a `LyingStorage` pretends: other checksums, missing objects, deletes that did nothing."""

    crc32c_xor: int = 0
    hides: frozenset[str] = field(default_factory=frozenset)
    keeps_deleted: bool = False


class LyingStorage(StorageDecorator):
    """Answers what `lies` says; `lies` may be changed while it runs. `hides` holds object kinds."""

    def __init__(self, inner: RemoteStorage, lies: Lies) -> None:
        super().__init__(inner)
        self.lies = lies

    def stat_log_segment(self, metadata: RemoteLogSegmentMetadata) -> tuple[StoredObject, ...]:
        return tuple(
            replace(stored, crc32c=stored.crc32c ^ self.lies.crc32c_xor)
            for stored in super().stat_log_segment(metadata)
            if stored.kind not in self.lies.hides
        )

    def delete_log_segments(self, segments: Sequence[RemoteLogSegmentMetadata]) -> tuple[DeleteFailure, ...]:
        return () if self.lies.keeps_deleted else super().delete_log_segments(segments)
