"""The ranges into which leaders' logs are cut, where they are kept, and the contract of the logs.

A leader's log has no boundaries on the wire. We cut it by the rules by which a broker rolls a segment, applied to every
batch: by size, by record time, and where an offset would not fit into the 32 bits of an index entry. No clock is used.
So the boundaries follow from the bytes, the start and the rules alone, and all workers find the same boundaries. An
index that is full is no reason to roll here, because we keep no index while we cut.

A range is closed only by a batch after it. The newest range is open, as the active segment of a broker is.

Source: Kafka's LogSegment.shouldRoll.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from include.tiering.formats.indexes import EMPTY_SNAPSHOT
from include.tiering.formats.record_batch import NO_TIMESTAMP, BatchHeader
from include.tiering.kafka.log_dirs.contract import go_on_always
from include.tiering.kafka.protocol.fetch_requests import EpochEnd, FetchedPartition
from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs
from include.tiering.model.segments import TopicIdPartition

DIRECTORY_ID: Final = "fetch"
"""The directory id of replicas that are read from leaders; no directory of a broker has such a short one."""
_MAX_RELATIVE_OFFSET: Final = 2**31 - 1
_NO_EPOCHS: Final = LeaderEpochs(())
_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class RollRules:
    """The topic's segment.bytes and segment.ms. A range has at most `segment_bytes`, unless its only batch has more."""

    segment_bytes: int
    segment_ms: int


@dataclass(frozen=True, slots=True)
class FetchedRange:
    """A range of a leader's log that was read once, and every batch of it checked. Offsets are inclusive.

    The `end_offset` of an open range without a batch is `base_offset` - 1. `start_offset` is the first offset that was
    requested: the log start at that time, if the log start lay inside of the first batch, else the base offset.
    `first_timestamp_ms` is the largest timestamp of the first batch, `crc32c` the checksum of all bytes,
    `leader_epochs` the epochs of the batches, and `producer_snapshot` the producers after the last batch.
    """

    base_offset: int
    end_offset: int
    start_offset: int
    size_bytes: int = 0
    batch_count: int = 0
    first_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_ms: int = NO_TIMESTAMP
    crc32c: int = 0
    leader_epochs: LeaderEpochs = _NO_EPOCHS
    producer_snapshot: bytes = EMPTY_SNAPSHOT
    closed: bool = False

    @property
    def next_offset(self) -> int:
        """The offset at which the next batch begins."""
        return self.end_offset + 1

    @classmethod
    def opened(cls, base_offset: int, start_offset: int, producer_snapshot: bytes) -> "FetchedRange":
        """Return an open range without a batch."""
        return cls(base_offset, base_offset - 1, start_offset, producer_snapshot=producer_snapshot)


class GrowingRange:
    """An open range to which batches are added, one after the other.

    Args:
        before: an open range, with or without batches.
    """

    def __init__(self, before: FetchedRange) -> None:
        self._before = before
        self.base_offset, self.next_offset = before.base_offset, before.next_offset
        self.size_bytes, self.crc32c = before.size_bytes, before.crc32c
        self._batch_count = before.batch_count
        self._first_timestamp_ms, self.max_timestamp_ms = before.first_timestamp_ms, before.max_timestamp_ms
        self._epochs = list(before.leader_epochs.entries)
        self._epoch = self._epochs[-1].epoch if self._epochs else _NO_EPOCH

    def is_closed_by(self, header: BatchHeader, rules: RollRules) -> bool:
        """Return whether this batch, which follows the range, begins the next one."""
        if not self._batch_count:
            return False
        first_timestamp_ms = self._first_timestamp_ms
        return (
            self.size_bytes + header.size_bytes > rules.segment_bytes
            or (first_timestamp_ms >= 0 and header.max_timestamp - first_timestamp_ms > rules.segment_ms)
            or header.last_offset - self.base_offset > _MAX_RELATIVE_OFFSET
        )

    def add(self, header: BatchHeader) -> None:
        """Add the next batch. The checksum is the caller's to extend."""
        timestamp_ms, epoch = header.max_timestamp, header.partition_leader_epoch
        if not self._batch_count:
            self._first_timestamp_ms = timestamp_ms
        if timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        if epoch != self._epoch and epoch >= 0:
            self._epochs.append(LeaderEpochEntry(epoch, header.base_offset))
            self._epoch = epoch
        self.next_offset = header.last_offset + 1
        self.size_bytes += header.size_bytes
        self._batch_count += 1

    def range(self, producer_snapshot: bytes, *, closed: bool) -> FetchedRange:
        """Return the range, with the producers after its last batch."""
        return replace(
            self._before,
            end_offset=self.next_offset - 1,
            size_bytes=self.size_bytes,
            batch_count=self._batch_count,
            first_timestamp_ms=self._first_timestamp_ms,
            max_timestamp_ms=self.max_timestamp_ms,
            crc32c=self.crc32c,
            leader_epochs=LeaderEpochs(tuple(self._epochs)),
            producer_snapshot=producer_snapshot,
            closed=closed,
        )


