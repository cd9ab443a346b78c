"""Check that the store has the copies that the metadata describe: every object, with the right lengths and checksums.

- `absent_kinds` names the objects that a segment lacks.
- `WholeCopy` checks one segment. A log that was compressed or encrypted on its way is read back.
- `StoreWitness` checks another segment (the witness) before a missing segment counts as lost. A segment with all of its
  objects may be damaged, but it is not lost, so nothing else is checked. If any of its objects is missing or wrongly
  empty, the store's marker is checked, and then the witness: a segment that passed verification, of the same partition
  if there is one. If the witness is whole (every object, the log in its full length, its own manifest), the store is
  the right one and the segment is lost. Otherwise the store is in doubt: for example, a mirror that is still being
  filled may lack objects of every segment. If no other segment has passed, there is no witness, and the segment counts
  as lost. Marker and witness are checked once for each partition.
- `prove_place` checks segments of every partition before the location of a store changes or is first recorded.
- `ForgottenCopy` names a copy that the store has and the metadata lack. `before_forgotten` keeps a decision to do
  without offsets away from such copies.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Final

from include.tiering.errors import (
    FormatError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    SegmentKeyError,
    StateConflictError,
    StoreInDoubtError,
)
from include.tiering.formats.aiven_manifest import parse_manifest
from include.tiering.formats.record_batch import extend_crc32c
from include.tiering.model.histories import OffsetRange
from include.tiering.model.segments import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    Uuid,
    Verdict,
)
from include.tiering.quotas.contract import Quotas, UnlimitedBytes
from include.tiering.remote_storage.contract import (
    KeptObject,
    ObjectKind,
    RemoteStorage,
    SegmentReader,
    StoredObject,
    is_unread,
)
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow

_MAY_BE_EMPTY: Final = frozenset({ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX, ObjectKind.TRANSACTION_INDEX})
"""Kinds of objects that may have 0 bytes: each holds one index, and an index of a small segment may have no entry."""


@dataclass(frozen=True, slots=True)
class ForgottenCopy:
    """A copy of which the store has objects and the metadata no row; offsets are inclusive.

    It is complete, or (`end_offset` is None) it may be: its objects cannot be read, and `why` says the reason.
    """

    segment_id: Uuid
    start_offset: int
    end_offset: int | None
    why: str = ""


def before_forgotten(
    partition: TopicIdPartition, hole: OffsetRange, copies: Sequence[ForgottenCopy]
) -> tuple[OffsetRange, ForgottenCopy | None]:
    """Return the part of a hole before the first of these copies that has offsets of it; and that copy, or None.

    Raises:
        StateConflictError: a copy has the first offset of the hole.
    """
    within = [
        copy
        for copy in copies
        if copy.start_offset <= hole.last and hole.first <= max(copy.start_offset, copy.end_offset or 0)
    ]
    first = min(within, key=lambda copy: copy.start_offset, default=None)
    if first is None or first.start_offset > hole.first:
        return (hole if first is None else OffsetRange(hole.first, first.start_offset - 1)), first
    what = (
        f"may have offsets from {first.start_offset} on, in a copy that cannot be read ({first.why}): make it readable"
        if first.end_offset is None
        else f"has a complete copy of offsets {first.start_offset}..{first.end_offset}, unknown to the database"
    )
    raise StateConflictError(
        f"{partition}: nothing is skipped: the store {what}: segment {first.segment_id}. ./tiering adopt --all imports"
        " it, or says why not. To do without it, accept the finding of an audit about it first: ./tiering audit"
    )


def absent_kinds(
    stored: Iterable[StoredObject | KeptObject], required: Collection[ObjectKind]
) -> tuple[ObjectKind, ...]:
    """Return the required kinds whose object is missing, or has 0 bytes although that kind cannot; sorted by value."""
    there = {
        stored_object.kind
        for stored_object in stored
        if stored_object.size_bytes or stored_object.kind in _MAY_BE_EMPTY
    }
    return tuple(sorted(set(required) - there))


class Suspicion(StrEnum):
    """A difference between the store and the metadata. Each value is the name of a column of `StoredMeasure`."""

    MISSING = "missing"
    UNKNOWN = "unknown"
    OTHER_SIZE = "other_size"
    OTHER_EPOCHS = "other_epochs"
    UNREADABLE = "unreadable"


def manifest_suspicion(metadata: RemoteLogSegmentMetadata, manifest: bytes) -> Suspicion | None:
    """Return why a manifest does not match the metadata in id, offsets, size or leader epochs; None if it does."""
    try:
        described = parse_manifest(manifest).metadata
    except FormatError:
        return Suspicion.UNREADABLE
    if described is None or _identity(described) != _identity(metadata):
        return Suspicion.OTHER_EPOCHS
    return None


def explains_length(manifest: bytes | None, log_bytes: int, stored_bytes: int) -> bool:
    """Return whether, by the manifest, a log of `log_bytes` is compressed or encrypted to `stored_bytes`.

    Without a readable manifest, return False.
    """
    if manifest is None:
        return False
    try:
        parsed = parse_manifest(manifest)
    except FormatError:
        return False
    chunks = parsed.chunk_index
    lengths = (chunks.original_file_size_bytes, chunks.stored_size_bytes)
    return not parsed.is_plain and lengths == (log_bytes, stored_bytes)


def _identity(metadata: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    return (
        metadata.remote_log_segment_id,
        metadata.start_offset,
        metadata.end_offset,
        metadata.segment_size_bytes,
        metadata.segment_leader_epochs,
    )


@dataclass(frozen=True, slots=True)
class WholeCopy:
    """Checks copies in the store. The bytes of a compressed or encrypted log are charged to the fetch quota."""

    storage: RemoteStorage
    quotas: Quotas

    def fault(self, row: SegmentRow, go_on: Callable[[], object] = lambda: None) -> str | None:
        """Return why the segment's copy is not whole and correct; None if it is. The text follows the segment's name.

        The log must have the length and the CRC-32C in the row; a row without a CRC-32C is a fault. A manifest, if the
        layout has one, must match the metadata and give the length of the indexes. A log that was compressed or
        encrypted on its way is read back; `go_on` is called for each block of it.

        Raises:
            RemoteStorageError: the store failed with a retriable error. Its other errors, and a missing private key,
                are returned as a fault.
            SendingStoppedError, LeaseLostError: from `go_on`.
        """
        try:
            return self._fault(row, go_on)
        except (RemoteStorageError, SegmentKeyError) as error:
            if error.retriable:
                raise
            return f"cannot be read: {error}"

    def is_in_parts(self, row: SegmentRow) -> bool:
        """Return whether a required object is missing. An object that exists and cannot be read is not missing.

        Raises:
            RemoteStorageError: the store cannot be read.
        """
        found = {stored_object.kind for stored_object in self.storage.stat_log_segment(row.metadata)}
        return not self.storage.required_kinds <= found

    def is_there(self, row: SegmentRow) -> bool | None:
        """Return whether the segment's copy is whole and correct; None if that cannot be found out now.

        For example, the store does not answer, access is denied, or the private key is missing.
        """
        try:
            return self._fault(row, lambda: None) is None
        except SegmentKeyError:
            return None
        except RemoteStorageError as error:
            return None if error.retriable or is_unread(error) else False

    def _fault(self, row: SegmentRow, go_on: Callable[[], object]) -> str | None:
        found = {stored_object.kind: stored_object for stored_object in self.storage.stat_log_segment(row.metadata)}
        missing = sorted(self.storage.required_kinds - found.keys())
        if missing:
            return f"has no {', '.join(missing)} in the store"
        if row.log_crc32c is None:
            return "has no known checksum to compare with"
        manifest = self.storage.fetch_manifest(row.metadata)
        if manifest is not None and (suspicion := manifest_suspicion(row.metadata, manifest)) is not None:
            return f"has a manifest that does not match: {suspicion}"
        if manifest is not None:
            stored, said = found[ObjectKind.INDEXES].size_bytes, parse_manifest(manifest).stored_indexes_bytes
            if stored != said:
                return f"has {stored} bytes of indexes, but {said} by its manifest"
        return self._fault_of_log(row, found[ObjectKind.LOG], manifest, go_on)

    def _fault_of_log(
        self, row: SegmentRow, log: StoredObject, manifest: bytes | None, go_on: Callable[[], object]
    ) -> str | None:
        expected = (row.metadata.segment_size_bytes, row.log_crc32c)
        stored = (log.size_bytes, log.crc32c)
        if stored != expected and explains_length(manifest, expected[0], log.size_bytes):
            # Compressed or encrypted: the store's checksum is of the transformed bytes, so the log is read back.
            stored = self._read_back(row, go_on)
        if stored == expected:
            return None
        return f"has a log of {stored[0]} bytes with CRC-32C {stored[1]:08x}, not {expected[0]} with {expected[1]:08x}"

    def _read_back(self, row: SegmentRow, go_on: Callable[[], object]) -> tuple[int, int]:
        limiter = self.quotas.fetch(row.metadata.broker_id, row.metadata.topic_id_partition.topic)
        size_bytes = crc32c = 0
        for block in self.storage.fetch_log_segment(row.metadata, limiter=limiter):
            go_on()
            size_bytes, crc32c = size_bytes + len(block), extend_crc32c(crc32c, block)
        return size_bytes, crc32c


class StoreWitness:
    """Decides whether a missing segment may count as lost.

    The result is determined once for each partition and then kept, so create a new instance for each run. `storage`
    opens the store; it is called when the store is needed.
    """

    def __init__(self, metadata: RemoteLogMetadata, storage: Callable[[], RemoteStorage]) -> None:
        self._metadata = metadata
        self._storage = storage
        self._answers: dict[TopicIdPartition, str | None] = {}

    def doubt(self, segment: RemoteLogSegmentMetadata) -> str | None:
        """Return why a FINISHED segment may not count as lost; None if it may, or if it has all of its objects.

        Raises:
            RemoteStorageError: the store cannot be read.
            ForeignStoreError: the store has no marker or that of another database, or the settings name another place.
        """
        if not self._absent(self._reader(segment).objects()):
            return None
        partition = segment.topic_id_partition
        if partition not in self._answers:
            self._storage().check_marker()
            self._answers[partition] = self._answer(segment)
        return self._answers[partition]

    def doubt_or_error(self, segment: RemoteLogSegmentMetadata) -> str | None:
        """Return the result of `doubt`; if the store fails, return the error as the reason to doubt."""
        try:
            return self.doubt(segment)
        except RemoteStorageError as error:
            return f"it could not be checked whether the store is the right one: {error}"

    def require(self, segment: RemoteLogSegmentMetadata) -> None:
        """Check that the segment may count as lost, or has all of its objects. Errors of `doubt` are raised as well.

        Raises:
            StoreInDoubtError: the segment may not count as lost.
        """
        doubt = self.doubt(segment)
        if doubt is not None:
            raise StoreInDoubtError(doubt)

    def _answer(self, missing: RemoteLogSegmentMetadata) -> str | None:
        witness = self._witness(missing)
        fault = None if witness is None else self._fault(witness)
        if witness is None or fault is None:
            return None
        return (
            f"segment {missing.remote_log_segment_id} is not whole in the store, nor is"
            f" {witness.remote_log_segment_id}, which passed: it has {fault}; check that the store's disk is mounted,"
            " that remote_storage.url, layout and key_prefix are right, and that no restore or sync into the store is"
            " running. If both segments are lost, ./tiering verify finds that"
        )

    def _witness(self, missing: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata | None:
        """Return the segment that passed last in the same partition, else in the first other partition with any.

        If no segment of a partition has the verdict PASSED, the newest verdict EXPIRED counts.
        """
        partition = missing.topic_id_partition
        others = (other for other in self._metadata.partitions() if other != partition)
        for place in chain((partition,), others):
            rows = self._metadata.list_segments(place)
            found = _last_passed(row for row in rows if row.metadata != missing)
            if found is not None:
                return found
        return None

    def _fault(self, witness: RemoteLogSegmentMetadata) -> str | None:
        """Return what is wrong with the objects of a segment that passed; None if nothing is.

        Of the objects only the manifest is read.
        """
        reader = self._reader(witness)
        stored = reader.objects()
        if absent := self._absent(stored):
            return f"no {', '.join(absent)}"
        manifest = reader.manifest()
        if manifest is not None and (suspicion := manifest_suspicion(witness, manifest)) is not None:
            return f"a manifest that does not match ({suspicion})"
        (stored_bytes,) = (stored_object.size_bytes for stored_object in stored if stored_object.kind is ObjectKind.LOG)
        log_bytes = witness.segment_size_bytes
        if stored_bytes != log_bytes and not explains_length(manifest, log_bytes, stored_bytes):
            return f"a log of {stored_bytes} bytes, not {log_bytes}"
        return None

    def _absent(self, stored: Iterable[KeptObject]) -> tuple[ObjectKind, ...]:
        return absent_kinds(stored, self._storage().required_kinds)

    def _reader(self, segment: RemoteLogSegmentMetadata) -> SegmentReader:
        return self._storage().open_log_segment(segment, limiter=UnlimitedBytes())


def _last_passed(rows: Iterable[SegmentRow]) -> RemoteLogSegmentMetadata | None:
    passed = [row for row in rows if row.metadata.is_finished and row.verdict.is_served]
    last = max(passed, key=lambda row: (row.verdict is Verdict.PASSED, row.verdict_at_ms or 0), default=None)
    return None if last is None else last.metadata


def whole_or_unknown(whole: WholeCopy, witness: StoreWitness) -> Callable[[SegmentRow], bool | None]:
    """Return a function that returns whether a copy is whole and correct; None while that is not known.

    It is not known if the copy cannot be read now, or if it is not whole in a store that may be the wrong one. Each
    copy is checked once.
    """
    known: dict[RemoteLogSegmentId, bool | None] = {}

    def is_whole(row: SegmentRow) -> bool | None:
        segment_id = row.metadata.remote_log_segment_id
        if segment_id not in known:
            found = whole.is_there(row)
            known[segment_id] = None if found is False and witness.doubt_or_error(row.metadata) is not None else found
        return known[segment_id]

    return is_whole


ALL_OF: Final = 200
"""About how many segments are checked in all. If there are no more than these, every segment is checked.

