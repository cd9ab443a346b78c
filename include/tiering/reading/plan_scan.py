"""Plan a scan: which ranges of which segments are read for records of a consumer's kind, divided into tasks.

For each partition, in this order:

    1. the parts of its log that are served (`served_log`), and from where to where they reach
    2. for committed records only: the last stable offset, from the producer snapshot of the last segment. Whether a
       transaction that is open there was committed is not known in remote storage yet.
    3. start and end, from offsets or timestamps, and the gaps between them
    4. aborted transactions, from the transaction indexes of the segments that are read, and of those after them until
       all transactions that were open at the end of the read have ended
    5. positions in the first and the last log, from the offset index; a log that is read whole needs none

Only indexes are read for a plan, and a few batches to find a timestamp. All of it is charged to the fetch quota.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import zip_longest
from typing import Final

from include.tiering.errors import OffsetOutOfRangeError
from include.tiering.formats.indexes import AbortedTxn
from include.tiering.model.histories import OffsetRange, open_divergence
from include.tiering.model.segments import RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.contract import NAMELESS_CLIENT, Quotas
from include.tiering.reading.scan import SegmentRange
from include.tiering.reading.served_log import ServedPart, gaps_between, said_of_gap, served_parts
from include.tiering.reading.stored_indexes import Positions, StoredIndexes
from include.tiering.remote_storage.contract import ObjectKind, RemoteStorage
from include.tiering.remote_storage.parallel_reads import MOST_RANGES, RANGE_BYTES, Reading, in_order, plan_ranges
from include.tiering.segments.contract import RemoteLogMetadata
from include.tiering.units import MIB

TASK_BYTES: Final = 128 * MIB
"""Segments that follow each other are read by one task up to this size; a larger segment is a task of its own."""

ALL_OFFSETS: Final = OffsetRange(0, 2**63 - 1)
_MOST_OPEN: Final = 4
"""Segments whose indexes a planner keeps at the same time: those of one may have some megabytes."""


class BoundKind(StrEnum):
    """How the start or the end of a scan is named."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Bound:
    """The first offset of a scan, or the end (exclusive) of one.

    EARLIEST is the first offset that is served, LATEST the one after the last. TIMESTAMP is the first offset of a
    record that is not older than `value` (UTC milliseconds), or LATEST if there is no such record.
    """

    kind: BoundKind
    value: int = 0


EARLIEST: Final = Bound(BoundKind.EARLIEST)
LATEST: Final = Bound(BoundKind.LATEST)


@dataclass(frozen=True, slots=True)
class PartitionScan:
    """The part of a scan that concerns one partition."""

    partition: TopicIdPartition
    start: Bound = EARLIEST
    end: Bound = LATEST


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What is to be read.

    Attributes:
        partitions: each at most once.
        committed: leave out records of aborted transactions, and those of transactions that have not ended.
        fail_on_data_loss: raise OffsetOutOfRangeError for offsets that are not served, instead of reading the others.
        min_tasks: divide segments, if needed, so that there are about so many tasks; None: as few as is useful.
        offsets: no other offsets are wanted; records outside may not be read, and are never returned.
        min_timestamp_ms: no older records are wanted; segments that have only older ones are not read.
        whole_logs: logs are read whole in any case, so no index is read for positions in them.
    """

    partitions: tuple[PartitionScan, ...]
    committed: bool = False
    fail_on_data_loss: bool = True
    min_tasks: int | None = None
    offsets: OffsetRange = ALL_OFFSETS
    min_timestamp_ms: int | None = None
    whole_logs: bool = False


ScanTask = tuple[SegmentRange, ...]
"""Ranges of one partition, in the order of its log; a process reads them."""


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan will read.

    Attributes:
        tasks: they may be read in any order, and by different processes.
        requests: about how many requests the tasks send to the store.
        said: sentences about offsets that are not read, and about what is not known.
    """

    tasks: tuple[ScanTask, ...]
    requests: int
    said: tuple[str, ...] = ()

    @property
    def segments(self) -> int:
        """Segments of which something is read."""
        return len({each.segment.remote_log_segment_id for task in self.tasks for each in task})

    @property
    def size_bytes(self) -> int:
        """Bytes of logs that are read, as on the broker: before the store's own compression and encryption."""
        return sum(each.size_bytes for task in self.tasks for each in task)


