"""What a restore does: which segments are read, what is written of each, and what is left of an earlier run. Pure.

A restore takes *parts*: a segment, and the offsets that are restored of it. The parts of a partition are those of its
log as a consumer would read it (`reading.served_log`), so they ascend and do not overlap. Each becomes the files of one
segment in the target:

    base offset   of the first part: that of its segment, which is restored from its begin on. The offsets below the
                  first wanted one are then below the log start offset, as after kafka-delete-records.
                  Of a later part: its first offset, because the part before it has the offsets below
    end           that of the segment, or the end of the batch that has the part's last offset

A segment is read whole, even if only a part of it is restored: its stored checksum is that of the whole log.

The wanted offsets are decided once, when a restore begins. They reach over segments that are stored and not served: so
each run names them, until they are served or the restore is given up. What was restored stays a part of the restore
when its segment expires.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import groupby
from typing import Final, NamedTuple

from include.tiering.errors import SettingError
from include.tiering.formats.indexes import AbortedTxn
from include.tiering.model.histories import OffsetRange, SkippedOffsets
from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs
from include.tiering.model.ownership import StorePlace
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.reading.plan_scan import EARLIEST, LATEST, Bound, BoundKind, ScanPlan
from include.tiering.reading.scan import SegmentRange
from include.tiering.reading.served_log import ServedPart, said_of_gap
from include.tiering.remote_storage.parallel_reads import MOST_RANGES, RANGE_BYTES, plan_ranges
from include.tiering.restoring.forms import RestoreForm
from include.tiering.segments.contract import SegmentRow


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """What is to be restored.

    Attributes:
        partitions: of one topic, ascending.
        start: the first offset of each partition that is wanted.
        end: the end of each partition (exclusive).
        form: what is written.
        committed: leave out records of aborted transactions, and those of transactions that have not ended; only with
            Parquet, because brokers do it by themselves.
        place: of the other remote storage, for `RestoreForm.STORAGE`; else None.
        client: the client id whose fetch quota applies; empty: the default of clients.
        names_none: whether nobody has named partitions: these are all that are in remote storage now, and a run that
            continues takes those with which the restore began.
    """

    partitions: tuple[TopicIdPartition, ...]
    start: Bound = EARLIEST
    end: Bound = LATEST
    form: RestoreForm = RestoreForm.SEGMENTS
    committed: bool = False
    place: StorePlace | None = None
    client: str = ""
    names_none: bool = False

    def continued(self, begun: Iterable[int]) -> "RestoreRequest":
        """Return the request with the partitions with which the restore began, unless partitions are named."""
        first, numbers = self.partitions[0], sorted(begun)
        if not self.names_none or not numbers:
            return self
        return replace(self, partitions=tuple(TopicIdPartition(first.topic_id, each, first.topic) for each in numbers))


class PartKey(NamedTuple):
    """What names a part in the target: a partition, the base offset of the part's files, and the segment's id.

    Segments of two histories that are copied whole into another storage may have the same base offset.
    """

    partition: int
    base_offset: int
    segment_id: str


@dataclass(frozen=True, slots=True)
class RestorePart:
    """One segment, and what is restored of it.

    Attributes:
        row: the segment.
        base_offset: batches below it are left out.
        first_offset: the first wanted offset (inclusive), which may be in the middle of a batch.
        last_offset: the last wanted offset (inclusive). The batch that has it is restored whole.
        is_first: whether no part of the partition is before it.
        is_last: whether no part of the partition follows.
        aborted: transactions whose records are left out.
        before: the segment that ends where this one begins, whose producer snapshot holds the producers before it;
            None if there is none, or if it is not needed.
    """

    row: SegmentRow
    base_offset: int
    first_offset: int
    last_offset: int
    is_first: bool
    is_last: bool
    before: RemoteLogSegmentMetadata | None = None
    aborted: tuple[AbortedTxn, ...] = ()

    @property
    def segment(self) -> RemoteLogSegmentMetadata:
        return self.row.metadata

    @property
    def partition(self) -> TopicIdPartition:
        return self.segment.topic_id_partition

    @property
    def key(self) -> PartKey:
        return PartKey(self.partition.partition, self.base_offset, self.segment_id)

    @property
    def segment_id(self) -> str:
        return str(self.segment.remote_log_segment_id.id)

    @property
    def leader_epochs(self) -> LeaderEpochs:
        """Those of the part's offsets."""
        found = self.segment.segment_leader_epochs.range(self.base_offset, self.last_offset + 1)
        return LeaderEpochs(tuple(LeaderEpochEntry(each, max(start, self.base_offset)) for each, start in found))

    @property
    def is_cut(self) -> bool:
        """Whether the part ends below its segment's end."""
        return self.last_offset < self.segment.end_offset

    @property
    def size_bytes(self) -> int:
        """The bytes of the log that are read."""
        return self.segment.segment_size_bytes


