"""The newest segments of a leader's log, written as a broker's partition directory.

If the log is larger than wanted, reading begins at an offset inside of it, which is estimated from the size of the log.
While the segments that were written are together still larger than wanted, the oldest is removed. Segments are cut and
their files rebuilt as for a copy. Producers are known only from the first batch on that is read, as in a broker that
has built their state from a log start. Nothing above the high watermark is read.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path
from typing import Final

from include.tiering.errors import RehearsalError
from include.tiering.formats import checkpoints
from include.tiering.formats.indexes import EMPTY_SNAPSHOT, parse_producer_snapshot
from include.tiering.formats.rebuilt_files import ProducerStates, RebuiltFiles, SegmentFilesBuilder
from include.tiering.kafka.cluster.contract import Brokers, TopicMetadata
from include.tiering.kafka.fetch_api.contract import (
    FetchedRange,
    GrowingRange,
    Leader,
    LeaderLogs,
    RollRules,
    epochs_of,
)
from include.tiering.kafka.fetch_api.cut_log import cut_rules, fetched, topic_number
from include.tiering.kafka.fetch_api.fetched_batches import FetchedBatch
from include.tiering.kafka.log_dirs.contract import (
    BoundsQuality,
    IneligibleReason,
    LogSegment,
    Replica,
    ReplicaId,
    go_on_always,
)
from include.tiering.kafka.log_dirs.files import PARTITION_METADATA, FileKind, offset_file
from include.tiering.model.segments import TopicIdPartition

_DIRECTORY_ID: Final = "fetched"


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """One log: its bounds, its size in bytes, and how it is cut; `refusal` is why no segment of it may be copied."""

    partition: TopicIdPartition
    leader: Leader
    log_start_offset: int
    high_watermark: int
    log_bytes: int
    roll: RollRules
    index_interval_bytes: int
    refusal: IneligibleReason | None = None

    def first_offset(self, max_bytes: int) -> int:
        """Return the offset from which on the log has about `max_bytes`, if all its records have the same size."""
        if self.log_bytes <= max_bytes:
            return self.log_start_offset
        offsets = self.high_watermark - self.log_start_offset
        return self.high_watermark - max(1, offsets * max_bytes // self.log_bytes)


def leader_logs_of(brokers: Brokers, topic: TopicMetadata, refusal: IneligibleReason | None) -> list[LeaderLog]:
    """Return the logs of all partitions of a topic, in order.

    Args:
        brokers: the brokers of the cluster.
        topic: the topic.
        refusal: why no segment of the topic may be copied; None if there is no reason.

    Raises:
        RehearsalError: a leader does not tell the size of its log.
        BrokersError: a leader does not answer.
    """
    ids = [TopicIdPartition(topic.topic_id, number, topic.topic) for number in sorted(topic.partitions)]
    answer = brokers.partition_offsets(ids)
    offsets = {partition: answer.of(partition) for partition in ids}
    sizes = brokers.log_sizes({partition: found.leader for partition, found in offsets.items()})
    if unknown := [partition for partition in ids if partition not in sizes]:
        raise RehearsalError(
            f"{unknown[0]}: broker {offsets[unknown[0]].leader} does not tell the size of its log: allow Describe on"
            " the cluster to the user of the settings cluster.*"
        )
    return [
        LeaderLog(
            partition,
            Leader(found.leader, found.leader_epoch),
            max(found.earliest, found.earliest_local or 0),
            found.high_watermark,
            sizes[partition],
            cut_rules(topic).roll,
            topic_number(topic, "index.interval.bytes"),
            refusal,
        )
        for partition, found in offsets.items()
    ]


def write_newest(
    logs: LeaderLogs, log: LeaderLog, log_dir: Path, max_bytes: int, on_bytes: Callable[[int], None]
) -> Replica:
    """Write the newest segments of a log into a directory of the partition.

    Args:
        logs: the logs of the leaders.
        log: the log.
        log_dir: an existing directory, which must not have the partition yet.
        max_bytes: the oldest segments are removed until the rolled ones together have at most this many bytes. The
            newest rolled segment and the active one are kept in any case.
        on_bytes: called after each batch with its size.

    Returns:
        The replica that was written; its last segment is active.

    Raises:
        UnusableBatchesError: an answer does not continue the log.
        BrokersError: see `LeaderLogs`.
        OSError: a file cannot be written.
    """
    directory = log_dir / str(log.partition)
    directory.mkdir()
    (directory / PARTITION_METADATA).write_bytes(checkpoints.serialize_partition_metadata(log.partition.topic_id))
    first = log.first_offset(max_bytes)
    closed: list[FetchedRange] = []
    written: _Written | None = None
    if first < log.high_watermark:
        for batch, data in _batches(logs, log, first):
            if written is not None and written.growing.is_closed_by(batch.header, log.roll):
                closed.append(written.close(closed=True))
                written = _Written(directory, closed[-1].next_offset, log, closed[-1].producer_snapshot)
                while len(closed) > 1 and sum(known.size_bytes for known in closed) > max_bytes:
                    _remove(directory, closed.pop(0).base_offset)
            if written is None:
                written = _Written(directory, batch.header.base_offset, log, EMPTY_SNAPSHOT)
            written.append(batch, data)
            on_bytes(len(data))
    if written is None:
        written = _Written(directory, log.high_watermark, log, EMPTY_SNAPSHOT)
    ranges = [*closed, written.close(closed=False)]
    end = ranges[-1].next_offset
    return Replica(
        replica_id=ReplicaId(log.partition, log.leader.broker_id, _DIRECTORY_ID),
        log_start_offset=log.log_start_offset,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        recovery_point=end,
        bounds=BoundsQuality.EXACT,
        leader_epochs=epochs_of(ranges),
        leader_epoch=log.leader.leader_epoch,
        segments=tuple(_segment(known, log.refusal) for known in ranges),
        chosen=True,
        owner_is_broker=False,
    )


def _batches(logs: LeaderLogs, log: LeaderLog, first_offset: int) -> Iterator[tuple[FetchedBatch, memoryview]]:
    """Iterate over the batches and their bytes, which are valid until the next one is asked for."""
    answers = fetched(logs, log.partition, log.leader, offset=first_offset, may_begin_below=True, go_on=go_on_always)
    with closing(answers):
        for found in answers:
            for batch in found.batches:
                yield batch, found.answer.view[batch.position : batch.position + batch.header.size_bytes]


class _Written:
    """One segment while it is written: its `.log` batch by batch, its other files when it is closed."""

    def __init__(self, directory: Path, base_offset: int, log: LeaderLog, producer_snapshot: bytes) -> None:
        self._directory = directory
        if producer_snapshot != EMPTY_SNAPSHOT:
            (directory / offset_file(base_offset, FileKind.PRODUCER_SNAPSHOT)).write_bytes(producer_snapshot)
        producers = ProducerStates(parse_producer_snapshot(producer_snapshot))
        self._builder = SegmentFilesBuilder(base_offset, log.index_interval_bytes, producers)
        self._file: BufferedWriter = (directory / offset_file(base_offset, FileKind.LOG)).open("xb")
        self._base_offset = base_offset
        self.growing = GrowingRange(FetchedRange.opened(base_offset, base_offset, producer_snapshot))

    def append(self, batch: FetchedBatch, data: memoryview) -> None:
        self._file.write(data)
        self._builder.append(self.growing.size_bytes, batch.header, batch.marker)
        self.growing.add(batch.header)

    def close(self, *, closed: bool) -> FetchedRange:
        """Write the other files; return the range, without a checksum."""
        self._file.close()
        files: RebuiltFiles = self._builder.files()
        for kind, content in (
            (FileKind.OFFSET_INDEX, files.offset_index),
            (FileKind.TIME_INDEX, files.time_index),
            (FileKind.TRANSACTION_INDEX, files.transaction_index),
        ):
            if content is not None:
                (self._directory / offset_file(self._base_offset, kind)).write_bytes(content)
        return self.growing.range(files.producer_snapshot, closed=closed)


def _remove(directory: Path, base_offset: int) -> None:
    for kind in FileKind:
        (directory / offset_file(base_offset, kind)).unlink(missing_ok=True)


def _segment(known: FetchedRange, refusal: IneligibleReason | None) -> LogSegment:
    return LogSegment(
        base_offset=known.base_offset,
        end_offset=known.end_offset,
        size_bytes=known.size_bytes,
        max_timestamp_ms=known.max_timestamp_ms,
        leader_epochs=known.leader_epochs,
        active=not known.closed,
        reason=refusal or (None if known.closed else IneligibleReason.ACTIVE),
        batch_count=known.batch_count,
    )