@dataclass(slots=True)
class _PartitionPlan:
    ranges: list[SegmentRange] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class ScanPlanner:
    """Plans scans over the metadata, and over indexes in the store.

    Args:
        metadata: of the segments.
        storage: where the indexes are.
        quotas: to which all that is read is charged.
        at_once: for how many partitions indexes are read at the same time.
        client: whose fetch quota applies.
    """

    def __init__(
        self,
        metadata: RemoteLogMetadata,
        storage: RemoteStorage,
        quotas: Quotas,
        *,
        at_once: int = 1,
        client: str = NAMELESS_CLIENT,
    ) -> None:
        self._metadata = metadata
        self._storage = storage
        self._quotas = quotas
        self._at_once = at_once
        self._client = client

    def plan(self, request: ScanRequest) -> ScanPlan:
        """Return what to read.

        Raises:
            OffsetOutOfRangeError: offsets between start and end are not served, and data loss is to fail.
            RemoteChecksumError: an index, or a batch, is damaged.
            RemoteStorageError: the store refused or failed.
        """

        def planned(scan: PartitionScan) -> Callable[[Reading], _PartitionPlan]:
            return lambda reading: _PartitionPlanner(self._metadata, self._indexes(reading), scan, request).plan()

        tasks = [planned(scan) for scan in request.partitions]
        plans = list(in_order(tasks, at_once=self._at_once, ahead=len(tasks)))
        ranges = [each for plan in plans for each in plan.ranges]
        divided = self._divided(ranges, request.min_tasks)
        requests = sum(self._requests_of(each) for task in divided for each in task)
        return ScanPlan(tuple(divided), requests, tuple(sentence for plan in plans for sentence in plan.said))

    def _divided(self, ranges: Sequence[SegmentRange], min_tasks: int | None) -> list[ScanTask]:
        total_bytes = sum(each.size_bytes for each in ranges)
        most_bytes = TASK_BYTES if min_tasks is None else min(TASK_BYTES, max(1, total_bytes // min_tasks))
        packed = packed_tasks(ranges, most_bytes)
        if min_tasks is None or len(packed) >= min_tasks:
            return packed
        return packed_tasks([piece for each in ranges for piece in self._split(each, most_bytes)], most_bytes)

    def _split(self, each: SegmentRange, most_bytes: int) -> list[SegmentRange]:
        pieces = -(-each.size_bytes // most_bytes)
        if pieces <= 1:
            return [each]
        indexes = self._indexes(Reading())(each.segment)
        found = indexes.split(Positions(each.start_position, each.end_position), pieces)
        return [
            replace(each, start_position=piece.start, end_position=piece.end, known_ends=indexes.known_ends(piece))
            for piece in found
        ]

    def _requests_of(self, each: SegmentRange) -> int:
        """Return how many requests the read of a range takes: the manifest, if there is one, and the log."""
        manifest = int(ObjectKind.MANIFEST in self._storage.required_kinds)
        if each.size_bytes <= RANGE_BYTES:
            return manifest + 1
        return manifest + len(plan_ranges(each.start_position, each.end_position - 1, MOST_RANGES))

    def _indexes(self, reading: Reading) -> "OpenIndexes":
        """Return a function that opens the indexes of a segment."""

        @lru_cache(maxsize=_MOST_OPEN)
        def opened(segment: RemoteLogSegmentMetadata) -> StoredIndexes:
            topic = segment.topic_id_partition.topic
            reading.limiter = self._quotas.fetch(segment.broker_id, topic, self._client, go_on=reading.go_on)
            return StoredIndexes(self._storage, segment, reading.limiter)

        return opened


OpenIndexes = Callable[[RemoteLogSegmentMetadata], StoredIndexes]


def packed_tasks(ranges: Iterable[SegmentRange], most_bytes: int) -> list[ScanTask]:
    """Return tasks of ranges that follow each other in one partition, none above `most_bytes` but by a single range."""
    tasks: list[list[SegmentRange]] = []
    packed_bytes = 0
    for each in ranges:
        follows = tasks and tasks[-1][-1].segment.topic_id_partition == each.segment.topic_id_partition
        if not follows or packed_bytes + each.size_bytes > most_bytes:
            tasks.append([])
            packed_bytes = 0
        tasks[-1].append(each)
        packed_bytes += each.size_bytes
    return [tuple(task) for task in tasks]


class _PartitionPlanner:
    """Plans the scan of one partition."""

    def __init__(
        self, metadata: RemoteLogMetadata, indexes: OpenIndexes, scan: PartitionScan, request: ScanRequest
    ) -> None:
        self._partition = scan.partition
        self._scan = scan
        self._request = request
        self._indexes = indexes
        self._rows = metadata.list_segments(scan.partition)
        self._divergences = metadata.divergences(scan.partition)
        self._skipped = metadata.skipped_offsets(scan.partition)
        log_start_offset = metadata.retention_state(scan.partition).log_start_offset
        self._parts = served_parts(self._rows, self._divergences, self._skipped, log_start_offset=log_start_offset)
        self._said: list[str] = []

    def plan(self) -> _PartitionPlan:
        if not self._parts:
            is_named = BoundKind.OFFSET in (self._scan.start.kind, self._scan.end.kind)
            (self._lose if is_named else self._say)("no segment of it is served")
            return _PartitionPlan(said=self._said)
        divergence = open_divergence(self._divergences)
        if divergence is not None:
            self._say(str(divergence))
        wanted = self._wanted()
        if wanted is None:
            return _PartitionPlan(said=self._said)
        chosen = [part for each in self._parts if (part := each.within(*wanted)) is not None]
        for gap in _gaps_of(chosen, wanted):
            self._lose(said_of_gap(gap, self._rows, self._skipped))
        least_ms = self._request.min_timestamp_ms
        chosen = [part for part in chosen if least_ms is None or part.segment.max_timestamp_ms >= least_ms]
        aborted = self._aborted(chosen) if self._request.committed and chosen else ()
        return _PartitionPlan([self._range_of(part, aborted) for part in chosen], self._said)

    def _wanted(self) -> OffsetRange | None:
        """Return the offsets to read; None if there are none."""
        earliest, latest = self._parts[0].first_offset, self._parts[-1].last_offset + 1
        if self._request.committed:
            stable = min([latest, *self._indexes(self._parts[-1].segment).open_transactions().values()])
            if stable < latest:
                self._say(f"committed records end at offset {stable}: a transaction there has no end in remote storage")
            latest = stable
        start = self._offset_of(self._scan.start, earliest, latest)
        end = self._offset_of(self._scan.end, earliest, latest)
        first, last = max(start, self._request.offsets.first), min(end - 1, self._request.offsets.last)
        return OffsetRange(first, last) if first <= last else None

    def _offset_of(self, bound: Bound, earliest: int, latest: int) -> int:
        match bound.kind:
            case BoundKind.EARLIEST:
                return earliest
            case BoundKind.LATEST:
                return latest
            case BoundKind.TIMESTAMP:
                return min(self._offset_at(bound.value, latest), latest)
            case BoundKind.OFFSET:
                if not earliest <= bound.value <= latest:
                    self._lose(f"offset {bound.value} is outside of {earliest}..{latest}, the offsets that are served")
                return min(max(bound.value, earliest), latest)

    def _offset_at(self, timestamp_ms: int, latest: int) -> int:
        for part in self._parts:
            if part.segment.max_timestamp_ms >= timestamp_ms:
                found = self._indexes(part.segment).offset_at(timestamp_ms, part.first_offset)
                if found is not None and found <= part.last_offset:
                    return found
        return latest

    def _range_of(self, part: ServedPart, aborted: Iterable[AbortedTxn]) -> SegmentRange:
        """Return the range of the log that has the part; the offset index is read only for a part of a segment."""
        positions = Positions(0, part.segment.segment_size_bytes)
        known_ends: tuple[int, ...] = ()
        if not part.is_whole and not self._request.whole_logs:
            indexes = self._indexes(part.segment)
            positions = indexes.positions(part.first_offset, part.last_offset)
            known_ends = indexes.known_ends(positions)
        touching = (
            each for each in aborted if each.first_offset <= part.last_offset and each.last_offset > part.first_offset
        )
        return SegmentRange(part.segment, *positions, part.first_offset, part.last_offset, tuple(touching), known_ends)

    def _aborted(self, chosen: Sequence[ServedPart]) -> tuple[AbortedTxn, ...]:
        """Return all aborted transactions that have records in these parts.

        Those that are open at the end of a gap-free piece of the log may have been aborted by a marker in the gap: it
        is not known, so they are left out as well.
        """
        last_offset = chosen[-1].last_offset
        found: set[AbortedTxn] = set()
        in_doubt: dict[tuple[int, int], int] = {}
        following = [part for part in self._parts if part.last_offset >= chosen[0].first_offset]
        for part, after in zip_longest(following, following[1:]):
            # Behind the part, the segment has markers of a history that is not read.
            is_cut = part.last_offset < part.segment.end_offset and after is not None
            aborted = self._indexes(part.segment).aborted()
            found.update(each for each in aborted if not is_cut or each.last_offset <= part.last_offset)
            is_before_gap = after is not None and after.first_offset > part.last_offset + 1
            if (part.last_offset < last_offset or is_cut) and not is_before_gap:
                continue
            begun = self._indexes(part.segment).open_transactions()
            still_open = {(producer, first) for producer, first in begun.items() if first <= last_offset}
            if is_before_gap:
                in_doubt.update(dict.fromkeys(still_open, part.last_offset))
            if part.last_offset >= last_offset and not still_open:
                break
        for each in found:
            in_doubt.pop((each.producer_id, each.first_offset), None)
        for (producer_id, first_offset), end in in_doubt.items():
            self._lose(
                f"whether the transaction of producer {producer_id} from offset {first_offset} on was committed is said"
                f" in offsets above {end}, which are not served: its records are left out"
            )
            found.add(AbortedTxn(producer_id, first_offset, end + 1, end + 1))
        return tuple(sorted(found, key=lambda each: each.last_offset))

    def _lose(self, sentence: str) -> None:
        """Say that something cannot be read.

        Raises:
            OffsetOutOfRangeError: data loss is to fail.
        """
        if self._request.fail_on_data_loss:
            raise OffsetOutOfRangeError(f"{self._partition}: {sentence}. failOnDataLoss=false reads all others")
        self._say(sentence)

    def _say(self, sentence: str) -> None:
        self._said.append(f"{self._partition}: {sentence}")


def _gaps_of(chosen: Sequence[ServedPart], wanted: OffsetRange) -> tuple[OffsetRange, ...]:
    """Return the wanted offsets that no part has."""
    if not chosen:
        return (wanted,)
    before = OffsetRange(wanted.first, chosen[0].first_offset - 1)
    after = OffsetRange(chosen[-1].last_offset + 1, wanted.last)
    return tuple(gap for gap in (before, *gaps_between(chosen), after) if gap.first <= gap.last)