@dataclass(frozen=True, slots=True)
class RestoredPart:
    """A part that is in the target, as its manifest has it.

    Attributes:
        last_offset: that of the part.
        next_offset: behind the last restored batch.
        size_bytes: of all files.
        files: size of each file, by its name in the target.
        crc32c: of the restored `.log`.
        batches: restored batches.
        records: their records, those of control batches left out.
        log_bytes: that were read of the segment's log.
        leader_epochs: of the part's offsets; kept here because the segment may expire before a later run needs them.
    """

    key: PartKey
    last_offset: int
    next_offset: int
    files: Mapping[str, int]
    crc32c: int
    batches: int
    records: int
    log_bytes: int
    leader_epochs: LeaderEpochs = field(default_factory=LeaderEpochs)

    @property
    def size_bytes(self) -> int:
        return sum(self.files.values())


def parts_of(
    scan: ScanPlan,
    rows: Mapping[TopicIdPartition, Sequence[SegmentRow]],
    *,
    whole: bool = False,
    continued: Mapping[TopicIdPartition, int] | None = None,
) -> dict[TopicIdPartition, tuple[RestorePart, ...]]:
    """Return the parts of each partition that has any, ascending.

    Args:
        scan: what a scan of the wanted offsets would read.
        rows: all segments of each partition.
        whole: take each segment once and whole, also what another one has of it.
        continued: partitions of which earlier segments are restored and not read any more, with the offset behind them.
    """
    found: dict[TopicIdPartition, tuple[RestorePart, ...]] = {}
    ranges = (each for task in scan.tasks for each in task)
    for partition, group in groupby(ranges, key=lambda each: each.segment.topic_id_partition):
        by_id = {row.metadata.remote_log_segment_id: row for row in rows[partition]}
        each_range = list(group)
        if whole:
            each_range = list({each.segment: _whole(each) for each in each_range}.values())
        last = len(each_range) - 1
        behind = (continued or {}).get(partition)
        found[partition] = tuple(
            RestorePart(
                by_id[each.segment.remote_log_segment_id],
                max(each.segment.start_offset, (behind or 0) if not whole else 0)
                if number == 0 or whole
                else each.first_offset,
                each.first_offset,
                each.last_offset,
                is_first=number == 0 and behind is None,
                is_last=number == last,
                before=_before(by_id[each.segment.remote_log_segment_id], rows[partition])
                if (number == 0 and behind is None and not whole) or each.last_offset < each.segment.end_offset
                else None,
                aborted=each.aborted,
            )
            for number, each in enumerate(each_range)
        )
    return found


def as_entered(parts: Iterable[RestorePart], done: Iterable[RestoredPart]) -> tuple[RestorePart, ...]:
    """Return the parts, those that are in the target under the base offset that they have there.

    The base offset depends on the parts before. Of segments that overlap, the later one begins behind the earlier one.
    Once that has expired, it would begin earlier, and would be restored again beside what is there.
    """
    bases = {(part.key.segment_id, part.last_offset): part.key.base_offset for part in done}
    found: list[RestorePart] = []
    for part in parts:
        base = bases.get((part.segment_id, part.last_offset), part.base_offset)
        is_there = base <= part.first_offset and (not found or base > found[-1].last_offset)
        found.append(replace(part, base_offset=base) if is_there else part)
    return tuple(found)


