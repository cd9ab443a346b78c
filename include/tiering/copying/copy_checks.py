"""Checks during a copy: the source continues what is remote, and the store has what was read.

**Log divergence.** An unclean leader election may replace records that are remote. A plan records such a divergence of
the histories and holds the partition back until a person decides: see `model.histories`. A plan may be older than the
election, so a copy checks again, for the segment that it opened. Copied without this check, the segment could hide the
divergence, because the newest remote epoch would then be the source's own.

If the source's newest leader epoch is not later than the newest epoch of the remote offsets that differ, the source has
not diverged: it lags. Nothing is recorded, and nothing is copied from it, except new copies of failed segments below
the offsets that differ.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from include.tiering.errors import CorruptFileError, RemoteChecksumError, SourceChangedError, SourceError, TieringError
from include.tiering.kafka.log_dirs.contract import CheckedSegment, LogSegment, OpenSegment, Replica, ReplicaId
from include.tiering.model.histories import (
    Divergence,
    OffsetRange,
    SeenBy,
    SeenDivergence,
    SkippedOffsets,
    epochs_of,
    newest_history,
    not_skipped,
    open_divergence,
    part_of_history,
    remote_ends,
    with_records,
    without,
    written,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.model.recovered_log import newest_decision
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage, StoredObject
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.segments.stored_copies import StoreWitness


@dataclass(frozen=True, slots=True)
class SourceDivergence:
    """A source that does not continue what is remote.

    Attributes:
        seen: what differs.
        source_offset: the source's first offset (inclusive) that is not remote under the source's own leader epochs, or
            the archive's log start if that is higher.
        history: `newest_history` when the divergence was found.
        is_behind: whether the source lags: its newest leader epoch is not later than the latest one of
            `seen.archive_epochs`.
    """

    seen: SeenDivergence
    source_offset: int
    history: int
    is_behind: bool

    def record(self, partition: TopicIdPartition, metadata: RemoteLogMetadata) -> None:
        if not self.is_behind:
            metadata.record_divergence(partition, self.seen, history=self.history)


def find_divergence(
    partition: TopicIdPartition,
    leader_epochs: LeaderEpochs,
    log_end_offset: int,
    highest_copied: int | None,
    metadata: RemoteLogMetadata,
    seen_by: SeenBy,
) -> SourceDivergence | None:
    """Return which offsets of the current remote history the source has replaced.

    Args:
        partition: the partition.
        leader_epochs: the source's, up to `log_end_offset`.
        log_end_offset: the source's, exclusive.
        highest_copied: inclusive; None if nothing was copied.
        metadata: what is remote, and the divergences that are recorded.
        seen_by: what compares the histories.

    Returns:
        None if the histories agree, if decisions skip all offsets that differ, if nothing was copied, if no FINISHED
        segment of the current history reaches the log start, or if no leader epoch of the source covers
        `highest_copied` or the highest remote offset, unless what is remote has a later leader epoch than the source's
        first one.
    """
    if highest_copied is None:
        return None
    newest = leader_epochs.epoch_for(highest_copied)
    begins_after = highest_copied < next((entry.start_offset for entry in leader_epochs.entries), 0)
    if not begins_after and (newest is None or metadata.is_continued(partition, newest, highest_copied)):
        return None
    divergences = metadata.divergences(partition)
    log_start = metadata.retention_state(partition).log_start_offset
    rows = [
        (row, part)
        for row in metadata.list_segments(partition)
        if row.metadata.is_finished
        and (part := part_of_history(row.metadata, row.history, divergences)) is not None
        and part.last >= log_start
    ]
    parts = [(row.metadata, part) for row, part in rows]
    if not parts:
        return None
    last = max(part.last for _, part in parts)
    replaced_below = tuple(_replaced_below(leader_epochs, rows, divergences))
    if begins_after:
        offset = leader_epochs.entries[0].start_offset if replaced_below else None
    else:
        offset = divergence_offset(leader_epochs, log_end_offset, last, remote_ends(parts))
    if offset is None:
        return None
    first = min([max(offset, min(part.first for _, part in parts)), *replaced_below])
    replaced = next(iter(not_skipped(first, last, metadata.skipped_offsets(partition))), None)
    if replaced is None:
        return None
    offsets = OffsetRange(replaced.first, last)
    archived = _epochs_in(parts, offsets)
    source = epochs_of(leader_epochs, OffsetRange(offsets.first, max(log_end_offset - 1, offsets.first)))
    latest = max(archived, default=-1)
    return SourceDivergence(
        SeenDivergence(offsets, archived, source, seen_by),
        max(offset, log_start),
        newest_history(divergences),
        is_behind=leader_epochs.entries[-1].epoch <= latest,
    )


def _replaced_below(
    leader_epochs: LeaderEpochs, rows: Iterable[tuple[SegmentRow, OffsetRange]], divergences: Sequence[Divergence]
) -> Iterator[int]:
    """Yield the first offset of each remote range that the source replaced, though its own history begins after it.

    Such a range was written under a later leader epoch than the source's first one: in one history epochs never fall.
    Offsets of a decided divergence are left out: there the replaced history is still served.
    """
    first = leader_epochs.entries[0]
    for row, part in rows:
        decided = [
            divergence.seen.offsets
            for divergence in divergences
            if divergence.followed is not None and divergence.number > row.history
        ]
        for epoch, offsets in written(row.metadata.segment_leader_epochs, part):
            if epoch > first.epoch:
                yield from (left.first for left in without(offsets, decided) if left.first < first.start_offset)


def divergence_offset(
    leader_epochs: LeaderEpochs, log_end_offset: int, highest_remote: int, ends: Mapping[int, int]
) -> int | None:
    """Return the source's first offset that is not remote, or is remote under other leader epochs than the source has.

    Kafka's rule: take the newest epoch of the source that has remote offsets, and the lower of its remote end and its
    end in the source's history. If no epoch of the source has remote offsets, take the start of its first epoch.

    Args:
        leader_epochs: the source's.
        log_end_offset: the source's, exclusive.
        highest_remote: highest remote offset (inclusive) of any epoch.
        ends: highest remote offset (inclusive) by leader epoch.

    Returns:
        None if the histories agree, or if no leader epoch of the source covers `highest_remote`.
    """
    newest = leader_epochs.epoch_for(highest_remote)
    if newest is None or ends.get(newest) == highest_remote:
        return None
    for epoch, _ in reversed(leader_epochs.entries):
        source_end = leader_epochs.end_offset_of(epoch, log_end_offset)
        if epoch in ends and source_end is not None:
            return min(ends[epoch] + 1, source_end)
    return leader_epochs.entries[0].start_offset


def follow_offset(
    replica: Replica, highest_copied: int, undecided: Divergence | None, divergence: SourceDivergence | None
) -> int:
    """Return the lowest offset (inclusive) from which the source's history can be followed without another gap."""
    if undecided is not None and undecided.copied_from is not None:
        return undecided.copied_from
    if undecided is not None and undecided.seen.seen_by is SeenBy.STORE:
        return undecided.seen.offsets.first
    if divergence is not None:
        return max(divergence.source_offset, replica.log_start_offset)
    agrees = replica.leader_epochs.epoch_for(highest_copied) is not None
    return max(highest_copied + 1 if agrees else replica.log_start_offset, replica.log_start_offset)


