"""Leaders' logs and the ranges of them, in memory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from include.tiering.errors import BrokersUnavailableError, UnknownTopicError
from include.tiering.formats.record_batch import BatchHeader, iter_headers
from include.tiering.kafka.cluster.cluster_metadata import AdminClusterMetadata, UnknownClusterMetadata
from include.tiering.kafka.fetch_api.contract import FetchedRange, Leader, RecordedRange
from include.tiering.kafka.fetch_api.source import FetchLimits, FetchSource
from include.tiering.kafka.fetch_api.spool import Spool
from include.tiering.kafka.log_dirs.contract import ScanReport, go_on_always
from include.tiering.kafka.protocol.fetch_requests import EpochEnd, FetchedPartition
from include.tiering.model.segments import TopicIdPartition
from tests.doubles.memory_source import BytesSource
from tests.doubles.model_brokers import ModelBrokers, ModelPartition

Alter = Callable[[bytes], bytes]


def headers_of(log: bytes) -> list[tuple[int, BatchHeader]]:
    return [(batch.position, batch.header) for batch in iter_headers(BytesSource(log))]


@dataclass
class ModelLogs:
    """`LeaderLogs` over the offsets of `ModelBrokers`. `alter` is what a proxy makes of each answer."""

    brokers: ModelBrokers
    logs: dict[TopicIdPartition, bytes] = field(default_factory=dict)
    alter: Alter = lambda records: records
    reads: list[tuple[int, int]] = field(default_factory=list)

    @contextmanager
    def read(
        self,
        partition: TopicIdPartition,
        leader: Leader,
        offset: int,
        max_bytes: int,
        go_on: Callable[[], object] = go_on_always,
    ) -> Iterator[FetchedPartition]:
        """As fast as possible."""
        yield self._answer(partition, leader, offset, max_bytes)

    def _answer(self, partition: TopicIdPartition, leader: Leader, offset: int, max_bytes: int) -> FetchedPartition:
        model = self._led(partition, leader)
        self.reads.append((offset, max_bytes))
        log, start, end = self.logs[partition], None, 0
        for position, header in headers_of(log):
            if header.last_offset < offset or header.last_offset >= model.high_watermark:
                continue
            start = position if start is None else start
            end = position + header.size_bytes
        first = b"" if start is None else log[start:end]
        size = headers_of(first)[0][1].size_bytes if first else 0
        records = self.alter(first[: max(max_bytes, size)])
        offsets = model.offsets()
        return FetchedPartition(0, offsets.high_watermark, offsets.last_stable_offset, offsets.earliest, records)

    def epoch_end(self, partition: TopicIdPartition, leader: Leader, leader_epoch: int) -> EpochEnd:
        self._led(partition, leader)
        found = EpochEnd(0, -1, -1)
        headers = [header for _, header in headers_of(self.logs[partition])]
        known = [header for header in headers if header.partition_leader_epoch <= leader_epoch]
        if known and leader_epoch <= leader.leader_epoch:
            found = EpochEnd(0, known[-1].partition_leader_epoch, known[-1].last_offset + 1)
        elif headers and 0 <= leader_epoch <= leader.leader_epoch:
            found = EpochEnd(0, leader_epoch, headers[0].base_offset)
        return found

    def _led(self, partition: TopicIdPartition, leader: Leader) -> ModelPartition:
        try:
            model = self.brokers.partition(partition.topic_id, partition.partition)
        except StopIteration:
            raise UnknownTopicError(f"{partition}: unknown topic id") from None
        if (model.leader, model.leader_epoch) != (leader.broker_id, leader.leader_epoch):
            raise BrokersUnavailableError(f"{partition}: the leader has changed")
        return model


@dataclass
class MemoryRanges:
    """`RangeStore` in memory."""

    time_ms: int = 1_000_000
    kept: dict[TopicIdPartition, list[RecordedRange]] = field(default_factory=dict)
    forgotten: list[tuple[int, str]] = field(default_factory=list)

    def now_ms(self) -> int:
        return self.time_ms

    def ranges(self, partition: TopicIdPartition) -> Sequence[RecordedRange]:
        return list(self.kept.get(partition, []))

    def record(self, partition: TopicIdPartition, before: FetchedRange | None, found: Sequence[FetchedRange]) -> bool:
        stored = self.kept.setdefault(partition, [])
        newest = stored[-1].range if stored else None
        newest_open = None if newest is None or newest.closed else newest
        closed = [known for known in stored if known.range.closed]
        if newest_open != before or any(known.range.next_offset > found[0].base_offset for known in closed):
            return False
        self.kept[partition] = [*closed, *(RecordedRange(known, self.time_ms) for known in found)]
        return True

    def forget(self, partition: TopicIdPartition, from_offset: int, *, reason: str) -> None:
        self.forgotten.append((from_offset, reason))
        stored = self.kept.get(partition, [])
        self.kept[partition] = [known for known in stored if known.range.end_offset < from_offset]

    def delete_below(self, partition: TopicIdPartition, below_offset: int) -> None:
        stored = self.kept.get(partition, [])
        below = [known for known in stored if known.range.closed and known.range.end_offset < below_offset]
        self.kept[partition] = [known for known in stored if known not in below[:-1]]


class FetchWorld:
    """One replicated partition `orders-0`; a test gives its log, and changes brokers, logs and ranges as it likes."""

    def __init__(self, spool: Spool, log: bytes, *, segment_bytes: int, find_bytes: int = 1 << 30) -> None:
        self.brokers = ModelBrokers(brokers=(1, 2))
        configs = {"min.insync.replicas": "2", "segment.bytes": str(segment_bytes)}
        topic_id = self.brokers.create_topic("orders", configs=configs)
        self.partition = TopicIdPartition(topic_id, 0, "orders")
        self.logs = ModelLogs(self.brokers)
        self.ranges = MemoryRanges()
        self.append(log)
        self.model.replicas = self.model.isr = (1, 2)
        self.source = self.new_source(spool, find_bytes)

    def new_source(self, spool: Spool, find_bytes: int = 1 << 30) -> FetchSource:
        return FetchSource(
            self.brokers,
            AdminClusterMetadata(self.brokers, UnknownClusterMetadata()),
            self.logs,
            self.ranges,
            spool,
            limits=FetchLimits(find_bytes=find_bytes, settle_ms=60_000),
        )

    def scan(self, source: FetchSource | None = None) -> ScanReport:
        """Find what one call finds, as if all that is known were copied, and list it; the errors of both."""
        source = source or self.source
        errors = source.find_segments(topics=None, copied_to=self.known_to, go_on=lambda _topic: None)
        report = source.scan()
        return replace(report, errors=(*errors, *report.errors))

    def known_to(self, partition: TopicIdPartition) -> int | None:
        return max((known.end_offset for known in self.stored() if known.closed), default=None)

    @property
    def model(self) -> ModelPartition:
        return self.brokers.partition(self.partition.topic_id, 0)

    def append(self, log: bytes) -> None:
        """More batches, all of them below the high watermark."""
        self.replace(self.logs.logs.get(self.partition, b"") + log)

    def replace(self, log: bytes) -> None:
        self.logs.logs[self.partition] = log
        headers = headers_of(log)
        self.model.high_watermark = headers[-1][1].last_offset + 1 if headers else 0

    def stored(self) -> list[FetchedRange]:
        return [known.range for known in self.ranges.ranges(self.partition)]