def _whole(each: SegmentRange) -> SegmentRange:
    return replace(each, last_offset=each.segment.end_offset)


def _before(row: SegmentRow, rows: Iterable[SegmentRow]) -> RemoteLogSegmentMetadata | None:
    """Return the served segment that ends where this one begins: of its history, or of the one before that."""
    ending = (
        other
        for other in rows
        if other.metadata.is_finished
        and other.verdict.is_served
        and other.history <= row.history
        and other.metadata.end_offset + 1 == row.metadata.start_offset
    )
    found = max(ending, key=lambda other: other.history, default=None)
    return None if found is None else found.metadata


@dataclass(frozen=True, slots=True)
class PartitionRestore:
    """One partition of a restore.

    Attributes:
        offsets: the wanted offsets (inclusive).
        parts: of which something is restored, ascending.
        done: parts of the partition that are in the target.
    """

    partition: TopicIdPartition
    offsets: OffsetRange
    parts: tuple[RestorePart, ...]
    done: Mapping[PartKey, RestoredPart]

    @property
    def left(self) -> tuple[RestorePart, ...]:
        return tuple(part for part in self.parts if part.key not in self.done)

    @property
    def restored(self) -> tuple[RestoredPart, ...]:
        """Those that are in the target, ascending; of some the segment may have expired since."""
        return tuple(self.done[key] for key in sorted(self.done))

    @property
    def expired(self) -> tuple[RestoredPart, ...]:
        """Those of them that are not read any more."""
        planned = {part.key for part in self.parts}
        return tuple(part for part in self.restored if part.key not in planned)


