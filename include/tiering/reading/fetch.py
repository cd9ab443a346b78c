"""Read record batches of a partition from an offset on, without a broker. `files` reads whole partitions.

Record batches of one partition are read much as a broker serves a fetch from remote storage (KIP-405):

    (epoch, offset) -> segment -> its offset index -> a range of the `.log` -> whole batches from the batch with the
    offset on, up to max_bytes, the first one even if larger -> the next segment at end offset + 1, up to max_bytes

A response belongs to one history (`model.histories`). If a person decided to follow the source from some offset on, a
response from the older history ends before the first batch that begins at or above this offset. But if the request
names a leader epoch, the history of that epoch is read without such an end, even if it is no longer followed. Notes say
which offsets of a response another history has too.

Only served segments are read. Each range is counted in the fetch quota before it is read. The quota must admit it,
except while a begun response lacks its first batch; the quota also limits the rate of the read. As in Kafka, the
lineage of a segment is not tested.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from include.tiering.errors import (
    OffsetOutOfRangeError,
    TieringError,
)
from include.tiering.formats.record_batch import WholeBatches
from include.tiering.model.histories import (
    FIRST_HISTORY,
    Divergence,
    OffsetRange,
    decision_about,
    history_at,
    last_offset_of,
    newest_history,
    said_of,
    same_before,
)
from include.tiering.model.segments import IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from include.tiering.quotas.contract import (
    ByteLimiter,
    QuotaKind,
    Quotas,
    ReadAdmission,
    Scope,
    UnlimitedBytes,
    fetch_scopes,
    take_all,
)
from include.tiering.reading.scan import damage_of
from include.tiering.reading.stored_indexes import checked, offset_index_of, position_behind
from include.tiering.remote_storage.contract import RemoteStorage
from include.tiering.remote_storage.object_store import BLOCK_BYTES
from include.tiering.segments.contract import RemoteLogMetadata, SegmentRow
from include.tiering.telemetry.metrics import ignore
from include.tiering.units import MIB, format_duration


@dataclass(frozen=True, slots=True)
class PartitionFetch:
    """One partition of a fetch request.

    Without a leader epoch, the offset is read, if possible, in the history that is followed at this offset, under the
    newest epoch that has it there.

    Raises:
        ValueError: a negative offset or epoch, or `max_bytes` below 1.
    """

    partition: TopicIdPartition
    offset: int
    max_bytes: int
    leader_epoch: int | None = None

    def __post_init__(self) -> None:
        if self.offset < 0 or self.max_bytes < 1 or (self.leader_epoch is not None and self.leader_epoch < 0):
            raise ValueError(
                f"{self.partition}: offset {self.offset}, epoch {self.leader_epoch}, {self.max_bytes} bytes at most"
            )


@dataclass(frozen=True, slots=True)
class FetchedRecords:
    """The response for one partition: records, a throttle time, an error, or none of these if no batch was found.

    Attributes:
        base_offset: first offset of the first batch, which holds the requested offset or is the next one after it;
            without records the requested offset.
        next_offset: the offset to request next; without records the requested offset.
        records: whole batches as they are on disk; the caller owns the buffer.
        throttle_ms: how long the client must wait if the quota refused the read; otherwise 0.
        error: why there are no records; None if there was no error.
        said: sentences about other histories of these offsets, or about why the quota never admits the read.
    """

    fetch: PartitionFetch
    base_offset: int
    next_offset: int
    records: bytes | bytearray = b""
    throttle_ms: int = 0
    error: TieringError | None = None
    said: tuple[str, ...] = ()

    @classmethod
    def without_records(
        cls, fetch: PartitionFetch, *, throttle_ms: int = 0, error: TieringError | None = None
    ) -> "FetchedRecords":
        return cls(fetch, fetch.offset, fetch.offset, throttle_ms=throttle_ms, error=error)


Reserve = Callable[[int], None]
"""Called with the bytes of memory that a read will hold at most from now on; returns when they may be held.

A call with more than before may wait, so the reader holds nothing by then."""

_HELD_SECONDS: Final = 1.0
_LOG_BYTES_PER_INDEX_BYTE: Final = 100
"""An index has 8 bytes for each 4 KiB of the log, and needs five times as much memory while it is checked."""
_TAIL_BYTES: Final = MIB
"""How much of a segment behind the last entry of its index is read at once; brokers leave a few batches there."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why no further range is read: the quota refuses it, or the response is cut (0 ms)."""

    throttle_ms: int
    said: tuple[str, ...] = ()