At least two segments of each partition are checked (one if it has only one), so many partitions lead to more segments.
"""
_EACH: Final = 2
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class PlaceProof:
    """Result of a check. `wrong` is how many checked segments are faulty; `missing` describes the first few of them."""

    segments: int
    partitions: int
    checked: int
    wrong: int
    missing: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.wrong


def prove_place(storage: RemoteStorage, metadata: RemoteLogMetadata, *, read_back: bool = True) -> PlaceProof:
    """Check FINISHED segments of every partition: the first, the last, and some evenly spaced between them.

    Segments that failed verification are left out. The order is that of start offsets; see `ALL_OF` for the number.

    Args:
        storage: the store at the location to check.
        metadata: the segments that it should have.
        read_back: whether objects for which the store keeps no checksum are read, to compute it. If not, only the
            length of such a log is compared.

    Raises:
        RemoteStorageError: the store does not answer, or refuses a request.
    """
    by_partition = [
        [
            row
            for row in metadata.list_segments(partition)
            if row.metadata.is_finished and row.verdict is not Verdict.FAILED
        ]
        for partition in metadata.partitions()
    ]
    total = sum(map(len, by_partition))
    chosen = [row for rows in by_partition if rows for row in _some(rows, total)]
    wrong = [
        f"{row.metadata.remote_log_segment_id}: {fault}" for row, fault in _faults(storage, chosen, read_back=read_back)
    ]
    return PlaceProof(total, sum(map(bool, by_partition)), len(chosen), len(wrong), tuple(wrong[:_NAMED]))


def _some(rows: Sequence[SegmentRow], total: int) -> list[SegmentRow]:
    wanted = len(rows) if total <= ALL_OF else min(len(rows), max(_EACH, -(-ALL_OF * len(rows) // total)))
    if wanted < _EACH:
        return list(rows[:wanted])
    last = len(rows) - 1
    return [rows[number * last // (wanted - 1)] for number in range(wanted)]


def _faults(storage: RemoteStorage, rows: Iterable[SegmentRow], *, read_back: bool) -> Iterator[tuple[SegmentRow, str]]:
    for row in rows:
        stored = {found.kind: found for found in _objects(storage, row.metadata, read_back=read_back)}
        lacking = sorted(storage.required_kinds - stored.keys())
        if lacking:
            yield row, f"{', '.join(lacking)} not there"
            continue
        log, size_bytes = stored[ObjectKind.LOG], row.metadata.segment_size_bytes
        if log.size_bytes != size_bytes:
            try:
                manifest = storage.fetch_manifest(row.metadata)
            except RemoteResourceNotFoundError:
                manifest = None
            if not explains_length(manifest, size_bytes, log.size_bytes):
                yield row, f"the log has {log.size_bytes} bytes, expected {size_bytes}"
        elif _differs(row.log_crc32c, log.crc32c) and not _is_transformed(storage, row, log.size_bytes):
            yield row, f"the log is there with another CRC-32C than {row.log_crc32c:08x}"


def _differs(expected: int | None, found: int | None) -> bool:
    return expected is not None and found is not None and expected != found


def _objects(storage: RemoteStorage, metadata: RemoteLogSegmentMetadata, *, read_back: bool) -> Sequence[KeptObject]:
    if not read_back:
        return storage.open_log_segment(metadata, limiter=UnlimitedBytes()).objects()
    stored = storage.stat_log_segment(metadata)
    return [
        KeptObject(stored_object.kind, stored_object.key, stored_object.size_bytes, stored_object.crc32c)
        for stored_object in stored
    ]


def _is_transformed(storage: RemoteStorage, row: SegmentRow, stored_bytes: int) -> bool:
    """Return whether the log is compressed or encrypted: by chance its length may be that of the plain log."""
    return explains_length(storage.fetch_manifest(row.metadata), row.metadata.segment_size_bytes, stored_bytes)
