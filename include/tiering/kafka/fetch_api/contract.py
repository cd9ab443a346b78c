"""What the source by the Fetch API needs: the logs of leaders, and a store of the ranges into which they are cut."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from include.tiering.kafka.fetch_api.boundaries import FetchedRange
from include.tiering.kafka.protocol.fetch_requests import EpochEnd, FetchedPartition
from include.tiering.model.segments import TopicIdPartition


@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that leads a partition, and since which leader epoch."""

    broker_id: int
    leader_epoch: int


class LeaderLogs(Protocol):
    """The logs of the leaders of one cluster. Thread-safe. All methods only read.

    Every method raises:
        BrokersUnavailableError: the broker does not answer, or does not lead the partition in this epoch. Retriable.
        UnknownTopicError: the topic id or the partition is unknown there.
        BrokersError: the request failed for another reason.
    """

    def read(self, partition: TopicIdPartition, leader: Leader, offset: int, max_bytes: int) -> FetchedPartition:
        """Return bytes of the log from the batch with `offset` on; none at the high watermark.

        Args:
            partition: the partition, by its topic id.
            leader: who is asked, and in which epoch it must lead.
            offset: inclusive.
            max_bytes: more only if the first batch has more.
        """
        ...

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        """Return where the leader's log leaves `leader_epoch`; see `EpochEnd`, whose `error` is 0."""
        ...


class RangeStore(Protocol):
    """The ranges of partitions. A closed range never changes; so all workers and every restart copy the same ones."""

    def now_ms(self) -> int:
        """Return the store's time, by which `recorded_at_ms` is set."""
        ...

    def ranges(self, partition: TopicIdPartition) -> Sequence["RecordedRange"]:
        """Return the ranges by ascending base offset, of which only the last may be open."""
        ...

    def record(self, partition: TopicIdPartition, before: FetchedRange | None, found: Sequence[FetchedRange]) -> bool:
        """Replace the open range by what was found from there on, all of it or nothing.

        Args:
            partition: the partition.
            before: the open range that the caller read; None if the caller found none, so that there must be none.
            found: closed ranges that follow one another, and an open one after them.

        Returns:
            Whether it was recorded; False if the newest range is another one by now. Then read the ranges again.
        """
        ...

    def forget(self, partition: TopicIdPartition, from_offset: int, *, reason: str) -> None:
        """Remove the ranges that reach `from_offset` or begin after it. Idempotent."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedRange:
    """A range, and when it was recorded in its present form, by the store's clock."""

    range: FetchedRange
    recorded_at_ms: int
