"""Cut a leader's log into ranges, from where the stored ranges end.

    step                                       a crash after it leaves
    the stored ranges compared with the        nothing
    leader's epochs
    bytes read, checked, cut                   nothing: they are read again
    ranges recorded, the open one with them    the ranges; the next cut goes on after the open one's last batch

No byte is copied before its range is closed and recorded. Recorded ranges are forgotten only from the first one on that
is not of the leader's history. The ranges before that one stay, and with them the boundaries of all that may be copied.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from include.tiering.errors import SourceChangedError
from include.tiering.formats.indexes import EMPTY_SNAPSHOT, parse_producer_snapshot
from include.tiering.formats.rebuilt_files import ProducerStates
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.fetch_api.contract import (
    FetchedRange,
    GrowingRange,
    Leader,
    LeaderLogs,
    RangeStore,
    RollRules,
)
from include.tiering.kafka.fetch_api.fetched_batches import FetchedBatches, read_batches
from include.tiering.model.leader_epochs import LeaderEpochEntry, LeaderEpochs
from include.tiering.model.segments import TopicIdPartition

FETCH_BYTES: Final = 4 << 20
"""The most bytes that one request asks for. A read holds one answer in memory."""


@dataclass(frozen=True, slots=True)
class CutRules:
    """How the logs of a topic are cut. Snapshots leave out producers without a batch for `producer_expiration_ms`."""

    roll: RollRules
    producer_expiration_ms: int


_DAY_MS: Final = 86_400_000
_DEFAULTS: Final[Mapping[str, int]] = {
    "segment.bytes": 1 << 30,
    "segment.ms": 7 * _DAY_MS,
    "index.interval.bytes": 4096,
}
PRODUCER_EXPIRATION_MS: Final = _DAY_MS
"""Kafka's default of producer.id.expiration.ms."""


def cut_rules(topic: TopicMetadata) -> CutRules:
    """Return how the logs of a topic are cut."""
    roll = RollRules(topic_number(topic, "segment.bytes"), topic_number(topic, "segment.ms"))
    return CutRules(roll, PRODUCER_EXPIRATION_MS)


def topic_number(topic: TopicMetadata, name: str) -> int:
    """Return a config of the topic, Kafka's default where the brokers do not tell it."""
    configured = topic.configs.get(name, "")
    return int(configured) if configured.isascii() and configured.isdigit() else _DEFAULTS[name]


def partition_path(partition: TopicIdPartition, leader: Leader) -> str:
    """Return the name of a leader's log for errors."""
    return f"{partition} of broker {leader.broker_id}"


def fetched(
    logs: LeaderLogs,
    partition: TopicIdPartition,
    leader: Leader,
    *,
    offset: int,
    may_begin_below: bool,
    leader_epoch: int = -1,
    go_on: Callable[[], object],
) -> Generator[FetchedBatches]:
    """Iterate over the checked batches of a leader's log, up to the high watermark of the moment, answer by answer.

    What was returned is valid until the next one is asked for, or the iterator is closed.

    Args:
        logs: the logs.
        partition: the partition.
        leader: its leader.
        offset: the first offset, inclusive.
        may_begin_below: whether the first batch may begin below `offset`.
        leader_epoch: the epoch of the batch before, -1 if unknown.
        go_on: called before each request, and while the pace is kept; raises to end the read.

    Raises, while iterating:
        UnusableBatchesError: an answer does not continue the log.
        BrokersError: see `LeaderLogs`.
        TieringError: what `go_on` raises.
    """
    path, position, least_high_watermark = partition_path(partition, leader), 0, offset
    while True:
        go_on()
        before = offset
        with logs.read(partition, leader, offset, FETCH_BYTES, go_on) as answer:
            least_high_watermark = max(least_high_watermark, answer.high_watermark)
            for found in read_batches(
                answer.records,
                path=path,
                position=position,
                offset=offset,
                leader_epoch=leader_epoch,
                high_watermark=answer.high_watermark,
                may_begin_below=may_begin_below,
            ):
                yield found
                last = found.batches[-1].header
                offset, leader_epoch, may_begin_below = last.last_offset + 1, last.partition_leader_epoch, False
                position += found.size_bytes
        if offset == before or offset >= least_high_watermark:
            return