def undecided_divergence(partition: TopicIdPartition, metadata: RemoteLogMetadata) -> Divergence | None:
    return open_divergence(metadata.divergences(partition))


def undecided_offsets(
    partition: TopicIdPartition, offset: int, following_offset: int, metadata: RemoteLogMetadata
) -> OffsetRange | None:
    """Return the first range from `offset` to `following_offset` (exclusive) that no decision skips; None without any.

    If `offset` is not below `following_offset`, the database is not read.
    """
    if offset >= following_offset:
        return None
    decisions = metadata.skipped_offsets(partition)
    return next(iter(not_skipped(offset, following_offset - 1, decisions)), None)


def next_action(partition: TopicIdPartition, offset: int, metadata: RemoteLogMetadata) -> str:
    """Return what a person can do if the source no longer has the records that begin at this offset."""
    decision = newest_decision(metadata.divergences(partition))
    if decision is not None and decision.begins_in_store(offset):
        return "the store has copies of them: ./tiering adopt first, then see ./tiering skip"
    return "see ./tiering skip"


def require_same_end(
    replica_id: ReplicaId, segment: LogSegment, highest_copied_offset: int | None, ends_at: int | None
) -> None:
    """Check that the archive ended at `highest_copied_offset` when the attempt was recorded: `ends_at` is that end.

    A decision to follow the source needs no lease and may move the end back; a copy after the old end would leave a
    gap. A decision after the attempt was recorded is not seen here, but makes FINISHED fail.

    Raises:
        SourceChangedError: the archive ended elsewhere.
    """
    if ends_at != highest_copied_offset:
        raise SourceChangedError(
            f"{replica_id}, segment {segment.base_offset}",
            f"what is copied goes up to offset {ends_at} by decision, not up to {highest_copied_offset} any more",
        )


