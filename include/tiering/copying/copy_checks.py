"""What must hold while a segment is copied: the source continues what is remote, and the store has what was read.

**Log divergence.** An unclean leader election may replace records that are remote. A plan records such a divergence of
the histories and holds the partition back until a person decides: see `model.histories`. A plan may be older than the
election, so a copy asks again, about the segment that it opened: behind it nobody would find the divergence any more,
because from then on the newest remote epoch is the source's.

A source whose newest leader epoch is older than what is remote has no other history: it is behind. Nothing is copied of
it, and nothing is recorded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from include.tiering.errors import RemoteChecksumError, SourceChangedError
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
        source_offset: the first offset (inclusive) of the source that is not remote from it: at or below the first one
            of `seen`.
        history: `newest_history` then.
        is_behind: whether the source knows no leader epoch as late as the latest one that is remote.
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
    """What of the history that is remote now the source has replaced. None if they agree, or if the source's no longer
    reaches back to it.

    Args:
        leader_epochs: the source's, up to `log_end_offset` (exclusive).
        highest_copied: inclusive.
    """
    if highest_copied is None:
        return None
    newest = leader_epochs.epoch_for(highest_copied)
    if newest is None or metadata.is_continued(partition, newest, highest_copied):
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
    offset = divergence_offset(leader_epochs, log_end_offset, last, remote_ends(parts))
    if offset is None:
        return None
    first = min([max(offset, min(part.first for _, part in parts)), *_replaced_below(leader_epochs, rows, divergences)])
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
    """Where what is remote below the source's history has a later epoch than that begins with: epochs never fall. What
    somebody decided about is left out: a history that was left answers there still.
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
    """First offset of the source that is not remote under the source's own leader epochs, though offsets above it are.

    None if the histories agree, or if the source's no longer reaches back to `highest_remote`. Kafka's rule: of the
    newest epoch that has something remote, the lower of its remote end and its end in the source's history counts.

    Args:
        ends: highest remote offset (inclusive) by leader epoch.
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
    """From where on the source can be followed, with all that it, or the store, still has of its history."""
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
    """The first offsets from `offset` to the following one (exclusive) that no recorded hole covers. Where they meet
    nobody is asked.
    """
    if offset >= following_offset:
        return None
    decisions = metadata.skipped_offsets(partition)
    return next(iter(not_skipped(offset, following_offset - 1, decisions)), None)


def way_on(partition: TopicIdPartition, offset: int, metadata: RemoteLogMetadata) -> str:
    """What to do where the source has not any more what begins at this offset."""
    decision = newest_decision(metadata.divergences(partition))
    if decision is not None and decision.begins_in_store(offset):
        return "the store has copies of them: ./tiering adopt first, then see ./tiering skip"
    return "see ./tiering skip"


def require_same_end(
    replica_id: ReplicaId, segment: LogSegment, highest_copied_offset: int | None, ends_at: int | None
) -> None:
    """The archive must end where the copy was told that it ends. A decision to follow the source needs no lease, and
    lets it end earlier: behind the old end a gap would be left. `ends_at` is where it ended as the attempt was
    recorded; what is decided after that keeps the attempt from FINISHED.

    Raises:
        SourceChangedError
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


def require_no_divergence(
    replica_id: ReplicaId, opened: OpenSegment, highest_copied_offset: int | None, metadata: RemoteLogMetadata
) -> None:
    """The source of a segment that is copied for the first time must have what is remote, and no divergence may wait
    for a decision. One that is met here is recorded.

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
