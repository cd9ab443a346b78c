"""Take the measure of one segment through the storage contract.

What the store refuses or cannot parse leaves its columns unmeasured, with the reason as a remark. A store that does
not answer for now is no measure at all: that error goes to the caller.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from include.tiering.errors import FormatError, RemoteResourceNotFoundError, RemoteStorageError
from include.tiering.formats.crc32c import extend_crc32c
from include.tiering.model.segment_data import IndexType
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.model.skipped_offsets import OffsetRange, SkippedOffsets
from include.tiering.quality import index_faults, succession
from include.tiering.quality.measures import SegmentMeasure
from include.tiering.quota.contract import ByteLimiter, take_all
from include.tiering.remote_metadata.contract import SegmentRow
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, StoredObject

_T = TypeVar("_T")
_OWN_OBJECTS: Final = {
    ObjectKind.OFFSET_INDEX: IndexType.OFFSET,
    ObjectKind.TIME_INDEX: IndexType.TIMESTAMP,
    ObjectKind.TRANSACTION_INDEX: IndexType.TRANSACTION,
    ObjectKind.PRODUCER_SNAPSHOT: IndexType.PRODUCER_SNAPSHOT,
    ObjectKind.LEADER_EPOCH: IndexType.LEADER_EPOCH,
}


def measure_segment(
    row: SegmentRow,
    *,
    previous: RemoteLogSegmentMetadata | None,
    storage: RemoteStorage,
    limiter: ByteLimiter,
    decisions: Sequence[SkippedOffsets] = (),
) -> SegmentMeasure:
    """Measure a FINISHED segment; `previous` is the one FINISHED before it in its partition, `decisions` are those
    about offsets between the two.

    Raises:
        RemoteStorageUnavailableError: the store does not answer (retriable).
        SendingStoppedError, LeaseLostError: from the limiter.
    """
    metadata = row.metadata
    contents = _Contents(metadata, storage, limiter)
    sheet = _Sheet()
    sheet.fill(("stored_log_size_bytes", "stored_log_crc32c"), contents.log_size_and_crc32c)
    _fill_indexes(sheet, contents, metadata)
    sheet.fill(("manifest_differences",), lambda: _manifest_differences(sheet, contents, metadata))
    sheet.fill(("objects_unlike_contents",), lambda: [_objects_unlike_contents(sheet, contents)])
    sheet.fill(("leader_epochs_outside",), lambda: [index_faults.leader_epochs_outside(metadata)])
    sheet.fill(
        ("missing_offsets", "unexplained_overlap", "leader_epochs_back"),
        lambda: [
            _missing_offsets(sheet, previous, metadata, decisions),
            succession.unexplained_overlap(previous, metadata),
            succession.leader_epochs_back(previous, metadata),
        ],
    )
    partition = metadata.topic_id_partition
    return SegmentMeasure(
        topic=partition.topic,
        topic_id=str(partition.topic_id),
        partition=partition.partition,
        segment_id=str(metadata.remote_log_segment_id.id),
        start_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        segment_size_bytes=metadata.segment_size_bytes,
        log_crc32c=row.log_crc32c,
        bytes_read=contents.bytes_read,
        remarks=tuple(sheet.remarks),
        **sheet.values,
    )


class _Sheet:
    """Columns, filled one probe at a time."""

    def __init__(self) -> None:
        self.values: dict[str, int | None] = {}
        self.remarks: list[tuple[str, str]] = []

    def fill(self, columns: Sequence[str], probe: Callable[[], Sequence[int | None]]) -> None:
        try:
            self.values.update(zip(columns, probe(), strict=True))
        except (FormatError, RemoteStorageError) as error:
            if error.retriable:
                raise
            self.values.update(dict.fromkeys(columns))
            for column in columns:
                self.remark(column, f"{column} could not be measured: {error}")

    def remark(self, column: str, text: str) -> None:
        self.remarks.append((column, text))


class _Contents:
    """What the store has for one segment. Each object is asked for once; a refusal is repeated to who asks again."""

    def __init__(self, metadata: RemoteLogSegmentMetadata, storage: RemoteStorage, limiter: ByteLimiter) -> None:
        self._stored = _attempt(lambda: storage.stat_log_segment(metadata))
        if not isinstance(self._stored, RemoteStorageError):
            take_all(limiter, sum(each.size_bytes for each in self._stored if each.kind is not ObjectKind.LOG))
        self._indexes = {each: _attempt(partial(storage.fetch_index, metadata, each)) for each in IndexType}
        self._manifest = _attempt(lambda: storage.fetch_manifest(metadata))

    @property
    def bytes_read(self) -> int:
        return sum(len(part) for part in (*self._indexes.values(), self._manifest) if isinstance(part, bytes))

    def stored_objects(self) -> tuple[StoredObject, ...]:
        return _unwrap(self._stored)

    def log_size_and_crc32c(self) -> tuple[int, int]:
        for stored in self.stored_objects():
            if stored.kind is ObjectKind.LOG:
                return stored.size_bytes, stored.crc32c
        raise RemoteResourceNotFoundError("the log is not in the store")

    def index(self, index_type: IndexType) -> bytes:
        return _unwrap(self._indexes[index_type])

    def transaction_index(self) -> bytes:
        """Empty if the segment has none."""
        found = self._indexes[IndexType.TRANSACTION]
        return b"" if isinstance(found, RemoteResourceNotFoundError) else _unwrap(found)

    def manifest(self) -> bytes | None:
        return _unwrap(self._manifest)

    def of(self, kind: ObjectKind) -> bytes:
        """The bytes of a whole object, put together from what was read."""
        if kind is ObjectKind.MANIFEST:
            return self.manifest() or b""
        if kind is ObjectKind.INDEXES:
            parts = [self.transaction_index() if t is IndexType.TRANSACTION else self.index(t) for t in IndexType]
            return b"".join(parts)
        return self.index(_OWN_OBJECTS[kind])


def _attempt(ask: Callable[[], _T]) -> _T | RemoteStorageError:
    try:
        return ask()
    except RemoteStorageError as error:
        if error.retriable:
            raise
        return error


def _unwrap(answer: _T | RemoteStorageError) -> _T:
    if isinstance(answer, RemoteStorageError):
        raise answer
    return answer


def _fill_indexes(sheet: _Sheet, contents: _Contents, metadata: RemoteLogSegmentMetadata) -> None:
    for prefix, read, faults in (
        ("offset_index", partial(contents.index, IndexType.OFFSET), index_faults.offset_index_faults),
        ("time_index", partial(contents.index, IndexType.TIMESTAMP), index_faults.time_index_faults),
        ("transaction_index", contents.transaction_index, index_faults.transaction_index_faults),
    ):
        columns = [f"{prefix}_{kind}" for kind in index_faults.IndexFaults._fields]
        sheet.fill(columns, partial(_faults_of, read, faults, metadata))
    sheet.fill(
        ("transaction_index_contradictions",),
        lambda: [int(bool(contents.transaction_index()) == metadata.txn_index_empty)],
    )
    sheet.fill(
        ("producer_snapshot_beyond_end",),
        lambda: [index_faults.producers_beyond_end(contents.index(IndexType.PRODUCER_SNAPSHOT), metadata)],
    )
    sheet.fill(
        ("leader_epoch_differences",),
        lambda: [index_faults.leader_epoch_differences(contents.index(IndexType.LEADER_EPOCH), metadata)],
    )


def _faults_of(
    read: Callable[[], bytes],
    faults: Callable[[bytes, RemoteLogSegmentMetadata], index_faults.IndexFaults],
    metadata: RemoteLogSegmentMetadata,
) -> index_faults.IndexFaults:
    return faults(read(), metadata)


def _missing_offsets(
    sheet: _Sheet,
    previous: RemoteLogSegmentMetadata | None,
    metadata: RemoteLogSegmentMetadata,
    decisions: Sequence[SkippedOffsets],
) -> int:
    missing = succession.missing_offsets(previous, metadata, decisions)
    total = sum(part.size for part in missing)
    if missing:
        skipped = f"; skipped by decision are {_named(one.offsets for one in decisions)}" if decisions else ""
        sheet.remark("missing_offsets", f"missing_offsets = {total}: {_named(missing)}{skipped}")
    return total


def _named(ranges: Iterable[OffsetRange]) -> str:
    return ", ".join(map(str, ranges))


def _manifest_differences(sheet: _Sheet, contents: _Contents, metadata: RemoteLogSegmentMetadata) -> list[int]:
    manifest = contents.manifest()
    differing = [] if manifest is None else index_faults.manifest_differences(manifest, metadata)
    if differing:
        sheet.remark("manifest_differences", f"manifest and metadata differ in {', '.join(differing)}")
    return [len(differing)]


def _objects_unlike_contents(sheet: _Sheet, contents: _Contents) -> int:
    unlike = [
        stored.key
        for stored in contents.stored_objects()
        if stored.kind is not ObjectKind.LOG and not _holds(stored, contents.of(stored.kind))
    ]
    if unlike:
        sheet.remark("objects_unlike_contents", f"length or checksum differs from what is read: {', '.join(unlike)}")
    return len(unlike)


def _holds(stored: StoredObject, content: bytes) -> bool:
    return stored.size_bytes == len(content) and stored.crc32c == extend_crc32c(0, content)
