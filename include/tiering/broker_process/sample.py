"""Choose the segments of a topic for a rehearsal, and copy them into the log directory of another broker.

A sample has the newest segments of one partition, whole and without a gap up to the log's end. These are the active
segment and as many rolled segments, from the newest on, as a limit for the size of the sample allows. The newest rolled
segment is taken even if the limit is exceeded. No rolled segment wholly below the log start is taken. The sample also
has the leader epochs of exactly these records. `samples_of` chooses samples without I/O.

Files are copied and not linked, because the other broker may change them. Every copied file keeps its modification
time, because a broker may expire segments by it. The copied directory has what a broker needs to load the partition:

    source                          copy
    rolled .log .index .timeindex   whole
    rolled .txnindex                whole, if it exists
    any .snapshot                   whole, if it exists; it has the state of producers at a segment's base offset
    active .log                     up to the end that the scan found; the broker's recovery rebuilds its indexes
    leader-epoch-checkpoint         a new file with the epochs of the copied records only
    partition.metadata              a new file with the same topic id

How the source is read, and what the copy leaves in the page cache, is described in `kafka.log_dirs.files`.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from include.tiering.errors import RehearsalError, RehearsalSpaceError, SourceChangedError, UnknownTopicError
from include.tiering.formats import checkpoints
from include.tiering.formats.checkpoints import MAX_PARTITION_METADATA_BYTES
from include.tiering.kafka.cluster.contract import TopicMetadata
from include.tiering.kafka.log_dirs.contract import IneligibleReason, LogSegment, Replica, ReplicaId, ScanReport
from include.tiering.kafka.log_dirs.dirs import in_file
from include.tiering.kafka.log_dirs.files import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    BrokerDirectory,
    BrokerFile,
    FileKind,
    offset_file,
)
from include.tiering.model.leader_epochs import LeaderEpochs
from include.tiering.units import MIB, format_bytes

_USABLE: Final = frozenset(
    {
        None,
        IneligibleReason.ACTIVE,
        IneligibleReason.ABOVE_HIGH_WATERMARK,
        IneligibleReason.ABOVE_LAST_STABLE_OFFSET,
        IneligibleReason.NOT_FLUSHED,
        IneligibleReason.PAST_RETENTION,
    }
)
"""Reasons that do not stop a handover, and None for a segment that can be copied.

A handover waits until a segment is flushed, and overrides the retention. It leaves the active segment, and segments
above the high watermark or the last stable offset, to the broker."""


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """The sample of one partition.

    `segments` ascend without a gap; the last segment is active. `log_start_offset` is not below the first segment, and
    `leader_epochs` are those of the segments. `leader_epoch` is the partition's last epoch, 0 if there is none.
    """

    replica_id: ReplicaId
    segments: tuple[LogSegment, ...]
    log_start_offset: int
    leader_epochs: LeaderEpochs
    leader_epoch: int

    @property
    def partition(self) -> int:
        return self.replica_id.topic_id_partition.partition

    @property
    def start_offset(self) -> int:
        return self.segments[0].base_offset

    @property
    def active(self) -> LogSegment:
        return self.segments[-1]

    @property
    def rolled(self) -> tuple[LogSegment, ...]:
        return self.segments[:-1]

    @property
    def log_end_offset(self) -> int:
        """The log end offset, exclusive."""
        return self.active.end_offset + 1

    @property
    def size_bytes(self) -> int:
        """The total size of the `.log` files."""
        return sum(segment.size_bytes for segment in self.segments)


def samples_of(
    topic: str, report: ScanReport, topic_metadata: TopicMetadata | None, max_bytes: int
) -> tuple[PartitionSample, ...]:
    """Return one sample for each partition of the topic, ordered by partition.

    Args:
        topic: the topic's name.
        report: a scan of the log directories.
        topic_metadata: the topic's metadata. None if it is unknown: then the partitions from 0 up to the highest
            number of a chosen replica in the log directories are required.
        max_bytes: the maximal size of one partition's sample; its two newest segments alone may exceed this size.

    Raises:
        UnknownTopicError: no log directory has a replica of the topic, or without metadata no chosen replica.
        RehearsalError: no log directory has the chosen replica of a partition, a handover could not copy a segment of
            a sample, no sample has a rolled segment, or without metadata the chosen replicas are of several topics.
    """
    chosen = _chosen(topic, report, topic_metadata)
    samples = tuple(sample_of(chosen[partition], max_bytes) for partition in sorted(chosen))
    if not any(sample.rolled for sample in samples):
        raise RehearsalError(f"{topic}: no partition has a rolled segment above its log start: nothing to hand over")
    return samples


def sample_of(replica: Replica, max_bytes: int) -> PartitionSample:
    """Return a replica's newest segments. Raises RehearsalError if a handover could not copy one of them."""
    *rolled, active = replica.segments
    kept = [_usable(replica, active)]
    size_bytes = active.size_bytes
    for segment in reversed(rolled):
        size_bytes += segment.size_bytes
        if segment.reason is IneligibleReason.BELOW_LOG_START or (len(kept) > 1 and size_bytes > max_bytes):
            break
        kept.append(_usable(replica, segment))
    kept.reverse()
    epochs = replica.leader_epochs
    return PartitionSample(
        replica.replica_id,
        tuple(kept),
        max(kept[0].base_offset, replica.log_start_offset),
        epochs.range(kept[0].base_offset, active.end_offset + 1),
        epochs.entries[-1].epoch if epochs.entries else 0,
    )