def _too_slow(needed_bytes: int, quota: int) -> _Refusal:
    """Refuse a read that would be held for longer than a window, with the time that it would take."""
    needed_ms = math.ceil(needed_bytes * 1000 / quota)
    takes = f"{needed_bytes} bytes, for which the quota of {quota} bytes a second takes"
    said = f"this read needs {takes} {format_duration(needed_ms / 1000)}, longer than its window: raise the quota"
    return _Refusal(needed_ms, (f"{said}, or read the whole partition without --offset, which waits",))


class _OwedBytes(UnlimitedBytes):
    """Grants all bytes at once, and counts them: the quota is asked for them as soon as it is known how many follow."""

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0

    def take(self, wanted_bytes: int) -> int:
        self.size_bytes += wanted_bytes
        return wanted_bytes


@dataclass(slots=True)
class _Memory:
    """What is reserved for a read."""

    reserve: Reserve
    reserved_bytes: int = 0

    def allows(self, size_bytes: int, batches: WholeBatches) -> bool:
        """Reserve memory, if no records are held yet; else return whether what is reserved is enough beside them."""
        if batches.records:
            return len(batches.records) + size_bytes <= self.reserved_bytes
        self.reserve(size_bytes)
        self.reserved_bytes = size_bytes
        return True


@dataclass(frozen=True, slots=True)
class RecordReader:
    """Reads record batches; thread-safe."""

    metadata: RemoteLogMetadata
    storage: RemoteStorage
    quotas: Quotas
    admission: ReadAdmission

    def find(self, fetch: PartitionFetch) -> RemoteLogSegmentMetadata:
        """Return the served segment that holds the offset.

        Raises:
            OffsetOutOfRangeError: no served segment holds it, or it is below the partition's log start offset.
        """
        partition, offset = fetch.partition, fetch.offset
        log_start_offset = self.metadata.retention_state(partition).log_start_offset
        if offset < log_start_offset:
            raise OffsetOutOfRangeError(f"{partition}: offset {offset} is below the log start, {log_start_offset}")
        divergences = self.metadata.divergences(partition)
        history = history_at(offset, divergences) if fetch.leader_epoch is None else None
        epochs = reversed(self._epochs(partition)) if fetch.leader_epoch is None else [fetch.leader_epoch]
        for epoch in epochs:
            segment = self._segment_at(partition, epoch, offset, history, divergences)
            if segment is not None:
                self._require_served(segment, offset)
                return segment
        if history is not None and (whole := self._copied_whole(partition, offset, history, divergences)) is not None:
            return whole
        under = "" if fetch.leader_epoch is None else f" under leader epoch {fetch.leader_epoch}"
        message = f"{partition}: no segment in remote storage holds offset {offset}{under}"
        decision = self._decision(partition, offset)
        raise OffsetOutOfRangeError(message if decision is None else f"{message}: {decision}")

    def throttle_ms(self, segment: RemoteLogSegmentMetadata, client: str) -> int:
        """Return how long this client must wait before it reads the segment, in milliseconds; 0 if it may read now."""
        return self.admission.throttle_ms(_scopes(segment, client))

    def read(
        self, fetch: PartitionFetch, first: RemoteLogSegmentMetadata, client: str, reserve: Reserve = ignore
    ) -> FetchedRecords:
        """Read records from the segment `first` on. If the quota refuses the first range, return its throttle time.

        If the quota refuses a later range, the response ends there; so it does before a segment that needs more memory
        than was reserved for those before it.

        Raises:
            QueueClosedError: the pool of readers was closed before there was memory.
            RemoteChecksumError: the stored bytes of a segment are damaged.
            RemoteStorageError: the store refused or failed.
        """
        segment: RemoteLogSegmentMetadata | None = first
        divergences = self.metadata.divergences(fetch.partition)
        row = self.metadata.segment(first.remote_log_segment_id)
        history = FIRST_HISTORY if row is None else row.history
        last_offset = None if fetch.leader_epoch is not None else last_offset_of(history, divergences)
        batches = WholeBatches(fetch.offset, fetch.max_bytes, last_offset)
        refusal: _Refusal | None = None
        begun, waited_seconds, memory = False, 0.0, _Memory(reserve)
        while segment is not None and refusal is None:
            limiter = self.quotas.fetch(segment.broker_id, segment.topic_id_partition.topic, client)
            with damage_of(segment, self.storage):
                refusal, begun = self._read_segment(segment, batches, client, limiter, memory, begun=begun), True
            waited_seconds += limiter.waited_seconds
            segment = None if batches.full else self._next_segment(segment, history, divergences)
        self.quotas.held_back(QuotaKind.FETCH, waited_seconds)
        reserve(len(batches.records))
        if batches.base_offset is None:
            why = refusal or _Refusal(0)
            return replace(FetchedRecords.without_records(fetch, throttle_ms=why.throttle_ms), said=why.said)
        said = said_of(OffsetRange(batches.base_offset, batches.next_offset - 1), history, divergences)
        return FetchedRecords(fetch, batches.base_offset, batches.next_offset, batches.records, said=said)

    def _read_segment(
        self,
        segment: RemoteLogSegmentMetadata,
        batches: WholeBatches,
        client: str,
        limiter: ByteLimiter,
        memory: "_Memory",
        *,
        begun: bool,
    ) -> "_Refusal | None":
        """Read ranges of one segment until it ends, `batches` are full, or the quota refuses a range.

        A response of which some bytes were read (`begun`) gets its first batch even if the quota is exhausted by then:
        a client that gets no records for the bytes that it was charged would never make progress. So that no reader is
        held for long, the response is cut to what the quota carries in `_HELD_SECONDS`, or to the part of the log up
        to the next entry of the index. If the quota cannot carry this part within its window, the read is refused.
        """
        if not memory.allows(segment.segment_size_bytes // _LOG_BYTES_PER_INDEX_BYTE, batches):
            return _Refusal(0)
        scopes = _scopes(segment, client)
        target = max(batches.next_offset, segment.start_offset)
        position, after, behind, unpaid_bytes = self._positions(segment, target)
        if not batches.records:
            # The first batch has at most `batch_bytes`. While it is collected, memory has it twice, and one block.
            batch_bytes = (after or segment.segment_size_bytes) - position
            block_bytes = min(BLOCK_BYTES, max(batches.max_bytes + batch_bytes, behind - position))
            memory.allows(max(batches.max_bytes, batch_bytes) + batch_bytes + block_bytes, batches)
        batches.begin(position, segment.segment_size_bytes, target)
        least_bytes = (after or position) - position
        missing_bytes = max(batches.missing_bytes + least_bytes, behind - position)
        is_cut, quota = False, None if begun else self.admission.lowest_quota(scopes)
        if quota is not None:
            needed_bytes = unpaid_bytes + max(1, least_bytes)
            if needed_bytes > quota * self.admission.window_seconds:
                self.admission.record(scopes, unpaid_bytes)
                return _too_slow(needed_bytes, quota)
            most_bytes = max(1, least_bytes, round(quota * _HELD_SECONDS) - unpaid_bytes)
            is_cut, missing_bytes = missing_bytes > most_bytes, min(missing_bytes, most_bytes)
        while missing_bytes and position < segment.segment_size_bytes:
            end = min(position + missing_bytes, segment.segment_size_bytes)
            if begun and not batches.records:
                self.admission.record(scopes, unpaid_bytes + end - position)
            elif throttle_ms := self.admission.admit(scopes, unpaid_bytes + end - position):
                self.admission.record(scopes, unpaid_bytes)
                return _Refusal(throttle_ms)
            take_all(limiter, unpaid_bytes)
            begun, unpaid_bytes = True, 0
            for block in self.storage.fetch_log_segment(segment, position, end - 1, limiter=limiter):
                batches.feed(block)
            position, missing_bytes = end, batches.missing_bytes
            if is_cut and batches.records:
                return _Refusal(0)
        batches.end()
        return None

    def _positions(self, segment: RemoteLogSegmentMetadata, target: int) -> tuple[int, int | None, int, int]:
        """Return where to read from for an offset, and how many bytes were read to know it.

        In between are where the next entry of the index points to, and behind which position the batch with the offset
        is not any more. The index is not held any longer.
        """
        owed = _OwedBytes()
        read = partial(self.storage.fetch_index, segment, IndexType.OFFSET, limiter=owed)
        index = checked(self.storage, segment, offset_index_of, read)
        position = index.lookup(target).position
        behind = position_behind(index, target) or min(position + _TAIL_BYTES, segment.segment_size_bytes)
        return position, index.position_after(target), behind, owed.size_bytes

    def _segment_at(
        self,
        partition: TopicIdPartition,
        epoch: int,
        offset: int,
        history: int | None,
        divergences: Sequence[Divergence],
    ) -> RemoteLogSegmentMetadata | None:
        """Return the FINISHED segment with the highest end that holds the offset under the epoch.

        Only segments of `history` are searched; None: of all histories. If that segment is not served, a served segment
        of a later history that holds the same record is returned instead, if there is one.
        """
        if history is None or newest_history(divergences) == FIRST_HISTORY:
            return self.metadata.segment_for_offset(partition, epoch, offset)
        found = [
            row
            for row in self.metadata.list_segments(partition, epoch)
            if row.metadata.is_finished and _holds(row.metadata, epoch, offset)
        ]
        own = max((row for row in found if row.history == history), key=_end, default=None)
        if own is not None and own.verdict.is_served:
            return own.metadata
        if own is None:
            return None
        return max(_same_records(found, offset, history, divergences), key=_end, default=own).metadata

    def _copied_whole(
        self, partition: TopicIdPartition, offset: int, history: int, divergences: Sequence[Divergence]
    ) -> RemoteLogSegmentMetadata | None:
        """Return a served segment of a later history for an offset that no segment of this history holds.

        The offset must be below the first difference of the two histories, and not below the log start with which that
        segment was copied. For offsets that a decision skips the result is None, because the histories were not
        compared there.
        """
        if newest_history(divergences) == history or self._decision(partition, offset) is not None:
            return None
        found = [
            row
            for row in self.metadata.list_segments(partition)
            if row.metadata.is_finished and row.metadata.first_readable_offset <= offset <= row.metadata.end_offset
        ]
        row = max(_same_records(found, offset, history, divergences), key=_end, default=None)
        return None if row is None else row.metadata

    def _next_segment(
        self, segment: RemoteLogSegmentMetadata, history: int, divergences: Sequence[Divergence]
    ) -> RemoteLogSegmentMetadata | None:
        """Return the segment that holds the next offset, under this segment's last leader epoch or a later one.

        If the history has none there, a later history's segment is used as in `_copied_whole`. The result is None if no
        segment follows, or if the following segment is not served.
        """
        partition, offset = segment.topic_id_partition, segment.end_offset + 1
        last_epoch = segment.segment_leader_epochs.entries[-1].epoch
        for epoch in self._epochs(partition):
            if epoch < last_epoch:
                continue
            found = self._segment_at(partition, epoch, offset, history, divergences)
            if found is not None:
                row = self.metadata.segment(found.remote_log_segment_id)
                return found if row is not None and row.verdict.is_served else None
        return self._copied_whole(partition, offset, history, divergences)

    def _require_served(self, segment: RemoteLogSegmentMetadata, offset: int) -> None:
        row = self.metadata.segment(segment.remote_log_segment_id)
        if row is None or not row.verdict.is_served:
            why = "it was deleted meanwhile" if row is None else f"its verdict is {row.verdict}"
            advice = "fetch again" if row is None else "./tiering verify verifies it"
            decision = self._decision(segment.topic_id_partition, offset)
            raise OffsetOutOfRangeError(
                f"{segment.remote_log_segment_id} ({segment.start_offset}..{segment.end_offset}) is not served: "
                f"{why}; {decision or advice}"
            )

    def _decision(self, partition: TopicIdPartition, offset: int) -> str | None:
        """Return which decision skips the offset, and the next offset after its range; None if none skips it."""
        decision = decision_about(offset, self.metadata.skipped_offsets(partition))
        if decision is None:
            return None
        why = f"{decision.offsets} were skipped by {decision.author} ({decision.reason})"
        return f"{why}; go on at offset {decision.offsets.last + 1}"

    def _epochs(self, partition: TopicIdPartition) -> list[int]:
        """Return the leader epochs with records in remote storage, ascending."""
        return sorted(
            epoch.leader_epoch for size in self.metadata.partition_sizes(partition) for epoch in size.leader_epochs
        )


def _same_records(
    rows: Iterable[SegmentRow], offset: int, history: int, divergences: Sequence[Divergence]
) -> Iterator[SegmentRow]:
    """Yield served segments of later histories that hold the same record at this offset."""
    for row in rows:
        if row.verdict.is_served and offset < same_before(history, row.history, divergences):
            yield row


def _end(row: SegmentRow) -> int:
    return row.metadata.end_offset


def _holds(segment: RemoteLogSegmentMetadata, epoch: int, offset: int) -> bool:
    begins, ends = dict(segment.segment_leader_epochs).get(epoch), segment.end_offset_of_epoch(epoch)
    return begins is not None and ends is not None and begins <= offset <= ends


def _scopes(segment: RemoteLogSegmentMetadata, client: str) -> tuple[Scope, ...]:
    return fetch_scopes(segment.broker_id, segment.topic_id_partition.topic, client)