@dataclass(frozen=True, slots=True)
class ReadingCost:
    """What a restore reads of the store. `price` is that of the requests in `currency`; None if it is not known."""

    segments: int
    size_bytes: int
    requests: int
    least_seconds: float
    price: Decimal | None
    currency: str


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore will do.

    Attributes:
        partitions: those of which something is restored.
        cost: of what is left.
        said: sentences about offsets that are not restored.
        wanted: the wanted offsets of each partition; None: it has no such records.
    """

    request: RestoreRequest
    partitions: tuple[PartitionRestore, ...]
    cost: ReadingCost
    said: tuple[str, ...] = ()
    wanted: Mapping[int, OffsetRange | None] = field(default_factory=dict)

    @property
    def left(self) -> tuple[RestorePart, ...]:
        return tuple(part for each in self.partitions for part in each.left)

    @property
    def topic(self) -> str:
        return self.request.partitions[0].topic


def by_partition(done: Mapping[PartKey, RestoredPart]) -> Mapping[int, Mapping[PartKey, RestoredPart]]:
    """Return the parts of each partition; those of one without any are empty."""
    found: dict[int, dict[PartKey, RestoredPart]] = defaultdict(dict)
    for key, part in done.items():
        found[key.partition][key] = part
    return found


def require_same(partitions: Iterable[PartitionRestore], *, whole: bool = False) -> None:
    """Require that parts that are in the target are those of the plan, or lie beside them.

    Args:
        partitions: what a run would do.
        whole: segments are copied whole, and overlap in the target as they do in the store.

    Raises:
        SettingError: the remote log has other segments by now, so what is left would not continue what is there.
    """
    for each in partitions:
        expired = each.expired
        behind = max((other.last_offset for other in expired), default=-1)
        for part in each.parts:
            first = part.first_offset if whole else part.base_offset
            if (same := each.done.get(part.key)) is None:
                others = expired if first <= behind else ()
            else:
                others = () if same.last_offset == part.last_offset else (same,)
            for other in others:
                if other.key.base_offset <= part.last_offset and first <= other.last_offset:
                    raise SettingError(
                        f"{part.partition}: the target has offsets {other.key.base_offset}..{other.last_offset} of"
                        f" segment {other.key.segment_id}, and the remote log has other segments by now"
                        f" ({part.base_offset}..{part.last_offset}, {part.segment_id}): restore into another directory"
                    )


def leader_epochs_of(parts: Iterable[RestoredPart]) -> LeaderEpochs:
    """Return the leader epochs of consecutive parts; where the epoch does not change between two, there is no entry."""
    entries: list[LeaderEpochEntry] = []
    for part in parts:
        entries += [each for each in part.leader_epochs if not entries or each.epoch > entries[-1].epoch]
    return LeaderEpochs(tuple(entries))


@dataclass(frozen=True, slots=True)
class PartitionLog:
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
            row
            for row in self.unserved
            if not self.parts or row.metadata.first_readable_offset < self.parts[0].first_offset
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


def wanted_offsets(request: RestoreRequest, log: PartitionLog, scanned: OffsetRange | None) -> OffsetRange | None:
    """Return the offsets that a restore wants when it begins; None if there are none.

    Args:
        request: what is asked for.
        log: the partition.
        scanned: the first and the last offset that are served of what is asked for; None if there are none.
    """
    firsts = [
        max(row.metadata.first_readable_offset, log.log_start_offset) for row in log.before if _may_begin(request, row)
    ]
    lasts = [row.metadata.end_offset for row in log.after]
    served_last = log.parts[-1].last_offset if log.parts else -1
    if request.end.kind is BoundKind.TIMESTAMP and scanned is not None and scanned.last < served_last:
        lasts = []
    if scanned is not None:
        firsts.append(scanned.first)
        lasts.append(scanned.last)
    elif lasts and request.start.kind is BoundKind.TIMESTAMP:
        firsts.append(max(served_last + 1, log.after[0].metadata.first_readable_offset))
    first = request.start.value if request.start.kind is BoundKind.OFFSET else min(firsts, default=None)
    last = request.end.value - 1 if request.end.kind is BoundKind.OFFSET else max(lasts, default=None)
    return None if first is None or last is None or first > last else OffsetRange(first, last)


def _may_begin(request: RestoreRequest, row: SegmentRow) -> bool:
    start = request.start
    return start.kind is not BoundKind.TIMESTAMP or row.metadata.max_timestamp_ms >= start.value


def said_of_ends(log: PartitionLog, wanted: OffsetRange) -> Iterator[str]:
    """Yield sentences about the wanted offsets below and above all that are served, which a scan does not name."""
    least, most = max(wanted.first, log.log_start_offset), wanted.last
    if not log.parts:
        ends = [(log.unserved, least, most)]
    else:
        below, above = log.parts[0].first_offset - 1, log.parts[-1].last_offset + 1
        ends = [(log.before, least, min(below, most)), (log.after, max(above, least), most)]
    for rows, first, last in ends:
        found = [row for row in rows if row.metadata.first_readable_offset <= last and row.metadata.end_offset >= first]
        if found:
            lowest = max(first, min(row.metadata.first_readable_offset for row in found))
            offsets = OffsetRange(lowest, min(last, max(row.metadata.end_offset for row in found)))
            more = f"; so are {len(found) - 1} more segments" if len(found) > 1 else ""
            yield f"{said_of_gap(offsets, found, log.skipped)}{more}"


def continues_at(wanted: OffsetRange, done: Iterable[RestoredPart], log: PartitionLog) -> int:
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


_SMALL_OBJECTS: Final = 2
"""Requests beside the log: the manifest and the indexes; two indexes in a layout without manifests."""


def requests_of(parts: Iterable[RestorePart]) -> int:
    """Return about how many requests the reads of these parts send."""
    requests = 0
    for part in parts:
        requests += _SMALL_OBJECTS + (_SMALL_OBJECTS if part.before is not None else 0)
        is_large = part.size_bytes > RANGE_BYTES
        requests += len(plan_ranges(0, part.size_bytes - 1, MOST_RANGES)) if is_large else 1
    return requests