def _chosen(topic: str, report: ScanReport, topic_metadata: TopicMetadata | None) -> dict[int, Replica]:
    """Return the chosen replica of each partition: the one that a copy would read. Raises like `samples_of`."""
    replicas = [
        replica
        for replica in report.replicas
        if replica.topic_id_partition.topic == topic
        and (topic_metadata is None or replica.topic_id_partition.topic_id == topic_metadata.topic_id)
    ]
    chosen = {replica.topic_id_partition.partition: replica for replica in replicas if replica.chosen}
    if not replicas or (topic_metadata is None and not chosen):
        raise UnknownTopicError(f"no log directory holds a readable partition of topic {topic}{_first_error(report)}")
    ids = {partition.topic_id_partition.topic_id for partition in chosen.values()}
    if len(ids) > 1:
        raise RehearsalError(
            f"{topic}: log directories hold {len(ids)} topics of this name, and without metadata none can be chosen"
        )
    wanted = topic_metadata.partitions.keys() if topic_metadata is not None else range(max(chosen) + 1)
    if missing := sorted(wanted - chosen.keys()):
        leader = None if topic_metadata is None else topic_metadata.partitions[missing[0]].leader
        led_by = "" if leader is None else f", led by broker {leader},"
        raise RehearsalError(
            f"{topic}: {len(missing)} of {len(wanted)} partitions cannot be read here: partition {missing[0]}{led_by}"
            f" is in no directory of its leader that the setting log_dirs names{_first_error(report)}"
        )
    return chosen


def _usable(replica: Replica, segment: LogSegment) -> LogSegment:
    if segment.reason not in _USABLE:
        raise RehearsalError(
            f"{replica.topic_id_partition}, segment at offset {segment.base_offset}: {segment.reason}: a handover"
            " would refuse it, so nothing is rehearsed"
        )
    return segment


def _first_error(report: ScanReport) -> str:
    return f" ({report.errors[0].path}: {report.errors[0].message})" if report.errors else ""


def size_of(samples: Iterable[PartitionSample]) -> int:
    """Return the total bytes of all `.log` files."""
    return sum(sample.size_bytes for sample in samples)


def bases_of(sample: PartitionSample) -> Sequence[int]:
    """Return the base offsets in ascending order."""
    return [segment.base_offset for segment in sample.segments]


