"""The log dirs as Kafka's DescribeLogDirs shows them, with what is remote of each partition."""

from collections.abc import Sequence
from dataclasses import dataclass

from include.tiering.kafka.log_dirs.contract import IneligibleReason, Replica, ScanReport
from include.tiering.model.ids import TopicIdPartition
from include.tiering.model.sizes import PartitionSize
from include.tiering.runs.cluster_log_dirs import KnownLogDir


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    """One replica. `size_bytes` counts the `.log` of every segment, `offset_lag` the offsets that it has not of those
    below the high watermark (both as Kafka does). `remote` is None while nothing of the partition is remote."""

    topic_id_partition: TopicIdPartition
    size_bytes: int
    offset_lag: int
    is_future: bool
    remote: PartitionSize | None


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log dir of one broker, its replicas by topic and partition."""

    log_dir: KnownLogDir
    replicas: tuple[ReplicaSize, ...]


def describe_log_dirs(
    report: ScanReport, log_dirs: Sequence[KnownLogDir], sizes: Sequence[PartitionSize]
) -> tuple[LogDirDescription, ...]:
    """In the order of `log_dirs`; a directory that cannot be believed has no replicas."""
    remote = {size.topic_id_partition: size for size in sizes}
    described = []
    for log_dir in log_dirs:
        where = (log_dir.broker_id, log_dir.directory_id)
        here = (r for r in report.replicas if (r.replica_id.broker_id, r.replica_id.directory_id) == where)
        replicas = (_replica_size(replica, remote.get(replica.topic_id_partition)) for replica in here)
        described.append(LogDirDescription(log_dir, tuple(replicas)))
    return tuple(described)


def _replica_size(replica: Replica, remote: PartitionSize | None) -> ReplicaSize:
    return ReplicaSize(
        replica.topic_id_partition,
        sum(segment.size_bytes for segment in replica.segments),
        max(0, replica.high_watermark - replica.log_end_offset),
        any(segment.reason is IneligibleReason.BEING_MOVED for segment in replica.segments),
        remote,
    )
