"""Which bytes of a topic are rehearsed, and their copy in the log directory of another broker.

A sample is what a broker that took the partition over by its files would find: the newest segments of every partition,
whole and without a gap up to the end. That is the rolled segments that fit a bound and at least the newest one of them,
then the active one; the leader epochs of exactly these records. It is chosen by a pure function.

Bytes are copied, never links, and what the broker needs to adopt them:

    source                          copy
    rolled .log .index .timeindex   whole, with their modification times (a broker may expire by them)
    .txnindex, .snapshot            where they are; a snapshot is what the broker knows of producers at a segment's base
    active .log                     up to the end that the scan found; its indexes are rebuilt by the broker's recovery
    leader-epoch-checkpoint         written anew: the epochs of the copied records alone
    partition.metadata              written anew, with the same topic id

The source is opened as every broker's file is: read only, no link followed, past the page cache.
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
"""What a handover waits for, or leaves to the broker; for every other reason it would stop."""


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """`segments` ascend, each begins where the one before ends, the last is the active one.

    `log_start_offset` lies in the first segment. `leader_epochs` begin there; `leader_epoch` is the last one that the
    partition had.
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
        """Exclusive."""
        return self.active.end_offset + 1

    @property
    def size_bytes(self) -> int:
        """Of the segments' `.log` files."""
        return sum(segment.size_bytes for segment in self.segments)


def samples_of(
    topic: str, report: ScanReport, topic_metadata: TopicMetadata | None, max_bytes: int
) -> tuple[PartitionSample, ...]:
    """One for each partition of the topic, by number.

    Args:
        topic_metadata: None where nobody can be asked: then the partitions are those that lie in the log directories.
        max_bytes: of one partition's sample, which exceeds it only where its two newest segments do.

    Raises:
        UnknownTopicError: no log directory holds it.
        RehearsalError: a partition cannot be read here, or no handover could copy it; or none has a rolled segment.
    """
    chosen = _chosen(topic, report, topic_metadata)
    samples = tuple(sample_of(chosen[partition], max_bytes) for partition in sorted(chosen))
    if not any(sample.rolled for sample in samples):
        raise RehearsalError(f"no partition of {topic} has a rolled segment yet: there is nothing to hand over")
    return samples


def sample_of(replica: Replica, max_bytes: int) -> PartitionSample:
    """The newest segments of one replica. Raises RehearsalError: one of them could not be handed over."""
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
    """The leader's replica of each partition. Raises as `samples_of` says."""
    replicas = [
        replica
        for replica in report.replicas
        if replica.topic_id_partition.topic == topic
        and (topic_metadata is None or replica.topic_id_partition.topic_id == topic_metadata.topic_id)
    ]
    chosen = {replica.topic_id_partition.partition: replica for replica in replicas if replica.chosen}
    if not replicas or (topic_metadata is None and not chosen):
        raise UnknownTopicError(f"no log directory holds a partition of topic {topic}{_first_error(report)}")
    ids = {partition.topic_id_partition.topic_id for partition in chosen.values()}
    if len(ids) > 1:
        raise RehearsalError(f"{topic}: log directories hold {len(ids)} topics of this name, and nobody says which is")
    wanted = topic_metadata.partitions.keys() if topic_metadata is not None else range(max(chosen) + 1)
    if missing := sorted(wanted - chosen.keys()):
        leader = None if topic_metadata is None else topic_metadata.partitions[missing[0]].leader
        whose = "" if leader is None else f", led by broker {leader},"
        raise RehearsalError(
            f"{topic}: {len(missing)} of {len(wanted)} partitions cannot be read here: partition {missing[0]}{whose} is"
            f" in no directory that log_dirs names for its leader{_first_error(report)}"
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
    """Bytes of all `.log` files."""
    return sum(sample.size_bytes for sample in samples)


def bases_of(sample: PartitionSample) -> Sequence[int]:
    """Base offsets, ascending."""
    return [segment.base_offset for segment in sample.segments]


COPIES: Final = 3
"""The sample itself, its copy in the throw-away store, and as much again for indexes and a broker's own files."""
_BASE_BYTES: Final = 64 * MIB
_BLOCK_BYTES: Final = 4 * MIB


def require_free_space(sample_bytes: int, free_bytes: int, directory: Path) -> None:
    """Raises RehearsalSpaceError with what is needed and how to need less."""
    needed = COPIES * sample_bytes + _BASE_BYTES
    if needed > free_bytes:
        raise RehearsalSpaceError(
            f"{directory} has {format_bytes(free_bytes)} free, a rehearsal of {format_bytes(sample_bytes)} needs"
            f" {format_bytes(needed)}: set TMPDIR to a directory with more room, or take less with --rehearse-bytes"
        )


def copy_sample(sample: PartitionSample, source: Path, target: Path, on_bytes: Callable[[int], None]) -> None:
    """From the log directory `source` into the log directory `target`, where the partition must not be yet.

    Raises:
        SourceError: a file is gone, changed, hostile or unreadable; or the directory is another topic's by now.
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
    """(name, how many bytes of it or None for all, whether it must be there)."""
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
    """The first `size_bytes`, on the disk when it returns: what is below a recovery point must be."""
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
