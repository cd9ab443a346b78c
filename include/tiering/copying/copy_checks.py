"""What must hold while a segment is copied: it is the planned one, and the store has what was read."""

from collections.abc import Callable, Sequence

from include.tiering.copying.copy_fork import fork_of, undecided_divergence
from include.tiering.errors import RemoteChecksumError, SourceChangedError
from include.tiering.kafka.log_dirs.contract import CheckedSegment, LogSegment, OpenSegment, ReplicaId
from include.tiering.model.histories import SeenBy, SkippedOffsets, not_skipped, with_records
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, StoredObject
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.segments.stored_copies import StoreWitness


def require_planned(
    replica_id: ReplicaId,
    segment: LogSegment,
    planned: PlannedSegment,
    highest_copied_offset: int | None,
    decisions: Callable[[], Sequence[SkippedOffsets]],
) -> None:
    """The segment must be the one that was planned, eligible now, and join what is copied without a gap, but for what
    somebody decided to go on without. Such `decisions` are asked for only where there is a gap.

    Raises:
        SourceChangedError
    """
    where = f"{replica_id}, segment {planned.base_offset}"
    if (segment.end_offset, segment.size_bytes) != (planned.end_offset, planned.size_bytes):
        raise SourceChangedError(
            where,
            f"planned up to offset {planned.end_offset} with {planned.size_bytes} bytes,"
            f" now up to {segment.end_offset} with {segment.size_bytes}",
        )
    if segment.reason is not None:
        raise SourceChangedError(where, f"not eligible any more: {segment.reason}")
    if highest_copied_offset is not None and segment.base_offset > highest_copied_offset + 1:
        for missing in not_skipped(highest_copied_offset + 1, segment.base_offset - 1, decisions()):
            raise SourceChangedError(where, f"offsets {missing} would be left out")


def require_no_fork(
    replica_id: ReplicaId, opened: OpenSegment, highest_copied_offset: int | None, metadata: RemoteLogMetadata
) -> None:
    """The source of a segment that is copied for the first time must have what is remote, and no divergence may wait
    for a decision: see `copy_fork`. One that is met here is recorded.

    Raises:
        SourceChangedError
    """
    segment, epochs = opened.segment, opened.fingerprint.leader_epochs
    partition, where = replica_id.topic_id_partition, f"{replica_id}, segment {segment.base_offset}"
    if highest_copied_offset is None:
        return
    newest = epochs.epoch_for(highest_copied_offset)
    if newest is not None and metadata.is_continued(partition, newest, highest_copied_offset):
        return
    undecided = undecided_divergence(partition, metadata)
    if undecided is not None:
        raise SourceChangedError(where, str(undecided))
    fork = fork_of(partition, epochs, segment.end_offset + 1, highest_copied_offset, metadata, SeenBy.COPY)
    if fork is not None:
        fork.record(partition, metadata)
        raise SourceChangedError(where, str(fork.seen))


def require_replaceable(
    replica_id: ReplicaId,
    segment: LogSegment,
    failed: RemoteLogSegmentMetadata,
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
) -> None:
    """What takes the place of a failed segment must be of its offsets and its leader epochs, and must not be written
    into a store that only seems to have lost it.

    Raises:
        SourceChangedError: it is not of the same records.
        StoreInDoubtError, RemoteStorageError: see `StoreWitness`.
    """
    offsets, epochs = (failed.start_offset, failed.end_offset), with_records(failed.segment_leader_epochs)
    if (segment.base_offset, segment.end_offset) != offsets or with_records(segment.leader_epochs) != epochs:
        raise SourceChangedError(
            f"{replica_id}, segment {segment.base_offset}",
            f"offsets up to {segment.end_offset} under epochs {list(segment.leader_epochs)} are not what failed:"
            f" {failed.start_offset}..{failed.end_offset} under {list(failed.segment_leader_epochs)}",
        )
    StoreWitness(metadata, lambda: storage).require(failed)


def require_stored(sent: tuple[StoredObject, ...], stored: tuple[StoredObject, ...], checked: CheckedSegment) -> None:
    """Compare what was sent with what the store says, and the `.log` with the check pass, unless it was transformed on
    its way (then its source was compared).

    Raises:
        RemoteChecksumError: an object is missing, or its length or CRC-32C differs.
    """
    found = {thing.key: thing for thing in stored}
    for expected in sent:
        actual = found.get(expected.key)
        if actual is None:
            raise RemoteChecksumError(f"{expected.key}: the store does not have it")
        if (actual.size_bytes, actual.crc32c) != (expected.size_bytes, expected.crc32c):
            raise RemoteChecksumError(
                f"{expected.key}: the store has {actual.size_bytes} bytes with CRC-32C {actual.crc32c:08x}, "
                f"sent were {expected.size_bytes} with {expected.crc32c:08x}"
            )
    if any(thing.is_transformed for thing in sent):
        return
    logs = [thing for thing in stored if thing.kind is ObjectKind.LOG]
    source = (checked.data.log.size_bytes, checked.data.log_crc32c)
    if [(log.size_bytes, log.crc32c) for log in logs] != [source]:
        raise RemoteChecksumError(
            f"the stored log is not the {source[0]} bytes with CRC-32C {source[1]:08x} of the source"
        )
