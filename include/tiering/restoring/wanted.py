"""Which offsets of a partition a restore wants, what of them is not served, and where a run continues.

The wanted offsets are decided once, when a restore begins. They reach over segments that are stored and not served: so
each run names them, until they are served or the restore is given up. What was restored stays a part of the restore
when its segment expires.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from include.tiering.model.histories import OffsetRange, SkippedOffsets, without
from include.tiering.model.segments import RemoteLogSegmentId, TopicIdPartition
from include.tiering.reading.plan_scan import Bound, BoundKind
from include.tiering.reading.served_log import ServedPart, said_of_gap, served_parts
from include.tiering.restoring.plan import PartitionRestore, RestoredPart, RestoreRequest
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow


@dataclass(frozen=True, slots=True)
class StoredLog:
    """A partition as the metadata have it: all segments, the parts that are served, and the log start offset."""

    rows: Sequence[SegmentRow]
    parts: Sequence[ServedPart]
    skipped: Sequence[SkippedOffsets]
    log_start_offset: int

    @property
    def unserved(self) -> tuple[SegmentRow, ...]:
        """Stored segments without a verdict that is served, and without a new copy that replaced them."""
        return tuple(
            row
            for row in self.rows
            if row.metadata.is_finished
            and not row.verdict.is_served
            and row.superseded_by is None
            and row.metadata.end_offset >= self.log_start_offset
        )

    @property
    def before(self) -> tuple[SegmentRow, ...]:
        """Those of them that have offsets below all that are served; all of them, if nothing is."""
        return tuple(
            row for row in self.unserved if not self.parts or row.metadata.start_offset < self.parts[0].first_offset
        )

    @property
    def after(self) -> tuple[SegmentRow, ...]:
        """Those of them that have offsets above all that are served, in the history that is followed there."""
        if not self.parts:
            return self.unserved
        last = self.parts[-1]
        history = max(row.history for row in self.rows if row.metadata == last.segment)
        return tuple(
            row for row in self.unserved if row.metadata.end_offset > last.last_offset and row.history >= history
        )


def stored_log(metadata: RemoteLogMetadata, partition: TopicIdPartition) -> StoredLog:
    """Read what is stored of a partition."""
    rows, skipped = metadata.list_segments(partition), metadata.skipped_offsets(partition)
    start = metadata.retention_state(partition).log_start_offset
    parts = served_parts(rows, metadata.divergences(partition), skipped, log_start_offset=start)
    return StoredLog(rows, parts, skipped, start)


def wanted_offsets(request: RestoreRequest, log: StoredLog, scanned: OffsetRange | None) -> OffsetRange | None:
    """Return the offsets that a restore wants when it begins; None if there are none.

    Args:
        request: what is asked for.
        log: the partition.
        scanned: the first and the last offset that are served of what is asked for; None if there are none.
    """
    firsts = [max(row.metadata.start_offset, log.log_start_offset) for row in log.before if _may_begin(request, row)]
    lasts = [row.metadata.end_offset for row in log.after]
    served_last = log.parts[-1].last_offset if log.parts else -1
    if request.end.kind is BoundKind.TIMESTAMP and scanned is not None and scanned.last < served_last:
        lasts = []
    if scanned is not None:
        firsts.append(scanned.first)
        lasts.append(scanned.last)
    elif lasts and request.start.kind is BoundKind.TIMESTAMP:
        firsts.append(max(served_last + 1, log.after[0].metadata.start_offset))
    first = request.start.value if request.start.kind is BoundKind.OFFSET else min(firsts, default=None)
    last = request.end.value - 1 if request.end.kind is BoundKind.OFFSET else max(lasts, default=None)
    return None if first is None or last is None or first > last else OffsetRange(first, last)


def _may_begin(request: RestoreRequest, row: SegmentRow) -> bool:
    start = request.start
    return start.kind is not BoundKind.TIMESTAMP or row.metadata.max_timestamp_ms >= start.value


def said_of_ends(log: StoredLog, wanted: OffsetRange) -> tuple[str, ...]:
    """Return sentences about the wanted offsets below and above all that are served, which a scan does not name."""
    ranges = {}
    for row in (*log.before, *log.after):
        first, last = row.metadata.start_offset, row.metadata.end_offset
        if log.parts and first < log.parts[0].first_offset:
            last = min(last, log.parts[0].first_offset - 1)
        elif log.parts:
            first = max(first, log.parts[-1].last_offset + 1)
        first, last = max(first, wanted.first, log.log_start_offset), min(last, wanted.last)
        if first <= last:
            ranges[OffsetRange(first, last)] = row
    return tuple(f"offsets {each}: {said_of_gap(each, [row], log.skipped)}" for each, row in ranges.items())


def continues_at(wanted: OffsetRange, done: Iterable[RestoredPart], log: StoredLog) -> int:
    """Return the first offset that a run has to read: behind what is restored, and not served any more."""
    first = wanted.first
    earliest = log.parts[0].first_offset if log.parts else wanted.last + 1
    for part in sorted(done, key=lambda part: part.key):
        if first < earliest and part.key.base_offset <= first <= part.last_offset:
            first = part.last_offset + 1
    return first


def scan_bounds(first: int, wanted: OffsetRange) -> tuple[Bound, Bound]:
    """Return the bounds of a scan from `first` to the end of the wanted offsets."""
    return Bound(BoundKind.OFFSET, first), Bound(BoundKind.OFFSET, wanted.last + 1)


def lacking(
    known: StoredLog, before: Collection[RemoteLogSegmentId], restored: PartitionRestore | None
) -> Iterator[str]:
    """Yield sentences about what a restore from other metadata, as rebuilt ones, lacks of what is served.

    Args:
        known: the partition as the deployment's database has it afterwards.
        before: segments that were there when the metadata were rebuilt; others were copied meanwhile.
        restored: what was restored; None: nothing.
    """
    parts = () if restored is None else restored.parts
    found = [OffsetRange(part.first_offset, part.last_offset) for part in parts]
    for served in known.parts:
        if served.segment.remote_log_segment_id in before:
            for lost in without(OffsetRange(served.first_offset, served.last_offset), found):
                segment_id = served.segment.remote_log_segment_id.id
                yield f"offsets {lost} of segment {segment_id} are not in the recovered log"
    recorded = {row.metadata.remote_log_segment_id: row.log_crc32c for row in known.rows}
    for part in parts:
        done = None if restored is None else restored.done.get(part.key)
        crc32c = recorded.get(part.segment.remote_log_segment_id)
        is_whole = part.base_offset == part.segment.start_offset and not part.is_cut
        if done is not None and is_whole and crc32c not in (None, done.crc32c):
            yield f"segment {part.segment_id} has a log with CRC-32C {done.crc32c:08x}, its source had {crc32c:08x}"
