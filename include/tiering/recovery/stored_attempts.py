"""Decide from a copy attempt's stored objects whether it is complete, and to which history it belongs.

Objects are untrusted input. An attempt that is inconsistent becomes a `FaultyAttempt`, and the other attempts are
still examined.

Copies that the metadata lack are assigned to histories together with the known segments of their partition. As in a
rebuild, a manifest whose leader epochs contradict other manifests is first compared with the leader epoch index of its
own copy.
"""

from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from include.tiering.errors import (
    FormatError,
    ObjectKeyError,
    RemoteChecksumError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    TieringError,
)
from include.tiering.formats import checkpoints
from include.tiering.formats.aiven_manifest import MAX_MANIFEST_BYTES, SegmentManifest, parse_manifest
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.recovered_histories import is_odd, lateness, recovered_histories
from include.tiering.model.recovered_log import StoredHistories
from include.tiering.model.segments import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata
from include.tiering.recovery.contract import StoredSegment
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, SegmentObject, is_unread

_COMPLETE: Final = (ObjectKind.LOG, ObjectKind.INDEXES, ObjectKind.MANIFEST)
_THREADS: Final = 8
_AHEAD: Final = 64
"""How many attempts are examined ahead of the result that the caller consumes: this limits memory."""


@dataclass(frozen=True, slots=True)
class FoundAttempt:
    """The objects whose keys name one attempt, by kind, with their sizes in the listing."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    sizes_bytes: Mapping[ObjectKind, int]

    @property
    def size_bytes(self) -> int:
        return sum(self.sizes_bytes.values())


@dataclass(frozen=True, slots=True)
class FaultyAttempt:
    """An attempt that is not a complete copy, or whose segment id an earlier complete copy has.

    `error` is the class name of a TieringError. With `is_unread`, an object could not be read, for a reason that says
    nothing about its bytes, or was listed and then not found: the attempt may be a complete copy.
    """

    attempt: FoundAttempt
    error: str
    message: str
    is_unread: bool = False


def found_attempts(objects: Iterable[SegmentObject]) -> list[FoundAttempt]:
    """Group objects of one partition into attempts, ordered by start offset. Memory grows with their number."""
    sizes: dict[tuple[int, RemoteLogSegmentId], dict[ObjectKind, int]] = {}
    for found in objects:
        sizes.setdefault((found.start_offset, found.segment_id), {})[found.kind] = found.size_bytes
    ordered = sorted(sizes.items(), key=lambda item: (item[0][0], item[0][1].id))
    return [FoundAttempt(segment_id, start_offset, kinds) for (start_offset, segment_id), kinds in ordered]


def examined(
    storage: RemoteStorage, attempts: Iterable[FoundAttempt]
) -> Generator[StoredSegment | FaultyAttempt, None, None]:
    """Examine attempts concurrently; yield the results in the order of the attempts.

    Raises:
        RemoteStorageUnavailableError: the store is not available; attempts that wait for a thread are cancelled.
    """
    waiting: deque[Future[StoredSegment | FaultyAttempt]] = deque()
    with ThreadPoolExecutor(_THREADS, "examine") as threads:
        try:
            for attempt in attempts:
                waiting.append(threads.submit(examine, storage, attempt))
                if len(waiting) > _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def examine(storage: RemoteStorage, attempt: FoundAttempt) -> StoredSegment | FaultyAttempt:
    """Return the complete copy, or the attempt with what is wrong with it.

    The manifest is read and compared with the lengths of the stored objects. For the checksum, the log is read if the
    store computes none.

    Raises:
        RemoteStorageError: only if it is retriable; other errors make the attempt faulty.
    """
    try:
        metadata, manifest = _described(storage, attempt)
        stored = {stored_object.kind: stored_object for stored_object in storage.stat_log_segment(metadata)}
        _require_objects(stored)
        for kind, said_bytes in (
            (ObjectKind.LOG, manifest.chunk_index.stored_size_bytes),
            (ObjectKind.INDEXES, manifest.stored_indexes_bytes),
        ):
            if stored[kind].size_bytes != said_bytes:
                raise RemoteChecksumError(
                    f"its {kind.value} object has {stored[kind].size_bytes} bytes, its manifest says {said_bytes}"
                )
        return StoredSegment(metadata, stored[ObjectKind.LOG].crc32c if manifest.is_plain else None)
    except TieringError as error:
        if error.retriable:
            raise
        # What is listed and then not found was deleted since, or is hidden: only another listing tells.
        is_hidden = isinstance(error, RemoteResourceNotFoundError) and not _missing(attempt.sizes_bytes)
        return FaultyAttempt(attempt, type(error).__name__, str(error), is_hidden or is_unread(error))


def separated(
    found: Iterable[StoredSegment | FaultyAttempt],
) -> tuple[dict[RemoteLogSegmentId, StoredSegment], tuple[FaultyAttempt, ...]]:
    """Return the complete copies by id, and the faulty attempts.

    If several complete copies have one id, the id belongs to the first of them; the others become faulty.
    """
    stored: dict[RemoteLogSegmentId, StoredSegment] = {}
    faulty = []
    for attempt in found:
        if isinstance(attempt, FaultyAttempt):
            faulty.append(attempt)
            continue
        segment_id, start_offset = attempt.metadata.remote_log_segment_id, attempt.metadata.start_offset
        first = stored.setdefault(segment_id, attempt)
        if first is not attempt:
            message = f"the segment at offset {first.metadata.start_offset} has the same id"
            faulty.append(FaultyAttempt(FoundAttempt(segment_id, start_offset, {}), ObjectKeyError.__name__, message))
    return stored, tuple(faulty)


def leader_epochs_of(storage: RemoteStorage, segment: RemoteLogSegmentMetadata) -> LeaderEpochs:
    """Read the leader epoch index of a copy, up to its end; empty if the index is missing or damaged.

    Raises:
        RemoteStorageError: the index may be right, but cannot be read.
    """
    try:
        history = checkpoints.parse_leader_epochs(storage.fetch_index(segment, IndexType.LEADER_EPOCH))
    except (FormatError, RemoteStorageError) as error:
        if error.retriable or is_unread(error):
            raise
        return LeaderEpochs()
    return history.range(-1, segment.end_offset + 1)


def _described(storage: RemoteStorage, attempt: FoundAttempt) -> tuple[RemoteLogSegmentMetadata, SegmentManifest]:
    """Read the manifest, check that it agrees with the keys, and return the segment's metadata and the manifest."""
    if ObjectKind.MANIFEST not in storage.required_kinds:
        raise RemoteResourceNotFoundError(
            "this layout writes no manifests, so copies in this store cannot be adopted, nor metadata be rebuilt from"
            " it: restore the database, or ingest the brokers' metadata topic"
        )
    _require_objects(attempt.sizes_bytes)
    if attempt.sizes_bytes[ObjectKind.MANIFEST] > MAX_MANIFEST_BYTES:
        raise FormatError(
            f"its manifest has {attempt.sizes_bytes[ObjectKind.MANIFEST]} bytes: at most {MAX_MANIFEST_BYTES} are read"
        )
    content = storage.fetch_manifest(_named_by(attempt)) or b""
    if len(content) != attempt.sizes_bytes[ObjectKind.MANIFEST]:
        raise RemoteStorageError(
            f"of its manifest {len(content)} bytes came, and {attempt.sizes_bytes[ObjectKind.MANIFEST]} are listed"
        )
    manifest = parse_manifest(content)
    metadata = _of_this_attempt(manifest, attempt)
    transactions = manifest.indexes[IndexType.TRANSACTION]
    txn_index_empty = transactions is None or not transactions.size_bytes
    return replace(metadata, txn_index_empty=txn_index_empty), manifest