COPIES: Final = 3
"""The free disk space must be at least this many times the bytes of the sample, and `_BASE_BYTES` more.

The space is for the sample, for its copy in the throw-away store, and for indexes and the broker's own files."""
_BASE_BYTES: Final = 64 * MIB
_BLOCK_BYTES: Final = 4 * MIB


def require_free_space(sample_bytes: int, free_bytes: int, directory: Path) -> None:
    """Raise RehearsalSpaceError if the free space is too small; the message says how many bytes are needed."""
    needed = COPIES * sample_bytes + _BASE_BYTES
    if needed > free_bytes:
        raise RehearsalSpaceError(
            f"{directory} has {format_bytes(free_bytes)} free, a rehearsal of {format_bytes(sample_bytes)} needs"
            f" {format_bytes(needed)}: set TMPDIR to a directory with more space, or lower --rehearse-bytes"
        )


def copy_sample(sample: PartitionSample, source: Path, target: Path, on_bytes: Callable[[int], None]) -> None:
    """Copy a sample from the log directory `source` into the log directory `target`, which must not have the partition.

    Args:
        sample: the sample.
        source: a log directory.
        target: a log directory.
        on_bytes: called after each block with the number of its bytes.

    Raises:
        SourceError: a file is missing, changed, damaged, unreadable or not a regular file, or the directory now belongs
            to another topic.
    """
    partition = sample.replica_id.topic_id_partition
    directory = target / str(partition)
    directory.mkdir()
    with BrokerDirectory.open(str(source)) as root, root.directory(str(partition)) as opened:
        _require_topic(opened, sample)
        for name, size_bytes, is_needed in _files(sample):
            if is_needed or opened.has(name):
                with opened.file(name, bulk=True) as file:
                    _copy_file(file, directory / name, file.size_bytes if size_bytes is None else size_bytes, on_bytes)
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(checkpoints.serialize_leader_epochs(sample.leader_epochs))
    (directory / PARTITION_METADATA).write_bytes(checkpoints.serialize_partition_metadata(partition.topic_id))


def _files(sample: PartitionSample) -> Iterator[tuple[str, int | None, bool]]:
    """Iterate over (name, bytes to copy or None for all, whether the file must exist)."""
    for segment in sample.segments:
        yield offset_file(segment.base_offset, FileKind.LOG), segment.size_bytes, True
        yield offset_file(segment.base_offset, FileKind.PRODUCER_SNAPSHOT), None, False
    for segment in sample.rolled:
        yield offset_file(segment.base_offset, FileKind.OFFSET_INDEX), None, True
        yield offset_file(segment.base_offset, FileKind.TIME_INDEX), None, True
        yield offset_file(segment.base_offset, FileKind.TRANSACTION_INDEX), None, False


def _require_topic(directory: BrokerDirectory, sample: PartitionSample) -> None:
    expected = sample.replica_id.topic_id_partition.topic_id
    data = directory.read(PARTITION_METADATA, MAX_PARTITION_METADATA_BYTES)
    with in_file(directory.path_of(PARTITION_METADATA)):
        found = checkpoints.parse_partition_metadata(data)
    if found != expected:
        raise SourceChangedError(directory.path, f"topic id was {expected}, now {found}")


def _copy_file(file: BrokerFile, target: Path, size_bytes: int, on_bytes: Callable[[int], None]) -> None:
    """Copy the first `size_bytes` and flush them to disk, as brokers expect flushed bytes below a recovery point."""
    if file.size_bytes < size_bytes:
        raise SourceChangedError(file.path, f"had {size_bytes} bytes when it was listed, now {file.size_bytes}")
    buffer = memoryview(bytearray(min(_BLOCK_BYTES, max(1, size_bytes))))
    with target.open("xb") as copy:
        position = 0
        while position < size_bytes:
            block = buffer[: min(len(buffer), size_bytes - position)]
            position += file.read_into(position, block)
            copy.write(block)
            on_bytes(len(block))
        copy.flush()
        os.fsync(copy.fileno())
    os.utime(target, ns=(file.status.st_atime_ns, file.status.st_mtime_ns))
