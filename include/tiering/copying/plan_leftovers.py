"""Copies that were begun and not finished: which of them a plan has finished.

What becomes of each when a batch holds its partition: `leftover_copies`.
"""

from collections.abc import Callable, Iterable

from include.tiering.model.histories import newest_history, with_records
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.ownership import SegmentOrigin
from include.tiering.model.segment_metadata import RemoteLogSegmentMetadata, RemoteLogSegmentState
from include.tiering.runs.contract import PlannedSegment
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow


def leftovers_of(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> list[SegmentRow]:
    """Copies of the partition that we began and that were never finished, by ascending start offset.

    Of what a broker began a lease of ours proves nothing. What was finished is expiration's, which has its own lease.
    """
    rows = [row for row in metadata.list_segments(partition) if row.origin is SegmentOrigin.PLATFORM]
    return [row for row in rows if not row.metadata.is_finished and row.finished_at_ms is None]


def going_on(
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    highest_copied_offset: int,
    following_offset: int,
    is_whole: Callable[[SegmentRow], bool],
) -> list[PlannedSegment]:
    """Whole leftovers that join what is copied and are of the history that is followed, of offsets that the source,
    which goes on with `following_offset`, has no longer."""
    found, next_offset = [], highest_copied_offset + 1
    history = newest_history(metadata.divergences(partition))
    for row in leftovers_of(metadata, partition):
        if row.history != history:
            continue
        segment = row.metadata
        joins = segment.start_offset <= next_offset <= segment.end_offset < following_offset
        if joins and is_started(row) and other_history(metadata, segment) is None and is_whole(row):
            found.append(PlannedSegment(segment.start_offset, segment.end_offset, segment.segment_size_bytes))
            next_offset = segment.end_offset + 1
    return found


def replacing(
    metadata: RemoteLogMetadata,
    partition: TopicIdPartition,
    failed: Iterable[RemoteLogSegmentMetadata],
    is_whole: Callable[[SegmentRow], bool],
) -> list[PlannedSegment]:
    """Whole leftovers of the same records as one of the failed segments, whose place they can take."""
    leftovers = {records_of(row.metadata): row for row in leftovers_of(metadata, partition) if is_started(row)}
    found = []
    for one in failed:
        row = leftovers.get(records_of(one))
        if row is not None and other_history(metadata, row.metadata) is None and is_whole(row):
            size_bytes, old = row.metadata.segment_size_bytes, one.remote_log_segment_id.id
            found.append(PlannedSegment(one.start_offset, one.end_offset, size_bytes, supersedes=old))
    return found


def other_history(metadata: RemoteLogMetadata, attempt: RemoteLogSegmentMetadata) -> str | None:
    """What we know of the log's leader epochs, which no log start cuts, against those of a copy without source: why it
    is of another history, None if nothing says so."""
    known = metadata.partition_truth(attempt.topic_id_partition).leader_epochs
    own = with_records(attempt.segment_leader_epochs)
    offsets = [*(max(entry.start_offset, attempt.start_offset) for entry in own), attempt.end_offset]
    other = next((one for one in offsets if known.epoch_for(one) not in (None, own.epoch_for(one))), None)
    return None if other is None else f"offset {other} is known under leader epoch {known.epoch_for(other)}"


def is_started(row: SegmentRow) -> bool:
    """Its deletion has not begun."""
    return row.metadata.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED


def records_of(segment: RemoteLogSegmentMetadata) -> tuple[object, ...]:
    """Equal for copies of the same offsets, written under the same leader epochs."""
    return segment.start_offset, segment.end_offset, with_records(segment.segment_leader_epochs)