def history_of(logs: LeaderLogs, partition: TopicIdPartition, leader: Leader, log_start: int) -> LeaderEpochs:
    """Return the leader epochs of a leader's log as it has them, from its log start on.

    A leader answers with the largest epoch of its history that is not above the requested one, and with the offset at
    which the next larger epoch begins. So we request downwards from the leader's own epoch: each answer has an epoch,
    and the start of the epoch above it. If the history has no epoch that small, the leader answers with the requested
    epoch itself, and with the start of the first epoch of the history. The next answer then has the same offset, as if
    an epoch had no offsets, and the search ends. Only the leader's own epoch may really have no offsets: it has none
    before its first record. Source: Kafka's LeaderEpochFileCache.

    Args:
        logs: the logs.
        partition: the partition.
        leader: its leader.
        log_start: the leader's log start, inclusive. The first entry of the result may begin below it.

    Raises:
        SourceChangedError: the leader does not know its own epoch, or its answers contradict one another.
        BrokersError: see `LeaderLogs`.
    """
    path = partition_path(partition, leader)
    end = logs.epoch_end(partition, leader, leader.leader_epoch)
    epoch, above = end.leader_epoch, end.end_offset
    if epoch < 0 or epoch > leader.leader_epoch or above < log_start:
        raise SourceChangedError(path, f"its epochs end with {epoch} at offset {above}")
    found: list[LeaderEpochEntry] = []
    while above > log_start:
        if epoch == 0:
            found.append(LeaderEpochEntry(0, log_start))
            break
        end = logs.epoch_end(partition, leader, epoch - 1)
        if not 0 <= end.leader_epoch < epoch or not 0 <= end.end_offset <= above:
            raise SourceChangedError(
                path,
                f"epoch {epoch} ends at {above}, and the answer for epoch {epoch - 1} is {end.leader_epoch} up to"
                f" {end.end_offset}",
            )
        if end.end_offset < above:
            found.append(LeaderEpochEntry(epoch, end.end_offset))
        elif epoch != leader.leader_epoch:
            break
        epoch, above = end.leader_epoch, end.end_offset
    return LeaderEpochs(tuple(reversed(found)))


class LogCutter:
    """Cuts logs, and records the ranges.

    Args:
        logs: the logs of the leaders.
        store: the ranges.
    """

    def __init__(self, logs: LeaderLogs, store: RangeStore) -> None:
        self._logs = logs
        self._store = store

    def cut(
        self,
        partition: TopicIdPartition,
        leader: Leader,
        rules: CutRules,
        *,
        log_start: int,
        high_watermark: int,
        max_bytes: int,
        go_on: Callable[[], object],
    ) -> int:
        """Read on from where the stored ranges end, and record what was found.

        Args:
            partition: the partition.
            leader: its leader.
            rules: how its topic is cut.
            log_start: the leader's log start offset (inclusive), requested just before.
            high_watermark: the leader's high watermark (exclusive), requested just before.
            max_bytes: after so many bytes no further answer is read; with 0 or less, the ranges are only compared with
                the leader's history.
            go_on: see `fetched`.

        Returns:
            How many bytes were read.

        Raises:
            UnusableBatchesError: an answer does not continue the log.
            BrokersError: see `LeaderLogs`.
            TieringError: what `go_on` raises.

        What was read before an error is recorded.
        """
        known = self._known(partition, leader)
        last = known[-1] if known else None
        walk = _Walk(last, log_start, rules)
        if max_bytes <= 0 or walk.offset >= high_watermark:
            return 0  # At the high watermark a broker would wait for bytes that may never come.
        try:
            answers = fetched(
                self._logs,
                partition,
                leader,
                offset=walk.offset,
                may_begin_below=walk.is_start,
                leader_epoch=walk.leader_epoch,
                go_on=go_on,
            )
            with closing(answers):
                for batches in answers:
                    walk.take(batches)
                    if walk.read_bytes >= max_bytes:
                        break
        finally:
            if walk.read_bytes:
                before = last if last is not None and not last.closed else None
                self._store.record(partition, before, walk.found())
        return walk.read_bytes

    def _known(self, partition: TopicIdPartition, leader: Leader) -> list[FetchedRange]:
        """Return the stored ranges that belong to the leader's history; forget the ones after them.

        If the leader has the last epoch of a range up to the range's end, it has the same batches up to there.
        """
        stored = [recorded.range for recorded in self._store.ranges(partition)]
        known = list(stored)
        while known and not self._is_of(known[-1], partition, leader):
            known.pop()
        if len(known) < len(stored):
            reason = f"broker {leader.broker_id} has another history since epoch {leader.leader_epoch}"
            self._store.forget(partition, stored[len(known)].base_offset, reason=reason)
        return known

    def _is_of(self, known: FetchedRange, partition: TopicIdPartition, leader: Leader) -> bool:
        epoch = known.leader_epochs.entries[-1].epoch
        end = self._logs.epoch_end(partition, leader, epoch)
        return end.leader_epoch == epoch and end.end_offset >= known.next_offset


