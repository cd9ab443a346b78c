"""What a restore does: which segments are read, what is written of each, and what is left of an earlier run. Pure.

A restore takes *parts*: a segment, and the offsets that are restored of it. The parts of a partition are those of its
log as a consumer would read it (`reading.served_log`), so they ascend and do not overlap. Each becomes the files of one
segment in the target:

    base offset   of the first part: that of its segment, which is restored from its begin on. The offsets below the
                  first wanted one are then below the log start offset, as after kafka-delete-records.
                  Of a later part: its first offset, because the part before it has the offsets below
    end           that of the segment, or the end of the batch that has the part's last offset

A segment is read whole, even if only a part of it is restored: its stored checksum is that of the whole log.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import groupby
from typing import Final, NamedTuple

from include.tiering.errors import SettingError
from include.tiering.formats.indexes import AbortedTxn
from include.tiering.model.histories import OffsetRange
from include.tiering.model.ownership import StorePlace
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.reading.plan_scan import EARLIEST, LATEST, Bound, ScanPlan
from include.tiering.reading.scan import SegmentRange
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
    """

    partitions: tuple[TopicIdPartition, ...]
    start: Bound = EARLIEST
    end: Bound = LATEST
    form: RestoreForm = RestoreForm.SEGMENTS
    committed: bool = False
    place: StorePlace | None = None
    client: str = ""


class PartKey(NamedTuple):
    """What names a part in the target: a partition, and the base offset of the part's files."""

    partition: int
    base_offset: int


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
        return PartKey(self.partition.partition, self.base_offset)

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
        segment_id: of the segment that was read.
        last_offset: that of the part.
        next_offset: behind the last restored batch.
        size_bytes: of all files.
        files: size of each file, by its name in the target.
        crc32c: of the restored `.log`.
        batches: restored batches.
        records: their records, those of control batches left out.
        log_bytes: that were read of the segment's log.
    """

    key: PartKey
    segment_id: str
    last_offset: int
    next_offset: int
    files: Mapping[str, int]
    crc32c: int
    batches: int
    records: int
    log_bytes: int

    @property
    def size_bytes(self) -> int:
        return sum(self.files.values())


def parts_of(
    scan: ScanPlan, rows: Mapping[TopicIdPartition, Sequence[SegmentRow]], *, whole: bool = False
) -> dict[TopicIdPartition, tuple[RestorePart, ...]]:
    """Return the parts of each partition that has any, ascending.

    Args:
        scan: what a scan of the wanted offsets would read.
        rows: all segments of each partition.
        whole: take each segment once and whole, also what another one has of it.
    """
    found: dict[TopicIdPartition, tuple[RestorePart, ...]] = {}
    ranges = (each for task in scan.tasks for each in task)
    for partition, group in groupby(ranges, key=lambda each: each.segment.topic_id_partition):
        by_id = {row.metadata.remote_log_segment_id: row for row in rows[partition]}
        each_range = list(group)
        if whole:
            each_range = list({each.segment: _whole(each) for each in each_range}.values())
        last = len(each_range) - 1
        found[partition] = tuple(
            RestorePart(
                by_id[each.segment.remote_log_segment_id],
                each.segment.start_offset if number == 0 or whole else each.first_offset,
                each.first_offset,
                each.last_offset,
                is_first=number == 0,
                is_last=number == last,
                before=_before(each.segment, rows[partition])
                if (number == 0 and not whole) or each.last_offset < each.segment.end_offset
                else None,
                aborted=each.aborted,
            )
            for number, each in enumerate(each_range)
        )
    return found


def _whole(each: SegmentRange) -> SegmentRange:
    return replace(each, last_offset=each.segment.end_offset)


def _before(segment: RemoteLogSegmentMetadata, rows: Iterable[SegmentRow]) -> RemoteLogSegmentMetadata | None:
    """Return the served segment that ends where this one begins."""
    ending = (row for row in rows if row.metadata.is_finished and row.verdict.is_served)
    return next((row.metadata for row in ending if row.metadata.end_offset + 1 == segment.start_offset), None)


@dataclass(frozen=True, slots=True)
class PartitionRestore:
    """One partition of a restore.

    Attributes:
        offsets: the wanted offsets (inclusive); the first one is the log start offset of what is restored.
        parts: of which something is restored, ascending; never empty.
        done: those of them that are in the target.
    """

    partition: TopicIdPartition
    offsets: OffsetRange
    parts: tuple[RestorePart, ...]
    done: Mapping[PartKey, RestoredPart]

    @property
    def left(self) -> tuple[RestorePart, ...]:
        return tuple(part for part in self.parts if part.key not in self.done)


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
    """

    request: RestoreRequest
    partitions: tuple[PartitionRestore, ...]
    cost: ReadingCost
    said: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[RestorePart, ...]:
        return tuple(part for each in self.partitions for part in each.left)

    @property
    def topic(self) -> str:
        return self.request.partitions[0].topic


def require_same(done: Mapping[PartKey, RestoredPart], parts: Iterable[RestorePart]) -> None:
    """Require that parts that are in the target have the offsets of the plan.

    Raises:
        SettingError: the remote log has other segments by now, so what is left would not continue what is there.
    """
    for part in parts:
        restored = done.get(part.key)
        if restored is not None and restored.last_offset != part.last_offset:
            raise SettingError(
                f"{part.partition}: the target has offsets {part.base_offset}..{restored.last_offset} from one segment,"
                f" and the remote log has other segments by now ({part.base_offset}..{part.last_offset}): restore into"
                " another directory"
            )


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