def _of_this_attempt(manifest: SegmentManifest, attempt: FoundAttempt) -> RemoteLogSegmentMetadata:
    metadata = manifest.metadata
    if metadata is None:
        raise FormatError("its manifest does not name its segment")
    said, named = metadata.topic_id_partition, attempt.segment_id.topic_id_partition
    if (metadata.remote_log_segment_id, said.topic) != (attempt.segment_id, named.topic):
        raise ObjectKeyError(
            f"its manifest names {metadata.remote_log_segment_id} ({said.topic_id}), its key says"
            f" {attempt.segment_id} ({named.topic_id})"
        )
    if metadata.start_offset != attempt.start_offset:
        raise ObjectKeyError(f"its manifest says start offset {metadata.start_offset}, its key {attempt.start_offset}")
    return metadata


def _missing(found: Iterable[ObjectKind]) -> list[str]:
    there = set(found)
    return [kind.value for kind in _COMPLETE if kind not in there]


def _require_objects(found: Iterable[ObjectKind]) -> None:
    if missing := _missing(found):
        raise RemoteResourceNotFoundError(f"it has no {', no '.join(missing)} object")


def _named_by(attempt: FoundAttempt) -> RemoteLogSegmentMetadata:
    """Return placeholder metadata from which the keys of an attempt can be built."""
    start_offset = attempt.start_offset
    return RemoteLogSegmentMetadata(
        remote_log_segment_id=attempt.segment_id,
        start_offset=start_offset,
        end_offset=start_offset,
        max_timestamp_ms=-1,
        broker_id=-1,
        event_timestamp_ms=0,
        segment_size_bytes=0,
        segment_leader_epochs=LeaderEpochs.of([(0, start_offset)]),
    )


def stored_histories(
    storage: RemoteStorage, known: Sequence[RemoteLogSegmentMetadata], copies: Sequence[RemoteLogSegmentMetadata]
) -> tuple[StoredHistories, tuple[RemoteLogSegmentMetadata, ...]]:
    """Assign known segments and copies to histories.

    Returns:
        The histories, and the copies that belong to none, because their manifests contradict both others and their
        leader epoch index.

    Raises:
        RemoteStorageError: the store is not available, or a leader epoch index cannot be read.
    """
    odd: list[RemoteLogSegmentMetadata] = []
    left = [*known, *copies]
    while True:
        carried = leader_epochs_of(storage, max(left, key=lateness)) if left else LeaderEpochs()
        contradicting = recovered_histories(left, carried).contradicting
        found = [segment for segment in contradicting if is_odd(segment, leader_epochs_of(storage, segment))]
        if not found:
            consistent = [segment for segment in known if segment in left]
            histories = StoredHistories(consistent, [copy for copy in copies if copy in left], carried)
            return histories, tuple(copy for copy in copies if copy in odd)
        odd += found
        left = [segment for segment in left if segment not in found]