class _Walk:
    """Cuts the batches that follow the `last` range.

    Without such a range, or if the log start is above its `next_offset` by now, it cuts the batches from the log start
    on. Then nothing is known of earlier producers, as in a broker that has built their state from a log start.
    """

    def __init__(self, last: FetchedRange | None, log_start: int, rules: CutRules) -> None:
        self._rules = rules
        self._closed: list[FetchedRange] = []
        self.read_bytes = 0
        self.is_start = last is None or last.next_offset < log_start
        if last is None or self.is_start:
            opened = FetchedRange.opened(log_start, log_start, EMPTY_SNAPSHOT)
            self.leader_epoch = -1
        else:
            opened = last
            if last.closed:
                opened = FetchedRange.opened(last.next_offset, last.next_offset, last.producer_snapshot)
            self.leader_epoch = last.leader_epochs.entries[-1].epoch
        self._open = GrowingRange(opened)
        self.offset = opened.next_offset
        self._producers = ProducerStates(parse_producer_snapshot(opened.producer_snapshot))

    def take(self, found: FetchedBatches) -> None:
        """Add the next batches."""
        rules, open_range, start = self._rules.roll, self._open, 0
        for position, header, marker in found.batches:
            if header.base_offset < open_range.base_offset:
                opened = FetchedRange.opened(header.base_offset, self.offset, EMPTY_SNAPSHOT)
                open_range = self._open = GrowingRange(opened)
            if open_range.is_closed_by(header, rules):
                open_range.crc32c = found.answer.extend_crc32c(open_range.crc32c, start, position)
                start, open_range = position, self._close()
            open_range.add(header)
            self._producers.append(header, marker)
        open_range.crc32c = found.answer.extend_crc32c(open_range.crc32c, start, found.size_bytes)
        self.read_bytes += found.size_bytes

    def found(self) -> list[FetchedRange]:
        """Return the ranges; the last one is open. Call it after at least one batch."""
        return [*self._closed, self._open.range(self._producers.snapshot(), closed=False)]

    def _close(self) -> GrowingRange:
        """Close the range; return the next one."""
        if (newest_ms := self._open.max_timestamp_ms) >= 0:
            self._producers.expire(newest_ms - self._rules.producer_expiration_ms)
        closed = self._open.range(self._producers.snapshot(), closed=True)
        self._closed.append(closed)
        opened = FetchedRange.opened(closed.next_offset, closed.next_offset, closed.producer_snapshot)
        self._open = GrowingRange(opened)
        return self._open