def epochs_of(ranges: Iterable[FetchedRange]) -> LeaderEpochs:
    """Return the epochs of ranges, each epoch from its first batch on.

    Ranges before a gap are left out: the epochs of the offsets in the gap are not known, so epochs before it would seem
    to reach up to its end.
    """
    found: list[LeaderEpochEntry] = []
    next_offset = None
    for known in ranges:
        if known.base_offset != next_offset:
            found.clear()
        for entry in known.leader_epochs:
            if not found or found[-1].epoch != entry.epoch:
                found.append(entry)
        next_offset = known.next_offset
    return LeaderEpochs(tuple(found))


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that leads a partition, and since which leader epoch."""

    broker_id: int
    leader_epoch: int

    def __str__(self) -> str:
        return f"{self.broker_id} in epoch {self.leader_epoch}"


class LeaderLogs(Protocol):
    """The logs of the leaders of one cluster. Thread-safe. All methods only read.

    Requests raise:
        BrokersUnavailableError: the broker does not answer, or does not lead the partition in this epoch. Retriable.
        UnknownTopicError: the broker does not know the topic id or the partition.
        BrokersError: the request failed for another reason.
    """

    def read(
        self,
        partition: TopicIdPartition,
        leader: Leader,
        offset: int,
        max_bytes: int,
        go_on: Callable[[], object] = go_on_always,
    ) -> AbstractContextManager[FetchedPartition]:
        """Return bytes of the log from the batch with `offset` on; none at the high watermark.

        They are valid within the block, in which nothing else must be read: answers share a bounded memory.

        Args:
            partition: the partition, by its topic id.
            leader: the broker to ask, and the epoch in which it must lead the partition.
            offset: inclusive.
            max_bytes: the limit of the answer; it is exceeded only if the first batch is larger.
            go_on: called while the read waits for the pace of this broker; raises to end the wait.
        """
        ...

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        """Return where the leader's log leaves `leader_epoch`; see `EpochEnd`, whose `error` is 0."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """A range, and when it was recorded in its present form, by the store's clock."""

    range: FetchedRange
    recorded_at_ms: int


class RangeStore(Protocol):
    """The ranges of partitions. A closed range never changes; so all workers and every restart copy the same ones."""

    def now_ms(self) -> int:
        """Return the store's time, by which `recorded_at_ms` is set."""
        ...

    def ranges(self, partition: TopicIdPartition) -> Sequence[RecordedRange]:
        """Return the ranges, ordered by base offset, of which only the last may be open."""
        ...

    def record(self, partition: TopicIdPartition, before: FetchedRange | None, found: Sequence[FetchedRange]) -> bool:
        """Replace the open range by the ranges that were found from its base offset on, all of them or none.

        Args:
            partition: the partition.
            before: the open range that the caller read. None if there was none; then the store must have none either.
            found: closed ranges that follow one another, and an open one after them.

        Returns:
            Whether the ranges were recorded; False if another caller has recorded ranges meanwhile. Then read them
            again.
        """
        ...

    def forget(self, partition: TopicIdPartition, from_offset: int, *, reason: str) -> None:
        """Remove the ranges that reach `from_offset` or begin after it. Idempotent."""
        ...

    def delete_below(self, partition: TopicIdPartition, below_offset: int) -> None:
        """Remove the closed ranges that end below an offset, except the newest: the producers at its end are needed.

        Idempotent.
        """
        ...