def _epochs_in(parts: Iterable[tuple[RemoteLogSegmentMetadata, OffsetRange]], offsets: OffsetRange) -> tuple[int, ...]:
    epochs = set[int]()
    for segment, part in parts:
        both = OffsetRange(max(part.first, offsets.first), min(part.last, offsets.last))
        if both.first <= both.last:
            epochs.update(epochs_of(segment.segment_leader_epochs, both))
    return tuple(sorted(epochs))


def require_planned(
    replica_id: ReplicaId,
    segment: LogSegment,
    planned: PlannedSegment,
    highest_copied_offset: int | None,
    decisions: Callable[[], Sequence[SkippedOffsets]],
) -> None:
    """Check that the segment is as planned, eligible, and continues what is copied without an undecided gap.

    `decisions` returns the offsets that people decided to skip; it is called only if there is a gap.

    Raises:
        SourceChangedError: one of these conditions is not met.
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


def require_no_divergence(
    replica_id: ReplicaId, opened: OpenSegment, highest_copied_offset: int | None, metadata: RemoteLogMetadata
) -> None:
    """Check, for a first copy, that the source continues what is remote and that no divergence awaits a decision.

    A divergence that is found here is recorded, unless the source only lags.

    Raises:
        SourceChangedError: the histories diverge, the source lags, or a divergence awaits a decision.
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
    found = find_divergence(partition, epochs, segment.end_offset + 1, highest_copied_offset, metadata, SeenBy.COPY)
    if found is not None:
        found.record(partition, metadata)
        raise SourceChangedError(where, str(found.seen))


def require_replaceable(
    replica_id: ReplicaId,
    segment: LogSegment,
    failed: RemoteLogSegmentMetadata,
    metadata: RemoteLogMetadata,
    storage: RemoteStorage,
) -> None:
    """Check that the source's segment has the offsets and leader epochs of the failed one, and that the store is sound.

    If the store only seems to have lost the failed segment, it may be the wrong store, and nothing is copied into it.

    Raises:
        SourceChangedError: the segment does not hold the same records.
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
    """Compare the objects that were sent with those in the store, and the `.log` with the bytes of the check pass.

    A `.log` that was compressed or encrypted on its way is not compared with the check pass: the bytes before the
    transformation were compared when they were read for sending.

    Raises:
        RemoteChecksumError: an object is missing, or its length or CRC-32C differs.
    """
    found = {stored_object.key: stored_object for stored_object in stored}
    for expected in sent:
        actual = found.get(expected.key)
        if actual is None:
            raise RemoteChecksumError(f"{expected.key}: the store does not have it")
        if (actual.size_bytes, actual.crc32c) != (expected.size_bytes, expected.crc32c):
            raise RemoteChecksumError(
                f"{expected.key}: the store has {actual.size_bytes} bytes with CRC-32C {actual.crc32c:08x}, but "
                f"{expected.size_bytes} bytes with {expected.crc32c:08x} were sent"
            )
    if any(sent_object.is_transformed for sent_object in sent):
        return
    logs = [stored_object for stored_object in stored if stored_object.kind is ObjectKind.LOG]
    source = (checked.data.log.size_bytes, checked.data.log_crc32c)
    if [(log.size_bytes, log.crc32c) for log in logs] != [source]:
        raise RemoteChecksumError(
            f"the stored log is not the {source[0]} bytes with CRC-32C {source[1]:08x} of the source"
        )


def failure_message(planned: PlannedSegment, error: TieringError) -> str:
    """Return why this segment was not copied, without the path of a source file."""
    message = error.message if isinstance(error, SourceError) else str(error)
    if planned.supersedes is None:
        return message
    damaged = "the source itself is damaged: " if isinstance(error, CorruptFileError) else ""
    return f"failed segment {planned.supersedes} is not replaced: {damaged}{message}"
